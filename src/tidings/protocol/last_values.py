"""Last values: the newest event of each source, type and subject, for subscriptions that ask for them.

They are found among the events that were published lately, whatever these are, and then among those that are
kept by key (`last_pages`). Of a key that is kept only the last event counts, wanted or not.

The node that took an event in knows its last values best. So a client gets those of its own node, then those
of all other nodes, which are asked once the subscription is in force there, and of a node that can't be asked
those that this one has. What is published meanwhile waits. An answer names the moment at which a node looked:
what that has taken in before, and what comes from it after the answer all the same, was replaced or is had.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tidings.event import Batch, Event
from tidings.event.relayed import RelayedBatch
from tidings.event.wire import array_head, decode_event
from tidings.exchange import EventSink, Positions, Rows
from tidings.filters import Filter
from tidings.filters.constraint import Constraint
from tidings.ids import Origin
from tidings.protocol.answers import hears
from tidings.protocol.arguments import INBOX
from tidings.protocol.consumer import MEMORY, Consumer
from tidings.protocol.elsewhere import UpTo
from tidings.protocol.last_pages import VALUES_MAX, Key, first_node, keys_of, raws_of
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

LOOKED_AT_ONCE = 128
"""Events that are looked at in one step, and values that are delivered in one."""
GATHERED_SIZE_MAX = 8 << 20
"""Bytes of events that wait until the last values have been delivered."""
GATHERED_AT_ONCE = 64
"""Batches of them that are passed on in one step."""
GATHERED_STEPS_MAX = 1_000
"""Steps in which that must come to its end."""
TYPES_MAX = 10_000
"""Types of which one search remembers whether they may match."""

_KEY = "source", "type", "subject"


class Value(NamedTuple):
    """An event that is the last of its key, and the node that took it in; empty for this node."""

    origin: Origin | None
    raw: bytes
    node: str


class FoundValues(NamedTuple):
    """Last values that another node has taken in, or this one if `node` is empty."""

    node: str
    batch: Batch


class LastValuesSink(EventSink):
    """The sink of a subscription while its last values are looked for: what is published meanwhile waits.

    `read` has the nodes whose last values have come: what they had taken in by then is left out. Where
    there are any, it goes on as the sink that does this.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._parts: deque[Batch] = deque()
        self._size = 0
        self._is_open = False  # nothing waits any more
        self.read: dict[str, UpTo] = {}

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Let these rows wait; the oldest go where too much does."""
        if self._is_open:
            self._pass(batch, rows, positions)
            return
        if positions is not None:
            self._consumer.depend()
        part = batch.part(rows)
        self._parts.append(part)
        self._size += len(part.raw)
        self._consumer.session.hold_batch(part)
        while self._size > GATHERED_SIZE_MAX:
            self._consumer.lose(len(self._next()), "slow")

    def miss(self, dropped: int, reason: str) -> None:
        """Events were dropped before it was known which of them are wanted."""
        self._consumer.miss(dropped, reason)

    def report_missed(self, details: dict[str, Any]) -> None:
        """Report to the client a gap in the numbers of a node, at this node."""
        self._consumer.report_missed(details)

    def lose_oldest(self) -> bool:
        """Drop the older half of what waits, as memory is short; whether anything was dropped."""
        left, is_any = self._size // 2, bool(self._parts)
        while self._size > left:
            self._consumer.lose(len(self._next()), MEMORY)
        return is_any

    def pass_on(self) -> Steps[None]:
        """Give the consumer all that has waited, after the report of what was dropped."""
        self._consumer.release()
        for _ in range(GATHERED_STEPS_MAX):
            for _ in range(min(len(self._parts), GATHERED_AT_ONCE)):
                self._pass_next()
            if not self._parts:
                break
            yield
        while self._parts:  # it comes more quickly than it is passed on
            self._pass_next()
        self._is_open = True

    def clear(self) -> None:
        """The subscription has ended: drop what waits."""
        while self._parts:
            self._next()

    def _pass_next(self) -> None:
        part = self._next()
        self._pass(part, range(len(part)), None)

    def _pass(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Give the consumer what was not had with the last values, or replaced by them."""
        if isinstance(batch, RelayedBatch) and (up_to := self.read.get(batch.first.node)):
            rows = [row for row in rows if not up_to.includes(batch, int(row))]
        if len(rows):
            self._consumer.deliver(batch, rows, positions)

    def _next(self) -> Batch:
        part = self._parts.popleft()
        self._size -= len(part.raw)
        self._consumer.session.holdings.remove(part)
        return part


class _Search:
    """Search for the last values that match a filter and that a user of a node may hear.

    Most events are passed over by their keys, and not decoded.
    """

    def __init__(
        self, filter: Filter, node: str, user: str | None, wall: float, is_own: bool = False
    ) -> None:
        """`is_own`: only what that node has taken in is looked at, and no answers to inboxes."""
        self.found: dict[Key, Value | None] = {}  # None: not wanted, or it has outlived its time
        self._matches = filter.matches
        self._node, self._user, self._is_own = node, user, is_own
        self._wall = wall
        self._tests = [[_test(one.constraints.get(name)) for name in _KEY] for one in filter.normal]
        self._is_by_type = all(source is subject is None for source, _, subject in self._tests)
        self._types: dict[str, bool] = {}  # those that were asked for, and whether they may match

    def may_have(self, types: Iterable[str]) -> bool:
        """Whether an event of any of these types may match."""
        known = self._types
        for type in types:
            if type not in known:
                if len(known) >= TYPES_MAX:
                    known.clear()
                known[type] = any(test is None or test(type) for _, test, _ in self._tests)
            if known[type]:
                return True
        return False

    def _may_match(self, key: Key) -> bool:
        """Whether an event of this key may match."""
        is_answer = key[2] is not None and key[2].startswith(INBOX)
        if (self._is_own and is_answer) or not self.may_have((key[1],)):
            return False
        return self._is_by_type or any(
            all(test is None or test(value) for test, value in zip(tests, key, strict=True))
            for tests in self._tests
        )

    def look(
        self, key: Key, origin: Origin | None, raw: bytes | msgspec.Raw, node: str, is_kept: bool
    ) -> None:
        """Note an event if it is the last value of its key; called from the newest on."""
        if key in self.found or not self._may_match(key):
            return
        own = bytes(raw)
        event = decode_event(own, origin)
        if self._matches(event) and hears(self._node, self._user, event):
            self.found[key] = None if _is_expired(event, self._wall) else Value(origin, own, node)
        elif is_kept:
            self.found[key] = None  # an older one is not its value

    def look_at(self, batch: Batch, start: int, end: int) -> None:
        """Look at the rows of a batch from `start` to before `end`."""
        raw = batch.slice(start, end).raw
        source = None if batch.origin is None else batch.origin.source
        for keyed, own in zip(reversed(keys_of(raw)), reversed(raws_of(raw)), strict=True):
            key = source, keyed.type, keyed.subject
            self.look(key, batch.origin, own, first_node(batch), keyed.is_kept)

    def look_everywhere(self, broker: Broker) -> Steps[None]:
        """Look at recent events and then at those that are kept by key, each from the newest on."""
        pages, publishing = broker.last_pages, broker.publishing
        numbers, order = pages.numbers(), pages.order
        number = publishing.recent_gone + len(publishing.recent)  # of the batch that was looked at last
        while number > publishing.recent_gone:
            number -= 1
            batch = publishing.recent[number - publishing.recent_gone]
            if self._is_own and first_node(batch):
                continue
            for end in range(len(batch), 0, -LOOKED_AT_ONCE):
                self.look_at(batch, max(end - LOOKED_AT_ONCE, 0), end)
                yield
        for number in numbers:
            if self.may_have(pages.types(number)):
                for key, value in pages.values(number):
                    if value.order <= order and not (self._is_own and value.node):
                        self.look(key, value.origin, value.raw, value.node, is_kept=True)
            yield


def last_values(broker: Broker, filter: Filter, user: str | None = None) -> Steps[list[FoundValues]]:
    """The newest event of each source, type and subject that a user wants, the oldest of them first.

    Events that have outlived their `ttl_s` are not revived. What is published after the first step is not
    looked at, what the node has given up meanwhile is not kept for this, and what may have been lost with a
    commit is not delivered.
    """
    found = yield from search_values(broker, filter, user)
    life = broker.life
    joined = yield from _joined(found)
    return joined if broker.life == life else []


def search_values(
    broker: Broker, filter: Filter, user: str | None = None, is_own: bool = False
) -> Steps[list[Value]]:
    """The same as single values; `is_own`: only of what this node has taken in."""
    search = _Search(filter, broker.node, user, broker.wall, is_own)
    life, found = broker.life, search.found
    for _ in search.look_everywhere(broker):
        yield
        if broker.life != life:
            return []
        if len(found) >= VALUES_MAX:
            break
    return [value for value in reversed(found.values()) if value is not None]


def _test(constraint: Constraint | None) -> Callable[[str | None], bool] | None:
    """Return the test of a string or its absence; None if there is no constraint."""
    if constraint is None:
        return None
    points = constraint.strings.points()
    if points is None:
        return constraint.admits
    return frozenset([*points, None] if constraint.missing else points).__contains__


def _joined(values: list[Value]) -> Steps[list[FoundValues]]:
    """Batches of values that follow each other and have one origin, some in each."""
    joined: list[FoundValues] = []
    for start in range(0, len(values), LOOKED_AT_ONCE):
        some = values[start : start + LOOKED_AT_ONCE]
        for (origin, node), run in groupby(some, key=attrgetter("origin", "node")):
            joined.append(FoundValues(node, batch_of(origin, [value.raw for value in run])))
        yield
    return joined


def batch_of(origin: Origin | None, raws: Sequence[bytes]) -> Batch:
    """Return a batch of some events."""
    return Batch(array_head(len(raws)) + b"".join(raws), origin)


def _is_expired(event: Event, wall: float) -> bool:
    return event.ttl_s is not None and event.time_us / 1e6 + event.ttl_s <= wall
