"""The peers of a node: one connection to each, made again whenever it ends.

A node sends nothing to a peer before it has checked its certificate, and only HELLO before the peer has said
who it is. A peer that refuses this node, or is not who it should be, is dialled again after REFUSED_S; the
requests that waited on the old connection have failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidings.errors import NotAllowed, TidingsError
from tidings.ids import ClockIds
from tidings.peers.backend import Peers
from tidings.peers.dialling import Dialling, OutboundConnection, PeerReach
from tidings.peers.outbound_stream import SharedConnection
from tidings.peers.peer_client import PeerClient
from tidings.peers.registry import Neighbours, Peer, PeerRegistry
from tidings.protocol.access import PeerInfo
from tidings.protocol.connection import Connection
from tidings.protocol.service import Service
from tidings.queues.description import TRANSMISSION
from tidings.queues.manager import QueueManager
from tidings.transport.address import parse

REFUSED_S = 30.0
"""How long to leave a peer alone that has refused this node, or is someone else."""


class Peering(Service):
    """Connections to the peers of a node; a service of the broker, which reports their states.

    `system` is this node's id as a client of others, in this life.
    """

    def __init__(
        self, queues: QueueManager, peers: Peers, dialling: Dialling, known: Neighbours, system: str
    ) -> None:
        self.registry = peers.registry
        self.dialling = dialling
        self.credentials = known.credentials
        self._relays = peers.relays
        self._queues = queues
        self._system = system
        self._outbound: dict[Peer, PeerOutbound] = {}
        self._linked: dict[Connection, PeerClient] = {}  # of links that other nodes have made
        self.on_found: Callable[[PeerOutbound, PeerInfo], None] = lambda _outbound, _caller: None
        """Called when a peer has shown who it is; what it is as a caller goes along."""
        self.on_lost: Callable[[PeerOutbound], None] = lambda _outbound: None
        """Called when the connection to a peer is lost."""
        for peer in self.registry:
            self._know(peer)

    def _know(self, peer: Peer) -> None:
        timers, now = self.dialling.timers, self.dialling.now
        self._relays[peer] = PeerClient(peer, timers, now, self.connection(peer))

    def start(self) -> None:
        """Begin to dial all peers that have an address."""
        for peer in self.registry:
            if not peer.is_linked:
                self._begin(peer)

    def _begin(self, peer: Peer) -> None:
        self._outbound[peer] = PeerOutbound(self, peer, self._relays[peer])
        self._outbound[peer].begin()

    def close(self) -> None:
        """Part from all peers."""
        outbound, self._outbound = self._outbound, {}
        for one in outbound.values():
            one.end()

    def learn(self, name: str, address: str) -> None:
        """A node has joined: dial it from now on."""
        peer = self.registry.learn(name, address, self.dialling.now())
        if peer is None:
            return
        relay = self._relays.get(peer)
        if relay is None:
            self._know(peer)
        elif not relay.connection.session:  # it is of a node whose address was not known
            relay.begin(self.connection(peer))
        self._begin(peer)

    # Links that other nodes have made

    def expect(self, name: str, node: str) -> None:
        """A node had a link to this one before: what is put for it waits until it makes one again."""
        peer = self.registry.expect(name, node, self.dialling.now())
        if peer is not None:
            self._know(peer)

    def reversed_connection(self, name: str) -> Connection | None:
        """Return the connection to a node that makes its links itself; None if none can go on."""
        linked = (self._relays.get(peer) for peer in self.registry if peer.is_linked and peer.name == name)
        relay = next(linked, None)
        is_used = relay is None or relay.connection.failure is not None or relay.connection.is_up
        return None if is_used or relay is None or not relay.connection.session else relay.connection

    def linked(self, name: str, node: str, connection: Connection, flush: Callable[[], None]) -> None:
        """A node has made a link, and has shown its name: use its queues over this connection."""
        peer = self.registry.link(name, node, self.dialling.now())
        if peer is None:
            return
        if peer not in self._relays:
            self._know(peer)
        relay = self._linked[connection] = self._relays[peer]
        relay.flush = flush
        if relay.connection is not connection:
            relay.begin(connection)
        relay.changed()

    def heard(self, connection: Connection) -> None:
        """Something has come over the connection of a link."""
        relay = self._linked.get(connection)
        if relay is not None:
            relay.changed()

    def unlinked(self, connection: Connection, problem: str) -> None:
        """A link that another node had made is gone."""
        relay = self._linked.pop(connection, None)
        if relay is not None:
            relay.flush = lambda: None
            self.registry.lose(relay.peer, problem, self.dialling.now())
            relay.changed()
            relay.shared.trouble(problem)

    def forget_linked(self, name: str) -> None:
        """Forget a node that was known by its links alone."""
        peer = self.registry.unlink(name)
        relay = None if peer is None else self._relays.pop(peer, None)
        if relay is not None:
            self._linked.pop(relay.connection, None)

    def displace(self, peer: Peer) -> None:
        """A peer was dialled: one of the same node that is known by its link alone is not needed any more."""
        for other in [one for one in self.registry if one.is_linked and one.node == peer.node]:
            self.forget_linked(other.name)

    # What is found on the network

    def found(self, name: str, address: str) -> None:
        """A node says that it is there: it is looked at, and a peer if it is who it says."""
        self._look_at(self.registry.discover(name, address, self.dialling.now()))

    def met(self, name: str, address: str) -> None:
        """The beacon of a node has come: the same, for as long as more of them come."""
        self._look_at(self.registry.meet(name, address, self.dialling.now()))

    def _look_at(self, peer: Peer | None) -> None:
        if peer is not None:
            self._know(peer)
            self._begin(peer)

    def gone(self, name: str) -> None:
        """Forget a candidate that is not found any more, or is met no more."""
        peer = self.registry.forget(name)
        if peer is not None:
            self._relays.pop(peer, None)
            outbound = self._outbound.pop(peer, None)
            if outbound is not None:
                outbound.end()

    # What forwards to them

    def is_there(self, name: str) -> bool:
        """Whether the peer of this name can be asked now."""
        peer = self.registry.find(name)
        return peer is not None and peer.is_there

    def way(self, name: str) -> SharedConnection | None:
        """Return the connection to the peer of this name, for what is forwarded; None if there is none."""
        peer = self.registry.find(name)
        relay = None if peer is None else self._relays.get(peer)
        return None if relay is None else relay.shared

    def reach_of(self, peer: Peer) -> PeerReach:
        """Return the address of a peer; one that was found on the network may have another by now."""
        if not _is_secured(peer):
            return PeerReach(peer.address)
        return PeerReach(peer.address, self.credentials, peer.name)

    def connection(self, peer: Peer) -> Connection:
        """A new connection; with TLS the node's certificate, or another credential, says who it is."""
        ids = ClockIds(self._system, self.dialling.now())
        if _is_secured(peer):
            return Connection(ids, says=self.credentials.says)
        return Connection(ids, self.registry.name)

    # Status

    def status(self) -> dict[str, Any]:
        """Return the state of each peer, and how many messages wait here for it."""
        waiting: dict[str, int] = {}
        for queue in self._queues:
            if queue.name.startswith(TRANSMISSION):
                name = queue.name.rpartition("@")[2]
                waiting[name] = waiting.get(name, 0) + queue.size
        found = self.registry.status(self.dialling.now())
        return {"peers": [{**one, "waiting": waiting.get(one["name"], 0)} for one in found]}


class PeerOutbound(OutboundConnection):
    """The connection to one peer, and those after it."""

    def __init__(self, peering: Peering, peer: Peer, relay: PeerClient) -> None:
        self.connection = relay.connection
        super().__init__(peering.dialling, self.connection)
        self._peering = peering
        self._registry: PeerRegistry = peering.registry
        self._peer = peer
        self._relay = relay
        relay.flush = self.touch

    @property
    def reach(self) -> PeerReach:
        """Return the current address of the peer."""
        return self._peering.reach_of(self._peer)

    def begin(self) -> None:
        """Dial; with a new connection, if the one before is of no use any more."""
        if self.connection.failure is not None:
            self.connection = self._talk = self._peering.connection(self._peer)
            self._backoff.reset()
            self._relay.begin(self.connection)
        super().begin()

    def end(self) -> None:
        """Say goodbye, and fail what still waits."""
        self._peering.on_lost(self)
        self.connection.close()
        super().end()

    def _refusal(self, certificate: str | None) -> str:
        self._certificate = certificate
        try:
            self._registry.check(self._peer, certificate)
        except NotAllowed as error:
            return self._distrust(error)
        return ""

    def _distrust(self, error: NotAllowed) -> str:
        """Say nothing to it; why."""
        self._dialling.log(
            "error", "a peer is not who it should be", peer=self._peer.name, problem=self._peer.error
        )
        self.connection.close(error)
        return str(error)

    def _heard(self) -> None:
        """See whether a peer that has just welcomed us is who it should be, before anything else is said."""
        core, peer, now = self.connection, self._peer, self._dialling.now()
        if core.is_up and core.failure is None and not peer.is_there:
            try:
                self._registry.welcome(peer, core.node, core.node_name, self._certificate, now)
            except NotAllowed as error:
                self._hang_up(self._distrust(error))
                return
            self._peering.displace(peer)
            self._dialling.log("info", "found a peer", peer=peer.name, node=core.node)
            address = parse(peer.address)
            self._peering.on_found(self, PeerInfo(peer.address, address.host, self._certificate))
        self._relay.changed()

    def _lost(self, problem: str, verdict: TidingsError | None, was_open: bool) -> None:
        core, peer = self.connection, self._peer
        self._peering.on_lost(self)
        if was_open:
            problem = core.parting or problem
        if verdict is not None and (was_open or not core.node):  # one that was there may be put in order
            core.close(verdict)
        core.lost(self._dialling.now())
        problem = str(core.failure or problem)
        if peer.is_there:
            self._dialling.log("warning", "lost a peer", peer=peer.name, problem=problem)
        self._registry.lose(peer, problem, self._dialling.now())
        self._relay.changed()
        self._relay.shared.trouble(problem)

    def _pause_s(self) -> float:
        return super()._pause_s() if self.connection.failure is None else REFUSED_S


def _is_secured(peer: Peer) -> bool:
    return peer.address.startswith(("tidings+tls:", "tidings+udp+tls:"))
