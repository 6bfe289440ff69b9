"""Events as msgpack: the bytes that travel between nodes and lie in the store.

An array with a head of fixed size (`0xdd` and a count of four bytes), so that runs of events can be joined by
rewriting the head, then each event as `[counter, type, time_us, attributes, header or nil, body or nil]`. The
origin stands beside them, once per section. Times among the attributes are msgpack timestamps.

This is the hot path: one call decodes all events and one loop checks what msgspec can't. The rule:
whatever the bytes are, either every resulting event could have been made by `Event(...)`, or CodecError names
the place. Offsets of events are found without decoding any, by a walk that reads sizes only:
every msgpack item says by its first byte how long it is, or how many items lie in it. So the walk keeps a
count of items still to come, not a stack, and nesting costs nothing.

A node passes on the bytes of a sender as they came, so it must know that every receiver can read them. The
rule: `check` accepts exactly what `decode_events` accepts. By default it decodes, and drops the result; after
`use_compiled` the bytes are scanned in place, and only doubtful ones are decoded.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import accumulate
from operator import or_

import msgspec
from msgspec.structs import force_setattr

from tidings.errors import CodecError, EventError, MissingExtra
from tidings.event.data import PLACED
from tidings.event.header import DELIVERIES, EMPTY_HEADER, NOTED_FIELDS, Header
from tidings.event.model import UNREAD, Event
from tidings.event.values import (
    ATTRIBUTES_MAX,
    are_wire_values,
    check_name,
    check_type,
    good_types,
    place_of,
    plain_value,
)
from tidings.ids import Origin

HEAD_SIZE = 5
COUNT_MAX = 2**32 - 1
# Names of the elements of an event in places; header and attributes are not levels of their own.
_ELEMENTS = {"0": ".counter", "1": ".type", "2": ".time", "3": "", "4": "", "5": ".body", "6": "[6]"}

_encoder = msgspec.msgpack.Encoder()
_events_decoder = msgspec.msgpack.Decoder(list[Event])
_event_decoder = msgspec.msgpack.Decoder(Event)

# Bytes of data behind the first byte, where their number is fixed: floats, ints, extensions (kind and data).
_DATA_SIZES = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_EXTENSION_SIZES = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17, 0xC7: 1, 0xC8: 1, 0xC9: 1}
# Bytes of the length field, and how many items each one counted by it stands for (0: it counts bytes).
_BYTES_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_ITEMS_LENGTHS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def array_head(count: int) -> bytes:
    """Return the head of an array of `count` events."""
    return b"\xdd" + count.to_bytes(4, "big")


def count_in_head(raw: bytes) -> int:
    """Return the number of events in the head."""
    if len(raw) < HEAD_SIZE or raw[0] != 0xDD:
        raise CodecError("$", "does not begin with the head of an array of events")
    return int.from_bytes(raw[1:HEAD_SIZE], "big")


def encode_events(events: Sequence[Event]) -> bytes:
    """Encode the events as an array with its fixed head; their origins are left to the section."""
    encoded = _encoder.encode([_wire_form(event) for event in events])
    own_head_size = 1 if len(events) < 16 else 3 if len(events) < 65536 else 5
    return array_head(len(events)) + memoryview(encoded)[own_head_size:]


def _wire_form(event: Event) -> tuple[object, ...]:
    header = event.header
    if header is not None and header == EMPTY_HEADER:
        header = None
    return event.counter, event.type, event.time_us, event.values, header, event.body


def decode_events(raw: bytes, origin: Origin | None = None) -> list[Event]:
    """Decode all events of an array, each checked, sharing `origin`; CodecError when anything is wrong."""
    count_in_head(raw)
    try:
        events = _events_decoder.decode(raw)
    except (
        msgspec.MsgspecError,
        ValueError,
        RecursionError,
    ) as error:  # ValueError: a time past the year 9999
        raise _codec_error(error, "$") from None
    index = 0
    try:
        for index, event in enumerate(events):  # noqa: B007 - the error wants to know how far it came
            if (
                event.origin is UNREAD
                and event.header is None
                and event.type in good_types
                and are_wire_values(event.values)
            ):
                force_setattr(event, "origin", origin)
            else:
                _admit(event, origin)
    except EventError as error:
        raise CodecError(f"$[{index}]{error.place[1:]}", error.problem) from None
    return events


def decode_event(raw: bytes | memoryview, origin: Origin | None = None, root: str = "$") -> Event:
    """Decode one event of an array; `root` is its place in errors."""
    try:
        event = _event_decoder.decode(raw)
        _admit(event, origin)
    except EventError as error:
        raise CodecError(f"{root}{error.place[1:]}", error.problem) from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _codec_error(error, root, elements_at=0) from None
    return event


def _admit(event: Event, origin: Origin | None) -> None:
    """Check what msgspec can't, and set the origin."""
    if event.origin is not UNREAD:
        raise EventError("$[6]", "an event has six elements")
    force_setattr(event, "origin", origin)
    check_type(event.type)
    if not are_wire_values(event.values):
        _check_values(event.values)
    if event.header is not None and event.header == EMPTY_HEADER:
        force_setattr(event, "header", None)


def _check_values(values: Mapping[str, object]) -> None:
    if len(values) > ATTRIBUTES_MAX:
        raise EventError("$", f"an event has at most {ATTRIBUTES_MAX} attributes")
    for name, value in values.items():
        check_name(name)
        plain_value(value, place_of(name))


def _codec_error(error: Exception, root: str, elements_at: int = 1) -> CodecError:
    """Return msgspec's error with the place in our words: `$[17][4].priority` is `$[17].priority`."""
    if isinstance(error, RecursionError):
        return CodecError(root, "is nested too deep")
    found = PLACED.fullmatch(str(error))
    if found is None:
        return CodecError(root, str(error))
    steps = re.findall(r"\[[^\]]*\]|\.[^.\[]+", found["place"])
    if len(steps) > elements_at:
        steps[elements_at] = _ELEMENTS.get(steps[elements_at][1:-1], steps[elements_at])
    return CodecError(root + "".join(steps), found["problem"])


def _shape(head: int) -> tuple[int, int, int, int]:
    """Return (bytes of data, items, bytes of the length field, items per unit of it) after a first byte."""
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
COMPILED_SIZE_MIN = 4 << 10
"""Bytes of events from which on compiled code finds their offsets sooner."""
_parts_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_offsets_compiled: Callable[[bytes], array[int]] | None = None


def offsets_of(raw: bytes) -> array[int]:
    """Return the offset of each event of an array, and the end of the last one."""
    if _offsets_compiled is not None and len(raw) >= COMPILED_SIZE_MIN:
        return _offsets_compiled(raw)
    count_in_head(raw)
    try:
        parts = _parts_decoder.decode(raw)  # ten times as quick as walking, but without the place of a fault
    except (msgspec.MsgspecError, RecursionError):
        return walk(raw)
    return array("Q", accumulate(map(len, parts), initial=HEAD_SIZE))


def walk(raw: bytes) -> array[int]:
    """Find the same, item by item; CodecError names the event that is cut short."""
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
    """Return the end of the item at `at`, which may be past the end; IndexError when its head is missing."""
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


# Checking

_CODES = {delivery: code for code, delivery in enumerate(DELIVERIES)}


class Checked(msgspec.Struct, frozen=True):
    """Facts about events that were checked."""

    offsets: array[int] | None
    """Offset of each event, and the end of the last one, if they were found."""
    counters: array[int]
    deliveries: bytes
    """One byte each, its place in DELIVERIES: 0 transient, 1 reliable, 2 persistent."""
    is_plain: bool
    """Every event is transient."""
    noted: int = 0
    """Which of NOTED_FIELDS some of the events may have: nobody has to search them for the others."""

    def slice(self, start: int, end: int) -> Checked:
        """Return the facts about the rows from `start` to before `end`, save their offsets."""
        deliveries = self.deliveries[start:end]
        return Checked(None, self.counters[start:end], deliveries, not any(deliveries), self.noted)

    def take(self, rows: Iterable[int]) -> Checked:
        """Return the facts about these rows, save their offsets."""
        wanted = [int(row) for row in rows]
        deliveries = bytes(self.deliveries[row] for row in wanted)
        counters = array("Q", (self.counters[row] for row in wanted))
        return Checked(None, counters, deliveries, not any(deliveries), self.noted)


_certain: Callable[[bytes], Checked | None] | None = None


def check(raw: bytes) -> Checked:
    """Check the events of an array and return facts about them; CodecError names the place of a fault."""
    if _certain is not None:
        checked = _certain(raw)
        if checked is not None:
            return checked
    return check_decoding(raw)


def check_decoding(raw: bytes) -> Checked:
    """Check as `check` does, by decoding every event."""
    events = decode_events(raw)
    counters = array("q", [event.counter for event in events])
    headers = [event.header for event in events]
    deliveries = bytes([0 if header is None else _CODES[header.delivery] for header in headers])
    noted = reduce(or_, (_noted(header) for header in headers if header is not None), 0)
    return Checked(None, counters, deliveries, deliveries == bytes(len(events)), noted)


def _noted(header: Header) -> int:
    return sum(1 << bit for bit, name in enumerate(NOTED_FIELDS) if getattr(header, name) is not None)


def use_compiled() -> None:
    """Find offsets and check in place from now on, with numba.

    Loading it takes half a second and 130 MB, and the first time on a machine some seconds more to compile.
    """
    global _certain, _offsets_compiled
    try:
        from tidings.event.check_compiled import check_certain
        from tidings.event.scan import offsets
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("tidings"):
            raise
        raise MissingExtra("checking events in place", "node") from None
    offsets(encode_events(()))  # loads or compiles it, so that the loop never waits for that
    _offsets_compiled, _certain = offsets, check_certain
