"""What this node has missed of the streams of others: gaps in the numbers of first nodes.

Reliable events are kept for a neighbour that is away within limits (`overlay/keeping.py`). What goes past
them is reported to all behind it as a *gap*: the numbers from `first` to `last` of a first node in an epoch.
A node notes it, less what it has had, and notifies the subscriptions that may have matched: those that are
there at once, durable ones whenever they come back until they have acknowledged something newer. What comes
after all is found by its number, taken, and marked as *late*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tidings.event.relayed import RelayedBatch
from tidings.filters import Filter
from tidings.protocol.consumer import Consumer
from tidings.protocol.last_values import LastValuesSink
from tidings.store.interface import RecordKind

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker
    from tidings.protocol.stored_consumer import StoredConsumer

GAPS_MAX = 1_000
"""Gaps that a node remembers, of all first nodes; beyond that the oldest are forgotten."""
GAP_S = 30 * 86_400.0
"""How long a gap is remembered."""
OWED_MAX = 1_000
"""Durable subscriptions that are noted one by one for a gap; of more, all are notified that come back."""
TYPES_MAX = 16
"""Types of events that are named for a gap; of more, events of any type may be in it."""


class MissedRange(Struct, frozen=True, array_like=True):
    """Numbers of a first node among which some events are missed, `count` at most; `name` is the node's."""

    node: str
    epoch: int
    first: int
    last: int
    count: int
    types: tuple[str, ...] = ()
    name: str = ""

    @property
    def filter(self) -> Filter:
        """Filter that matches all that is missed, and more."""
        return Filter("type IN :types", types=list(self.types)) if self.types else Filter()

    def joined(self, other: MissedRange) -> MissedRange:
        """Return the range of both, which are of the same node and epoch."""
        types = set(self.types) | set(other.types) if self.types and other.types else set()
        return MissedRange(
            self.node,
            self.epoch,
            min(self.first, other.first),
            max(self.last, other.last),
            self.count + other.count,
            tuple(sorted(types)) if len(types) <= TYPES_MAX else (),
            self.name or other.name,
        )


class NotedGap(Struct, frozen=True):
    """A gap as it is noted: at which position of the stream, when, and which durable subscriptions it met."""

    missed: MissedRange
    position: int
    since: float
    owed: tuple[tuple[str, str], ...] | None = None

    def within(self, first: int, last: int) -> NotedGap:
        """Return the part of it between two numbers."""
        count = min(self.missed.count, last - first + 1)
        return replace(self, missed=replace(self.missed, first=first, last=last, count=count))


class NotedGaps(Struct, frozen=True):
    """The stored record of all gaps of one first node in one epoch."""

    gaps: tuple[NotedGap, ...]


MISSED: RecordKind[tuple[str, str], NotedGaps] = RecordKind("missed", NotedGaps)


class Missed:
    """Gaps that this node knows; false if there are none."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._gaps: dict[tuple[str, int], list[NotedGap]] = {}
        for (node, epoch), noted in MISSED.known(broker.state).items():
            self._gaps[node, int(epoch)] = list(noted.gaps)

    def __bool__(self) -> bool:
        return bool(self._gaps)

    def __iter__(self) -> Iterator[NotedGap]:
        return iter([gap for gaps in self._gaps.values() for gap in gaps])

    # Gaps that are reported

    def note(self, missed: MissedRange) -> None:
        """Note what of a range was neither had nor noted, and notify subscriptions."""
        broker, key = self._broker, (missed.node, missed.epoch)
        had = broker.relays.had_up_to(*key)
        parts = [] if had >= missed.last else [(max(missed.first, int(had) + 1), missed.last)]
        for known in self._gaps.get(key, ()):
            parts = [left for part in parts for left in _without(part, known.missed.first, known.missed.last)]
        if not parts:
            return
        noted = NotedGap(missed, broker.position, broker.wall, self._owed(missed))
        gaps = [noted.within(first, last) for first, last in parts]
        self._keep(key, sorted([*self._gaps.get(key, ()), *gaps], key=lambda one: one.missed.first))
        self._forget()
        for gap in gaps:
            broker.count("gaps")
            self._report(gap)
            if broker.channels is not None:
                broker.channels.missed(missed.node, missed.epoch, gap.missed.last)

    def _owed(self, missed: MissedRange) -> tuple[tuple[str, str], ...] | None:
        wanted = missed.filter
        met = [
            cursor.key
            for cursor in self._broker.cursors.named
            if not (cursor.is_link or cursor.is_archive) and cursor.filter.overlaps(wanted)
        ]
        return tuple(met) if len(met) <= OWED_MAX else None

    def _report(self, gap: NotedGap) -> None:
        wanted, details = gap.missed.filter, _details(gap)
        for subscription in list(self._broker.exchange.announced):
            sink = subscription.sink
            if isinstance(sink, Consumer | LastValuesSink) and subscription.filter.overlaps(wanted):
                sink.report_missed(details)

    def recall(self, consumer: StoredConsumer) -> None:
        """Notify a durable subscription that is back of the gaps since what it has acknowledged."""
        cursor = consumer.cursor
        if not self._gaps or not cursor.name or cursor.is_link:
            return
        for gap in self:
            is_owed = gap.owed is None or cursor.key in gap.owed
            if is_owed and cursor.acknowledged <= gap.position and cursor.filter.overlaps(gap.missed.filter):
                consumer.report_missed(_details(gap))

    # Events that come after all

    def late_rows(self, batch: RelayedBatch) -> list[int]:
        """Return the rows of a batch that were noted as missed."""
        gaps = self._gaps.get((batch.first.node, batch.first.epoch))
        if gaps is None or batch.first.is_volatile:
            return []
        spans = [(gap.missed.first, gap.missed.last) for gap in gaps]
        return [
            row
            for row, number in enumerate(batch.numbers)
            if any(first <= number <= last for first, last in spans)
        ]

    def fill(self, batch: RelayedBatch) -> None:
        """Note that events have come that were missed."""
        key = batch.first.node, batch.first.epoch
        gaps = self._gaps.get(key, [])
        for number in batch.numbers:
            gaps = [
                gap.within(*part)
                for gap in gaps
                for part in _without((gap.missed.first, gap.missed.last), number, number)
            ]
        self._broker.count("late", len(batch))
        self._keep(key, gaps)

    # The store

    def _keep(self, key: tuple[str, int], gaps: Sequence[NotedGap]) -> None:
        stored = key[0], str(key[1])
        if gaps:
            self._gaps[key] = list(gaps)
            self._broker.store(MISSED.set(stored, NotedGaps(tuple(gaps))))
        elif self._gaps.pop(key, None) is not None:
            self._broker.store(MISSED.drop(stored))

    def _forget(self) -> None:
        """Forget gaps that are too old, or too many."""
        since = sorted(gap.since for gap in self)
        least = max(self._broker.wall - GAP_S, since[-GAPS_MAX] if len(since) > GAPS_MAX else -inf)
        for key, gaps in list(self._gaps.items()):
            left = [gap for gap in gaps if gap.since >= least]
            if len(left) < len(gaps):
                self._keep(key, left)


def _without(span: tuple[int, int], first: int, last: int) -> list[tuple[int, int]]:
    """Return what is left of a span of numbers without those from `first` to `last`."""
    left = (span[0], min(span[1], first - 1)), (max(span[0], last + 1), span[1])
    return [one for one in left if one[0] <= one[1]]


def _details(gap: NotedGap) -> dict[str, Any]:
    """Return what a client gets of a gap; how many of the events it would have matched is not known."""
    missed = gap.missed
    about = {"node": missed.name or missed.node, "epoch": missed.epoch}
    return {"dropped": 0, "reason": "away", **about, "first": missed.first, "last": missed.last}
