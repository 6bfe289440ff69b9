"""Waste: how much of what a neighbour relays came for nobody, since filters were merged that match more.

An event that came over a link and that nobody here, nor behind any other link, wants is *wasted* if one of
the merged filters matches it by which the neighbour knows what is wanted. These are counted over a number of
events. If they are more than the bound, the filters by which most of them came are replaced by exact ones,
until half of the bound is left for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidings.event import Batch
from tidings.matching import Index
from tidings.overlay.merging import Unit

if TYPE_CHECKING:
    from tidings.event.relayed import RelayedBatch
    from tidings.exchange import NodeSubscription
    from tidings.overlay.neighbours import KnownNeighbours
    from tidings.protocol.broker import Broker
    from tidings.protocol.publishing import MatchedRows

COUNTED = 1_000
"""Events of a neighbour after which its filters are judged."""


class Waste:
    """Waste of all links of a node; `bound` is the part of their events that may be wasted."""

    def __init__(self, broker: Broker, known: KnownNeighbours, bound: float) -> None:
        self._broker = broker
        self._known = known
        self._bound = bound
        self._meters: dict[str, _Meter] = {}  # by the neighbour at the other end

    def look(self, batch: RelayedBatch, matches: MatchedRows, granted: NodeSubscription | None) -> None:
        """Count events that have come over a link; what only its neighbour's rights match is unwanted."""
        neighbour = self._known.get(batch.via)
        if neighbour is None:
            self._meters.pop(batch.via, None)
            return
        meter, covering = self._meters.setdefault(batch.via, _Meter()), neighbour.announcer.covering
        meter.relayed += len(batch)
        unwanted = _unmatched(len(batch), [rows for one, rows in matches if one is not granted])
        if unwanted and covering.coarse is not None and len(covering.coarse):
            self._broker.count("relays_wasted", meter.note(batch.take(unwanted), covering.coarse))
        if meter.relayed >= COUNTED:
            del self._meters[batch.via]
            for unit in meter.excess(self._bound):
                covering.sharpen(unit)


class _Meter:
    """What has come over one link since its filters were judged."""

    def __init__(self) -> None:
        self.relayed = self.wasted = 0
        self.by_unit: Counter[Unit] = Counter()  # wasted events that each announced filter matches

    def note(self, unwanted: Batch, coarse: Index[Unit]) -> int:
        """Count unwanted events that announced filters match; how many these are."""
        matched = [(unit, list(rows)) for unit, rows in coarse.match_items(unwanted) if len(rows)]
        self.by_unit.update({unit: len(rows) for unit, rows in matched})
        wasted = len(unwanted) - len(_unmatched(len(unwanted), [rows for _, rows in matched]))
        self.wasted += wasted
        return wasted

    def excess(self, bound: float) -> list[Unit]:
        """Return the filters without which no more than half of the bound would have been wasted."""
        left, found = self.wasted, list[Unit]()
        if left > bound * self.relayed:
            for unit, times in self.by_unit.most_common():
                if left <= bound * self.relayed / 2:
                    break
                found.append(unit)
                left -= times
        return found


def _unmatched(count: int, matched: Sequence[Sequence[int]]) -> list[int]:
    """Return the rows of a batch that are in none of these lists."""
    if any(len(rows) == count for rows in matched):
        return []
    return sorted(set(range(count)).difference(*matched))
