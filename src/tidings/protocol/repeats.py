"""Events that their publisher sends again at another node, as its own may have died before it has answered.

Two nodes may have taken such an event in, so it has two numbers: it is known by who has counted it, and its
counter. The second node knows which counters the client had sent to the first one, and marks these events as
*repeats*, on all hops. Each node keeps of every publisher how far its events have come here, by whichever
first node, and which repeats have come; so of the two whichever comes second is not delivered to its clients.
It is handed on, since nodes beyond may have neither.

    the original first     its counter is not above the last one of this publisher: the repeat was had
    the repeat first       its counter is noted: the original, when its node is back, was had

All else that the first node brings when it is back is new, though its publisher has gone on elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from tidings.ids import Origin
from tidings.seen import Producers
from tidings.store.interface import RecordKind

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

REPEATERS_MAX = 10_000
"""Publishers whose repeats are remembered; those that have repeated nothing for longest are forgotten."""
RANGES_MAX = 1_000
"""Ranges of counters that are remembered of one publisher, the newest."""
_COUNTED = "%"  # before the system of a publisher: by that the ledger knows how far its events have come

Publisher = tuple[str, int]


class RepeatedRanges(Struct, frozen=True):
    """The stored record of what a publisher has repeated: first and last counters."""

    ranges: list[tuple[int, int]]


REPEATED: RecordKind[tuple[str, str], RepeatedRanges] = RecordKind("repeated", RepeatedRanges)


class Repeats:
    """How far the events of publishers have come here, and what of them were repeats."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._seen: Producers[Publisher, list[tuple[int, int]]] = Producers(REPEATERS_MAX)
        for (system, epoch), stored in REPEATED.known(broker.state).items():
            self._seen[system, int(epoch)] = list(stored.ranges)

    def originals(self, origin: Origin, counters: Sequence[int]) -> list[int]:
        """Note events that are no repeats; the rows of those that were had as such."""
        publisher = publisher_of(origin)
        counted = Origin(_COUNTED + publisher[0], publisher[1])
        self._broker.ledger.count_up(counted, int(counters[-1]))
        self._broker.ledger.keep(counted)
        ranges = self._seen.get(publisher)
        if not ranges:
            return []
        return [row for row, one in enumerate(counters) if _is_in(ranges, int(one))]

    def repeats(self, origin: Origin, counters: Sequence[int]) -> list[int]:
        """Note events that are repeats; the rows of those that were had."""
        publisher = publisher_of(origin)
        last = self._broker.ledger.counter_of(Origin(_COUNTED + publisher[0], publisher[1]))
        ranges = self._seen.get(publisher, [])
        had = [row for row, one in enumerate(counters) if one <= last or _is_in(ranges, int(one))]
        if len(had) < len(counters):
            self._note(publisher, [int(one) for one in counters])
        return had

    def _note(self, publisher: Publisher, counters: list[int]) -> None:
        ranges = self._seen.heard(publisher, list)
        for one in counters:
            if ranges and ranges[-1][1] + 1 == one:
                ranges[-1] = ranges[-1][0], one
            elif not _is_in(ranges, one):
                ranges.append((one, one))
        del ranges[:-RANGES_MAX]
        key = publisher[0], str(publisher[1])
        self._broker.store(REPEATED.set(key, RepeatedRanges(list(ranges))))


def publisher_of(origin: Origin) -> Publisher:
    """Return who has counted events: system and user, by whichever node they come, and epoch."""
    user = (origin.source or "").partition("@")[0].partition("/")[0]
    return f"{origin.system or ''}/{user}", origin.epoch


def _is_in(ranges: Sequence[tuple[int, int]], counter: int) -> bool:
    return any(first <= counter <= last for first, last in ranges)
