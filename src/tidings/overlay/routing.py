"""Routing by content: which links are active, and how events come and go over them.

A link in the tree is *active*. Its neighbour has a cursor on the stored stream and a table of filters here.
This node exchanges tables with it (`tables.py`), and takes what it relays. When the tree changes, events that
are kept for nodes which are reached over another link now go there (`moving.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tidings.errors import Refused
from tidings.event.relayed import RelayedBatch
from tidings.overlay.inboxes import InboxRoutes
from tidings.overlay.intake import Intake
from tidings.overlay.moving import Places, Sides, mirrored
from tidings.overlay.neighbours import (
    NEIGHBOURS,
    KnownNeighbours,
    Later,
    Neighbour,
    NeighbourLink,
    NeighbourRecord,
    rights_of,
)
from tidings.overlay.new_offers import NewOffers
from tidings.overlay.numbers import Numbers
from tidings.overlay.receiving import Receiving
from tidings.overlay.relaying import LinkConsumer, LinkCursor
from tidings.overlay.settings import OverlaySettings
from tidings.overlay.spreading import Spreading
from tidings.overlay.table import TABLE, NeighbourTable, TableEntry
from tidings.overlay.tables import Tables
from tidings.overlay.topology import Topology
from tidings.overlay.waste import Waste
from tidings.overlay.wholeness import Wholeness
from tidings.protocol.arguments import SubscribeRequest, Wanted
from tidings.protocol.broker import Broker
from tidings.protocol.session import Session

ABSENT_S = 30.0
"""How long what is kept for nodes that no link leads to any more waits for a link: most were removed."""
REJOIN_S = 0.2
"""How long to wait before a neighbour that did not relay is asked again."""


class Routing:
    """Active links of a node."""

    def __init__(
        self,
        broker: Broker,
        known: KnownNeighbours,
        topology: Topology,
        numbers: Numbers,
        later: Later,
        settings: OverlaySettings,
    ) -> None:
        self._broker = broker
        self._known = known
        self._topology = topology
        self._numbers = numbers
        self._later = later
        self.new_offers = NewOffers(broker, known, later, self.sides)
        self._tolerate = settings.tolerate
        self.spreading = Spreading(broker, known, self.new_offers, settings.offers_all)
        stored = NEIGHBOURS.known(broker.state)
        self._names = {node: known.name for (node,), known in stored.items()}  # as they are stored
        self._places = Places(topology.tree)
        self._absent: set[str] = set()  # to be forgotten, if no link leads to them then
        self._inboxes = InboxRoutes(broker, known, topology)
        self.tables = Tables(broker, known, self.spreading, self._is_waiting)
        whole = self._is_whole, self.tables.lend_all
        self.wholeness = Wholeness(known, topology, self._places, later, *whole)
        self.took: Callable[[str, int, int, str], None] = lambda *_: None
        """Called with the first node of events that are taken, their epoch and last number, and who sent."""
        self.on_tree: Callable[[Collection[str]], None] = lambda _left: None
        """Called when the tree has changed, with the neighbours behind which there are fewer nodes now."""
        if settings.merge_waste:
            broker.relays.meter = Waste(broker, known, settings.merge_waste)
        self._restore()
        self._exorcise()

    def _restore(self) -> None:
        """Go on with the neighbours of the last life: what they want is still theirs."""
        entries: dict[str, list[TableEntry]] = {}
        for (node, _), entry in TABLE.known(self._broker.state).items():
            entries.setdefault(node, []).append(entry)
        for record in self._broker.cursors.of_links:
            neighbour = self._known.meet(record.name, self._names.get(record.name, ""))
            cursor = LinkCursor(self._broker, record, self._tolerate)
            self._broker.cursors.reopen(cursor)
            cursor.gaps.restore()
            neighbour.is_ghost = self._is_off_tree(record.name)
            neighbour.asks_again = True  # it may have been asked, and not have answered
            table = self._let_in(neighbour, cursor)
            self._broker.changed_links.add(cursor.subscription)
            for entry in entries.get(record.name, ()):
                table.restore(entry.filter, entry.passive, rights_of(self._broker, neighbour))
                self.spreading.announce(neighbour, entry.filter)
        self.new_offers.restore()

    # Which links are active

    def follow_tree(self) -> None:
        """Let the links be active that are in the tree, and all others stand by."""
        tree, entering = self._topology.tree, []
        for node in tree.neighbours:
            self._known.meet(node)
        for neighbour in self._known:
            if self._topology.is_active(neighbour.node) and not neighbour.is_in_tree:
                entering.append(neighbour)
                self._activate(neighbour)
            elif neighbour.is_in_tree and self._is_off_tree(neighbour.node):
                self._haunt(neighbour)
        sides = {one.node: self.sides(one.node) for one in self._known}
        moves = self._places.follow(tree, [one.node for one in self._known if one.is_ghost])
        for neighbour in self._known:
            if self.sides(neighbour.node) != sides[neighbour.node]:
                self.wholeness.forget(neighbour)
        for node, before in moves.gained.items():
            self._inherit(self._known.meet(node), before)
        for node in moves.gained.keys() | moves.lost:
            self._begin_anew(self._known.meet(node))
        for neighbour in entering:
            if neighbour.is_up and neighbour.intake is None:
                self.join(neighbour)
        for neighbour in self._known.in_tree:
            if neighbour.cursor is not None and neighbour.is_heir and self._topology.is_lost(neighbour.node):
                for former in filter(None, map(self._known.get, neighbour.cursor.skips)):
                    self.tables.lend_all(neighbour, former)
            elif neighbour.is_heir:
                self.wholeness.ask(neighbour)  # by the sides that there are now
        self._exorcise()
        self.tables.settle()
        self.on_tree(moves.lost)

    def _is_off_tree(self, node: str) -> bool:
        """Whether a neighbour is known by its record, and its link is not in the tree."""
        return self._topology.name_of(node) is not None and not self._topology.is_active(node)

    def _activate(self, neighbour: Neighbour) -> LinkCursor:
        """Have events stored for a neighbour from now on, or still."""
        neighbour.is_ghost = False
        if neighbour.cursor is not None:
            return neighbour.cursor
        record = LinkCursor.begun(neighbour.node, self._broker.position)
        cursor = LinkCursor(self._broker, record, self._tolerate)
        self._broker.cursors.open(cursor)
        self._let_in(neighbour, cursor)
        return cursor

    # When nodes are reached over other links than before

    def _haunt(self, neighbour: Neighbour) -> None:
        """Let a link stand by; what its neighbour wants is stored until others have replaced it."""
        self._stop(neighbour)
        neighbour.is_ghost = True

    def _stop(self, neighbour: Neighbour) -> None:
        """Let nothing go over a link, in either direction."""
        self.leave(neighbour)
        if neighbour.cursor is not None and neighbour.cursor.consumer is not None:
            neighbour.cursor.consumer.part("the link stands by")

    def _inherit(self, neighbour: Neighbour, before: set[str]) -> None:
        """Have a neighbour get what is kept for others behind which nodes were that are behind it now."""
        former = {one: cursor for one in before if (cursor := self._known.meet(one).cursor) is not None}
        if neighbour.cursor is not None and former:
            neighbour.cursor.inherit(former)

    def _begin_anew(self, neighbour: Neighbour) -> None:
        """Begin the streams over a link anew, as its sides have changed, and give it what comes again."""
        self.wholeness.forget(neighbour)
        if neighbour.cursor is not None:
            self._broker.changed_links.add(neighbour.cursor.subscription)
        neighbour.asks_again = True
        if neighbour.is_in_tree and neighbour.intake is not None:
            neighbour.intake.end()
            self._take_from(neighbour)

    def _is_waiting(self) -> bool:
        """Whether this node does not know the ways of its channels."""
        return self.wholeness.is_waiting()

    def _is_whole(self, heir: Neighbour) -> None:
        """An heir has announced all that is wanted behind it: let it have what is stored."""
        if heir.cursor is not None:
            heir.cursor.let_have()
        self._exorcise()

    def _exorcise(self) -> None:
        """Keep no more for links that others have replaced."""
        if any(one.is_heir for one in self._known):
            return
        for neighbour in self._known:
            if neighbour.is_ghost and self._places.are_gone(neighbour.node, self._topology.tree):
                self._dismiss(neighbour)
        if not self._absent and any(one.is_ghost for one in self._known):
            self._absent = self._places.absent(self._topology.tree)
            if self._absent:
                self._later(ABSENT_S, self._forget_absent)

    def _forget_absent(self) -> None:
        """Wait no longer for nodes that no link leads to: they were removed."""
        absent, self._absent = self._absent, set()
        self._places.drop(absent & self._places.absent(self._topology.tree))
        self._exorcise()
        self.tables.settle()

    def _let_in(self, neighbour: Neighbour, cursor: LinkCursor) -> NeighbourTable:
        """Announce to a neighbour what all others want."""
        self._broker.routes = self._inboxes  # from the first neighbour on: it has to look at every batch
        neighbour.cursor = cursor
        neighbour.table = NeighbourTable(self._broker, neighbour.node, cursor)
        self.spreading.let_in(neighbour)
        return neighbour.table

    def forget(self, neighbour: Neighbour) -> None:
        """Keep nothing for a neighbour any more."""
        if neighbour.is_active:
            self._dismiss(neighbour)
            self.tables.settle()

    def _dismiss(self, neighbour: Neighbour) -> None:
        """Keep nothing for a neighbour, whose link stands by."""
        cursor, table = neighbour.cursor, neighbour.table
        assert cursor is not None and table is not None  # noqa: PT018 - one fact
        self._stop(neighbour)
        self.new_offers.forget(neighbour)
        for text in list(table.entries):
            self.spreading.forget(neighbour, text)
        for text in list(neighbour.wants.offers):
            self.spreading.withdraw(neighbour, text)
        self._broker.cursors.end(cursor)
        cursor.gaps.clear()
        if self._names.pop(neighbour.node, None) is not None:
            self._broker.store(NEIGHBOURS.drop((neighbour.node,)))
        self._broker.changed_links.discard(cursor.subscription)
        self._places.forget(neighbour.node)
        neighbour.wanting, neighbour.offering = Receiving(), Receiving()
        neighbour.cursor = neighbour.table = None
        neighbour.is_settled = neighbour.has_offered = neighbour.is_ghost = False
        neighbour.wants.clear()
        neighbour.announcer.clear()
        neighbour.offerer.clear()

    def active(self, neighbour: Neighbour) -> LinkCursor:
        """Return the cursor of a neighbour that takes its link for active; Refused if that stands by.

        One end of a link may know of the other's record a moment earlier.
        """
        if neighbour.cursor is not None and not neighbour.is_ghost:
            return neighbour.cursor
        if neighbour.is_ghost or self._topology.has_edge(neighbour.node):
            raise Refused("exists", "the link stands by")
        cursor = self._activate(neighbour)
        if neighbour.is_up and neighbour.intake is None:
            self.join(neighbour)
        return cursor

    # Links that come and go

    def join(self, neighbour: Neighbour) -> None:
        """Exchange events over an active link that is up."""
        link = neighbour.link
        assert link is not None
        self._keep_name(neighbour)
        neighbour.is_settled = neighbour.is_settled or link.is_table_same
        neighbour.has_offered = neighbour.has_offered or link.is_offers_same
        link.is_table_same = link.is_offers_same = False  # they hold for the first time, as for the other end
        self.tables.settle()
        self._take_from(neighbour)
        self.wholeness.ask(neighbour)
        self.tables.answered(neighbour)
        link.flush()

    def _take_from(self, neighbour: Neighbour) -> None:
        """Ask a neighbour for events."""
        link = neighbour.link
        assert link is not None
        wanted = Wanted(link=True, sides=self._places.sides(neighbour.node), again=neighbour.asks_again)
        owner = _Taking(self, neighbour, link)
        about = self._broker, link.connection, link.session, neighbour.cursor, self._tolerate, wanted
        neighbour.intake = Intake(owner, *about)

    def _keep_name(self, neighbour: Neighbour) -> None:
        """Store the name by which the rights of a neighbour are looked up, also before it comes again."""
        if self._names.get(neighbour.node) != neighbour.name:
            self._names[neighbour.node] = neighbour.name
            self._broker.store(NEIGHBOURS.set((neighbour.node,), NeighbourRecord(neighbour.name)))

    def take_later(self, neighbour: Neighbour, link: NeighbourLink) -> None:
        """Ask a neighbour again for events, which it does not relay, or has not for now."""

        def take_again() -> None:
            if neighbour.link is link and neighbour.intake is not None:
                neighbour.intake.end()
                self._take_from(neighbour)
                link.flush()

        self._later(REJOIN_S, take_again)

    def leave(self, neighbour: Neighbour) -> None:
        """Exchange no more events, for now."""
        if neighbour.intake is not None:
            neighbour.intake.end()
            neighbour.intake = None
        neighbour.announcer.down()
        neighbour.offerer.down()
        neighbour.has_offered = False
        neighbour.questions.clear()
        self.wholeness.forget(neighbour)
        if neighbour.link is not None:
            neighbour.link.is_anew = True

    def sides(self, node: str) -> Sides | None:
        """Return the sides of the link to a neighbour, as the tree is now; None if it is not in the tree."""
        return self._places.sides(node)

    def check_sides(self, neighbour: Neighbour, sides: Sides | None) -> None:
        """Refuse what a neighbour asks that knows another tree."""
        if mirrored(sides) != self._places.sides(neighbour.node):
            raise Refused("exists", "the sides of the link are others here, for now")

    def open_link(self, neighbour: Neighbour, session: Session, wanted: SubscribeRequest) -> LinkConsumer:
        """A neighbour begins to take events."""
        node, cursor = neighbour.node, self.active(neighbour)
        self.check_sides(neighbour, wanted.sides)
        self.wholeness.forget(neighbour)  # it may have seen other sides meanwhile
        if self._broker.now < cursor.stalled_until:
            raise Refused("limit", "this node has confirmed nothing for too long; it may ask again later")
        if wanted.again:
            cursor.begin_again()

        def leads_to(first: str) -> bool:
            return self._topology.way(first) == node

        about = cursor, session, wanted.number, wanted.credit, self._numbers
        packs = neighbour.link is not None and neighbour.link.packs
        return LinkConsumer(*about, leads_to, packs)

    # Events

    def refusal(self, neighbour: Neighbour, batch: RelayedBatch) -> str:
        """Why events are not taken from a neighbour; empty if they are."""
        first = batch.first.node
        if first == self._broker.node:
            return "own"
        way = self._topology.way(first)
        if way is None:
            self._inboxes.came_by(first, neighbour.node)
        elif way != neighbour.node:
            return "way"
        name = self._topology.name_of(first)
        source = batch.origin.source if batch.origin is not None else None
        if name is not None and (source or "").rpartition("@")[2] not in (name, first):
            return "source"
        if way is not None and not batch.first.is_volatile:
            self.took(first, batch.first.epoch, int(batch.numbers[-1]), neighbour.node)
        return ""

    def confirmed_beyond(self, neighbour: Neighbour, level: int) -> int:
        """The position here that all other neighbours have confirmed at a level."""
        cursors = [cursor for cursor in self._known.cursors if cursor is not neighbour.cursor]
        return min((cursor.confirmed(level) for cursor in cursors), default=self._broker.position)

    # Ticks

    def work(self) -> None:
        """Announce what has changed."""
        self.tables.look()
        self.wholeness.work()
        self.new_offers.work()
        self.tables.announce()

    def durable(self, mark: int) -> None:
        """Acknowledge to neighbours what is on disk."""
        for neighbour in self._known:
            if neighbour.intake is not None:
                neighbour.intake.durable(mark)


class _Taking:
    """Taking of what a neighbour relays over one link, by the tree that there is."""

    def __init__(self, routing: Routing, neighbour: Neighbour, link: NeighbourLink) -> None:
        self.node = neighbour.node
        self._routing = routing
        self._neighbour = neighbour
        self._link = link

    def refusal(self, batch: RelayedBatch) -> str:
        """Why events are not taken from the neighbour; empty if they are."""
        return self._routing.refusal(self._neighbour, batch)

    def confirmed(self, level: int) -> int:
        """The position here that all other neighbours have confirmed at a level."""
        return self._routing.confirmed_beyond(self._neighbour, level)

    def begun(self) -> None:
        """Announce to the neighbour from now on; what was to come again will come."""
        self._neighbour.asks_again = False
        self._routing.tables.answered(self._neighbour)

    def ended(self) -> None:
        """Ask again a little later; what was announced holds."""
        self._routing.take_later(self._neighbour, self._link)
