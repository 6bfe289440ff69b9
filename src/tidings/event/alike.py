"""Events alike: of those that follow each other in a batch, most have one shape, and are walked over once.

The *shape* of an event is all that its walk depends on: the heads of its items, with their lengths, and the
names of its attributes. A *mask* has the bits of these, so that two events of one shape agree under it; then
their items have the same places, and only the values differ. The scan and the walk of `scan` learn the shapes
of a batch as they go, and try the last few of them on the next event: to compare two events under a mask is
some ten times as quick as to walk over one.

The rule: only a whole, valid event is learned, and one is taken for alike only if each of its bytes is within
the data. A batch in which shapes hardly recur is walked over as if there were none.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from tidings.event.texts import Int, Longs, byte_at, int64_at, word_at, write_byte, write_int

SHAPES: Final = 4
"""Shapes that are tried on an event."""
SHAPE_SIZE_MIN, SHAPE_SIZE_MAX = 8, 1024
"""Bytes of an event whose shape is learned."""
HITS_MIN: Final = 4
"""Events, for each shape that was learned, which the shapes so far must have fitted before another is."""
MISSES_MAX: Final = 32
"""Events that no shape has fitted, beyond those that one has, before shapes are no longer tried."""
ALIKE_MIN: Final = 16
"""Events of a batch from which on shapes are learned."""
VALUES_MAX: Final = 30
"""Wanted values of an event whose shape is learned."""

# Words of the memory of shapes: of all, then of each
LEARNED, HITS, LAST, MISSES = 0, 1, 2, 3
_FIRST: Final = 4
SAMPLE, SIZE, COUNT, VALUES = 0, 1, 2, 3
"""Words of a shape: the address and size of the event it was learned from, and its wanted values."""
VALUE_WORDS: Final = 4
MASK: Final = VALUES + VALUE_WORDS * VALUES_MAX
SHAPE_WORDS: Final = MASK + SHAPE_SIZE_MAX // 8
MEMORY_WORDS: Final = _FIRST + SHAPES * SHAPE_WORDS


@njit(nogil=True, cache=True)
def begin(memory: Longs) -> None:
    """Forget all shapes; `memory` has MEMORY_WORDS words."""
    memory[LEARNED] = memory[HITS] = memory[LAST] = memory[MISSES] = 0
    for shape in range(SHAPES):
        memory[_FIRST + shape * SHAPE_WORDS + SIZE] = 0


@njit(nogil=True, cache=True)
def _is_alike(at: Int, sample: Int, mask: Int, size: Int) -> Any:
    unlike = np.uint64(0)
    for place in range(0, size - 7, 8):
        unlike |= (word_at(at + place) ^ word_at(sample + place)) & word_at(mask + place)
    place = size - 8
    return (unlike | ((word_at(at + place) ^ word_at(sample + place)) & word_at(mask + place))) == 0


@njit(nogil=True, cache=True)
def find_alike(memory: Int, at: Int, end: Int) -> Int:
    """Return the address of the shape that the event at a place has, 0 if none of those in memory."""
    last, hits = int64_at(memory + 8 * LAST), int64_at(memory + 8 * HITS)
    misses = int64_at(memory + 8 * MISSES)
    if misses > hits + MISSES_MAX:
        return 0
    for step in range(SHAPES):
        number = (last + step) % SHAPES
        shape = memory + 8 * (_FIRST + number * SHAPE_WORDS)
        size = int64_at(shape + 8 * SIZE)
        if size == 0 or at + size > end:
            continue
        if _is_alike(at, int64_at(shape + 8 * SAMPLE), shape + 8 * MASK, size):
            write_int(memory + 8 * LAST, number)
            write_int(memory + 8 * HITS, hits + 1)
            return shape
    write_int(memory + 8 * MISSES, misses + 1)
    return 0


@njit(nogil=True, cache=True)
def place_to_learn(memory: Int, at: Int, following: Int) -> Int:
    """Return where the shape of this event is to be written, its mask zero; 0 if it is not to be learned."""
    learned, size = int64_at(memory + 8 * LEARNED), following - at
    if not SHAPE_SIZE_MIN <= size <= SHAPE_SIZE_MAX:
        return 0
    hits = int64_at(memory + 8 * HITS)
    if learned >= SHAPES and hits < HITS_MIN * learned:
        return 0
    if int64_at(memory + 8 * MISSES) > hits + MISSES_MAX:
        return 0
    number = learned % SHAPES
    shape = memory + 8 * (_FIRST + number * SHAPE_WORDS)
    write_int(memory + 8 * LEARNED, learned + 1)
    write_int(memory + 8 * LAST, number)
    write_int(shape + 8 * SAMPLE, at)
    write_int(shape + 8 * SIZE, size)
    write_int(shape + 8 * COUNT, 0)
    for word in range(MASK, MASK + (size + 7) // 8):
        write_int(shape + 8 * word, 0)
    return shape


@njit(nogil=True, cache=True)
def mark(shape: Int, at: Int, end: Int) -> None:
    """Add these bytes of the event to its shape: another event is alike only if it has the same."""
    mask = shape + 8 * MASK - int64_at(shape + 8 * SAMPLE)
    for place in range(at, end):
        write_byte(mask + place, 0xFF)


@njit(nogil=True, cache=True)
def mark_head(shape: Int, at: Int, end: Int) -> None:
    """Add the head of an item; of an integer or boolean in one byte only the bits that say what it is."""
    head = byte_at(at)
    bits = 0xFF
    if head < 0x80:
        bits = 0x80
    elif head >= 0xE0:
        bits = 0xE0
    elif head == 0xC2 or head == 0xC3:
        bits = 0xFE
    mark(shape, at, max(end, at + 1))
    write_byte(shape + 8 * MASK + at - int64_at(shape + 8 * SAMPLE), bits)


@njit(nogil=True, cache=True)
def note_value(shape: Int, what: Int, at: Int, size: Int, name: Int) -> None:
    """Add a wanted value to a shape; one that has too many is forgotten."""
    count = int64_at(shape + 8 * COUNT)
    if count == VALUES_MAX:
        write_int(shape + 8 * SIZE, 0)
        return
    value = shape + 8 * (VALUES + VALUE_WORDS * count)
    write_int(value, what)
    write_int(value + 8, at - int64_at(shape + 8 * SAMPLE))
    write_int(value + 16, size)
    write_int(value + 24, name)
    write_int(shape + 8 * COUNT, count + 1)
