"""Runs of PUBLISH frames joined by compiled code: what `frames.join` does, for very many small frames.

Publishers that send one event a frame fill a read with hundreds of frames, and then each costs what it takes
to copy it. The rules are those of `frames.join`, and nothing past the end of the bytes is read.
"""
# numba's decorators are untyped, and this module consists of functions that it compiles.
# mypy: disallow-untyped-decorators=false

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from tidings.event.texts import Bytes, Int, byte_at
from tidings.event.wire import COUNT_MAX, HEAD_SIZE, array_head
from tidings.protocol.frames import PLAIN_HEAD, PLAIN_PUBLISH, join

FEW: Final = 8
"""Frames for which a call of compiled code does not pay."""
_LENGTH: Final = 4
_COUNT: Final = 4
_PLAIN: Final = int.from_bytes(PLAIN_PUBLISH, "big")


def join_compiled(data: bytes, at: int, limit: int) -> tuple[int, bytes]:
    """Join as `frames.join` does."""
    room = len(data) - at
    if room < FEW * int.from_bytes(data[at : at + _LENGTH], "big"):
        return join(data, at, limit)
    events = np.empty(min(room, limit), np.uint8)
    following, count, size = _join(np.frombuffer(data, np.uint8), at, limit, events)
    events[:HEAD_SIZE] = np.frombuffer(array_head(count), np.uint8)
    return following, events[:size].tobytes()


def _copy_code(_typing: Any, _target: Any, _source: Any, _size: Any) -> Any:
    """Copy so many bytes to an address from another."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target, source = (builder.inttoptr(place, cgutils.voidptr_t) for place in arguments[:2])
        copy: Any = cgutils.raw_memcpy
        copy(builder, target, source, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


_copy: Any = intrinsic(_copy_code)


@njit(nogil=True, cache=True)
def _number(at: Int, size: Int) -> Int:
    value = np.int64(0)
    for place in range(at, at + size):
        value = (value << 8) | byte_at(place)
    return value


@njit(nogil=True, cache=True)
def _join(data: Bytes, at: Int, limit: Int, joined: Bytes) -> tuple[Int, Int, Int]:
    """(where the run ends, how many events it has, bytes of their array); `joined` has room for `limit`.

    The head of the array is left to the caller.
    """
    begin, target = data.ctypes.data, joined.ctypes.data
    place, end = begin + at, begin + len(data)
    total, size = np.int64(0), np.int64(HEAD_SIZE)
    while place + PLAIN_HEAD <= end:
        length, events = _number(place, _LENGTH), place + PLAIN_HEAD
        following = place + _LENGTH + length
        if _number(place + _LENGTH, len(PLAIN_PUBLISH)) != _PLAIN or length > limit:
            break
        if following < events or following > end or size + following - events > limit:
            break
        count = _number(events - _COUNT, _COUNT)
        if total + count > COUNT_MAX:
            break
        _copy(target + size, events, following - events)
        size += following - events
        total += count
        place = following
    return place - begin, total, size
