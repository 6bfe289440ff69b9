"""Compiled check of raw events: one walk over the bytes that is certain of all events, or decides nothing.

Messages of ordinary peers are decided here, several times faster than by decoding. Anything wrong, or merely
odd (a nested header field of a newer peer, a list that a second member of the same name replaces, a type in
rare letters), is *doubtful*, and the caller decodes the batch to find out. So there is one rule to keep: what
is certain here is accepted by `decode_events`. And whatever the bytes are, nothing past their end is read.
"""
# numba's decorators are untyped, and this module consists of functions that it compiles.
# mypy: disallow-untyped-decorators=false

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import njit

from tidings.event.header import DELIVERIES, NOTED_FIELDS, PRIORITY_MAX, ROUTES
from tidings.event.texts import (
    Bytes,
    Int,
    Ints,
    Longs,
    TextTable,
    address,
    byte_at,
    find,
    insert,
    int32_at,
    int64_at,
    unsigned_at,
    word_at,
)
from tidings.event.values import ATTRIBUTES_MAX, NAME_LENGTH_MAX, RESERVED, TIME_US_MAX, TIME_US_MIN
from tidings.event.wire import HEAD_SIZE, Checked, count_in_head

_DOUBTFUL: Final = -1
_SIX_ELEMENTS: Final = 0x96
_DOT: Final = 0x2E
_POINTS_KNOWN: Final = 0x40000  # beyond these code points there are some marks only, and Python decides
_TIME_S_MIN: Final = TIME_US_MIN // 1_000_000
_TIME_S_MAX: Final = TIME_US_MAX // 1_000_000
_DELIVERIES: Final = len(DELIVERIES)

# Kinds of items; the last three are values whatever their data are. Arrays and maps are NOTHING here: they
# stand in fixed places, and are read there.
_NOTHING, _NIL, _TEXT, _INT, _EXTENSION, _TRUTH, _FLOAT, _BLOB = range(8)
# First byte: the kind of item, bytes of its data, bytes of a length field that counts further ones.
_SHAPES: Final = {
    **dict.fromkeys((*range(0x80), *range(0xE0, 0x100)), (_INT, 0, 0)),
    **{0xA0 + size: (_TEXT, size, 0) for size in range(32)},
    0xC0: (_NIL, 0, 0), 0xC2: (_TRUTH, 0, 0), 0xC3: (_TRUTH, 0, 0),
    0xC4: (_BLOB, 0, 1), 0xC5: (_BLOB, 0, 2), 0xC6: (_BLOB, 0, 4),
    0xCA: (_FLOAT, 4, 0), 0xCB: (_FLOAT, 8, 0),
    0xCC: (_INT, 1, 0), 0xCD: (_INT, 2, 0), 0xCE: (_INT, 4, 0), 0xCF: (_INT, 8, 0),
    0xD0: (_INT, 1, 0), 0xD1: (_INT, 2, 0), 0xD2: (_INT, 4, 0), 0xD3: (_INT, 8, 0),
    0xC7: (_EXTENSION, 1, 1), 0xD6: (_EXTENSION, 5, 0), 0xD7: (_EXTENSION, 9, 0),
    0xD9: (_TEXT, 0, 1), 0xDA: (_TEXT, 0, 2), 0xDB: (_TEXT, 0, 4),
}  # fmt: skip

# Check of each header field's value, as `Header` has it for msgspec. The first three are never nil.
_PRIORITY, _DELIVERY, _ROUTE, _MOMENT_US, _SECONDS, _SHARE, _WORDS, _IDENTITY = range(8)
_FIELDS: Final = {
    "id": _IDENTITY, "received_us": _MOMENT_US, "channel": _WORDS, "subject": _WORDS, "priority": _PRIORITY,
    "ttl_s": _SECONDS, "keep_s": _SECONDS, "delivery": _DELIVERY, "route": _ROUTE, "reliability": _SHARE,
    "reply_to": _WORDS, "correlation_id": _WORDS, "object_class": _WORDS, "content_type": _WORDS,
    "queue_group": _IDENTITY, "queue_delay_s": _SECONDS, "queue_due_us": _MOMENT_US,
}  # fmt: skip


def _table(texts: Iterable[str]) -> TextTable:
    """Return a table of fixed texts, numbered in order; nobody can add to it, so its seed is no secret."""
    held = [text.encode() for text in texts]
    sizes = np.array([len(text) for text in held], np.int64)
    spans = np.column_stack([np.cumsum(sizes) - sizes, sizes])
    pool = np.frombuffer(b"".join(held), np.uint8)
    slots = np.full(1 << (4 * len(held)).bit_length(), -1, np.int32)
    is_built = insert(slots, spans, address(pool), 0, np.arange(len(held), dtype=np.int32))
    assert is_built
    return TextTable(slots, spans, pool, 0)


def _noted(name: str) -> int:
    """Return the bit of a header field in `Checked.noted`, 0 if it has none."""
    return 1 << NOTED_FIELDS.index(name) if name in NOTED_FIELDS else 0


def _shapes() -> Ints:
    """Return `_SHAPES` by first byte, the three numbers in one."""
    shapes = np.full(256, _NOTHING, np.int32)
    for head, (what, size, field) in _SHAPES.items():
        shapes[head] = what | field << 8 | size << 16
    return shapes


def _suspects() -> Ints:
    """Return for each first byte the sizes of the reserved names that begin with it, as bits."""
    sizes = np.zeros(256, np.int32)
    for name in RESERVED:
        sizes[ord(name[0])] |= 1 << len(name)
    return sizes


def _letters() -> Bytes:
    """Return for each code point whether a type may contain it, as Python has it."""
    known = [chr(point) for point in range(_POINTS_KNOWN)]
    printable = np.fromiter(map(str.isprintable, known), np.uint8, len(known))
    return printable & ~np.fromiter(map(str.isspace, known), np.uint8, len(known))


_RESERVED, _NAMES, _CHOICES, _KINDS, _SHAPE_OF, _SUSPECTS, _LETTERS = 0, 5, 10, 15, 16, 17, 18
_tables = (_table(sorted(RESERVED)), _table(_FIELDS), _table([*DELIVERIES, *ROUTES]))
_arrays: tuple[npt.NDArray[Any], ...] = (
    np.array([kind | _noted(name) << 4 for name, kind in _FIELDS.items()], np.uint8),
    _shapes(),
    _suspects(),
    _letters(),
)
_words = [word for table in _tables for word in table.words()] + [address(held) for held in _arrays]
# Input of compiled code, in the order of the constants above; `_tables` and `_arrays` keep it alive.
_facts: Longs = np.array(_words, np.int64)


def check_certain(raw: bytes) -> Checked | None:
    """Return the result of `check`, or None if only decoding can decide."""
    count = count_in_head(raw)
    if count > len(raw):
        return None
    numbers = np.empty(2 * count + 1, np.int64)
    deliveries = np.empty(count, np.uint8)
    found = _walk(np.frombuffer(raw, np.uint8), numbers, deliveries, _facts)
    if found == _DOUBTFUL:
        return None
    offsets, counters = numbers[: count + 1].tobytes(), numbers[count + 1 :].tobytes()
    is_plain, noted = found & 0xFF == 0, found >> 8
    return Checked(array("Q", offsets), array("q", counters), deliveries.tobytes(), is_plain, noted)


# Items of msgpack


@njit(nogil=True, cache=True, forceinline=True)
def _item(at: Int, end: Int, facts: Int) -> tuple[Int, Int, Int, Int]:
    """Return (kind, start of its data, their size, start of the next item); inlined to save a quarter."""
    if at >= end:
        return _NOTHING, at, 0, at
    shape = int32_at(int64_at(facts + 8 * _SHAPE_OF) + 4 * byte_at(at))
    size, field = shape >> 16, (shape >> 8) & 0xFF
    at += 1
    if field > 0:
        if at + field > end:
            return _NOTHING, at, 0, at
        size += np.int64(unsigned_at(at, field))
        at += field
    if at + size > end:
        return _NOTHING, at, 0, at
    return shape & 0xFF, at, size, at + size


@njit(nogil=True, cache=True)
def _members(at: Int, end: Int) -> tuple[Int, Int]:
    """Return (number of members of the map, their start)."""
    if at < end and byte_at(at) & 0xF0 == 0x80:
        return byte_at(at) & 0x0F, at + 1
    if at + 3 <= end and byte_at(at) == 0xDE:
        return np.int64(unsigned_at(at + 1, 2)), at + 3
    return _DOUBTFUL, at


@njit(nogil=True, cache=True)
def _integer(at: Int, size: Int) -> tuple[bool, Int]:
    """Return (whether it fits 64 bits with their sign, the int with these data)."""
    head = byte_at(at - 1)
    if size == 0:
        return True, np.int64(np.int8(head))
    bits = np.int64(unsigned_at(at, size))
    if head >= 0xD0:
        return True, (bits << (64 - 8 * size)) >> (64 - 8 * size)
    return bool(bits >= 0), bits


# Texts


@njit(nogil=True, cache=True)
def _is_simple(at: Int, size: Int) -> Any:
    """Whether all bytes are 1 to 127. Taking 1 from each sets the high bit of one that is 0."""
    bits = np.uint64(0)
    while size >= 8:
        word = word_at(at)
        bits |= word | (word - np.uint64(0x0101010101010101))
        at += 8
        size -= 8
    for place in range(at, at + size):
        byte = np.uint64(byte_at(place))
        bits |= byte | (byte - np.uint64(1))
    return bits & np.uint64(0x8080808080808080) == 0


@njit(nogil=True, cache=True)
def _point(at: Int, end: Int) -> tuple[Int, Int]:
    """Return (a code point in strict UTF-8, start of the next one)."""
    head = byte_at(at)
    if head < 0x80:
        return head, at + 1
    size = 2 if head < 0xE0 else 3 if head < 0xF0 else 4
    if head < 0xC2 or at + size > end:
        return _DOUBTFUL, at
    point = head & (0x7F >> size)
    for place in range(at + 1, at + size):
        if byte_at(place) & 0xC0 != 0x80:
            return _DOUBTFUL, at
        point = (point << 6) | (byte_at(place) & 0x3F)
    is_overlong = (size == 3 and point < 0x800) or (size == 4 and point < 0x10000)
    if is_overlong or 0xD800 <= point < 0xE000 or point > 0x10FFFF:
        return _DOUBTFUL, at
    return point, at + size


@njit(nogil=True, cache=True)
def _is_text(at: Int, size: Int) -> Any:
    if _is_simple(at, size):
        return True
    end = at + size
    while at < end:
        point, at = _point(at, end)
        if point == _DOUBTFUL:
            return False
    return True


@njit(nogil=True, cache=True)
def _is_name(at: Int, size: Int, facts: Int) -> Any:
    """Whether an attribute may have this name; its length is counted in bytes, so long ones are doubtful."""
    if size == 0 or size > NAME_LENGTH_MAX:
        return False
    sizes = int32_at(int64_at(facts + 8 * _SUSPECTS) + 4 * byte_at(at))
    if size < 32 and (sizes >> size) & 1 and find(facts + 8 * _RESERVED, at, size) >= 0:
        return False
    if _is_simple(at, size):
        return True
    for place in range(at, at + size):
        if byte_at(place) == 0:
            return False
    return _is_text(at, size)


@njit(nogil=True, cache=True)
def _is_type(at: Int, size: Int, facts: Int) -> Any:
    """Whether a type may have this name; the length is counted in bytes here too."""
    letters, end = int64_at(facts + 8 * _LETTERS), at + size
    before = _DOT
    while at < end:
        point, at = _point(at, end)
        if not 0 <= point < _POINTS_KNOWN or byte_at(letters + point) == 0:
            return False
        if point == _DOT and before == _DOT:
            return False
        before = point
    return before != _DOT and size <= NAME_LENGTH_MAX


# Values


@njit(nogil=True, cache=True)
def _is_time(at: Int, size: Int) -> Any:
    """Whether an extension is a timestamp, and still one when it is rounded to microseconds."""
    if byte_at(at) != 0xFF:
        return False
    seconds, nanoseconds = np.int64(0), np.int64(0)
    if size == 5:
        seconds = np.int64(unsigned_at(at + 1, 4))
    elif size == 9:
        both = unsigned_at(at + 1, 8)
        seconds, nanoseconds = np.int64(both & np.uint64(0x3FFFFFFFF)), np.int64(both >> np.uint64(34))
    elif size == 13:
        nanoseconds, seconds = np.int64(unsigned_at(at + 1, 4)), np.int64(unsigned_at(at + 5, 8))
    else:
        return False
    if nanoseconds > 999_999_999 or not _TIME_S_MIN <= seconds <= _TIME_S_MAX:
        return False
    return 1_000_000 * seconds + (nanoseconds + 500) // 1000 <= TIME_US_MAX


@njit(nogil=True, cache=True)
def _is_value(what: Int, at: Int, size: Int) -> Any:
    """Whether an attribute may have this value."""
    if what == _TEXT:
        return _is_text(at, size)
    if what == _INT:
        return size < 8 or _integer(at, size)[0]
    if what == _EXTENSION:
        return _is_time(at, size)
    return what >= _TRUTH


@njit(nogil=True, cache=True)
def _is_time_us(at: Int, size: Int) -> Any:
    fits, value = _integer(at, size)
    return fits and TIME_US_MIN <= value <= TIME_US_MAX


@njit(nogil=True, cache=True)
def _is_number(what: Int, at: Int, size: Int, most: Any) -> Any:
    """Whether an item is a number from 0 to `most`."""
    if what == _INT:
        fits, value = _integer(at, size)
        return fits and 0 <= value <= most
    if what != _FLOAT:
        return False
    if size == 8:
        return 0.0 <= np.uint64(unsigned_at(at, size)).view(np.float64) <= most
    return 0.0 <= np.uint32(unsigned_at(at, size)).view(np.float32) <= most


@njit(nogil=True, cache=True)
def _is_field(kind: Int, what: Int, at: Int, size: Int, facts: Int) -> Any:
    """Whether a header field of this kind may have this value."""
    if what == _NIL:
        return kind > _ROUTE
    if kind == _PRIORITY:
        return what == _INT and _is_number(what, at, size, PRIORITY_MAX)
    if kind == _SECONDS:
        return _is_number(what, at, size, np.finfo(np.float64).max)
    if kind == _SHARE:
        return _is_number(what, at, size, 1.0)
    if kind == _MOMENT_US:
        return what == _INT and _is_time_us(at, size)
    if what != _TEXT:
        return False
    if kind == _DELIVERY:
        return 0 <= find(facts + 8 * _CHOICES, at, size) < _DELIVERIES
    if kind == _ROUTE:
        return find(facts + 8 * _CHOICES, at, size) >= _DELIVERIES
    return _is_text(at, size) and (size > 0 or kind == _WORDS)


# Events


@njit(nogil=True, cache=True)
def _after_attributes(at: Int, end: Int, facts: Int) -> Int:
    count, at = _members(at, end)
    if count == _DOUBTFUL or count > ATTRIBUTES_MAX:
        return _DOUBTFUL
    for _ in range(count):
        what, place, size, at = _item(at, end, facts)
        if what != _TEXT or not _is_name(place, size, facts):
            return _DOUBTFUL
        what, place, size, at = _item(at, end, facts)
        if not _is_value(what, place, size):
            return _DOUBTFUL
    return at


@njit(nogil=True, cache=True)
def _after_header(at: Int, end: Int, facts: Int) -> tuple[Int, Int]:
    """Return (the end of the header, its delivery and above that byte the noted fields it has).

    Fields of a newer peer must be plain values. Of two fields with one name the last one counts.
    """
    delivery: Int = 0
    noted: Int = 0
    count, at = _members(at, end)
    for _ in range(count):
        what, place, size, at = _item(at, end, facts)
        if what != _TEXT or not _is_text(place, size):
            return _DOUBTFUL, 0
        field = find(facts + 8 * _NAMES, place, size)
        what, place, size, at = _item(at, end, facts)
        if field < 0:
            is_good = what == _NIL or _is_value(what, place, size)
        else:
            known = byte_at(int64_at(facts + 8 * _KINDS) + field)
            kind, bit = known & 15, known >> 4
            noted = noted & ~bit if what == _NIL else noted | bit
            is_good = _is_field(kind, what, place, size, facts)
            if is_good and kind == _DELIVERY:
                delivery = find(facts + 8 * _CHOICES, place, size)
        if not is_good:
            return _DOUBTFUL, 0
    return (_DOUBTFUL if count == _DOUBTFUL else at), delivery | noted << 8


@njit(nogil=True, cache=True)
def _event(at: Int, end: Int, facts: Int) -> tuple[Int, Int, Int]:
    """Return (the end of the event, its counter, its delivery and above that its noted fields)."""
    doubtful = _DOUBTFUL, 0, 0
    if at >= end or byte_at(at) != _SIX_ELEMENTS:
        return doubtful
    what, place, size, at = _item(at + 1, end, facts)
    if what != _INT:
        return doubtful
    fits, counter = _integer(place, size)
    if not fits or counter < 0:
        return doubtful
    what, place, size, at = _item(at, end, facts)
    if what != _TEXT or not _is_type(place, size, facts):
        return doubtful
    what, place, size, at = _item(at, end, facts)
    if what != _INT or not _is_time_us(place, size):
        return doubtful
    at = _after_attributes(at, end, facts)
    if at == _DOUBTFUL:
        return doubtful
    delivery: Int = 0
    if at < end and byte_at(at) == 0xC0:
        at += 1
    else:
        at, delivery = _after_header(at, end, facts)
    if at == _DOUBTFUL:
        return doubtful
    what, _, _, at = _item(at, end, facts)
    if what != _NIL and what != _BLOB:
        return doubtful
    return at, counter, delivery


@njit(nogil=True, cache=True)
def _walk(data: Bytes, numbers: Longs, deliveries: Bytes, facts: Longs) -> Int:
    """Write the offsets and behind them the counters into `numbers`, and the deliveries.

    Returns the deliveries joined by OR, so 0 when all events are transient, and above that byte the noted
    fields; or -1 when there is a doubt.
    """
    begin, count = data.ctypes.data, len(deliveries)
    at, end = begin + HEAD_SIZE, begin + len(data)
    found: Int = 0
    for row in range(count):
        numbers[row] = at - begin
        at, counter, delivery = _event(at, end, facts.ctypes.data)
        if at == _DOUBTFUL:
            return _DOUBTFUL
        numbers[count + 1 + row] = counter
        deliveries[row] = delivery & 0xFF
        found |= delivery
    numbers[count] = at - begin
    return found if at == end else _DOUBTFUL
