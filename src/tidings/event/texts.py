"""Tables of texts for compiled code: by a seeded hash, or by their place in an order.

Both kinds of table hold the texts themselves and compare in full: no two are ever confused. The seed is the
owner's secret, so nobody can send names that all have one hash. Compiled code works on addresses here,
because counting references to arrays costs more than the search; the builder of a table keeps its arrays
alive while its words are in use.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Int = Any
"""Integer in compiled code, where Python's and numpy's are one."""

PROBES_MAX: Final = 64
"""Slots of a table that are tried for one text; a table where that is too few grows instead."""


@njit(nogil=True, cache=True)
def _address(data: npt.NDArray[Any]) -> Int:
    return data.ctypes.data


def address(data: npt.NDArray[Any]) -> int:
    """Return the address of an array in memory; it must lie there in one piece."""
    assert data.flags.c_contiguous
    place: int = _address(data)  # compiled, because numpy makes an object or a dict for it
    return place


class TextTable(NamedTuple):
    """Texts by hash: `slots` hold ids or -1, `spans` the offset of each in `pool` and its size."""

    slots: Ints
    spans: Longs
    pool: Bytes
    seed: int

    def words(self) -> list[int]:
        """Return the words that compiled code reads: addresses, and numbers."""
        return [address(self.slots), len(self.slots) - 1, address(self.spans), address(self.pool), self.seed]


class Cuts(NamedTuple):
    """Texts in order: those of lane n are `order[segments[n]:segments[n + 1]]`, ids into `spans`."""

    order: Ints
    segments: Ints
    spans: Longs
    pool: Bytes

    def words(self) -> list[int]:
        """Return the words that compiled code reads: addresses, and numbers."""
        return [address(part) for part in self]


_SLOTS, _MASK, _SPANS, _POOL, _SEED = range(5)
_ORDER, _SEGMENTS, _CUT_SPANS, _CUT_POOL = range(4)


# Memory as compiled code sees it: an address, counted in bytes, and no reference kept


def _reader(width: Any, shown: Any) -> Any:
    """Return a function (address) → the number of that type there, which need not be aligned."""

    def code(_typing: Any, _address: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[0], context.get_data_type(width).as_pointer())
            word = builder.load(place)
            word.align = 1
            return context.cast(builder, word, width, shown)

        return shown(types.int64), generate

    return intrinsic(code)


def _fold_code(_typing: Any, _left: Any, _right: Any) -> Any:
    """Return the two halves of the 128-bit product, joined by XOR: mixes every bit with every other."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        high = builder.lshr(product, ir.Constant(wide, 64))
        return builder.xor(builder.trunc(product, word), builder.trunc(high, word))

    return types.uint64(types.uint64, types.uint64), generate


def _writer(width: Any, shown: Any) -> Any:
    """Return a function (address, number) that writes the number there, in that type."""

    def code(_typing: Any, _address: Any, _value: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[0], context.get_data_type(width).as_pointer())
            builder.store(context.cast(builder, arguments[1], shown, width), place).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, shown), generate

    return intrinsic(code)


byte_at: Any = _reader(types.uint8, types.int64)
int32_at: Any = _reader(types.int32, types.int64)
int64_at: Any = _reader(types.int64, types.int64)
word_at: Any = _reader(types.uint64, types.uint64)
float_at: Any = _reader(types.float64, types.float64)
write_float: Any = _writer(types.float64, types.float64)
write_int: Any = _writer(types.int64, types.int64)
write_byte: Any = _writer(types.uint8, types.int64)
_fold: Any = intrinsic(_fold_code)


# Texts by hash and by order


@njit(nogil=True, cache=True)
def unsigned_at(at: Int, size: Int) -> Int:
    """Return up to eight bytes as one word, the first of them highest."""
    word = np.uint64(0)
    for place in range(at, at + size):
        word = (word << np.uint64(8)) | np.uint64(byte_at(place))
    return word


@njit(nogil=True, cache=True)
def _hash(at: Int, size: Int, seed: Int) -> Int:
    """Return a hash that can't be foreseen without the seed."""
    mixed = _fold(np.uint64(seed) ^ np.uint64(size), np.uint64(0x9E3779B97F4A7C15))
    while size >= 8:
        mixed = _fold(mixed ^ word_at(at), np.uint64(0xD6E8FEB86659FD93))
        at += 8
        size -= 8
    return _fold(mixed ^ unsigned_at(at, size), np.uint64(0xA0761D6478BD642F) ^ np.uint64(seed))


@njit(nogil=True, cache=True)
def _same(one: Int, other: Int, size: Int) -> Any:
    while size >= 8:
        if word_at(one) != word_at(other):
            return False
        one += 8
        other += 8
        size -= 8
    return unsigned_at(one, size) == unsigned_at(other, size)


@njit(nogil=True, cache=True)
def find(table: Int, at: Int, size: Int) -> Int:
    """Return the id of the text at an address, or -1 if the table does not have it."""
    slots, mask, spans = int64_at(table), int64_at(table + 8 * _MASK), int64_at(table + 8 * _SPANS)
    pool = int64_at(table + 8 * _POOL)
    slot = np.int64(_hash(at, size, int64_at(table + 8 * _SEED))) & mask
    for _ in range(PROBES_MAX):
        number = int32_at(slots + 4 * slot)
        if number < 0:
            return -1
        span = spans + 16 * number
        if int64_at(span + 8) == size and _same(at, pool + int64_at(span), size):
            return number
        slot = (slot + 1) & mask
    return -1


@njit(nogil=True, cache=True)
def insert(slots: Ints, spans: Longs, pool: Int, seed: Int, numbers: Ints) -> Any:
    """Insert texts whose spans are set; return False when the table is too crowded and must grow."""
    mask = len(slots) - 1
    for number in numbers:
        slot = np.int64(_hash(pool + spans[number, 0], spans[number, 1], seed)) & mask
        probes = 0
        while slots[slot] >= 0 and probes < PROBES_MAX:
            slot = (slot + 1) & mask
            probes += 1
        if probes == PROBES_MAX:
            return False
        slots[slot] = number
    return True


@njit(nogil=True, cache=True)
def coordinate(cuts: Int, lane: Int, at: Int, size: Int) -> Any:
    """Return the place of a text among the cuts of a lane: odd when equal to one, else even."""
    order, segments = int64_at(cuts), int64_at(cuts + 8 * _SEGMENTS)
    spans, pool = int64_at(cuts + 8 * _CUT_SPANS), int64_at(cuts + 8 * _CUT_POOL)
    low, high = int32_at(segments + 4 * lane), int32_at(segments + 4 * lane + 4)
    while low < high:
        middle = (low + high) >> 1
        span = spans + 16 * int32_at(order + 4 * middle)
        sign = _compare(at, size, pool + int64_at(span), int64_at(span + 8))
        if sign == 0:
            return 2.0 * middle + 1.0
        if sign < 0:
            high = middle
        else:
            low = middle + 1
    return 2.0 * low


@njit(nogil=True, cache=True)
def find_all(table: Longs, data: Int, offsets: Ints, found: Floats) -> None:
    """Write what `find` returns for each of the texts that follow each other at an address."""
    for row in range(len(found)):
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        found[row] = find(table.ctypes.data, data + at, end - at)


@njit(nogil=True, cache=True)
def coordinate_all(cuts: Longs, lane: Int, data: Int, offsets: Ints, found: Floats) -> None:
    """Write what `coordinate` returns for each of the texts that follow each other at an address."""
    for row in range(len(found)):
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        found[row] = coordinate(cuts.ctypes.data, lane, data + at, end - at)


@njit(nogil=True, cache=True)
def _compare(one: Int, size: Int, other: Int, length: Int) -> Int:
    for step in range(min(size, length)):
        sign = byte_at(one + step) - byte_at(other + step)
        if sign != 0:
            return sign
    return size - length
