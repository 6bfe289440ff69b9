"""Last values: of the events that were published lately, the newest for each thing that publishes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tidings.event import Batch, Event
from tidings.exchange import Rows
from tidings.filters import Filter


def last_values(recent: Iterable[Batch], filter: Filter, wall: float) -> Iterator[tuple[Batch, Rows]]:
    """The newest event of each source, type and subject that matches, the oldest of them first.

    Events that have outlived their `ttl_s` by the wall clock, as their times are, are not revived.
    """
    seen: set[Any] = set()
    found: list[tuple[Batch, int]] = []
    for batch in reversed(list(recent)):
        for row in range(len(batch) - 1, -1, -1):
            event = batch.events[row]
            thing = (event.source, event.type, event.subject)
            if thing not in seen and filter.matches(event):
                seen.add(thing)
                if not _is_expired(event, wall):
                    found.append((batch, row))
    for batch, row in reversed(found):
        yield batch, (row,)


def _is_expired(event: Event, wall: float) -> bool:
    return event.ttl_s is not None and event.time_us / 1e6 + event.ttl_s <= wall
