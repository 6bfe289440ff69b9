"""Linking: how a connection between two nodes becomes a link, and ends.

Each node greets the other as its client (`link.hello`). What it asks of the other from then on follows its
greeting, so a link is up, at either end, once both greetings were sent. A greeting has digests of what the
node wants, offers and knows of others. The answer names those of the table and the offers that are others at
the neighbour; after a cut they are mostly the same, and need no further message.

Two nodes have one link. If both dial, the one with the smaller id keeps the connection that it has made: it
refuses the greeting on the other, which goes on as that of an ordinary client.

Nodes that meet by chance (`tidings.adhoc`) have a link for the meeting alone, if both say so in their
greetings: it is not part of the network, carries no events, and leaves nothing behind when it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct, to_builtins

from tidings.errors import Refused, TidingsError
from tidings.ids import ClockIds
from tidings.overlay.announcing import EMPTY, SHORT_BITS, short_digest
from tidings.overlay.link import TunnelledConnection, TunnelledSession
from tidings.overlay.neighbours import DigestThere, KnownNeighbours, Neighbour, NeighbourLink
from tidings.overlay.packing import ZSTD_NAME, forms, unpacked
from tidings.peers.dialling import LOST
from tidings.peers.peering import Peering, PeerOutbound
from tidings.protocol.access import PeerInfo
from tidings.protocol.broker import Broker
from tidings.protocol.connection import Connection
from tidings.protocol.messages import Reverse
from tidings.protocol.service import IncomingRequest
from tidings.protocol.session import Session

VERSION = 1
"""Version of what nodes say to each other on links."""
TWINS_MAX = 5
"""Times within TWIN_S that a node may make a link in place of one that is alive."""
TWIN_S = 60.0
"""See TWINS_MAX."""


class Greeting(Struct, frozen=True):
    """The arguments of `link.hello`."""

    version: int
    node: Annotated[str, Meta(min_length=1, max_length=64)]
    name: Annotated[str, Meta(max_length=64)]
    unpacks: Annotated[list[str], Meta(max_length=16)] = []  # forms of compressed frames, see `packing.py`
    has: Annotated[bytes, Meta(max_length=256)] = b""  # digests, one behind the other: see `digests`
    meets: bool = False  # it exchanges what it carries with the hosts that it meets
    only: bool = False  # and wants this link for nothing else

    @property
    def digests(self) -> tuple[bytes, bytes, bytes]:
        """Digests of what it wants, of what it offers, and of its records of others; b"" if not there."""
        size = SHORT_BITS // 8
        wants, offers, records = (self.has[at : at + size] for at in range(0, 3 * size, size))
        return wants, offers, records


class SpareConnection(NamedTuple):
    """Connection that this node has made to a neighbour, and that is no link, as that one has dialled too."""

    connection: Connection
    hang_up: Callable[[], None]


class Linking:
    """Links of a node. `on_up` and `on_down` are called with each that comes and goes.

    `on_answer` is called when a neighbour has answered the greeting. `system` is this node's id as a client
    of others, in this life.
    """

    def __init__(self, broker: Broker, peering: Peering, known: KnownNeighbours, system: str) -> None:
        self._broker = broker
        self._peering = peering
        self._known = known
        self._system = system
        self._links: dict[Session, tuple[NeighbourLink, Neighbour]] = {}  # by the near session
        self._twins: dict[str, deque[float]] = {}  # when links of a node were replaced that were alive
        self._declined: dict[Session, None] = {}  # of links that were not made
        self._spare: dict[str, SpareConnection] = {}  # by node; those beside a link that the node has dialled
        self.on_up: Callable[[Neighbour], None] = lambda _neighbour: None
        self.on_answer: Callable[[Neighbour], None] = lambda _neighbour: None
        self.on_down: Callable[[Neighbour, NeighbourLink], None] = lambda _neighbour, _link: None
        self.meets = False  # whether this node exchanges what it carries with hosts that it meets
        self.on_met: Callable[[Neighbour], None] = lambda _neighbour: None
        """Called when the link to a neighbour is there that does the same."""
        self.on_parted: Callable[[Neighbour], None] = lambda _neighbour: None
        """Called when that link is gone."""
        self.records_digest: Callable[[str], bytes] = lambda _node: b""
        """Returns the digest of all records but those of this node and another."""
        peering.on_found, peering.on_lost = self._found, self._lost
        for neighbour in known:
            peering.expect(neighbour.name, neighbour.node)

    def __iter__(self) -> Iterator[tuple[NeighbourLink, Neighbour]]:
        return iter(list(self._links.values()))

    def caller(self, session: Session) -> Neighbour:
        """Return the neighbour that has this session; Refused if its link is not up."""
        link, neighbour = self._links.get(session, (None, None))
        if link is None or neighbour is None or not link.is_up or link.is_meeting_only:
            raise Refused("protocol", "this is for neighbours; greet first")
        return neighbour

    def met(self, session: Session) -> Neighbour:
        """Return the neighbour that has this session and is met; Refused if there is no meeting."""
        link, neighbour = self._links.get(session, (None, None))
        if link is None or neighbour is None or not (link.is_up and link.is_meeting):
            raise Refused("protocol", "this is for hosts that meet; greet first")
        return neighbour

    # Greeting

    def _found(self, outbound: PeerOutbound, caller: PeerInfo) -> None:
        """This node has dialled another: greet it, and let it be a client here on the same connection."""
        connection = outbound.connection
        name = caller.certificate or connection.node_name
        try:
            self._check_id(connection.node, name, is_shown=caller.certificate is not None)
        except Refused as error:
            self._not_linked(connection.node, error)
            return
        neighbour = self._known.meet(connection.node, name)

        def hang_up() -> None:
            connection.is_given_up = True
            outbound.look()

        if neighbour.link is not None:  # the other node has dialled this one
            self._spare[neighbour.node] = SpareConnection(connection, hang_up)
            return
        ended = partial(self._ended, neighbour, hang_up)
        tunnel = TunnelledSession(self._broker, connection, caller, outbound.touch, ended)
        self._greet(
            self._enter(neighbour, NeighbourLink(connection, tunnel.session, tunnel, outbound.touch, hang_up))
        )

    def _ended(self, neighbour: Neighbour, hang_up: Callable[[], None]) -> None:
        """What runs through the tunnel has ended: a link is made again, with a new connection.

        If there was no link yet, one of the nodes does not let the other in: it is a client as before.
        """
        link = neighbour.link
        if link is not None and link.is_up:
            hang_up()
        elif link is not None:
            problem = link.connection.failure or Refused("not-allowed", "it is not let in here")
            self._declined[link.session] = None
            self.part(neighbour)
            self._not_linked(neighbour.node, problem)

    def _enter(self, neighbour: Neighbour, link: NeighbourLink) -> tuple[NeighbourLink, Neighbour]:
        neighbour.link = link
        pair = self._links[link.session] = link, neighbour
        return pair

    def _greet(self, pair: tuple[NeighbourLink, Neighbour]) -> None:
        link, neighbour = pair
        link.is_greeting = True
        link.meets_here = self.meets
        link.only_here = self.meets and not self._peering.registry.is_wanted(neighbour.name)
        wants, offers = neighbour.announcer.settled_digest, neighbour.offerer.settled_digest
        about = VERSION, self._broker.node, self._broker.name, forms()
        digests = short_digest(wants), short_digest(offers), self.records_digest(neighbour.node)
        greeting = Greeting(*about, b"".join(digests), link.meets_here, link.only_here)
        link.connection.unpack = unpacked if greeting.unpacks else None
        told = to_builtins(greeting, builtin_types=(bytes,))
        said = {name: value for name, value in told.items() if value}  # each byte counts after a cut
        call = link.connection.request("link.hello", said, "forget")
        call.then(partial(self._answered, pair, wants, offers), partial(self._not_answered, pair))
        link.flush()
        self._bring_up(pair)

    def _answered(self, pair: tuple[NeighbourLink, Neighbour], wants: str, offers: str, told: Any) -> None:
        """The neighbour has answered a greeting with these digests."""
        link, neighbour = pair
        digests = told if isinstance(told, dict) else {"digest": "", "offers": ""}
        link.table_there = _there(digests.get("digest"), wants)
        link.offers_there = _there(digests.get("offers"), offers)
        if neighbour.link is link:
            self.on_answer(neighbour)

    def _not_answered(self, pair: tuple[NeighbourLink, Neighbour], error: TidingsError) -> None:
        """The other node is no neighbour over this connection, which goes on as that of a client."""
        link, neighbour = pair
        if neighbour.link is link:
            self.part(neighbour)
        if not (isinstance(error, Refused) and error.code in ("exists", "not-found")):
            self._not_linked(neighbour.node, error)

    def _not_linked(self, node: str, error: TidingsError) -> None:
        self._peering.dialling.log("warning", "no link to a node", node=node, problem=str(error))

    def greeted(self, asked: IncomingRequest, greeting: Greeting) -> dict[str, Any]:
        """Another node greets this one: over a connection that it has made, or that this node has."""
        session = asked.session
        self._check(session, greeting)
        pair = self._links.get(session) or self._accept(session, greeting)
        link, neighbour = pair
        if neighbour.node != greeting.node:
            raise Refused("protocol", f"this is the link to {neighbour.node}, not to {greeting.node}")
        neighbour.name = greeting.name or neighbour.name
        link.has_greeted = True
        link.meets_there, link.only_there = greeting.meets, greeting.meets and greeting.only
        link.packs = ZSTD_NAME in greeting.unpacks and ZSTD_NAME in forms()
        wants, offers, link.records_digest = greeting.digests
        is_table_same = neighbour.is_in_tree and wants == short_digest(_table_digest(neighbour))
        is_offers_same = neighbour.is_in_tree and offers == short_digest(neighbour.wants.digest)
        link.is_table_same, link.is_offers_same = is_table_same, is_offers_same
        self._bring_up(pair)
        answer = {} if is_table_same else {"digest": _table_digest(neighbour)}
        return answer if is_offers_same else {**answer, "offers": neighbour.wants.digest}

    def _check(self, session: Session, greeting: Greeting) -> None:
        principal = session.principal
        if greeting.version != VERSION:
            raise Refused("version", f"links speak version {VERSION} here, not {greeting.version}")
        if principal.only is not None and not (self.meets and greeting.meets and greeting.only):
            raise Refused("not-allowed", f"{principal.user!r} is a stranger here, with whom one only meets")
        if principal.rules is not None and not principal.is_node:
            raise Refused("not-allowed", f"{principal.user!r} is no node; give it the role of one to link it")
        if principal.rules is not None and greeting.name != principal.user:
            names = f"{greeting.name!r} shows the certificate of {principal.user!r}"
            raise Refused("not-allowed", f"a node that calls itself {names}")
        if greeting.node == self._broker.node:
            raise Refused("exists", "this is the node itself, or a copy of its directory")
        self._check_id(greeting.node, greeting.name, is_shown=principal.rules is not None)

    def _check_id(self, node: str, name: str, is_shown: bool) -> None:
        """Refuse a node whose name its certificate has shown and whose id is that of another neighbour.

        A node may be given a new name: its old one is no user any more then.
        """
        neighbour = self._known.get(node)
        known = neighbour.name if is_shown and neighbour is not None else ""
        if known not in ("", name) and self._broker.authenticator.principal_of(known) is not None:
            raise Refused("not-allowed", f"{name!r} shows the id of the node {known!r}")

    def _accept(self, session: Session, greeting: Greeting) -> tuple[NeighbourLink, Neighbour]:
        """A node that has dialled this one becomes a neighbour; of two connections one is kept."""
        neighbour = self._known.meet(greeting.node, greeting.name)
        former = neighbour.link
        if former is not None:
            if former.is_dialled and self._broker.node < greeting.node:
                raise Refused("exists", "this node has dialled too, and its id is the smaller one")
            self._check_twins(neighbour, former)
            self.part(neighbour)
            if former.is_dialled:
                self._spare[neighbour.node] = SpareConnection(former.connection, former.hang_up)
            else:
                former.hang_up()
        lost = partial(session.close, "protocol", "the reverse connection has ended")
        connection = self._peering.reversed_connection(greeting.name) or self._connection(session)
        tunnel = TunnelledConnection(connection, session, partial(self._ended, neighbour, lost))
        hang_up = partial(session.close, "exists", "the node has come again")
        return self._enter(
            neighbour, NeighbourLink(tunnel.connection, session, tunnel, tunnel.flush, hang_up)
        )

    def _check_twins(self, neighbour: Neighbour, former: NeighbourLink) -> None:
        """Refuse a node that comes again and again while its former link is alive: two nodes have one id."""
        now = self._broker.now
        if not former.is_up or now - former.received_at > TWIN_S / TWINS_MAX:
            return  # both have dialled; or it has started again, or its connection was cut
        met = self._twins.setdefault(neighbour.node, deque(maxlen=TWINS_MAX))
        if len(met) == TWINS_MAX and now - met[0] <= TWIN_S:
            if self._broker.tallies["twins_refused", ""] == 0:
                self._log("error", "two neighbours have one id: a copied directory", neighbour)
            self._broker.count("twins_refused")
            raise Refused("exists", "another node with this id has a link; one is a copy of the other")
        met.append(now)

    def _connection(self, session: Session) -> Connection:
        """A connection to a node that has dialled this one; TLS has shown it who this is."""
        ids = ClockIds(self._system, self._broker.now)
        if session.principal.rules is not None:
            return Connection(ids, says=self._peering.credentials.says)
        return Connection(ids, self._broker.name)

    def reversed(self, session: Session, message: Reverse, _events: bytes) -> None:
        """Bytes have come of the connection that runs the other way."""
        pair = self._links.get(session)
        if pair is None and session in self._declined:
            return
        if pair is None or pair[0].is_dialled:
            raise Refused("protocol", "Reverse without a link")
        link, _ = pair
        link.tunnel.receive(message.data)
        self._peering.heard(link.connection)
        if link.connection.is_up and not link.is_greeting:
            self._greet(pair)

    def _bring_up(self, pair: tuple[NeighbourLink, Neighbour]) -> None:
        link, neighbour = pair
        if not link.is_up and link.is_greeting and link.has_greeted:
            link.is_up = True
            self._broker.count("links_up")
            self._log("info", "linked with a node", neighbour)
            if not link.is_meeting_only:
                if not link.is_dialled:
                    self._peering.linked(neighbour.name, neighbour.node, link.connection, link.flush)
                self.on_up(neighbour)
            if link.is_meeting and neighbour.link is link:
                self.on_met(neighbour)

    def _log(self, level: Any, event: str, neighbour: Neighbour) -> None:
        self._peering.dialling.log(level, event, name=neighbour.name, node=neighbour.node)

    # Parting

    def _lost(self, outbound: PeerOutbound) -> None:
        """A connection that this node has made is gone."""
        for link, neighbour in self:
            if link.connection is outbound.connection:
                self.part(neighbour)

    def parted(self, session: Session) -> None:
        """A session has ended, and with it a link that its node had made."""
        self._declined.pop(session, None)
        link, neighbour = self._links.get(session, (None, None))
        if link is not None and neighbour is not None and not link.is_dialled:
            self.part(neighbour)
            self._renew_spare(neighbour)

    def _renew_spare(self, neighbour: Neighbour) -> None:
        """Have the connection that this node has made beside a link that is gone made again, and greeted.

        The other node may take it for the link: nothing else would be greeted as long as it is there.
        """
        spare = self._spare.pop(neighbour.node, None)
        if spare is not None and neighbour.link is None and spare.connection.is_up:
            spare.hang_up()

    def forget(self, neighbour: Neighbour) -> None:
        """A neighbour is gone for good."""
        self._peering.forget_linked(neighbour.name)
        self._twins.pop(neighbour.node, None)
        self._spare.pop(neighbour.node, None)

    def part(self, neighbour: Neighbour) -> None:
        """The link to a neighbour is gone; what it wants is kept for it."""
        link, neighbour.link = neighbour.link, None
        if link is not None:
            del self._links[link.session]
            if link.is_up and link.is_meeting:
                self.on_parted(neighbour)
            if not link.is_meeting_only:
                self.on_down(neighbour, link)
            elif not neighbour.is_active:
                self._known.forget(neighbour.node)
            link.tunnel.lost()
            if not link.is_dialled:
                self._peering.unlinked(link.connection, LOST)
            if link.is_up:
                self._log("warning", "lost the link to a node", neighbour)


def _table_digest(neighbour: Neighbour) -> str:
    return EMPTY if neighbour.table is None else neighbour.table.digest


def _there(said: str | None, greeted: str) -> DigestThere:
    """Return what a neighbour has: one that its answer does not name is that of the greeting."""
    return DigestThere(greeted, bool(greeted)) if said is None else DigestThere(str(said), is_agreed=False)
