"""Conversion of readings to events: whole batches of messages become the raw events of a PUBLISH frame.

The event of a reading has its type, the moment of its timestamp, and as attributes `sensing-id`, `name`,
`value` and every other member: scalars as they are, nested ones as JSON text. A value that is text by JSON's
grammar of numbers becomes that number. A place of one point becomes `posx` and `posy`; two points are a line
and more the corners of a polygon, and become `area`, as the WKT text that the filter function WITHIN reads.
A member called like a header field, or `sensing-id`, is prefixed with `reading-`.

A timestamp is ISO 8601 text, with a zone or in UTC; or a number since 1970, also as text, of seconds, or of
milliseconds or microseconds if seconds would lie thousands of years ahead. Without a credible one the event
has the time of arrival, and keeps the timestamp as an attribute.

This is the hot path: no Event is made, one expression goes over all readings, and the results for texts are
cached, since types, timestamps and values repeat. A reading that can't be an event costs its message a
second pass, and is reported with its place; the others are kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from tidings.errors import EventError
from tidings.event.header import Header
from tidings.event.values import (
    ATTRIBUTES_MAX,
    RESERVED,
    Value,
    check_name,
    check_type,
    in_utc,
    place_of,
    plain_value,
    us_from_time,
)
from tidings.event.wire import array_head
from tidings.gateway.message_reader import OddReading, PlainReading, errors_of
from tidings.gateway.messages import Error, Point, Reading, Sensing

KEPT_MAX = 10_000
"""Texts of one kind whose results are cached."""
KEPT_LENGTH_MAX = 64
"""Characters of a text that is cached."""
EARLIEST_US = us_from_time(datetime(2000, 1, 1, tzinfo=UTC))
"""Earliest credible time: clocks that were never set begin in 1970 or 1980."""
AHEAD_US_MAX = 86_400_000_000
"""Largest lead of a credible clock over the gateway's, which includes a wrong zone."""
TIMESTAMP_LENGTH_MAX = 64
"""Characters of a timestamp that is text."""
PREFIX = "reading-"
TOO_MANY = f"an event has at most {ATTRIBUTES_MAX} attributes"

_INT_LENGTH_MAX = 20
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_MILLISECONDS_FROM = 10**11
_MICROSECONDS_FROM = 10**14
# Of at least nine digits, as every second since 2000 has; eight are a date without hyphens.
_COUNT = re.compile(r"(?a)\d{9,20}(\.\d+)?")
_TAKEN = RESERVED | {"sensing-id"}
_PLAIN = frozenset({str, float, bool})

KeyT = TypeVar("KeyT")
MadeT = TypeVar("MadeT")
_encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode


class Mapped(NamedTuple):
    """Events, as `event.wire` writes them, and the errors of readings that could not be any."""

    raw: bytes
    total: int
    errors: list[Error]


class _Incredible(Exception):
    """The timestamp is invalid or not credible."""


class _Attributes(Struct, gc=False, rename={"sensing_id": "sensing-id"}):
    """Attributes of a plain reading: faster to make and to write than a dict."""

    sensing_id: str
    name: str
    value: Value


class _Placed(_Attributes, gc=False):
    posx: float
    posy: float


class _Event(Struct, gc=False, array_like=True):
    """An event on the wire."""

    counter: int
    type: str
    time_us: int
    attributes: _Attributes | dict[str, Value]
    header: Header | None = None
    body: None = None


class KeptResults(dict[KeyT, MadeT], Generic[KeyT, MadeT]):
    """Cache of a function's recent results; its errors are not kept."""

    def __init__(self, make: Callable[[KeyT], MadeT]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: KeyT) -> MadeT:
        made = self._make(key)
        if len(self) >= KEPT_MAX:
            self.clear()
        if not isinstance(key, str) or len(key) <= KEPT_LENGTH_MAX:
            self[key] = made
        return made


class Mapper:
    """Makes events of readings; one serves all networks of a gateway."""

    def __init__(self) -> None:
        self._now_us = 0
        self._types: KeptResults[str, str] = KeptResults(check_type)
        self._names: KeptResults[str, str] = KeptResults(attribute_name)
        self._numbers: KeptResults[str, int | float | str] = KeptResults(number_of)
        self._moments: KeptResults[str | float, int | None] = KeptResults(moment_of)
        self._times: KeptResults[str | float | None, int] = KeptResults(self._credible)

    def map(
        self, messages: Sequence[Sensing], counter: int, now_us: int, header: Header | None = None
    ) -> Mapped:
        """Return the events of all readings, in order, with counters from `counter` on.

        All of them have this header; `now_us` is the time of their arrival.
        """
        if now_us < self._now_us:
            self._times.clear()  # a credible time may not be any more
        self._now_us = self._times[None] = now_us
        errors: list[Error] = []
        try:
            events = self._events(messages, counter)
        except (EventError, _Incredible):
            events = self._events_one_by_one(messages, counter, errors)
        if header is not None:
            for event in events:
                event.header = header
        return Mapped(_raw(events), len(events), errors)

    def _events(self, messages: Sequence[Sensing], counter: int) -> list[_Event]:
        """Return the events of readings that all can be one."""
        types, times, numbers, following = self._types, self._times, self._numbers, count(counter).__next__
        return [
            _Event(
                following(),
                types[reading.type],
                times[reading.timestamp],
                _Attributes(
                    message.sensing_id,
                    reading.name,
                    numbers[value] if (value := reading.value).__class__ is str else value,
                ),
            )
            if reading.area is None
            else self._other_event(message.sensing_id, reading, following())
            for message in messages
            for reading in message.sensors
        ]

    def _events_one_by_one(
        self, messages: Sequence[Sensing], counter: int, errors: list[Error]
    ) -> list[_Event]:
        events: list[_Event] = []
        for message in messages:
            try:
                events += self._events((message,), counter + len(events))
            except (EventError, _Incredible):
                self._add_good(message, counter, events, errors)
        return events

    def _add_good(self, message: Sensing, counter: int, events: list[_Event], errors: list[Error]) -> None:
        noted = []
        for number, reading in enumerate(message.sensors):
            try:
                events.append(self._event(message.sensing_id, reading, counter + len(events)))
            except EventError as error:
                index = reading.index if isinstance(reading, OddReading) else number
                noted.append(EventError(f"$.sensing.sensors[{index}]{error.place[1:]}", error.problem))
        errors += errors_of(noted, message.sensing_id)

    def _other_event(self, sensing_id: str, reading: Reading, counter: int) -> _Event:
        """Return the event of a reading with an area, or of an odd one; may raise _Incredible too."""
        area, value = reading.area, reading.value
        if reading.__class__ is not PlainReading or area is None or len(area) != 1:
            return self._event(sensing_id, reading, counter)
        if value.__class__ is str:
            value = self._numbers[value]
        placed = _Placed(sensing_id, reading.name, value, area[0].x, area[0].y)
        return _Event(counter, self._types[reading.type], self._times[reading.timestamp], placed)

    def _event(self, sensing_id: str, reading: Reading, counter: int) -> _Event:
        """Return the event of any reading; EventError has the place within the reading."""
        kind, value, timestamp = self._types[reading.type], reading.value, reading.timestamp
        value = self._numbers[value] if value.__class__ is str else attribute_value(value, "$.value")
        attributes = {"sensing-id": sensing_id, "name": reading.name, "value": value}
        if isinstance(reading, OddReading):
            self._add_others(reading.others, attributes)
        if reading.area:
            attributes.update(place_attributes(reading.area))
        time_us = self._now_us if timestamp is None else self._moments[timestamp]
        if time_us is None or not is_credible(time_us, self._now_us):
            attributes["timestamp"] = plain_value(timestamp, "$.timestamp")
            time_us = self._now_us
        return _Event(counter, kind, time_us, attributes)

    def _add_others(self, others: dict[str, Any], attributes: dict[str, Value]) -> None:
        if len(others) > ATTRIBUTES_MAX and sum(one is not None for one in others.values()) > ATTRIBUTES_MAX:
            raise EventError("$", TOO_MANY)
        for name, value in others.items():
            if value is None:
                continue
            attribute = self._names[name]
            while attribute != name and attribute in others:
                attribute = PREFIX + attribute
            is_plain = value.__class__ in _PLAIN
            attributes[attribute] = value if is_plain else attribute_value(value, place_of(name))
        if len(attributes) > ATTRIBUTES_MAX:
            raise EventError("$", TOO_MANY)

    def _credible(self, timestamp: str | float | None) -> int:
        moment_us = self._now_us if timestamp is None else moment_of(timestamp)
        if moment_us is None or not is_credible(moment_us, self._now_us):
            raise _Incredible
        return moment_us


def number_of(text: str) -> int | float | str:
    """Return the number that a text is by JSON's grammar, or the text; EventError if it is out of range."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return text
    if found.lastindex is not None:
        number = float(text)
        if math.isinf(number):
            raise EventError("$.value", "is out of the range of a float")
        return number
    if len(text) > _INT_LENGTH_MAX:
        raise EventError("$.value", f"an int of {len(text)} characters does not fit 64 bits")
    plain_value(int(text), "$.value")
    return int(text)


def attribute_name(name: str) -> str:
    """Return the attribute's name for a member; EventError if it can't be one."""
    attribute = PREFIX + name if name in _TAKEN else name
    check_name(attribute)
    return attribute


def attribute_value(value: object, place: str) -> Value:
    """Return a member as an attribute: nested ones become JSON text."""
    if not isinstance(value, dict | list):
        return plain_value(value, place)
    try:
        return _encode_json(value).decode()
    except OverflowError:
        raise EventError(place, "holds an int that does not fit 64 bits") from None


def _raw(events: list[_Event]) -> bytes:
    encoded = _encode(events)
    own_head_size = 1 if len(events) < 16 else 3 if len(events) < 65536 else 5
    return array_head(len(events)) + memoryview(encoded)[own_head_size:]


def place_attributes(points: Sequence[Point]) -> dict[str, float | str]:
    """Return the attributes of a place: the coordinates of one point, WKT text of more."""
    if len(points) == 1:
        return {"posx": points[0].x, "posy": points[0].y}
    if len(points) == 2:
        return {"area": f"LINESTRING ({_corners(points)})"}
    return {"area": f"POLYGON (({_corners([*points, points[0]])}))"}


def _corners(points: Sequence[Point]) -> str:
    return ", ".join(f"{point.x!r} {point.y!r}" for point in points)


def moment_of(timestamp: str | float) -> int | None:
    """Return microseconds since 1970, or None if the timestamp is invalid."""
    if not isinstance(timestamp, str):
        return _counted(timestamp)
    if len(timestamp) > TIMESTAMP_LENGTH_MAX:
        return None
    if timestamp[4:5] != "-" and (found := _COUNT.fullmatch(timestamp)) is not None:
        return _counted(float(timestamp) if found[1] else int(timestamp))
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return us_from_time(in_utc(moment))


def _counted(count: float) -> int:
    if count < _MILLISECONDS_FROM:
        return round(count * 1_000_000)
    return round(count * 1000) if count < _MICROSECONDS_FROM else round(count)


def is_credible(moment_us: int, now_us: int) -> bool:
    """Whether a reading that arrives now can be of that moment."""
    return EARLIEST_US <= moment_us <= now_us + AHEAD_US_MAX
