"""Items of msgpack, as compiled code reads them: at an address, and never past the end of the data."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tidings.event.texts import Int, byte_at, unsigned_at

BAD, NIL, TRUTH, INT, FLOAT, TEXT, BIN, ARRAY, MAP, MOMENT, OTHER = range(11)
"""Kinds of items."""
_TIME_S_MIN: Final = -62_135_596_800
_TIME_S_MAX: Final = 253_402_300_799


def _as_double_code(_typing: Any, _bits: Any) -> Any:
    """Return the float64 of these bits."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate


def _as_single_code(_typing: Any, _bits: Any) -> Any:
    """Return the float32 of the lower 32 of these bits, widened."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        half = builder.trunc(arguments[0], ir.IntType(32))
        return builder.fpext(builder.bitcast(half, ir.FloatType()), ir.DoubleType())

    return types.float64(types.uint64), generate


_as_double: Any = intrinsic(_as_double_code)
_as_single: Any = intrinsic(_as_single_code)


@njit(nogil=True, cache=True)
def item_at(at: Int, end: Int) -> tuple[Int, Int, Int, Int]:  # noqa: C901 - one format, one table
    """Return (kind, start of its data, their size or the number of its items, start of the next item)."""
    if at >= end:
        return BAD, 0, 0, 0
    head = np.int64(byte_at(at))
    at += 1
    if head < 0x80 or head >= 0xE0:
        return INT, at - 1, 0, at
    if head < 0x90:
        return MAP, at, head - 0x80, at
    if head < 0xA0:
        return ARRAY, at, head - 0x90, at
    what: Int = BAD
    size: Int = 0
    field: Int = 0
    if head < 0xC0:
        what, size = TEXT, head - 0xA0
    elif head == 0xC0:
        what = NIL
    elif head == 0xC2 or head == 0xC3:
        what = TRUTH
    elif head <= 0xC1:
        what = BAD
    elif head <= 0xC6:
        what, field = BIN, 1 << (head - 0xC4)
    elif head <= 0xC9:
        what, field = OTHER, 1 << (head - 0xC7)
    elif head <= 0xCB:
        what, size = FLOAT, 4 << (head - 0xCA)
    elif head <= 0xCF:
        what, size = INT, 1 << (head - 0xCC)
    elif head <= 0xD3:
        what, size = INT, 1 << (head - 0xD0)
    elif head <= 0xD8:
        what, size = OTHER, 1 << (head - 0xD4)
    elif head <= 0xDB:
        what, field = TEXT, 1 << (head - 0xD9)
    elif head <= 0xDD:
        what, field = ARRAY, 2 << (head - 0xDC)
    else:
        what, field = MAP, 2 << (head - 0xDE)
    if field > 0:
        if at + field > end:
            return BAD, 0, 0, 0
        size = np.int64(unsigned_at(at, field))
        at += field
    if what in (ARRAY, MAP):
        return what, at, size, at
    if what == OTHER:
        if at >= end:
            return BAD, 0, 0, 0
        if byte_at(at) == 0xFF and (size == 4 or size == 8 or size == 12):
            what = MOMENT
        at += 1
    if at + size > end:
        return BAD, 0, 0, 0
    return what, at, size, at + size


@njit(nogil=True, cache=True)
def end_of(at: Int, end: Int) -> Int:
    """Return the end of the item at a place, with everything in it; -1 when it has none."""
    awaited = 1
    while awaited > 0:
        what, _, size, at = item_at(at, end)
        if what == BAD:
            return -1
        awaited -= 1
        if what == ARRAY:
            awaited += size
        elif what == MAP:
            awaited += 2 * size
        if awaited > end - at:  # every item takes a byte at least
            return -1
    return at


@njit(nogil=True, cache=True)
def number_of(what: Int, at: Int, size: Int) -> Any:
    """Return an int or a float as float64; integers of more than 53 bits are rounded."""
    if size == 0:
        return np.float64(np.int8(byte_at(at)))
    bits = unsigned_at(at, size)
    if what == FLOAT:
        return _as_double(bits) if size == 8 else _as_single(bits)
    if byte_at(at - 1) >= 0xD0:
        shift = np.int64(64 - 8 * size)
        return np.float64((np.int64(bits) << shift) >> shift)
    return np.float64(bits)


@njit(nogil=True, cache=True)
def moment_of(at: Int, size: Int) -> Any:
    """Return a timestamp in microseconds, rounded half up as the decoder does; NaN when it is none."""
    seconds, nanoseconds = np.int64(0), np.int64(0)
    if size == 4:
        seconds = np.int64(unsigned_at(at, 4))
    elif size == 8:
        both = unsigned_at(at, 8)
        seconds = np.int64(both & np.uint64(0x3FFFFFFFF))
        nanoseconds = np.int64(both >> np.uint64(34))
    else:
        nanoseconds = np.int64(unsigned_at(at, 4))
        seconds = np.int64(unsigned_at(at + 4, 8))
    if nanoseconds > 999_999_999 or not _TIME_S_MIN <= seconds <= _TIME_S_MAX:
        return np.nan
    return np.float64(seconds * 1_000_000 + (nanoseconds + 500) // 1000)
