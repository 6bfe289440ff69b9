"""Decoding of messages from JSON objects, strictly by RFC 8259, with the place of each mistake.

Nearly all messages are `sensing` with the usual members, and a run of these is decoded in one call, into
Structs that allow nothing else: this is the hot path. Readings with further members are decoded by runs too,
as dicts. Other objects are examined by hand, and those that can't be decoded even so (a number out of range,
invalid UTF-8) member by member: so the error names `$.sensing.sensors[3].value`, and the other readings of
the message are kept.

The rule: all these ways give the same readings. Unknown members are ignored, but those of a reading are kept
in `OddReading.others`. Of members of one name the last counts; yet a message that gives its type or its
`sensing-id` twice is refused, since a program on its way may have gone by the other one.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec
from msgspec import Raw

from tidings.errors import EventError
from tidings.event.values import place_of
from tidings.gateway.message_reader import (
    BAD,
    STEP,
    TITLES,
    TOO_DEEP,
    Loose,
    Plain,
    Said,
    errors_of,
    loose_sensing,
    problem_and_place,
    read_message,
)
from tidings.gateway.messages import Sensing
from tidings.steps import Steps

_decode_plain_lines = msgspec.json.Decoder(Plain).decode_lines
_decode_plain = msgspec.json.Decoder(Plain).decode
_decode_loose_lines = msgspec.json.Decoder(Loose).decode_lines
_decode = msgspec.json.Decoder().decode
_open_object = msgspec.json.Decoder(dict[str, Raw]).decode
_open_array = msgspec.json.Decoder(list[Raw]).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_ID = b'"sensing-id"'
_QUOTED_TITLES = tuple(f'"{title}"'.encode() for title in TITLES)
# A letter or hyphen as an escape: then the bytes don't show how often a name is there.
_ESCAPED = re.compile(rb"\\u00(?:2[dD]|6[1-9a-fA-F]|7[0-9aA])")
_LEVELS: Final = 4
"""Levels of an object down to the members of a reading: each is decoded by itself to find a bad one."""
OPEN_SIZE = 64 << 10
"""Bytes of an object, other than one with plain readings, that are decoded in one call."""


class _Pairs(list[tuple[str, object]]):
    """Members of an object, including those of the same name."""


_pairs = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=str, parse_float=str).decode


def decode_plain_run(data: bytes) -> list[Sensing] | None:
    """Decode a run of whole objects, if all of them are plain readings."""
    try:
        plain = _decode_plain_lines(data)
    except _UNREADABLE:
        return None
    return [message.sensing for message in plain] if _has_single_ids(data, len(plain)) else None


def decode_run(data: bytes) -> Steps[list[Said] | None]:
    """Decode a run of whole objects; None if each of them has to be decoded by itself.

    It takes one step if all readings are plain.
    """
    plain = decode_plain_run(data)
    if plain is not None or len(data) > OPEN_SIZE:
        return None if plain is None else [*plain]
    said: list[Said] = []
    try:
        loose = _decode_loose_lines(data)
        for message in loose:
            said.append((yield from loose_sensing(message.sensing)))
            if len(said) % STEP == 0:
                yield
    except (*_UNREADABLE, EventError):
        return None
    return said if _has_single_ids(data, len(loose)) else None


def decode_object(raw: bytes) -> Steps[list[Said]]:
    """Decode one object: its message, as far as it is valid, and the mistakes."""
    has_single_id = _has_single_ids(raw, 1)
    if has_single_id:
        try:
            return [_decode_plain(raw).sensing]
        except _UNREADABLE:
            pass  # it is examined closely
    noted: list[EventError] = []
    members = yield from _open(raw, "$", _LEVELS, noted)
    has_single_title = sum(map(raw.count, _QUOTED_TITLES)) == 1  # for certain, if no letter is escaped
    if members is not BAD and not (has_single_id and has_single_title):
        try:
            double = _double_in(raw)
        except EventError as error:
            return [*errors_of([error])]
        if double is not None:
            return [*errors_of([EventError(double, "is given twice")])]
    return (yield from read_message(members, noted))


def _has_single_ids(data: bytes, count: int) -> bool:
    """Whether it is certain that none of so many messages, which all have an id, has a second one."""
    return data.count(_ID) == count and (b"\\" not in data or _ESCAPED.search(data) is None)


def _double_in(raw: bytes) -> str | None:
    """Return the place of a type or id that is given twice."""
    if len(raw) > OPEN_SIZE:
        raw = _without_sensors(raw)
        if len(raw) > OPEN_SIZE:
            raise EventError("$", f"has at most {OPEN_SIZE} bytes beside its sensors")
    try:
        members = _pairs(raw.decode(errors="replace"))
    except RecursionError:  # far deeper than an object may be, which is reported
        return None
    if not isinstance(members, _Pairs):
        return None
    titles = [title for title, _ in members if title in TITLES]
    for title, body in members:
        if titles.count(title) > 1:
            return f"$.{title}"
        names = [name for name, _ in body] if title in titles and isinstance(body, _Pairs) else []
        if names.count("sensing-id") > 1:
            return f"$.{title}.sensing-id"
    return None


def _without_sensors(raw: bytes) -> bytes:
    """Return a long object without its sensors, if it is certain where they stand."""
    for title, body in _open_object(raw).items():
        members = _opened(body) if title in TITLES else None
        sensors = bytes(members["sensors"]) if isinstance(members, dict) and "sensors" in members else b""
        if sensors and raw.count(sensors) == 1:
            return raw.replace(sensors, b"[]")
    return raw


def _open(raw: bytes | Raw, place: str, levels: int, noted: list[EventError]) -> Steps[Any]:
    """Decode a value, with `BAD` in it for invalid JSON, down to so many levels.

    A long one is not decoded in one go, but element by element.
    """
    inner = _opened(raw) if levels and memoryview(raw).nbytes > OPEN_SIZE else None
    if inner is None:
        try:
            return _decode(raw)
        except _UNREADABLE as error:
            problem = _problem_in(error)
        inner = _opened(raw) if levels else None
    if isinstance(inner, dict):
        members = {}
        for name, one in inner.items():
            members[name] = yield from _open(one, place_of(name, place), levels - 1, noted)
            yield
        return members
    if isinstance(inner, list):
        elements = []
        for at, one in enumerate(inner):
            elements.append((yield from _open(one, f"{place}[{at}]", levels - 1, noted)))
            yield
        return elements
    noted.append(EventError(place, problem))
    return BAD


def _opened(raw: bytes | Raw) -> dict[str, Raw] | list[Raw] | None:
    for opening in (_open_object, _open_array):
        try:
            return opening(raw)
        except _UNREADABLE:
            continue
    return None


def _problem_in(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return TOO_DEEP
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8"
    return problem_and_place(error)[0]
