"""A block: up to 4096 entries with bitmaps that show, for each cell of a lane, which of them may match there.

For every lane that enough of its entries test, a block has one row of bits per cell and one for events that
lack the lane; entries without a test on it have their bit in every row. An event is matched by ANDing one row
per lane and verifying the entries left over. Beside each row stands its *summary*, one bit per word that is
not empty, so that rows with few entries (one type among a thousand) cost one word, not 64.

Lanes that few entries test get no rows of their own: 64 groups share one row each, of the entries that need
no lane of the group, for events that have none of them. So very many attributes cost 64 rows.

A block never changes except for `alive`, the entries that are not removed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import njit

from tidings.event.scan import PRESENCE
from tidings.event.texts import Bytes, Floats, Int, Ints, Longs, address
from tidings.matching.entries import LANE_MASK, MARK_BITS, SPAN_SHIFT, EntryArrays
from tidings.matching.grid import LaneGrid

CAPACITY: Final = 4096
"""Entries of a block at most: the summary of a row is one word, with a bit for each of 64 words."""
GROUPS: Final = 64
TESTED_MIN: Final = 8
"""A lane has rows when that many entries test it, and at least one in 32."""
RANGE_TESTS_PER_ROW: Final = 16
POINT_TESTS_PER_ROW: Final = 4
"""Tests that justify a row, which takes the memory of some twenty tests."""
_WORDS_STEP: Final = 8  # a row is a whole number of cache lines

Words = npt.NDArray[np.uint64]
Shorts = npt.NDArray[np.int16]


class EntryBlock:
    """Entries and their bitmaps; `words` is what compiled code reads."""

    def __init__(self, entries: EntryArrays, generation: int) -> None:
        self.entries = entries
        self.generation = generation
        count = len(entries.owners)
        assert count <= CAPACITY, "a summary has one bit for each word"
        width = -(-count // (64 * _WORDS_STEP)) * _WORDS_STEP
        self.alive: Words = np.zeros(width, np.uint64)
        _set_bits(self.alive, entries.owners)
        self.living = int(np.count_nonzero(entries.owners >= 0))
        self.lanes: list[int] = []  # lanes that any entry tests
        self.row_lanes: Ints = np.zeros(0, np.int32)  # from the most selective lane to the least
        self.shifts: Ints = np.zeros(0, np.int32)  # a row is 2^shift cells
        self.bases: Ints = np.zeros(1, np.int32)  # the first row of each lane
        self.rows: Words = np.zeros((0, width), np.uint64)
        self.summaries: Words = np.zeros(0, np.uint64)
        self.groups = 0  # a bit for each group that an entry needs a lane of; their rows come last
        self.finish()

    def __len__(self) -> int:
        return len(self.entries.owners)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the addresses: a copy lies elsewhere in memory."""
        return {name: value for name, value in vars(self).items() if name != "words"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.finish()

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """Arrays whose addresses are in `words`, in that order."""
        bitmaps = (self.alive, self.row_lanes, self.shifts, self.bases, self.rows, self.summaries)
        return (*bitmaps, *self.entries)

    def finish(self) -> None:
        """Set `words`: numbers and addresses, in the order that the kernel knows."""
        groups = self.groups - (1 << 64) if self.groups >> 63 else self.groups
        numbers = [len(self), len(self.alive), len(self.row_lanes), self.generation & 1, groups]
        self.words = np.array(numbers + [address(part) for part in self.arrays], np.int64)

    def remove(self, slot: int) -> list[int]:
        """Clear the entries of a slot, and return them."""
        places: list[int] = np.flatnonzero(self.entries.owners >> MARK_BITS == slot).tolist()
        for place in places:
            self.alive[place >> 6] &= ~(np.uint64(1) << np.uint64(place & 63))
        self.entries.owners[places] = -1
        self.living -= len(places)
        return places

    def living_entries(self) -> EntryArrays:
        """Return the entries that are not removed."""
        if self.living == len(self):
            return self.entries
        return self.entries.only(np.flatnonzero(self.entries.owners >= 0))

    @property
    def bitmap_memory(self) -> int:
        """Bytes of the bitmaps."""
        return self.rows.nbytes + self.summaries.nbytes + self.alive.nbytes


def build(
    entries: EntryArrays, grid: LaneGrid, ordered: Bytes, kinds: Any, ranks: Longs, generation: int
) -> EntryBlock:
    """Build a block of these entries, with bitmaps on the cells of the grid, which learns lanes new to it."""
    least = max(TESTED_MIN, len(entries.owners) >> 5)
    grid.learn(entries, ordered, least)
    grid.flatten(ordered)
    bounds = np.diff(grid.starts)
    cells = _cells(entries.tests, ordered, ranks, grid.starts, grid.bounds)
    tested, passing = _measure(entries.first, entries.tests, cells, bounds)
    enough = np.flatnonzero(tested >= least)
    chosen = enough[np.argsort(passing[enough], kind="stable")].astype(np.int32)
    place_of = np.full(len(ordered), -1, np.int32)
    place_of[chosen] = np.arange(len(chosen))
    # Entries that fail together stand together: whole lines of bits are then empty after a row or two.
    order = np.argsort(_sort_keys(entries.first, entries.tests, cells, place_of), kind="stable")
    entries, places = entries.take(order)
    block = EntryBlock(entries, generation)
    block.lanes = np.flatnonzero(tested).tolist()
    block.row_lanes = chosen
    shifts = [_shift(int(bounds[lane]), int(tested[lane])) for lane in chosen]
    block.shifts = np.array(shifts, np.int32)
    block.bases = np.zeros(len(chosen) + 1, np.int32)
    block.bases[1:] = np.cumsum((bounds[chosen] >> block.shifts) + 2)
    is_rare = (tested > 0) & (tested < least) & (np.array(kinds, np.int8) != PRESENCE)
    block.groups = sum({1 << (lane % GROUPS) for lane in np.flatnonzero(is_rare).tolist()})
    height = int(block.bases[-1]) + (GROUPS if block.groups else 0)
    block.rows = np.zeros((height, len(block.alive)), np.uint64)
    _fill_untested(entries.first, entries.tests, place_of, is_rare, block.bases, block.rows)
    _fill(entries.first, entries.tests, cells[places], place_of, block.shifts, block.bases, block.rows)
    block.summaries = _summaries(block.rows)
    block.finish()
    return block


def _shift(bounds: int, tests: int) -> int:
    per_row = RANGE_TESTS_PER_ROW if bounds < 64 else POINT_TESTS_PER_ROW
    most = max(4, tests // per_row)
    shift = 0
    while (bounds >> shift) + 1 > most:
        shift += 1
    return shift


@njit(nogil=True, cache=True)
def _set_bits(words: Words, owners: Ints) -> None:
    for place in range(len(owners)):
        if owners[place] >= 0:
            words[place >> 6] |= np.uint64(1) << np.uint64(place & 63)


@njit(nogil=True, cache=True)
def _lane_and_end(tests: Floats, test: Int) -> tuple[Int, Int]:
    """Return the lane of a test, and the index of the next test on another lane."""
    head = np.int64(tests[test, 0])
    return head & LANE_MASK, test + (head >> SPAN_SHIFT)


@njit(nogil=True, cache=True)
def _cell(lane: Int, bound: Any, ordered: Bytes, ranks: Longs, starts: Ints, bounds: Floats) -> Int:
    """Return the cell of an interval's end."""
    begin, end = starts[lane], starts[lane + 1]
    if bound == np.inf:
        return end - begin
    if bound == -np.inf:
        return 0
    if ordered[lane]:
        code = np.int64(bound)
        bound = np.float64(2 * ranks[code >> 2] + (code & 3))
    return np.searchsorted(bounds[begin:end], bound, side="right")


@njit(nogil=True, cache=True)
def _cells(tests: Floats, ordered: Bytes, ranks: Longs, starts: Ints, bounds: Floats) -> Shorts:
    """Return, by test, the cells in which its interval begins and ends."""
    cells = np.empty((len(tests), 2), np.int16)
    for test in range(len(tests)):
        lane = np.int64(tests[test, 0]) & LANE_MASK
        cells[test, 0] = _cell(lane, tests[test, 1], ordered, ranks, starts, bounds)
        cells[test, 1] = _cell(lane, tests[test, 2], ordered, ranks, starts, bounds)
    return cells


@njit(nogil=True, cache=True)
def _measure(first: Ints, tests: Floats, cells: Shorts, bounds: Ints) -> Any:
    """Return, by lane, how many entries test it, and how many of them an event is expected to pass."""
    tested = np.zeros(len(bounds), np.int64)
    failing = np.zeros(len(bounds))
    for entry in range(len(first) - 1):
        test = first[entry]
        while test < first[entry + 1]:
            lane, end = _lane_and_end(tests, test)
            tested[lane] += 1
            admitted = 0
            while test < end:
                admitted += cells[test, 1] - cells[test, 0] + 1
                test += 1
            failing[lane] += 1.0 - admitted / (bounds[lane] + 1.0)
    return tested, len(first) - 1.0 - failing


@njit(nogil=True, cache=True)
def _sort_keys(first: Ints, tests: Floats, cells: Shorts, place_of: Ints) -> Ints:
    """Return, by entry, the most selective lane that it tests, and the first cell that it admits there."""
    keys = np.full(len(first) - 1, 1 << 30, np.int32)
    for entry in range(len(first) - 1):
        test = first[entry]
        while test < first[entry + 1]:
            lane, end = _lane_and_end(tests, test)
            if 0 <= place_of[lane] < keys[entry] >> 12:
                keys[entry] = place_of[lane] << 12 | cells[test, 0]
            test = end
    return keys


@njit(nogil=True, cache=True)
def _fill(
    first: Ints, tests: Floats, cells: Shorts, place_of: Ints, shifts: Ints, bases: Ints, rows: Words
) -> None:
    """Set the bits of tested entries in the rows they admit."""
    for entry in range(len(first) - 1):
        word, bit = entry >> 6, np.uint64(1) << np.uint64(entry & 63)
        test = first[entry]
        while test < first[entry + 1]:
            lane, end = _lane_and_end(tests, test)
            place = place_of[lane]
            while place >= 0 and test < end:
                low, high = cells[test, 0] >> shifts[place], cells[test, 1] >> shifts[place]
                for row in range(bases[place] + 1 + low, bases[place] + 2 + high):
                    rows[row, word] |= bit
                test += 1
            test = end


@njit(nogil=True, cache=True)
def _fill_untested(
    first: Ints, tests: Floats, place_of: Ints, is_rare: npt.NDArray[np.bool_], bases: Ints, rows: Words
) -> None:
    """Set the bits of entries without a test on a lane in all its rows."""
    for place in range(len(bases) - 1):
        rows[bases[place]] = ~np.uint64(0)
    rows[bases[-1] :] = ~np.uint64(0)
    for entry in range(len(first) - 1):
        word, bit = entry >> 6, np.uint64(1) << np.uint64(entry & 63)
        test = first[entry]
        while test < first[entry + 1]:
            lane, end = _lane_and_end(tests, test)
            if place_of[lane] >= 0:
                rows[bases[place_of[lane]], word] &= ~bit
            elif is_rare[lane]:
                rows[bases[-1] + lane % GROUPS, word] &= ~bit
            test = end
    for place in range(len(bases) - 1):
        for row in range(bases[place] + 1, bases[place + 1]):
            rows[row] = rows[bases[place]]


@njit(nogil=True, cache=True)
def _summaries(rows: Words) -> Words:
    summaries = np.zeros(len(rows), np.uint64)
    for row in range(len(rows)):
        for word in range(rows.shape[1]):
            if rows[row, word]:
                summaries[row] |= np.uint64(1) << np.uint64(word)
    return summaries
