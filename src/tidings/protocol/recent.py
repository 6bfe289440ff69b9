"""Last values: of the events that were published lately, the newest for each thing that publishes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tidings.event import Batch, Event
from tidings.event.wire import array_head
from tidings.ids import Origin
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

LOOKED_AT_ONCE = 256
"""Events that are looked at in one step."""
VALUES_MAX = 10_000
"""Last values that one subscription gets, the newest: no more could wait for it than that."""

Value = tuple[Origin | None, bytes] | None
"""From whom an event came, and its bytes; None for one that has outlived its time."""


def last_values(broker: Broker, is_wanted: Callable[[Event], bool]) -> Steps[list[Batch]]:
    """The newest event of each source, type and subject that is wanted, the oldest of them first.

    Events that have outlived their `ttl_s` are not revived. What is published between two steps is looked at
    as well, and what may have been lost with a commit is not told.
    """
    found: dict[Any, Value] = {}
    life, seen = broker.life, broker.remembered
    for batch in reversed(list(broker.recent)):
        for end in range(len(batch), 0, -LOOKED_AT_ONCE):
            if len(found) >= VALUES_MAX:
                break
            start = max(end - LOOKED_AT_ONCE, 0)
            _look(batch, range(end - 1, start - 1, -1), is_wanted, broker.wall, found)
            yield
            if broker.life != life:
                return (yield from last_values(broker, is_wanted))
    found = dict(reversed(found.items()))
    for batch in list(islice(reversed(broker.recent), broker.remembered - seen))[::-1]:
        newer: dict[Any, Value] = {}
        _look(batch, range(len(batch) - 1, -1, -1), is_wanted, broker.wall, newer)
        for thing, value in reversed(newer.items()):
            found.pop(thing, None)
            found[thing] = value
    return _joined(value for value in found.values() if value is not None)


def _look(
    batch: Batch, rows: range, is_wanted: Callable[[Event], bool], wall: float, found: dict[Any, Value]
) -> None:
    """Note the newest values among these rows, which stand from the newest to the oldest."""
    part = batch.take(rows)
    for event, raw in zip(part.events, part.raws, strict=True):
        thing = (event.source, event.type, event.subject)
        if thing not in found and is_wanted(event):
            found[thing] = None if _is_expired(event, wall) else (batch.origin, raw)


def _joined(values: Iterable[tuple[Origin | None, bytes]]) -> list[Batch]:
    """One batch of all values that follow each other and have one origin."""
    batches: list[Batch] = []
    for origin, run in groupby(values, key=itemgetter(0)):
        raws = [raw for _, raw in run]
        batches.append(Batch(array_head(len(raws)) + b"".join(raws), origin))
    return batches


def _is_expired(event: Event, wall: float) -> bool:
    return event.ttl_s is not None and event.time_us / 1e6 + event.ttl_s <= wall
