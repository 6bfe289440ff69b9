"""The header: the fields of an event beside type, time and attributes.

`Header` is a map on the wire, and absent when no field is set. `read_field` converts a header field, also
given by its JMS name, to its stored value, or raises EventError with its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tidings.errors import EventError
from tidings.event.values import (
    JMS_ALIASES,
    TIME_US_MAX,
    TIME_US_MIN,
    plain_bytes,
    plain_moment,
    plain_text,
    plain_value,
)

Delivery = Literal["transient", "reliable", "persistent"]
Route = Literal["auto", "direct", "epidemic"]
DELIVERIES: tuple[Delivery, ...] = ("transient", "reliable", "persistent")
ROUTES: tuple[Route, ...] = ("auto", "direct", "epidemic")
PRIORITY_DEFAULT = 4
PRIORITY_MAX = 9

TimeUs = Annotated[int, Meta(ge=TIME_US_MIN, le=TIME_US_MAX)]
_Seconds = Annotated[float, Meta(ge=0, le=sys.float_info.max)]


class Header(Struct, frozen=True, omit_defaults=True, gc=False):
    """The header fields that are seldom set; fields that a newer peer adds are ignored."""

    id: Annotated[str, Meta(min_length=1)] | None = None  # only an id given from outside
    received_us: TimeUs | None = None
    channel: str | None = None
    subject: str | None = None
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX)] = PRIORITY_DEFAULT
    ttl_s: _Seconds | None = None
    keep_s: _Seconds | None = None
    delivery: Delivery = "transient"
    route: Route = "auto"
    reliability: Annotated[float, Meta(ge=0, le=1)] | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    object_class: str | None = None
    content_type: str | None = None
    queue_group: Annotated[str, Meta(min_length=1)] | None = None
    queue_delay_s: _Seconds | None = None  # counted from when the queue takes the message in
    queue_due_us: TimeUs | None = None


EMPTY_HEADER = Header()
QUEUE_FIELDS = ("queue_group", "queue_delay_s", "queue_due_us")
"""The fields that are for queues only: an attribute may have such a name, and no filter or JSON has them."""
SHOWN_FIELDS = tuple(
    name for name in Header.__struct_fields__ if name not in ("id", "received_us", *QUEUE_FIELDS)
)
"""The fields that go by the same name in JSON and in columns."""


def _identity(value: object, place: str) -> str:
    text = plain_text(value, place)
    if not text:
        raise EventError(place, "may not be empty")
    return text


def _priority(value: object, place: str) -> int:
    number = plain_value(value, place)
    if type(number) is not int or not 0 <= number <= PRIORITY_MAX:
        raise EventError(place, f"{number!r} is not within 0..{PRIORITY_MAX}")
    return number


def _number(value: object, place: str, most: float, bounds: str) -> float:
    number = plain_value(value, place)
    if type(number) not in (int, float) or not 0 <= number <= most:  # type: ignore[operator]
        raise EventError(place, f"{number!r} is not {bounds}")
    return float(number)  # type: ignore[arg-type]


def _seconds(value: object, place: str) -> float:
    return _number(value, place, sys.float_info.max, "a number of seconds from 0 on")


def _share(value: object, place: str) -> float:
    return _number(value, place, 1.0, "within 0..1")


def _one_of(words: tuple[str, ...]) -> Callable[[object, str], str]:
    def check(value: object, place: str) -> str:
        word = plain_text(value, place)
        if word not in words:
            raise EventError(place, f"{word!r} is none of {', '.join(words)}")
        return word

    return check


# Every header field but type: the function that converts the caller's value to the stored one.
FIELD_CHECKS: dict[str, Callable[[object, str], object]] = {
    "id": _identity,
    "source": _identity,
    "time": plain_moment,
    "received": plain_moment,
    "channel": plain_text,
    "subject": plain_text,
    "priority": _priority,
    "ttl_s": _seconds,
    "keep_s": _seconds,
    "delivery": _one_of(DELIVERIES),
    "route": _one_of(ROUTES),
    "reliability": _share,
    "reply_to": plain_text,
    "correlation_id": plain_text,
    "object_class": plain_text,
    "body": plain_bytes,
    "content_type": plain_text,
}
# Values of the JMS delivery mode, which JMS itself numbers 1 and 2.
_JMS_MODES = {"PERSISTENT": "persistent", "NON_PERSISTENT": "transient", 2: "persistent", 1: "transient"}


def read_field(name: str, value: object) -> tuple[str, object]:
    """Return the own name and the stored value of a header field given by any of its names."""
    place = f"$.{name}"
    field = JMS_ALIASES.get(name, name)
    if name == "JMSTimestamp":
        milliseconds = plain_value(value, place)
        if type(milliseconds) is not int or not TIME_US_MIN <= milliseconds * 1000 <= TIME_US_MAX:
            raise EventError(place, f"{milliseconds!r} is not a time in milliseconds")
        return field, milliseconds * 1000
    if name == "JMSDeliveryMode":
        mode = plain_value(value, place)
        if type(mode) not in (str, int) or mode not in _JMS_MODES:
            raise EventError(place, f"{mode!r} is neither PERSISTENT nor NON_PERSISTENT")
        return field, _JMS_MODES[mode]
    return field, value if field == "type" else FIELD_CHECKS[field](value, place)


def header_of(fields: dict[str, Any]) -> Header | None:
    """Return the header with these fields (as of `read_field`), or None if all have their defaults."""
    if "received" in fields:
        fields["received_us"] = fields.pop("received")
    header = Header(**fields)
    return None if header == EMPTY_HEADER else header
