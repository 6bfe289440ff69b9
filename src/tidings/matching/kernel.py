"""The loop over all blocks and events: the hottest code of tidings, compiled by numba.

Blocks are the outer loop, so that the bitmaps of one stay in the second-level cache while all events of a
batch pass by. The kernel gets its input in two arrays of words, numbers and addresses (see
`texts.py` for why); their places are named here.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from tidings.event.texts import Int, Ints, Longs, byte_at, float_at, int32_at, int64_at, word_at
from tidings.matching.entries import LANE_MASK, MARK_BITS, ROUGH, SHARED, SPAN_SHIFT
from tidings.matching.instructions import (
    LINE,
    and_line,
    count_ones,
    count_zeros,
    fetch,
    short_at,
    write16,
    write32,
    write64,
)

# The words of a block
_COUNT, _WIDTH, _ROW_LANES_COUNT, _PARITY, _GROUPS = range(5)
_ALIVE, _ROW_LANES, _SHIFTS, _BASES, _ROWS, _SUMMARIES = range(5, 11)
_FIRST, _OWNERS, _TESTS = range(11, 14)
BLOCK_WORDS: Final = 14
FIRST_ADDRESS: Final = _ALIVE
"""The words from here on are addresses."""

# The words of the index
(
    VALUES, LANES_COUNT, PRESENT, CELLS, STARTS, BOUNDS, OTHER_STARTS, OTHER_BOUNDS,
    CELLS_SIZE, ORDERED, RANKS, STAMPS, STAMP, OUT_ROWS, OUT_SLOTS, OUT_BLOCKS, OUT_ROOM, PICKED, LEFT,
) = range(19)  # fmt: skip
CONTROL_WORDS: Final = 19

_SPARSE_MAX: Final = 6
"""Words left by the summaries, up to which it pays to go from word to word instead of ANDing whole rows."""
_FEW: Final = 8
"""Entries of a block without bitmaps up to which each is tested at once, instead of being listed first."""
_TEST_SIZE: Final = 24  # bytes of a test
_SPAN_SHORT: Final = 8
"""Intervals of a test up to which they are tried one by one."""
_AHEAD: Final = 6  # candidates between fetching and testing
_ROWS_STEP: Final = 6  # rows ANDed before testing whether anything is left


# Placing events


@njit(nogil=True, cache=True)
def _cell_of(value: Any, bounds: Int, begin: Int, end: Int) -> Int:
    """Count the bounds that are not above the value."""
    place, size = begin, end - begin
    while size > 0:
        half = (size + 1) >> 1
        place += half if float_at(bounds + 8 * (place + half - 1)) <= value else 0
        size -= half
    return place - begin


@njit(nogil=True, cache=True)
def place_rows(control: Longs, count: Int) -> None:
    """Find the cells of all values, 0 for none, in the grids of both generations, and the groups present."""
    lanes = control[LANES_COUNT]
    for row in range(count):
        present = np.int64(0)
        for lane in range(lanes):
            place = row * lanes + lane
            value = float_at(control[VALUES] + 8 * place)
            absent = np.isnan(value)
            if not absent:
                present |= np.int64(1) << (lane & 63)
            for parity in range(2):
                starts = control[STARTS + 2 * parity]
                if starts == 0:
                    continue
                cell = np.int64(0)
                if not absent:
                    begin, end = int32_at(starts + 4 * lane), int32_at(starts + 4 * lane + 4)
                    cell = 1 + _cell_of(value, control[BOUNDS + 2 * parity], begin, end)
                write16(control[CELLS] + parity * control[CELLS_SIZE] + 2 * place, cell)
        write64(control[PRESENT] + 8 * row, present)


# Matching


@njit(nogil=True, cache=True)
def _admits(block: Longs, entry: Int, row: Int, ordered: Int, ranks: Int) -> Any:
    """Whether every test of an entry contains the value of its lane."""
    first = block[_FIRST] + 4 * entry
    test = block[_TESTS] + _TEST_SIZE * int32_at(first)
    end = block[_TESTS] + _TEST_SIZE * int32_at(first + 4)
    while test < end:
        head = np.int64(float_at(test))
        lane, span = head & LANE_MASK, head >> SPAN_SHIFT
        following = test + _TEST_SIZE * span
        value = float_at(row + 8 * lane)
        if np.isnan(value):
            return False
        last = following
        if span > _SPAN_SHORT:
            test = _first_above(test, span, value, byte_at(ordered + lane) != 0, ranks)
            last = test + _TEST_SIZE
        holds = False
        while test < last and not holds:
            low, high = float_at(test + 8), float_at(test + 16)
            if byte_at(ordered + lane) != 0:
                low, high = _resolve(low, ranks), _resolve(high, ranks)
            holds = low <= value <= high
            test += _TEST_SIZE
        if not holds:
            return False
        test = following
    return True


@njit(nogil=True, cache=True)
def _first_above(test: Int, span: Int, value: Any, is_ordered: Any, ranks: Int) -> Int:
    """Return the first interval of one test that does not end below a value, or the last: they ascend."""
    size = span - 1
    while size > 0:
        half = (size + 1) >> 1
        high = float_at(test + _TEST_SIZE * (half - 1) + 16)
        if is_ordered:
            high = _resolve(high, ranks)
        if high < value:
            test += _TEST_SIZE * half
            size -= half
        else:
            size = half - 1
    return test


@njit(nogil=True, cache=True)
def _resolve(bound: Any, ranks: Int) -> Any:
    """Return the present place of the end of a range of texts."""
    if not np.isfinite(bound):
        return bound
    code = np.int64(bound)
    return np.float64(2 * int64_at(ranks + 8 * (code >> 2)) + (code & 3))


@njit(nogil=True, cache=True)
def _pick_rows(control: Longs, block: Longs, row: Int) -> tuple[Int, Any]:
    """List the rows to AND for one event; return (their number, the words that may have something left)."""
    lanes, width = control[LANES_COUNT], block[_WIDTH]
    cells = control[CELLS] + block[_PARITY] * control[CELLS_SIZE] + 2 * lanes * row
    left = ~np.uint64(0) >> np.uint64(64 - width)
    picked = 0
    for place in range(block[_ROW_LANES_COUNT]):
        cell = short_at(cells + 2 * int32_at(block[_ROW_LANES] + 4 * place))
        base, following = int32_at(block[_BASES] + 4 * place), int32_at(block[_BASES] + 4 * place + 4)
        if cell > 0:
            base = min(base + 1 + ((cell - 1) >> int32_at(block[_SHIFTS] + 4 * place)), following - 1)
        left &= word_at(block[_SUMMARIES] + 8 * base)
        if left == 0:
            return 0, left
        write64(control[PICKED] + 8 * picked, block[_ROWS] + 8 * width * base)
        picked += 1
    groups = np.uint64(block[_GROUPS]) & ~word_at(control[PRESENT] + 8 * row)
    base = int32_at(block[_BASES] + 4 * block[_ROW_LANES_COUNT])
    while groups != 0 and left != 0:
        group = base + count_zeros(groups)
        groups &= groups - np.uint64(1)
        left &= word_at(block[_SUMMARIES] + 8 * group)
        write64(control[PICKED] + 8 * picked, block[_ROWS] + 8 * width * group)
        picked += 1
    return picked, left


@njit(nogil=True, cache=True)
def _and_sparse(control: Longs, block: Longs, picked: Int, words: Any) -> Any:
    """AND the picked rows in these words only; return those in which something is left."""
    left = words
    while words != 0:
        word = count_zeros(words)
        words &= words - np.uint64(1)
        bits = word_at(block[_ALIVE] + 8 * word)
        for place in range(picked):
            bits &= word_at(int64_at(control[PICKED] + 8 * place) + 8 * word)
            if bits == 0:
                left &= ~(np.uint64(1) << np.uint64(word))
                break
        write64(control[LEFT] + 8 * word, np.int64(bits))
    return left


@njit(nogil=True, cache=True)
def _and_dense(control: Longs, block: Longs, picked: Int) -> Any:
    """AND the picked rows line by line, some rows at a time, as long as anything is left."""
    left = np.uint64(0)
    target = control[LEFT]
    for line in range(0, block[_WIDTH], LINE):
        filled = and_line(target, block[_ALIVE], control[PICKED], min(picked, _ROWS_STEP), 8 * line)
        place = _ROWS_STEP
        while filled != 0 and place < picked:
            count = min(picked - place, _ROWS_STEP)
            filled = and_line(target, target, control[PICKED] + 8 * place, count, 8 * line)
            place += _ROWS_STEP
        left |= filled << np.uint64(line)
    return left


@njit(nogil=True, cache=True)
def _list_candidates(control: Longs, block: Longs, number: Int, row: Int, used: Int) -> Int:
    """List the entries of one block that one event may match; return how many are listed now."""
    picked, left = _pick_rows(control, block, row)
    if left == 0:
        return used
    if count_ones(left) <= _SPARSE_MAX:
        left = _and_sparse(control, block, picked, left)
    else:
        left = _and_dense(control, block, picked)
    while left != 0:
        word = count_zeros(left)
        left &= left - np.uint64(1)
        bits = word_at(control[LEFT] + 8 * word)
        while bits != 0:
            write32(control[OUT_ROWS] + 4 * used, row)
            write32(control[OUT_SLOTS] + 4 * used, 64 * word + count_zeros(bits))
            write32(control[OUT_BLOCKS] + 4 * used, number)
            bits &= bits - np.uint64(1)
            used += 1
    return used


@njit(nogil=True, cache=True)
def _has_few(block: Longs) -> Any:
    """Whether a block has few entries and nothing that would leave some of them out: one filter, say."""
    return block[_COUNT] <= _FEW and block[_ROW_LANES_COUNT] == 0 and block[_GROUPS] == 0


@njit(nogil=True, cache=True)
def _list_few(control: Longs, block: Longs, number: Int, row: Int, used: Int) -> Int:
    """List the entries of a block of few that one event matches; return how many are listed now."""
    values = control[VALUES] + 8 * control[LANES_COUNT] * row
    bits = word_at(block[_ALIVE])
    while bits != 0:
        entry = count_zeros(bits)
        bits &= bits - np.uint64(1)
        if _admits(block, entry, values, control[ORDERED], control[RANKS]):
            write32(control[OUT_ROWS] + 4 * used, row)
            write32(control[OUT_SLOTS] + 4 * used, entry)
            write32(control[OUT_BLOCKS] + 4 * used, number)
            used += 1
    return used


@njit(nogil=True, cache=True)
def _verify(control: Longs, blocks: Longs, listed: Int) -> Int:
    """Keep the candidates that do match; return their number.

    Entries lie anywhere in memory, so those ahead are fetched while one is tested: first where its tests
    begin, then the tests.
    """
    used = 0
    lanes = 8 * control[LANES_COUNT]
    before = np.int64(-1)
    for place in range(listed):
        ahead = min(place + 2 * _AHEAD, listed - 1)
        number, entry = int32_at(control[OUT_BLOCKS] + 4 * ahead), int32_at(control[OUT_SLOTS] + 4 * ahead)
        fetch(blocks[number, _FIRST] + 4 * entry)
        fetch(blocks[number, _OWNERS] + 4 * entry)
        ahead = min(place + _AHEAD, listed - 1)
        number, entry = int32_at(control[OUT_BLOCKS] + 4 * ahead), int32_at(control[OUT_SLOTS] + 4 * ahead)
        tests = blocks[number, _TESTS] + _TEST_SIZE * int32_at(blocks[number, _FIRST] + 4 * entry)
        fetch(tests)
        fetch(tests + 64)
        number, entry = int32_at(control[OUT_BLOCKS] + 4 * place), int32_at(control[OUT_SLOTS] + 4 * place)
        row = int32_at(control[OUT_ROWS] + 4 * place)
        block = blocks[number]
        if number << 32 | row != before:  # a filter's entries are all in one block: candidates in a run
            before = number << 32 | row
            control[STAMP] += 1
        if _admits(block, entry, control[VALUES] + lanes * row, control[ORDERED], control[RANKS]):
            used = _emit(control, block, entry, row, used)
    return used


@njit(nogil=True, cache=True)
def _emit(control: Longs, block: Longs, entry: Int, row: Int, used: Int) -> Int:
    """Note a match; of a filter with several entries only the first."""
    owner = int32_at(block[_OWNERS] + 4 * entry)
    slot = owner >> MARK_BITS
    if owner & SHARED:
        stamp = control[STAMPS] + 8 * slot
        if int64_at(stamp) == control[STAMP]:
            return used
        write64(stamp, control[STAMP])
    write32(control[OUT_ROWS] + 4 * used, row)
    write32(control[OUT_SLOTS] + 4 * used, ~slot if owner & ROUGH else slot)
    return used + 1


@njit(nogil=True, cache=True)
def match_rows(control: Longs, blocks: Longs, count: Int, number: Int, row: Int) -> tuple[Int, Int, Int]:
    """Match events from a block and a row on; return (block, row, matches), to go on if the room is full.

    Matches are (row, slot), with ~slot if the filter itself must be evaluated.
    """
    if number == 0 and row == 0 and not (len(blocks) == 1 and _has_few(blocks[0])):
        place_rows(control, count)
    listed = 0
    while number < len(blocks):
        block = blocks[number]
        has_few = _has_few(block)
        while row < count:
            if control[OUT_ROOM] - listed < block[_COUNT]:
                return number, row, _verify(control, blocks, listed)
            if has_few:
                listed = _list_few(control, block, number, row, listed)
            else:
                listed = _list_candidates(control, block, number, row, listed)
            row += 1
        row = 0
        number += 1
    return number, 0, _verify(control, blocks, listed)


# Grouping


@njit(nogil=True, cache=True)
def by_row(rows: Ints, slots: Ints, offsets: Ints, grouped: Ints) -> None:
    """Put slots in the order of their rows; row n has `grouped[offsets[n]:offsets[n + 1]]`."""
    offsets[:] = 0
    for row in rows:
        offsets[row + 1] += 1
    for row in range(len(offsets) - 1):
        offsets[row + 1] += offsets[row]
    for place in range(len(rows) - 1, -1, -1):
        row = rows[place] + 1
        offsets[row] -= 1
        grouped[offsets[row]] = slots[place]
    for row in range(len(offsets) - 1):
        offsets[row] = offsets[row + 1]
    offsets[-1] = len(rows)


@njit(nogil=True, cache=True)
def once(control: Longs, rows: Ints, slots: Ints, leads: Ints, offsets: Ints, grouped: Ints) -> Int:
    """Replace each slot by its lead, and keep that once for each row; return how many are kept, in front."""
    by_row(rows, slots, offsets, grouped)
    used = 0
    for row in range(len(offsets) - 1):
        control[STAMP] += 1
        for place in range(offsets[row], offsets[row + 1]):
            lead = leads[grouped[place]]
            stamp = control[STAMPS] + 8 * lead
            if int64_at(stamp) != control[STAMP]:
                write64(stamp, control[STAMP])
                rows[used], slots[used] = row, lead
                used += 1
    return used


@njit(nogil=True, cache=True)
def by_slot(rows: Ints, slots: Ints, counts: Ints, hit: Ints, offsets: Ints, grouped: Ints) -> Int:
    """Put rows in the order of their slots; return how many are hit. `counts` is all zero, and stays so."""
    found = 0
    for slot in slots:
        if counts[slot] == 0:
            hit[found] = slot
            found += 1
        counts[slot] += 1
    end = 0
    for place in range(found):
        offsets[place] = end
        end += counts[hit[place]]
        counts[hit[place]] = offsets[place]
    offsets[found] = end
    for place in range(len(rows)):
        grouped[counts[slots[place]]] = rows[place]
        counts[slots[place]] += 1
    for place in range(found):
        counts[hit[place]] = 0
    return found
