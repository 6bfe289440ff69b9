"""Reading what other nodes have: one request for each node, passed on along the tree, answered in pages.

    client ──► its node ──► neighbour ──► … ──► the node that is read

Each node sends the request behind all that it has announced to the next one. So what a subscription is read
for is in force where it is read: the node gives what it has taken in so far, and the subscription gets what
comes after. Each node on the way narrows the filter to what its caller may have, and passes on of an answer
only what matches that filter, comes from the node that was asked, and may be published by the neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from tidings.errors import Disconnected, Refused, TidingsError
from tidings.event import Batch, Event
from tidings.event.relayed import FirstNode, RelayedBatch, own_marks
from tidings.event.wire import check
from tidings.filters import Filter
from tidings.ids import NUMBER_MAX, Origin
from tidings.overlay.linking import Linking
from tidings.overlay.moving import Sides
from tidings.overlay.neighbours import KnownNeighbours, Later, Neighbour
from tidings.overlay.numbers import Numbers
from tidings.overlay.relaying import at_node
from tidings.overlay.routing import Routing
from tidings.overlay.topology import Topology
from tidings.overlay.waiting import ask_behind
from tidings.protocol.arguments import INBOX, NAME_LENGTH_MAX
from tidings.protocol.broker import Broker
from tidings.protocol.channels import channel_of
from tidings.protocol.elsewhere import NodePage, NodeValues, TakesValues, UpTo
from tidings.protocol.fading import is_over
from tidings.protocol.last_values import Value, batch_of, search_values
from tidings.protocol.service import IncomingRequest
from tidings.protocol.session import Session
from tidings.protocol.stored_pages import PageReading, StoredPage, StoredPiece
from tidings.protocol.worker import Background
from tidings.replies import Deferred, failed, resolved
from tidings.steps import Steps
from tidings.store.interface import StoredBatch

ANSWER_S = 5.0
"""How long a page of another node may take; then that node is missing."""
AT_ONCE = 16
"""Nodes that are read at a time for one subscription."""
READS_MAX = 64
"""Requests of one neighbour that may be under way at a node; it asks again for more."""
READINGS_MAX = 32
"""Readings of a node of which pages are left; of more the oldest end."""
READING_S = 30.0
"""How long such a reading is kept."""
PAGE_SIZE = 64 << 10
"""Bytes of events in one page, except for an event that is larger."""
CHECKED_AT_ONCE = 64
"""Last values of an answer that are looked at in one step."""
FILTER_LENGTH_MAX = 16 << 10
"""Characters of a filter that other nodes are asked about."""
HOPS_MAX = 100
"""Links over which a request goes."""

Text = Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]
Page = TypeVar("Page")
Place = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]


class ReadValues(Struct, frozen=True):
    """The arguments of `link.values`: the last values of the node `to`, from the one at `start` on.

    `reading` names what was begun with the first page.
    """

    to: Text
    reading: Text
    filter: Annotated[str, Meta(max_length=FILTER_LENGTH_MAX)] = ""
    start: Place = 0
    hops: Place = 0
    sides: Sides | None = None


class ReadStored(ReadValues, frozen=True):
    """The arguments of `link.stored`: what the node `to` has stored of its own events.

    The first page begins at the time `since_us`; those after it end before the position `end`.
    """

    since_us: int = 0
    end: Place = 0


class ValuesPart(Struct, frozen=True, array_like=True):
    """Events of one origin, as an array; `stored_us` is when stored ones were."""

    system: str | None
    epoch: int
    source: str
    raw: bytes
    stored_us: int = 0

    @property
    def batch(self) -> Batch:
        """The events."""
        return Batch(self.raw, Origin(self.system, self.epoch, self.source))


class ValuesPage(Struct, frozen=True):
    """Some events of a node, the moment at which it has looked, and where to go on."""

    up_to: UpTo
    parts: Annotated[list[ValuesPart], Meta(max_length=PAGE_SIZE)] = []
    next: Place | None = None


class KeptReading(Struct):
    """Last values that a node has found for an asker, of which pages are left."""

    up_to: UpTo
    values: list[Value]

    def page(self, start: int, node: str) -> ValuesPage:
        """Return the values from one on; sources are those of a node."""
        end, size = start, 0
        while end < len(self.values) and size < PAGE_SIZE:
            size += len(self.values[end].raw)
            end += 1
        parts = []
        for origin, run in groupby(self.values[start:end], key=attrgetter("origin")):
            known = origin or Origin()
            about = known.system, known.epoch, at_node(known.source, node)
            parts.append(ValuesPart(*about, batch_of(None, [one.raw for one in run]).raw))
        return ValuesPage(self.up_to, parts, end if end < len(self.values) else None)


class NodeReading:
    """What other nodes are asked for, and what they are answered; see `Elsewhere`."""

    def __init__(
        self,
        broker: Broker,
        topology: Topology,
        neighbours: KnownNeighbours,
        linking: Linking,
        routing: Routing,
        numbers: Numbers,
        later: Later,
    ) -> None:
        self._broker = broker
        self._topology = topology
        self._neighbours = neighbours
        self._linking = linking
        self._routing = routing
        self._numbers = numbers
        self.later = later
        self._background = Background(broker.turns)  # beside the announcements, which must not wait for it
        self._begun = 0  # readings of this node
        self._kept: dict[tuple[Session, str], KeptReading] = {}
        self._under_way: dict[Session, int] = {}
        self.operations: Mapping[str, tuple[Any, Callable[[IncomingRequest, Any], Any]]] = {
            "link.values": (ReadValues, self._read_for),
            "link.stored": (ReadStored, self._read_for),
        }

    def parted(self, session: Session) -> None:
        """Forget a session that has ended."""
        self._under_way.pop(session, None)
        for key in [key for key in self._kept if key[0] is session]:
            del self._kept[key]

    @property
    def others(self) -> dict[str, str]:
        """The names of the other nodes, or their ids, by their ids."""
        topology, own = self._topology, self._broker.node
        return {node: topology.name_of(node) or node for node in topology.tree.nodes if node != own}

    @property
    def own_name(self) -> str:
        """How other nodes call this one."""
        return self._broker.name or self._broker.node

    def is_here(self, node: str) -> bool:
        """Whether a node is this one."""
        return node == self._broker.node

    def is_source_of(self, node: str, source: str) -> bool:
        """Whether a source may be one of another node."""
        return source.rpartition("@")[2] in (node, self._topology.name_of(node))

    # Asking

    def way(self, node: str) -> Neighbour | None:
        """Return the neighbour on the way to a node."""
        return self._neighbours.get(self._topology.way(node) or "")

    def ask(self, node: str, operation: str, arguments: Mapping[str, Any]) -> Deferred[Any]:
        """Pass a request on, on the way to another node; Disconnected if there is none."""
        neighbour = self.way(node)
        if neighbour is None or arguments["hops"] >= HOPS_MAX:
            return failed(Disconnected(f"no way leads to node {self._topology.name_of(node) or node!r}"))
        passed = {**arguments, "hops": arguments["hops"] + 1}
        about = operation, passed, self.later, self._routing.sides
        return ask_behind(neighbour, neighbour.announcer, *about, within_s=ANSWER_S)

    def last_values(self, filter: Filter, take: TakesValues) -> Deferred[list[str]]:
        """Have the last values of all other nodes taken, and return the names of those that are missing."""
        self._begun += 1
        reading = f"{self._broker.node}/{self._numbers.epoch}/{self._begun}"
        text = str(filter)
        if len(text) > FILTER_LENGTH_MAX:
            return resolved(sorted(self.others.values()))

        def read(node: str, start: int) -> Deferred[ValuesPage]:
            return self._pass_on(ReadValues(node, reading, text, start), filter)

        return Round(self.others, read, take).reply

    def stored(self, node: str, filter: Filter, since_us: int, start: int, end: int) -> Deferred[NodePage]:
        """Return a page of what another node has stored; see `Elsewhere`."""
        text = str(filter)
        if len(text) > FILTER_LENGTH_MAX:
            return failed(Refused("limit", f"a filter has at most {FILTER_LENGTH_MAX} characters"))
        wanted = ReadStored(node, "", text, start, since_us=since_us, end=end)
        return self._pass_on(wanted, filter).map(_node_page)

    def _pass_on(self, wanted: ReadValues, filter: Filter) -> Deferred[ValuesPage]:
        neighbour = self.way(wanted.to)
        operation = "link.stored" if isinstance(wanted, ReadStored) else "link.values"
        asked = self.ask(wanted.to, operation, structs.asdict(wanted))
        return asked.chain(lambda page: self.work(self._checked(neighbour, wanted.to, filter, page)))

    def _checked(
        self, neighbour: Neighbour | None, node: str, filter: Filter, answer: Any
    ) -> Steps[ValuesPage]:
        """Return what a neighbour may say of an answer that is a page of a node."""
        try:
            page = msgspec.convert(answer, ValuesPage)
        except msgspec.ValidationError as error:
            raise Refused("protocol", f"node {node!r} has answered no page of last values: {error}") from None
        if page.up_to.epoch > self._topology.epoch_of(node):
            raise Refused("protocol", f"node {node!r} has begun no epoch {page.up_to.epoch}")
        assert neighbour is not None, "it has answered"
        parts = []
        for part in page.parts:
            allowed = yield from self._allowed(neighbour, node, page.up_to, filter, part)
            if allowed is not None:
                parts.append(allowed)
            yield
        return structs.replace(page, parts=parts)

    def _allowed(
        self, neighbour: Neighbour, node: str, up_to: UpTo, filter: Filter, part: ValuesPart
    ) -> Steps[ValuesPart | None]:
        """Return what of a part is wanted, and may come from the neighbour."""
        origin, first = Origin(part.system, part.epoch, part.source), FirstNode(node, up_to.epoch, True)
        count = len(check(part.raw).counters)
        batch = RelayedBatch(part.raw, origin, first, range(count))
        problem = self._routing.refusal(neighbour, batch)
        if problem:
            self._broker.count("relays_refused", count, problem)
            raise Refused("not-allowed", f"last values of {node!r} were not taken: {problem}")
        granted = None if neighbour.link is None else neighbour.link.session.granted
        filters = [filter] if granted is None else [filter, granted.filter]
        rows: list[int] = []
        for start in range(0, count, CHECKED_AT_ONCE):
            some = batch.slice(start, min(start + CHECKED_AT_ONCE, count))
            rows += [row for row, event in enumerate(some, start) if _is_allowed(event, filters)]
            yield
        if len(rows) < count:
            self._broker.count("relays_refused", count - len(rows), "not-allowed")
        if not rows:
            return None
        return part if len(rows) == count else structs.replace(part, raw=batch.raw_of(rows))

    # Answering

    def _read_for(self, asked: IncomingRequest, wanted: ReadValues) -> Deferred[Any]:
        """Read for a neighbour: here, or on the way to the node that is meant."""
        session = asked.session
        filter = self.admit(session, wanted.sides, wanted.filter)
        if self.is_here(wanted.to) and isinstance(wanted, ReadStored):
            reply = self._stored_page(filter, wanted)
        elif self.is_here(wanted.to):
            reply = self.work(self._reading((session, wanted.reading), filter, wanted.start))
        else:
            reply = self._pass_on(structs.replace(wanted, filter=str(filter)), filter)
        return self.count(session, reply).map(partial(msgspec.to_builtins, builtin_types=(bytes,)))

    def caller(self, session: Session) -> Neighbour:
        """Return the neighbour that has this session; Refused if it is none."""
        return self._linking.caller(session)

    def admit(self, session: Session, sides: Sides | None, filter: str) -> Filter:
        """Return what a neighbour may read of what it asks for; Refused if that is too much at a time."""
        self._routing.check_sides(self.caller(session), sides)
        if self._under_way.get(session, 0) >= READS_MAX:
            raise Refused("limit", f"READS_MAX = {READS_MAX} requests of this node are under way already")
        return session.narrow("subscribe", Filter(filter))

    def count(self, session: Session, reply: Deferred[Page]) -> Deferred[Page]:
        """Return a reply that counts as under way until it is there."""
        self._under_way[session] = self._under_way.get(session, 0) + 1
        reply.then(partial(self._ended, session), partial(self._ended, session))
        return reply

    def _ended(self, session: Session, _outcome: object) -> None:
        if session in self._under_way:
            self._under_way[session] -= 1

    def work(self, steps: Steps[Page]) -> Deferred[Page]:
        """Have steps taken beside what sessions do; the reply has their result."""
        reply: Deferred[Page] = Deferred()

        def working() -> Steps[None]:
            try:
                reply.resolve((yield from steps))
            except TidingsError as error:
                reply.fail(error)

        self._background.add(working())
        return reply

    def _reading(self, key: tuple[Session, str], filter: Filter, start: int) -> Steps[ValuesPage]:
        """Find last values of this node, or go on with those that were found."""
        kept = self._kept.get(key)
        if start == 0:
            # In one step: what is taken in from here on is not looked at.
            up_to = UpTo(self._numbers.epoch, self._broker.position, self._numbers.last_volatile)
            kept = KeptReading(up_to, (yield from search_values(self._broker, filter, is_own=True)))
        if kept is None or start > len(kept.values):
            raise Refused("not-found", "the reading has ended, or was not begun")
        page = kept.page(start, self.own_name)
        self._kept.pop(key, None)
        if page.next is not None and not key[0].is_closed:
            self._keep(key, kept)
        return page

    def _stored_page(self, filter: Filter, wanted: ReadStored) -> Deferred[ValuesPage]:
        """Read what this node has stored of its own events: first up to now, which the page names."""
        broker, is_first = self._broker, not wanted.start
        end = broker.position + 1 if is_first else min(wanted.end, broker.position + 1)
        up_to = UpTo(self._numbers.epoch, end - 1, self._numbers.last_volatile)
        about = filter, partial(_own_stored, broker, filter), wanted.since_us if is_first else None
        reading = PageReading(broker, wanted.start, end, *about)

        def page_of(found: StoredPage) -> ValuesPage:
            return ValuesPage(up_to, [_part_of(piece, self.own_name) for piece in found.pieces], found.next)

        return reading.reply.map(page_of)

    def _keep(self, key: tuple[Session, str], kept: KeptReading) -> None:
        while len(self._kept) >= READINGS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = kept

        def forget() -> None:
            if self._kept.get(key) is kept:
                del self._kept[key]

        self.later(READING_S, forget)


def _is_allowed(event: Event, filters: Iterable[Filter]) -> bool:
    """Whether an event matches all filters, and is neither for the members of a channel nor for an inbox."""
    is_for_some = channel_of(event) or (event.subject or "").startswith(INBOX)
    return not is_for_some and all(filter.matches(event) for filter in filters)


def _own_stored(broker: Broker, filter: Filter, stored: StoredBatch, rows: range) -> Batch | None:
    """Return what others may have of some rows of a stored batch that is not from another node."""
    if own_marks(stored.provenance) is None:
        return None
    batch = Batch(stored.raw, Origin(stored.system, stored.epoch, stored.source)).take(rows)
    age_s = broker.wall - stored.stored_us / 1e6
    wanted = [
        row
        for row, event in enumerate(batch.events)
        if event.delivery != "transient" and not is_over(event, age_s) and _is_allowed(event, [filter])
    ]
    return batch.take(wanted) if wanted else None


def _part_of(piece: StoredPiece, node: str) -> ValuesPart:
    origin = piece.batch.origin or Origin()
    source = at_node(origin.source, node)
    return ValuesPart(origin.system, origin.epoch, source, piece.batch.raw, piece.stored_us)


def _node_page(page: ValuesPage) -> NodePage:
    pieces = [StoredPiece(part.stored_us, part.batch) for part in page.parts]
    return NodePage(page.up_to, StoredPage(pieces, page.next))


class Round:
    """One reading of nodes, some at a time; `reply` has the names of those that could not be read."""

    def __init__(
        self,
        nodes: Mapping[str, str],
        read: Callable[[str, int], Deferred[ValuesPage]],
        take: TakesValues,
    ) -> None:
        self._names = nodes
        self._left = list(nodes)
        self._read = read
        self._take = take
        self._under_way = 0
        self._is_filling = False
        self._missing: list[str] = []
        self.reply: Deferred[list[str]] = Deferred()
        self._fill()

    def _fill(self) -> None:
        """Begin with as many nodes as may be read at a time; a request may fail at once."""
        if self._is_filling:
            return
        self._is_filling = True
        while self._left and self._under_way < AT_ONCE:
            self._under_way += 1
            self._ask(self._left.pop(), 0)
        self._is_filling = False
        if not self._under_way:
            self.reply.resolve(sorted(self._missing))

    def _ask(self, node: str, start: int) -> None:
        self._read(node, start).then(partial(self._answered, node, start), partial(self._failed, node))

    def _answered(self, node: str, start: int, page: ValuesPage) -> None:
        if not self._take(NodeValues(node, page.up_to, [one.batch for one in page.parts])):
            self._missing += [self._names[one] for one in self._left]
            self._left.clear()
            self._failed(node)
        elif page.next is not None and page.next > start:
            self._ask(node, page.next)
        else:
            self._end()

    def _failed(self, node: str, _error: TidingsError | None = None) -> None:
        self._missing.append(self._names[node])
        self._end()

    def _end(self) -> None:
        self._under_way -= 1
        self._fill()
