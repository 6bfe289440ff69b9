"""Neighbours of a node, and the link to each while it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct, structs

from tidings.errors import Disconnected
from tidings.overlay.announcing import Announcer
from tidings.overlay.intake import Intake
from tidings.overlay.link import TunnelledConnection, TunnelledSession
from tidings.overlay.moving import Sides
from tidings.overlay.pruning import Pruning
from tidings.overlay.receiving import Receiving
from tidings.overlay.relaying import LinkConsumer, LinkCursor
from tidings.overlay.table import NeighbourTable
from tidings.protocol.access import NOBODY, Principal
from tidings.protocol.broker import Broker
from tidings.protocol.calls import OnCut
from tidings.protocol.connection import Connection
from tidings.protocol.session import Session
from tidings.replies import Deferred, failed
from tidings.store.interface import RecordKind


class NeighbourRecord(Struct, frozen=True):
    """The stored record of a neighbour: its name, by which its rights are looked up."""

    name: str


NEIGHBOURS: RecordKind[tuple[str], NeighbourRecord] = RecordKind("neighbour", NeighbourRecord)

Later = Callable[[float, Callable[[], None]], None]
"""Calls a function after so many seconds."""


class DigestThere(NamedTuple):
    """Digest of what a neighbour has of this node; `is_agreed` if it has found that in the greeting."""

    digest: str
    is_agreed: bool


UNKNOWN = DigestThere("", is_agreed=False)


class NeighbourLink:
    """Connection to a neighbour, from its greeting on; see `link.py`.

    It is up when both nodes have greeted each other as clients. `send` is for all that nodes ask and tell
    each other; what is received goes to the operations of services. `flush` has output sent, `hang_up` ends.
    """

    def __init__(
        self,
        connection: Connection,
        session: Session,
        tunnel: TunnelledSession | TunnelledConnection,
        flush: Callable[[], None],
        hang_up: Callable[[], None],
    ) -> None:
        self.connection = connection
        self.session = session
        self.tunnel = tunnel
        self.flush = flush
        self.hang_up = hang_up
        self.is_dialled = isinstance(tunnel, TunnelledSession)
        self.has_greeted = False  # the neighbour has greeted this node
        self.packs = False  # the neighbour can unpack frames that are compressed
        self.is_greeting = False  # this node has begun to greet it
        self.table_there: DigestThere | None = None  # of this node, once the neighbour has answered
        self.offers_there: DigestThere | None = None
        self.is_table_same = False  # the neighbour's greeting has the digest of its table here
        self.is_offers_same = False  # and that of its offers here
        self.records_digest = b""  # of other nodes' records, in the same greeting
        self.meets_here = self.meets_there = False  # each node exchanges what it carries, by its greeting
        self.only_here = self.only_there = False  # and wants the link for nothing else
        self.is_up = False
        self.is_anew = False  # what both greeted each other with holds no more, or it has stood by since

    def send(self, operation: str, arguments: Any, on_cut: OnCut = "fail") -> Deferred[Any]:
        """Send a request at once; the reply is that of the other node."""
        told = structs.asdict(arguments) if isinstance(arguments, Struct) else arguments
        call = self.connection.request(operation, told, on_cut)
        self.flush()
        return call

    @property
    def is_meeting(self) -> bool:
        """Whether both nodes exchange what they carry for others; known once both have greeted."""
        return self.meets_here and self.meets_there

    @property
    def is_meeting_only(self) -> bool:
        """Whether neither node wants the link for anything else."""
        return self.only_here and self.only_there

    @property
    def received_at(self) -> float:
        """When bytes of the neighbour have come, be it a part of a frame only."""
        return self.connection.received_at if self.is_dialled else self.session.received_at

    @property
    def is_kept_waiting(self) -> bool:
        """Whether this node may have stopped to read what the neighbour says."""
        return not self.is_dialled and self.session.is_kept_waiting


class WholeQuestion:
    """Question of a neighbour: whether all that is wanted behind this node was announced to it."""

    def __init__(self, sides: Sides) -> None:
        self.sides = sides  # of the link, as the neighbour has them
        self.reply: Deferred[None] = Deferred()
        self.lent: dict[str, bool] = {}  # neighbours that can't answer, and whether they have got all by now


class Neighbour:
    """A node with which this one has a link, now or before."""

    def __init__(self, node: str, name: str, announcer: Announcer, offerer: Announcer) -> None:
        self.node = node
        self.name = name
        self.announcer = announcer  # of what is wanted from it
        self.offerer = offerer  # of what may be published here and behind here
        self.wants = Pruning(announcer)  # what is wanted from it, and what it offers
        self.wanting, self.offering = Receiving(), Receiving()  # of its table and of its offers, in pieces
        self.has_offered = False  # its offers here are those that it has in mind
        self.link: NeighbourLink | None = None
        self.intake: Intake | None = None
        self.cursor: LinkCursor | None = None  # while its link is in the tree
        self.table: NeighbourTable | None = None
        self.asks_again = False  # for what it has sent before, as some of that is left out on other links
        self.is_settled = False  # its table here is the one that it has in mind
        self.is_ghost = False  # its link is not in the tree any more, and others have not replaced it yet
        self.questions: list[WholeQuestion] = []  # of it, that are not answered
        self.asking: object = None  # a question of others that was passed on to it, and is not answered
        self.is_whole = False  # it has answered one since the sides of its link have changed

    @property
    def is_active(self) -> bool:
        """Whether events are stored for it: its link is in the tree, or was."""
        return self.cursor is not None

    @property
    def is_in_tree(self) -> bool:
        """Whether events go over its link, now or when it is there again."""
        return self.cursor is not None and not self.is_ghost

    @property
    def is_heir(self) -> bool:
        """Whether nodes are behind it that were not, and it has not said yet that its table is whole."""
        return self.cursor is not None and self.cursor.is_heir and not self.is_ghost

    @property
    def is_up(self) -> bool:
        """Whether its link is there."""
        return self.link is not None and self.link.is_up

    def send(self, operation: str, arguments: Any) -> Deferred[Any]:
        """Send a request over its link; Disconnected if that is not there."""
        if self.link is None or not self.link.is_up:
            return _no_link(self.node)
        return self.link.send(operation, arguments)

    def status(self, position: int) -> dict[str, Any]:
        """How its link stands."""
        cursor, intake = self.cursor, self.intake
        consumer = None if cursor is None else cursor.consumer
        return {
            "node": self.node,
            "name": self.name,
            "state": ("up" if self.is_up else "cut") if self.is_in_tree else "stands by",
            "dialled": self.link is not None and self.link.is_dialled,
            "announced": len(self.announcer.covering),
            "offered": len(self.wants.offers),
            "wanted": 0 if self.table is None else len(self.table),
            "behind": 0 if cursor is None else max(0, position - cursor.confirmed(0)),
            "kept": 0 if cursor is None else max(0, position - cursor.released),
            "received": 0 if intake is None else intake.received,
            "compressed": isinstance(consumer, LinkConsumer) and consumer.is_packing,
        }


class KnownNeighbours:
    """All neighbours of a node, by their ids. `refused` is called with what one of them has not taken.

    `is_coarse`: what is wanted from them may be announced in filters that match more.
    """

    def __init__(self, later: Later, refused: Callable[[str, str], None], is_coarse: bool = False) -> None:
        self._neighbours: dict[str, Neighbour] = {}
        self._later = later
        self._refused = refused
        self._is_coarse = is_coarse

    def __len__(self) -> int:
        return len(self._neighbours)

    def __iter__(self) -> Iterator[Neighbour]:
        return iter(list(self._neighbours.values()))

    def get(self, node: str) -> Neighbour | None:
        """Return the neighbour with this id."""
        return self._neighbours.get(node)

    def meet(self, node: str, name: str = "") -> Neighbour:
        """Return the neighbour with this id, a new one if there is none; `name` is how it is called now."""
        found = self._neighbours.get(node)
        if found is None:
            refused = partial(self._refused, node)
            announcer = Announcer("link.table", self._later, refused, self._is_coarse)
            offerer = Announcer("link.offers", self._later, refused)
            found = self._neighbours[node] = Neighbour(node, name, announcer, offerer)
        found.name = name or found.name
        return found

    def forget(self, node: str) -> None:
        """Forget a neighbour."""
        del self._neighbours[node]

    def others(self, neighbour: Neighbour | None) -> list[Neighbour]:
        """Return those for which events are stored, save one."""
        return [one for one in self._neighbours.values() if one.is_active and one is not neighbour]

    def ask(self, node: str, operation: str, arguments: Any) -> Deferred[Any]:
        """Send a request to one by its id; Disconnected if its link is not there."""
        neighbour = self._neighbours.get(node)
        if neighbour is None:
            return _no_link(node)
        return neighbour.send(operation, arguments)

    def send(self, operation: str, arguments: Any, but: Neighbour | None = None) -> list[Deferred[Any]]:
        """Send a request to all with links in the tree that are there, but one; their replies."""
        return [one.send(operation, arguments) for one in self.in_tree if one is not but and one.is_up]

    @property
    def in_tree(self) -> list[Neighbour]:
        """Those with links in the tree."""
        return [one for one in self._neighbours.values() if one.is_in_tree]

    @property
    def cursors(self) -> list[LinkCursor]:
        """The cursors of those for which events are stored."""
        return [one.cursor for one in self._neighbours.values() if one.cursor is not None]


def rights_of(broker: Broker, neighbour: Neighbour) -> Principal:
    """Return the rights of a neighbour by the current rules."""
    return broker.authenticator.principal_of(neighbour.name) or NOBODY


def _no_link(node: str) -> Deferred[Any]:
    return failed(Disconnected(f"the link to {node!r} is not there"))
