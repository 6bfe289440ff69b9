"""Last values: the newest event of each source, type and subject, for subscriptions that ask for them.

They are found among the events that were published lately, whatever these are, and then among those that are
kept by key (`last_pages`). Of a key that is kept only the last event counts, wanted or not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tidings.event import Batch, Event
from tidings.event.wire import array_head, decode_event
from tidings.exchange import Positions, Rows, Sink
from tidings.ids import Origin
from tidings.protocol.consumer import MEMORY, Consumer
from tidings.protocol.last_pages import VALUES_MAX
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

LOOKED_AT_ONCE = 256
"""Events that are looked at in one step, and values that are delivered in one."""
GATHERED_SIZE_MAX = 8 << 20
"""Bytes of events that wait until the last values have been delivered."""
GATHERED_AT_ONCE = 64
"""Batches of them that are passed on in one step."""
GATHERED_STEPS_MAX = 1_000
"""Steps in which that must come to its end."""

Value = tuple[Origin | None, bytes] | None
"""From whom an event came, and its bytes; None for one that is not wanted or has outlived its time."""


class LastValuesSink(Sink):
    """The sink of a subscription while its last values are looked for: what is published meanwhile waits."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._parts: deque[Batch] = deque()
        self._size = 0

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Let these rows wait; the oldest go where too much does."""
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
                return
            yield
        while self._parts:  # it comes more quickly than it is passed on
            self._pass_next()

    def _pass_next(self) -> None:
        part = self._next()
        self._consumer.deliver(part, range(len(part)), None)

    def _next(self) -> Batch:
        part = self._parts.popleft()
        self._size -= len(part.raw)
        self._consumer.session.holdings.remove(part)
        return part


def last_values(broker: Broker, is_wanted: Callable[[Event], bool]) -> Steps[list[Batch]]:
    """The newest event of each source, type and subject that is wanted, the oldest of them first.

    Events that have outlived their `ttl_s` are not revived. What is published after the first step is not
    looked at, what the node has given up meanwhile is not kept for this, and what may have been lost with a
    commit is not told.
    """
    found: dict[Any, Value] = {}
    life = broker.life
    for _ in _look_everywhere(broker, is_wanted, found):
        yield
        if broker.life != life:
            return []
        if len(found) >= VALUES_MAX:
            break
    joined = yield from _joined([value for value in reversed(found.values()) if value is not None])
    return joined if broker.life == life else []


def _look_everywhere(
    broker: Broker, is_wanted: Callable[[Event], bool], found: dict[Any, Value]
) -> Steps[None]:
    """Note the values among recent events and then those that are kept by key, each from the newest on."""
    pages = broker.last_pages
    numbers, order = pages.numbers(), pages.order
    number = broker.recent_gone + len(broker.recent)  # of the batch that was looked at last
    while number > broker.recent_gone:
        number -= 1
        batch = broker.recent[number - broker.recent_gone]
        for end in range(len(batch), 0, -LOOKED_AT_ONCE):
            start = max(end - LOOKED_AT_ONCE, 0)
            _look(batch, range(end - 1, start - 1, -1), is_wanted, broker.wall, found)
            yield
    for page in numbers:
        for thing, value in pages.values(page):
            if thing not in found and value.order <= order:
                event = decode_event(value.raw, value.origin)
                if is_wanted(event):
                    found[thing] = None if _is_expired(event, broker.wall) else (value.origin, value.raw)
        yield


def _look(
    batch: Batch, rows: range, is_wanted: Callable[[Event], bool], wall: float, found: dict[Any, Value]
) -> None:
    """Note the newest values among these rows, which stand from the newest to the oldest."""
    part = batch.take(rows)
    for event, raw in zip(part.events, part.raws, strict=True):
        thing = (event.source, event.type, event.subject)
        if thing in found:
            continue
        if is_wanted(event):
            found[thing] = None if _is_expired(event, wall) else (batch.origin, raw)
        elif event.subject is not None and event.delivery != "transient":
            found[thing] = None  # it is kept by key, so an older one is not its value


def _joined(values: list[tuple[Origin | None, bytes]]) -> Steps[list[Batch]]:
    """Batches of values that follow each other and have one origin, some in each."""
    batches: list[Batch] = []
    for start in range(0, len(values), LOOKED_AT_ONCE):
        for origin, run in groupby(values[start : start + LOOKED_AT_ONCE], key=itemgetter(0)):
            raws = [raw for _, raw in run]
            batches.append(Batch(array_head(len(raws)) + b"".join(raws), origin))
        yield
    return batches


def _is_expired(event: Event, wall: float) -> bool:
    return event.ttl_s is not None and event.time_us / 1e6 + event.ttl_s <= wall
