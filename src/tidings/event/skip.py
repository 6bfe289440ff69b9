"""Where each event begins, without decoding any, and a walk over msgpack in plain Python.

Every msgpack item says by its first byte how long it is, or how many items lie in it. So the walk keeps a
count of items still to come, not a stack, and nesting costs nothing. It looks at sizes only; what is inside
is checked by whoever decodes it.
"""

from __future__ import annotations

from array import array
from itertools import accumulate

import msgspec

from tidings.errors import CodecError
from tidings.event.wire import HEAD_SIZE, count_in_head

# Bytes of data behind the first byte, where their number is fixed: floats, ints, extensions (kind and data).
_DATA_SIZES = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_EXTENSION_SIZES = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17, 0xC7: 1, 0xC8: 1, 0xC9: 1}
# Bytes of the length field, and how many items each one counted by it stands for (0: it counts bytes).
_BYTES_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_ITEMS_LENGTHS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def _shape(head: int) -> tuple[int, int, int, int]:
    """(bytes of data, items, bytes of the length field, items per unit of it) behind a first byte."""
    if 0x80 <= head < 0x90:
        return 0, 2 * (head - 0x80), 0, 0
    if 0x90 <= head < 0xA0:
        return 0, head - 0x90, 0, 0
    if 0xA0 <= head < 0xC0:
        return head - 0xA0, 0, 0, 0
    if head in _ITEMS_LENGTHS:
        return 0, 0, *_ITEMS_LENGTHS[head]
    return {**_DATA_SIZES, **_EXTENSION_SIZES}.get(head, 0), 0, _BYTES_LENGTHS.get(head, 0), 0


_SHAPES = [_shape(head) for head in range(256)]
_NEVER_USED = 0xC1
_parts_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])


def offsets_of(raw: bytes) -> array[int]:
    """Where each event of an array begins, and after them where the last one ends."""
    count_in_head(raw)
    try:
        parts = _parts_decoder.decode(raw)  # ten times as quick as walking, but it can't say what is wrong
    except (msgspec.MsgspecError, RecursionError):
        return walk(raw)
    return array("Q", accumulate(map(len, parts), initial=HEAD_SIZE))


def walk(raw: bytes) -> array[int]:
    """The same, item by item; CodecError names the event that is cut short."""
    count = count_in_head(raw)
    at = HEAD_SIZE
    offsets = array("Q", [at])
    try:
        for _ in range(count):
            at = skip(raw, at)
            offsets.append(at)
    except IndexError:
        at = len(raw) + 1
    if at > len(raw):
        raise CodecError(f"$[{len(offsets) - 1}]", "is cut short")
    if at < len(raw):
        raise CodecError("$", f"{len(raw) - at} bytes follow the last event")
    return offsets


def skip(raw: bytes, at: int) -> int:
    """Where the item at `at` ends, which may be past the end; IndexError when it lacks an item's head."""
    awaited = 1
    while awaited:
        head = raw[at]
        if head == _NEVER_USED:
            raise CodecError("$", f"byte {at} is no msgpack")
        data, items, length_size, unit = _SHAPES[head]
        at += 1
        awaited += items - 1
        if length_size:
            length = int.from_bytes(raw[at : at + length_size], "big")
            at += length_size
            awaited += unit * length
            data += 0 if unit else length
        at += data
    return at
