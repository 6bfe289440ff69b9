"""Last values: of the events that were published lately, the newest for each thing that publishes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from tidings.event import Batch, Event
from tidings.filters import Filter
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

LOOKED_AT_ONCE = 256
"""Events that are looked at in one step."""


def last_values(broker: Broker, filter: Filter) -> Steps[list[Batch]]:
    """The newest event of each source, type and subject that matches, the oldest of them first.

    Events that have outlived their `ttl_s` are not revived. What is published between two steps is looked at
    as well, and what may have been lost with a commit is not told.
    """
    found: dict[Any, Batch | None] = {}
    life, seen = broker.life, broker.remembered
    for batch in reversed(list(broker.recent)):
        for end in range(len(batch), 0, -LOOKED_AT_ONCE):
            _look(batch, range(end - 1, max(end - LOOKED_AT_ONCE, 0) - 1, -1), filter, broker.wall, found)
            yield
            if broker.life != life:
                return (yield from last_values(broker, filter))
    found = dict(reversed(found.items()))
    for batch in list(islice(reversed(broker.recent), broker.remembered - seen))[::-1]:
        newer: dict[Any, Batch | None] = {}
        _look(batch, range(len(batch) - 1, -1, -1), filter, broker.wall, newer)
        for thing, value in reversed(newer.items()):
            found.pop(thing, None)
            found[thing] = value
    return [value for value in found.values() if value is not None]


def _look(batch: Batch, rows: range, filter: Filter, wall: float, found: dict[Any, Batch | None]) -> None:
    """Note the newest values among these rows, which stand from the newest to the oldest."""
    for row, event in zip(rows, batch.take(rows).events, strict=True):
        thing = (event.source, event.type, event.subject)
        if thing not in found and filter.matches(event):
            found[thing] = None if _is_expired(event, wall) else batch.take((row,))


def _is_expired(event: Event, wall: float) -> bool:
    return event.ttl_s is not None and event.time_us / 1e6 + event.ttl_s <= wall
