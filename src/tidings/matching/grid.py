"""The grid: cuts of each lane into cells that blocks share, so that an event is placed only once.

A lane's *bounds* are chosen from the ends of the intervals that entries test it for; cell n holds the values
from bound n-1 up to bound n. Lanes of points (types, names, states) get up to POINT_CELLS cells, which keep a
thousand types apart; lanes of ranges get RANGE_CELLS, because more would separate hardly more entries.
Texts are numbered as they come, so those of later blocks lie above all bounds: more bounds are added there,
which leaves the cells of earlier blocks as they are, except the last one, which is divided.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tidings.event.texts import Bytes, Floats, Ints, Longs
from tidings.matching.entries import EntryArrays
from tidings.matching.lanes import CutTexts

POINT_CELLS: Final = 1024
RANGE_CELLS: Final = 64
GROWN_CELLS: Final = 4 * POINT_CELLS
"""Cells of a lane of points to which texts that were numbered later have been added."""


class LaneGrid:
    """The bounds of all lanes that blocks of one generation have rows for."""

    def __init__(self, cuts: CutTexts) -> None:
        self._cuts = cuts
        self._bounds: dict[int, Floats] = {}  # of ordered lanes: numbers of cuts, as in entries
        self.starts: Ints = np.zeros(1, np.int32)
        self.bounds: Floats = np.zeros(1)
        self._changed = True  # since the last layout
        self._ranks: Longs | None = None  # those of the last layout

    def learn(self, entries: EntryArrays, ordered: Bytes, least: int) -> None:
        """Choose bounds for the lanes that are new here and have at least so many tests."""
        lanes = entries.lanes
        counts = np.bincount(lanes, minlength=len(ordered))
        for lane in np.flatnonzero(counts >= least).tolist():
            tests = entries.tests[lanes == lane]
            if lane not in self._bounds:
                self._add(lane, tests[:, 1], tests[:, 2], bool(ordered[lane]))
            elif not ordered[lane]:
                self._grow(lane, tests[tests[:, 1] == tests[:, 2], 1], least)

    def _add(self, lane: int, lows: Floats, highs: Floats, ordered: bool) -> None:
        are_points = np.count_nonzero(lows == highs) * 2 > len(lows)
        ends = lows[np.isfinite(lows)]
        if not are_points or ordered:
            tops = highs[np.isfinite(highs)]
            ends = np.concatenate([ends, tops + 1 if ordered else np.nextafter(tops, np.inf)])
        ends = np.unique(ends)
        if ordered:
            ends = ends[np.argsort(resolve(ends, self._cuts.ranks), kind="stable")]
        most = (POINT_CELLS if are_points else RANGE_CELLS) - 1
        if len(ends) > most:
            ends = ends[np.linspace(0, len(ends) - 1, most).astype(np.int64)]
        self._bounds[lane] = ends
        self._changed = True
        self._count(lane, ordered, 1)

    def _grow(self, lane: int, points: Floats, least: int) -> None:
        """Add bounds above the others for points that lie there, if these are many."""
        ends = self._bounds[lane]
        fresh = np.unique(points[points > ends[-1]]) if len(ends) else points[:0]
        room = min(POINT_CELLS, GROWN_CELLS - len(ends)) - 1
        if len(fresh) < least or room < 1:
            return
        if len(fresh) > room:
            fresh = fresh[np.linspace(0, len(fresh) - 1, room).astype(np.int64)]
        self._bounds[lane] = np.concatenate([ends, fresh])
        self._changed = True

    def _count(self, lane: int, ordered: bool, times: int) -> None:
        if ordered:
            for bound in self._bounds[lane].tolist():
                self._cuts.use(int(bound) >> 2, times)

    def forget(self, lanes: list[int], ordered: Bytes) -> None:
        """Drop the bounds of lanes that no entry tests any more."""
        for lane in lanes:
            if lane in self._bounds:
                self._count(lane, bool(ordered[lane]), -1)
                del self._bounds[lane]
                self._changed = True

    def close(self, ordered: Bytes) -> None:
        """Drop all bounds."""
        self.forget(list(self._bounds), ordered)

    def flatten(self, ordered: Bytes) -> None:
        """Lay the bounds out for compiled code: `bounds[starts[n]:starts[n + 1]]` are those of lane n."""
        if not self._changed and len(self.starts) == len(ordered) + 1 and self._ranks is self._cuts.ranks:
            return
        self._changed, self._ranks = False, self._cuts.ranks
        sizes = np.zeros(len(ordered), np.int64)
        for lane, ends in self._bounds.items():
            sizes[lane] = len(ends)
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        self.bounds = np.zeros(int(self.starts[-1]) + 1)
        for lane, ends in self._bounds.items():
            flat = resolve(ends, self._cuts.ranks) if ordered[lane] else ends
            self.bounds[self.starts[lane] : self.starts[lane + 1]] = flat

    @property
    def memory(self) -> int:
        """Bytes held."""
        return self.starts.nbytes + 2 * self.bounds.nbytes


def resolve(codes: Floats, ranks: Longs) -> Floats:
    """Return the present places of bounds that are given by numbers of cuts."""
    whole = codes.astype(np.int64)
    places: Floats = (2 * ranks[whole >> 2] + (whole & 3)).astype(np.float64)
    return places
