"""The nodes that this one knows: what they are called, how they are reached, and how each of them stands.

A peer was named in the settings, or found on the network. What was found is a *candidate*: anybody can say
there that he is a node, so nothing is believed of it until it has shown who it is.

| state | what happens | state then |
| --- | --- | --- |
| – | it is named in the settings, or has joined | away |
| – | it is found on the network | candidate |
| candidate, away | it welcomes us, and is who it should be | there |
| candidate, away | it welcomes us, and is someone else | as before, with the error |
| there | its connection is lost | away |
| candidate | it is not found any more | forgotten |
| candidate | it has joined | away |
| – | it has made a link to this node, and is called as nobody else | there |
| away, known by its link | it has joined, or is approached at its address | away, and dialled |
| – | its beacon comes (`is_met`) | candidate |
| candidate, away | its beacon comes no more, and it was met only | forgotten |

A node that has made a link to this one is known by that alone (`is_linked`): it has shown who it is when it
was let in, and is not dialled. Where there are no users everybody is believed, as with all else.

A peer is called by its name, and by the id of its node once that is known. An *upstream* is not
among them: it is the node to which a device sends what is published at it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, NoReturn, get_args

from tidings.errors import AddressError, ConfigError, NotAllowed, UserError
from tidings.transport.address import parse
from tidings.transport.credentials import Credentials
from tidings.transport.dial import dial

PEERS_MAX = 1_000
"""Peers of one node; what is found beyond that is passed over."""
NAME_LENGTH_MAX = 64

PeerState = Literal["candidate", "away", "there"]
ForwardOrder = Literal["oldest", "newest"]
"""What goes first of what has gathered for an upstream."""

_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{NAME_LENGTH_MAX}}}")


class Neighbours(NamedTuple):
    """Configured peers of a node: their addresses by name, and its credentials at those with TLS."""

    addresses: Mapping[str, str]
    credentials: Credentials


class Upstream:
    """A node by its address, who this one is there, and which publications go there in which order.

    Raises AddressError, FilterError or UserError for what can't be.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        order: ForwardOrder = "oldest",
        filter: str | None = None,
    ) -> None:
        from tidings.filters import Filter  # not before: a command knows the settings when it starts

        if order not in get_args(ForwardOrder):
            raise UserError(f"order is {' or '.join(map(repr, get_args(ForwardOrder)))}, not {order!r}")
        dial(address, credentials)
        self.address = address
        self.credentials = credentials
        self.order: ForwardOrder = order
        self.filter = str(Filter(filter or ""))


class Peer:
    """A node that this one knows."""

    def __init__(self, name: str, address: str, is_configured: bool, now: float) -> None:
        self.name = name
        self.address = address
        self.is_configured = is_configured
        self.state: PeerState = "away" if is_configured else "candidate"
        self.node = ""  # its id, once it has shown who it is
        self.since = now  # when it came into this state
        self.error = ""  # why it is not there
        self.is_linked = False  # it is known by its link to this node alone, and has no address
        self.is_met = False  # it was found by its beacon, and is dialled while that comes

    def __repr__(self) -> str:
        return f"<Peer {self.name} at {self.address}: {self.state}>"

    @property
    def is_there(self) -> bool:
        """Whether it can be asked."""
        return self.state == "there"


class PeerRegistry:
    """Registry of the nodes that this one knows. `name` and `node` are this node's own."""

    def __init__(self, name: str, node: str, peers: Mapping[str, str], now: float) -> None:
        """`peers` are the settings: addresses by name."""
        self.name = name
        self.node = node
        self._peers = {one: Peer(one, address, True, now) for one, address in peers.items()}
        self._nodes: dict[str, Peer] = {}

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._peers.values()))

    def __len__(self) -> int:
        return len(self._peers)

    def is_wanted(self, name: str) -> bool:
        """Whether this node has a peer of this name for more than a meeting."""
        peer = self._peers.get(name)
        return peer is not None and not peer.is_met and (peer.is_configured or not peer.is_linked)

    def find(self, name: str) -> Peer | None:
        """The peer of this name or id; no candidate."""
        peer = self._peers.get(name) or self._nodes.get(name)
        return None if peer is None or peer.state == "candidate" else peer

    def learn(self, name: str, address: str, now: float) -> Peer | None:
        """Know a node that has joined as if the settings named it; None if they do, or it is one too many.

        One that has made its links itself, and is away, is to be dialled from now on.
        """
        known = self._peers.get(name)
        if known is not None:
            if not known.is_configured:
                known.is_configured, known.is_met, known.address = True, False, address
                if known.state == "candidate":
                    self._change(known, "away", known.error, now)
            is_awaited = known.is_linked and not known.is_there
            known.is_linked = known.is_linked and not is_awaited
            return known if is_awaited else None
        if name == self.name or len(self._peers) >= PEERS_MAX:
            return None
        peer = self._peers[name] = Peer(name, address, True, now)
        return peer

    # What is found on the network

    def discover(self, name: str, address: str, now: float) -> Peer | None:
        """A node says that it is there: a candidate; None if that is known, can't be, or is one too many.

        What was named in the settings stays as it is there; what was found may be found elsewhere later.
        """
        known = self._peers.get(name)
        if known is not None and not (known.is_configured or known.is_linked or known.is_there):
            known.address = address
        if known is not None or name == self.name or len(self._peers) >= PEERS_MAX:
            return None
        if _NAME.fullmatch(name) is None:
            return None
        peer = self._peers[name] = Peer(name, address, False, now)
        return peer

    def meet(self, name: str, address: str, now: float) -> Peer | None:
        """The same for a node whose beacon has come: it is forgotten when it is gone, whoever it was."""
        peer = self.discover(name, address, now)
        if peer is not None:
            peer.is_met = True
        return peer

    def forget(self, name: str) -> Peer | None:
        """Forget and return a candidate that is not found any more; None for any other peer.

        One that was met is no more than that, also when it has shown who it is.
        """
        peer = self._peers.get(name)
        if peer is None or peer.is_there or not (peer.state == "candidate" or peer.is_met):
            return None
        if self._nodes.get(peer.node) is peer:
            del self._nodes[peer.node]
        return self._peers.pop(name)

    # Links that other nodes have made

    def expect(self, name: str, node: str, now: float) -> Peer | None:
        """Know a node that makes its links itself, which is away; None if it is known, or can't be."""
        if name in self._peers or name in ("", self.name) or len(self._peers) >= PEERS_MAX:
            return None
        if _NAME.fullmatch(name) is None:
            return None
        peer = self._peers[name] = Peer(name, "", False, now)
        peer.state, peer.is_linked = "away", True
        peer.node = node
        self._nodes.setdefault(node, peer)
        return peer

    def link(self, name: str, node: str, now: float) -> Peer | None:
        """A node of this id has made a link, and has shown that this is its name.

        None if another peer has the name or the id: one that is dialled, or that is there.
        """
        other = self._nodes.get(node)
        if node == self.node or (other is not None and other.is_there):
            return None
        peer = self.expect(name, node, now) or self._peers.get(name)
        if peer is None or not peer.is_linked or peer.is_there:
            return None
        self._know(peer, node)
        self._change(peer, "there", "", now)
        return peer

    def unlink(self, name: str) -> Peer | None:
        """Forget and return a peer that is known by its link alone; None for any other peer."""
        peer = self._peers.get(name)
        if peer is None or not peer.is_linked:
            return None
        self._nodes = {node: one for node, one in self._nodes.items() if one is not peer}
        return self._peers.pop(name)

    # What happens to a peer

    def check(self, peer: Peer, certificate: str | None) -> None:
        """Check the name in its certificate, or that it has none: NotAllowed if it is another node.

        To be called before anything is said to it.
        """
        if certificate is None and not (peer.is_configured or peer.is_met):
            self._refuse(peer, "it has shown no certificate")
        if certificate is not None and certificate != peer.name:
            self._refuse(peer, f"its certificate is that of {certificate[:NAME_LENGTH_MAX]!r}")

    def welcome(self, peer: Peer, node: str, name: str, certificate: str | None, now: float) -> None:
        """Check a welcome: its node id `node`, its name `name`, and the name in its certificate, if any.

        A peer that is dialled takes the place of one that is known by its link. NotAllowed, and nothing has
        changed but its error, if it is not who it should be.
        """
        self.check(peer, certificate)
        known = self._nodes.get(node)
        if node == self.node:
            self._refuse(peer, "it is this node itself")
        if known is not None and known is not peer and known.is_there and not known.is_linked:
            self._refuse(peer, f"it is the node that is known as {known.name}")
        if certificate is not None and name and name != certificate:
            self._refuse(peer, f"it calls itself {name[:NAME_LENGTH_MAX]!r}")
        self._know(peer, node)
        self._change(peer, "there", "", now)

    def _know(self, peer: Peer, node: str) -> None:
        if self._nodes.get(peer.node) is peer:
            del self._nodes[peer.node]
        peer.node, self._nodes[node] = node, peer

    def _refuse(self, peer: Peer, problem: str) -> NoReturn:
        peer.error = problem
        raise NotAllowed(problem)

    def lose(self, peer: Peer, problem: str, now: float) -> None:
        """Note that its connection is lost, or could not be made."""
        if peer.is_there:
            self._change(peer, "away", problem, now)
        elif problem:
            peer.error = problem

    def _change(self, peer: Peer, state: PeerState, error: str, now: float) -> None:
        peer.state, peer.error, peer.since = state, error, now

    def status(self, now: float) -> list[dict[str, Any]]:
        """Return the state of each, for people."""
        return [
            {
                "name": peer.name,
                "node": peer.node,
                "address": peer.address,
                "state": peer.state,
                "for_s": round(max(0.0, now - peer.since), 1),
                "error": peer.error,
            }
            for peer in sorted(self._peers.values(), key=lambda one: one.name)
        ]


def parse_peers(text: str, place: str = "peers", own: str = "") -> dict[str, str]:
    """The peers of a setting such as `kitchen=tidings://127.0.0.1:7301, …`: addresses by name.

    ConfigError, with the place where the setting stands, if it can't be; `own` is the name of this node.
    """
    peers: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, is_given, address = (one.strip() for one in part.partition("="))
        if not is_given or not address:
            raise ConfigError(place, "peers", f"{part!r} is no NAME=ADDRESS")
        if name in peers:
            raise ConfigError(place, "peers", f"{name} is named twice")
        peers[name] = address
    return check_peers(peers, place, own)


def check_peers(peers: Mapping[str, str], place: str = "peers", own: str = "") -> dict[str, str]:
    """Addresses by name, as they were given; ConfigError if these can't be."""
    for name, address in peers.items():
        if _NAME.fullmatch(name) is None:
            allowed = f"1 to {NAME_LENGTH_MAX} letters, digits, '_', '.' or '-'"
            raise ConfigError(place, "peers", f"{name!r} is no name of a node: {allowed}")
        if name == own:
            raise ConfigError(place, "peers", f"{name} is the name of this node itself")
        try:
            parse(address)
        except AddressError as error:
            raise ConfigError(place, "peers", f"{name}: {error}") from None
    if len(peers) > PEERS_MAX:
        raise ConfigError(place, "peers", f"names {len(peers)} nodes; at most {PEERS_MAX} are allowed")
    return dict(peers)
