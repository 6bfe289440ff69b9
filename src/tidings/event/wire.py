"""Events as msgpack: the bytes that travel between nodes and lie in the store.

An array with a head of fixed size (`0xdd` and a count of four bytes), so that runs of events can be joined by
rewriting the head, then each event as `[counter, type, time_us, attributes, header or nil, body or nil]`. The
origin stands beside them, once per section. Times among the attributes are msgpack timestamps.

This is the hot path: one call decodes all events and one loop looks at what msgspec can't check. The rule:
whatever the bytes are, either every event that comes out could have been made by `Event(...)`, or CodecError
names the place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import force_setattr

from tidings.errors import CodecError, EventError
from tidings.event.header import EMPTY_HEADER
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
# What the elements of an event are called in places; header and attributes are not levels of their own.
_ELEMENTS = {"0": ".counter", "1": ".type", "2": ".time", "3": "", "4": "", "5": ".body", "6": "[6]"}
_PLACE = re.compile(r"(?P<problem>.*) - at `(?:key` in `)?\$(?P<place>.*)`", re.DOTALL)

_encoder = msgspec.msgpack.Encoder()
_events_decoder = msgspec.msgpack.Decoder(list[Event])
_event_decoder = msgspec.msgpack.Decoder(Event)


def array_head(count: int) -> bytes:
    """The head of an array of `count` events."""
    return b"\xdd" + count.to_bytes(4, "big")


def count_in_head(raw: bytes) -> int:
    """How many events the head says there are."""
    if len(raw) < HEAD_SIZE or raw[0] != 0xDD:
        raise CodecError("$", "does not begin with the head of an array of events")
    return int.from_bytes(raw[1:HEAD_SIZE], "big")


def encode_events(events: Sequence[Event]) -> bytes:
    """The events as an array with its fixed head; their origins are left to the section they stand in."""
    encoded = _encoder.encode([_wire_form(event) for event in events])
    own_head_size = 1 if len(events) < 16 else 3 if len(events) < 65536 else 5
    return array_head(len(events)) + memoryview(encoded)[own_head_size:]


def _wire_form(event: Event) -> tuple[object, ...]:
    header = event.header
    if header is not None and header == EMPTY_HEADER:
        header = None
    return event.counter, event.type, event.time_us, event.values, header, event.body


def decode_events(raw: bytes, origin: Origin | None = None) -> list[Event]:
    """All events of an array, each checked, sharing `origin`; CodecError when anything is wrong."""
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
    """One event out of an array; `root` is where errors say it stands."""
    try:
        event = _event_decoder.decode(raw)
        _admit(event, origin)
    except EventError as error:
        raise CodecError(f"{root}{error.place[1:]}", error.problem) from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _codec_error(error, root, elements_at=0) from None
    return event


def _admit(event: Event, origin: Origin | None) -> None:
    """Look at what msgspec can't check, and set the origin."""
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
    """What msgspec says, with the place in our words: `$[17][4].priority` is `$[17].priority`."""
    if isinstance(error, RecursionError):
        return CodecError(root, "is nested too deep")
    found = _PLACE.fullmatch(str(error))
    if found is None:
        return CodecError(root, str(error))
    steps = re.findall(r"\[[^\]]*\]|\.[^.\[]+", found["place"])
    if len(steps) > elements_at:
        steps[elements_at] = _ELEMENTS.get(steps[elements_at][1:-1], steps[elements_at])
    return CodecError(root + "".join(steps), found["problem"])
