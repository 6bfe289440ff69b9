"""Columns from raw bytes: one walk over a batch of events that decodes only the requested lanes.

A *lane* is one kind of value of one attribute or header field: the numbers of `value`, the strings of `type`.
The scan writes, for each event, one float64 per lane: NaN when the event has nothing of that kind there.

| lane | what is written |
| --- | --- |
| NUMBER, BOOLEAN, TIME | the number; 0 or 1; microseconds since 1970 |
| STRING, BLOB | the id of the text in the table of known ones, -1 for any other |
| STRING_ORDER, BLOB_ORDER | 2·k between the known cuts k-1 and k, 2·k+1 when equal to cut k |
| TEXT_PLACE | the lower 33 bits of a string's address, times 2^20, plus its size, at most 2^20 - 1 |
| PRESENCE | 1 when there is a value of any kind, 0 when there is none |

This is the hot path, compiled by numba, and it is fed by strangers. The rule: whatever the bytes are, nothing
past their end is read, and bytes that are no event are reported by row. Names and texts are found by a seeded
hash and then compared in full, so no two are ever confused. Other faults (reserved names, invalid UTF-8) are
left to the decoder.
"""

from __future__ import annotations

from array import array
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from tidings.errors import CodecError
from tidings.event.alike import (
    ALIKE_MIN,
    COUNT,
    MEMORY_WORDS,
    SIZE,
    VALUE_WORDS,
    VALUES,
    begin,
    find_alike,
    mark,
    mark_head,
    note_value,
    place_to_learn,
)
from tidings.event.items import (
    ARRAY,
    BAD,
    BIN,
    FLOAT,
    INT,
    MAP,
    MOMENT,
    NIL,
    OTHER,
    TEXT,
    TRUTH,
    end_of,
    item_at,
    moment_of,
    number_of,
)
from tidings.event.texts import (
    Bytes,
    Cuts,
    Floats,
    Int,
    Ints,
    Longs,
    TextTable,
    address,
    byte_at,
    coordinate,
    find,
    float_at,
    int32_at,
    int64_at,
    write_float,
)
from tidings.event.wire import HEAD_SIZE, count_in_head

NUMBER, BOOLEAN, TIME, STRING, STRING_ORDER, BLOB, BLOB_ORDER, TEXT_PLACE, PRESENCE = range(9)
KINDS: Final = 9
PLACE_SIZE_BITS, PLACE_ADDRESS_BITS = 20, 33  # together as many bits as a float64 represents exactly
PLACE_SIZE_MAX: Final = (1 << PLACE_SIZE_BITS) - 1

_STAMP: Final = 11  # the time of an event, which is an integer


class ScanPlan(NamedTuple):
    """Plan of a scan: `lane_of[name, kind]` is a lane or -1, `defaults` one row of an empty event.

    Compiled code gets its `words`, not the arrays: taking twenty arrays apart costs microseconds a call, and
    counting references to them more than reading the event. The plan keeps their targets alive.
    """

    names: TextTable
    strings: TextTable
    cuts: Cuts
    lane_of: Ints
    in_header: Bytes
    type_name: int
    time_name: int
    defaults: Floats

    def words(self) -> Longs:
        """Return the words that compiled code reads, in the order of the constants below."""
        own = [
            address(self.lane_of),
            address(self.in_header),
            self.type_name,
            self.time_name,
            address(self.defaults),
            len(self.defaults),
        ]
        return np.array([*self.names.words(), *self.strings.words(), *self.cuts.words(), *own], np.int64)


_NAMES, _STRINGS, _CUTS, _LANE_OF, _IN_HEADER, _TYPE_NAME, _TIME_NAME, _DEFAULTS, _LANES = (
    0, 5, 10, 14, 15, 16, 17, 18, 19,
)  # fmt: skip


# Events


@njit(nogil=True, cache=True)
def _set(row: Int, lane: Int, value: Any) -> None:
    if lane >= 0:
        write_float(row + 8 * lane, value)


@njit(nogil=True, cache=True)
def _place(at: Int, size: Int) -> Any:
    address_bits = np.int64(at) & ((np.int64(1) << PLACE_ADDRESS_BITS) - 1)
    return np.float64((address_bits << PLACE_SIZE_BITS) | min(np.int64(size), np.int64(PLACE_SIZE_MAX)))


@njit(nogil=True, cache=True)
def _put(what: Int, at: Int, size: Int, plan: Int, name: Int, row: Int) -> Any:
    """Write one value into its lanes, replacing earlier ones; return False for no value of an event."""
    lanes = int64_at(plan + 8 * _LANE_OF) + 4 * KINDS * name
    for kind in range(PRESENCE):
        _set(row, int32_at(lanes + 4 * kind), np.nan)
    _set(row, int32_at(lanes + 4 * PRESENCE), 1.0)
    if what == INT or what == FLOAT:  # noqa: SIM109 - compiled to less than a search in a tuple
        _set(row, int32_at(lanes + 4 * NUMBER), number_of(what, at, size))
    elif what == TRUTH:
        _set(row, int32_at(lanes + 4 * BOOLEAN), np.float64(byte_at(at - 1) - 0xC2))
    elif what == MOMENT:
        _set(row, int32_at(lanes + 4 * TIME), moment_of(at, size))
    elif what == TEXT or what == BIN:  # noqa: SIM109
        first = STRING if what == TEXT else BLOB
        known, ordered = int32_at(lanes + 4 * first), int32_at(lanes + 4 * first + 4)
        if known >= 0:
            write_float(row + 8 * known, np.float64(find(plan + 8 * _STRINGS, at, size)))
        if ordered >= 0:
            write_float(row + 8 * ordered, coordinate(plan + 8 * _CUTS, ordered, at, size))
        if what == TEXT:
            _set(row, int32_at(lanes + 4 * TEXT_PLACE), _place(at, size))
    else:
        return False
    return True


@njit(nogil=True, cache=True)
def _put_time(at: Int, size: Int, plan: Int, name: Int, row: Int) -> None:
    lanes = int64_at(plan + 8 * _LANE_OF) + 4 * KINDS * name
    _set(row, int32_at(lanes + 4 * TIME), number_of(INT, at, size))
    _set(row, int32_at(lanes + 4 * PRESENCE), 1.0)


@njit(nogil=True, cache=True)
def _members(at: Int, end: Int, count: Int, in_header: bool, plan: Int, row: Int) -> Int:
    """Read a map whose head has been read; return its end, or -1."""
    flags = int64_at(plan + 8 * _IN_HEADER)
    for _ in range(count):
        what, place, size, at = item_at(at, end)
        if what != TEXT:
            return -1
        name = find(plan + 8 * _NAMES, place, size)
        wanted = name >= 0 and (byte_at(flags + name) != 0) == in_header
        what, place, size, following = item_at(at, end)
        if what == BAD:
            return -1
        if in_header:
            following = end_of(at, end)  # an addition of a newer peer may be nested
            wanted = wanted and what != NIL
        elif what == NIL or what == ARRAY or what == MAP or what == OTHER:  # noqa: SIM109
            return -1
        if following < 0 or (wanted and not _put(what, place, size, plan, name, row)):
            return -1
        at = following
    return at


@njit(nogil=True, cache=True)
def _event(at: Int, end: Int, plan: Int, row: Int) -> Int:
    """Read one event into a row; return its end, or -1."""
    what, _, size, at = item_at(at, end)
    if what != ARRAY or size != 6:
        return -1
    what, _, _, at = item_at(at, end)  # the counter
    if what != INT:
        return -1
    what, place, size, at = item_at(at, end)
    if what != TEXT:
        return -1
    name = int64_at(plan + 8 * _TYPE_NAME)
    if name >= 0:
        _put(what, place, size, plan, name, row)
    what, place, size, at = item_at(at, end)
    if what != INT:
        return -1
    name = int64_at(plan + 8 * _TIME_NAME)
    if name >= 0:
        _put_time(place, size, plan, name, row)
    what, _, size, at = item_at(at, end)
    if what != MAP:
        return -1
    at = _members(at, end, size, False, plan, row)
    if at < 0:
        return -1
    what, _, size, at = item_at(at, end)
    if what == MAP:
        at = _members(at, end, size, True, plan, row)
    elif what != NIL:
        return -1
    if at < 0:
        return -1
    what, _, _, at = item_at(at, end)
    return at if what == NIL or what == BIN else -1  # noqa: SIM109


# Events alike


@njit(nogil=True, cache=True)
def _learn(at: Int, following: Int, shape: Int) -> None:
    """Add the heads of all items of a whole event to its shape."""
    while at < following:
        _, place, _, after = item_at(at, following)
        mark_head(shape, at, place)
        at = after


@njit(nogil=True, cache=True)
def _learn_members(at: Int, end: Int, count: Int, in_header: bool, plan: Int, shape: Int) -> Int:
    """Add the names and the wanted values of a map whose head has been read; return its end."""
    flags = int64_at(plan + 8 * _IN_HEADER)
    for _ in range(count):
        _, place, size, at = item_at(at, end)
        mark(shape, place, place + size)
        name = find(plan + 8 * _NAMES, place, size)
        what, place, size, _ = item_at(at, end)
        if name >= 0 and (byte_at(flags + name) != 0) == in_header and what != NIL:
            note_value(shape, what, place, size, name)
        at = end_of(at, end)
    return at


@njit(nogil=True, cache=True)
def _learn_values(at: Int, end: Int, plan: Int, shape: Int) -> None:
    """Add the names and the wanted values of an event that `_event` has read."""
    _, _, _, at = item_at(at, end)
    _, _, _, at = item_at(at, end)
    what, place, size, at = item_at(at, end)
    if int64_at(plan + 8 * _TYPE_NAME) >= 0:
        note_value(shape, what, place, size, int64_at(plan + 8 * _TYPE_NAME))
    what, place, size, at = item_at(at, end)
    if int64_at(plan + 8 * _TIME_NAME) >= 0:
        note_value(shape, _STAMP, place, size, int64_at(plan + 8 * _TIME_NAME))
    _, _, size, at = item_at(at, end)
    at = _learn_members(at, end, size, False, plan, shape)
    what, _, size, at = item_at(at, end)
    if what == MAP:
        _learn_members(at, end, size, True, plan, shape)


@njit(nogil=True, cache=True)
def _put_values(at: Int, shape: Int, plan: Int, row: Int) -> None:
    """Write the wanted values of an event of this shape into a row."""
    for number in range(int64_at(shape + 8 * COUNT)):
        value = shape + 8 * (VALUES + VALUE_WORDS * number)
        what, place = int64_at(value), at + int64_at(value + 8)
        size, name = int64_at(value + 16), int64_at(value + 24)
        if what == _STAMP:
            _put_time(place, size, plan, name, row)
        else:
            _put(what, place, size, plan, name, row)


@njit(nogil=True, cache=True)
def _read(at: Int, end: Int, plan: Int, row: Int, memory: Int) -> Int:
    """Read one event into a row, by its shape if that is known; return its end, or -1."""
    shape = find_alike(memory, at, end)
    if shape != 0:
        _put_values(at, shape, plan, row)
        return at + int64_at(shape + 8 * SIZE)
    following = _event(at, end, plan, row)
    shape = 0 if following < 0 else place_to_learn(memory, at, following)
    if shape != 0:
        _learn(at, following, shape)
        _learn_values(at, end, plan, shape)
    return following


@njit(nogil=True, cache=True)
def _scan_many(data: Bytes, at: Int, count: Int, plan: Longs, values: Floats) -> tuple[Int, Int]:
    """As `scan_rows`; only here is the memory of shapes worth its while."""
    begin_at = data.ctypes.data
    place, end, words = begin_at + at, begin_at + len(data), plan.ctypes.data
    lanes = plan[_LANES]
    memory = np.empty(MEMORY_WORDS, np.int64)
    begin(memory)
    for number in range(count):
        row = values.ctypes.data + 8 * lanes * number
        for lane in range(lanes):
            write_float(row + 8 * lane, float_at(plan[_DEFAULTS] + 8 * lane))
        following = _read(place, end, words, row, memory.ctypes.data)
        if following < 0:
            return number, place - begin_at
        place = following
    return count, place - begin_at


@njit(nogil=True, cache=True)
def scan_rows(data: Bytes, at: Int, count: Int, plan: Longs, values: Floats) -> tuple[Int, Int]:
    """Read `count` events from `at` on into the first rows of `values`; return (rows read, end of the last).

    Fewer rows than requested: the event after the last one read is malformed. `plan` is a Plan's words.
    """
    if count >= ALIKE_MIN:
        return _scan_many(data, at, count, plan, values)
    begin_at = data.ctypes.data
    place, end, words = begin_at + at, begin_at + len(data), plan.ctypes.data
    lanes = plan[_LANES]
    for number in range(count):
        row = values.ctypes.data + 8 * lanes * number
        for lane in range(lanes):
            write_float(row + 8 * lane, float_at(plan[_DEFAULTS] + 8 * lane))
        following = _event(place, end, words, row)
        if following < 0:
            return number, place - begin_at
        place = following
    return count, place - begin_at


@njit(nogil=True, cache=True)
def _starts(data: Bytes, starts: npt.NDArray[np.uint64]) -> Int:
    begin_at = data.ctypes.data
    end, place = begin_at + len(data), begin_at + np.int64(starts[0])
    memory = np.empty(MEMORY_WORDS, np.int64)
    begin(memory)
    for number in range(1, len(starts)):
        shape = find_alike(memory.ctypes.data, place, end)
        if shape != 0:
            place += int64_at(shape + 8 * SIZE)
        else:
            following = end_of(place, end)
            if following < 0:
                return number - 1
            shape = place_to_learn(memory.ctypes.data, place, following)
            if shape != 0:
                _learn(place, following, shape)
            place = following
        starts[number] = place - begin_at
    return len(starts) - 1


def offsets(raw: bytes) -> array[int]:
    """Return the offset of each event of an array, and the end of the last one."""
    count = count_in_head(raw)
    if count > len(raw):
        raise CodecError("$", f"{count} events do not fit {len(raw)} bytes")
    starts = np.empty(count + 1, np.uint64)
    starts[0] = HEAD_SIZE
    walked = _starts(np.frombuffer(raw, np.uint8), starts)
    if walked < count:
        raise CodecError(f"$[{walked}]", "is cut short or no msgpack")
    if starts[count] < len(raw):
        raise CodecError("$", f"{len(raw) - int(starts[count])} bytes follow the last event")
    return array("Q", starts.tobytes())
