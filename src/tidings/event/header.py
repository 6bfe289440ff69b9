"""The header: the fields of an event beside type, time and attributes.

`Header` is a map on the wire, and absent when no field is set. `read_field` converts a header field, also
given by its JMS name, to its stored value, or raises EventError with its place.

Some names were probably meant as a header field or an option, such as `prority` or `ttl`. Attributes are
free, so the rule must not suspect a name that somebody may want: `item`, `receiver`, `sources` and `ID` are
attributes. A name is suspected if it differs from a header field

- by two neighbouring letters that are swapped, in fields of four letters or more;
- by one letter that is missing, too many or wrong, but not the last one, in fields of six letters or more;
- by capitals, hyphens and underscores only (`replyTo`, `content-type`), in fields of seven letters or more;

or if it stands in a short list of other systems' names (`ttl`, `prio`). A keyword is also compared with the
options of the calls that take attributes as keywords, such as `timeout_s`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tidings.errors import EventError
from tidings.event.values import (
    HEADER_NAMES,
    JMS_ALIASES,
    NAMES_KEPT_MAX,
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

SWAPPED_LENGTH_MIN = 4
"""Letters of a field of which two may be swapped."""
SLIP_LENGTH_MIN = 6
"""Letters of a field that may be misspelt in another way."""
RESPELT_LENGTH_MIN = 7
"""Letters of a field that may be written with other capitals, hyphens or underscores."""

FIELDS_MEANT = {"ttl": "ttl_s", "prio": "priority"}
"""Other names of header fields."""
KEYWORDS_MEANT = {
    **FIELDS_MEANT,
    "expires": "ttl_s",
    "expiration": "ttl_s",
    "timeout": "timeout_s",
}
"""Other names of header fields and options, which only a keyword is suspected of."""

OPTIONS = ("delay_s", "not_before", "timeout_s", "transaction")
"""Options of the calls that take attributes as keywords."""

_FIELDS = tuple(sorted(HEADER_NAMES))

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
NOTED_FIELDS = ("channel", "subject", "keep_s")
"""The fields by which a node treats an event in another way: `Checked.noted` has a bit for each, in order."""
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


_seconds = partial(_number, most=sys.float_info.max, bounds="a number of seconds from 0 on")


def _one_of(words: tuple[str, ...]) -> Callable[[object, str], str]:
    def check(value: object, place: str) -> str:
        word = plain_text(value, place)
        if word not in words:
            raise EventError(place, f"{word!r} is not one of {', '.join(words)}")
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
    "reliability": partial(_number, most=1.0, bounds="within 0..1"),
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


# Names that were probably meant as a field


@lru_cache(NAMES_KEPT_MAX)
def field_meant(name: str) -> str | None:
    """Return the header field that the name of an attribute is probably meant as."""
    if name in HEADER_NAMES:
        return None
    return FIELDS_MEANT.get(name) or _nearest(name, _FIELDS)


def keyword_meant(name: str) -> str | None:
    """Return the header field or option that a keyword is probably meant as."""
    if name in OPTIONS:
        return None
    return KEYWORDS_MEANT.get(name) or field_meant(name) or _nearest(name, OPTIONS)


def _nearest(name: str, known: tuple[str, ...]) -> str | None:
    return next((one for one in known if _is_near(name, one)), None)


def _is_near(name: str, field: str) -> bool:
    """Whether two letters of a field are swapped, one is a slip, or it is only spelt differently."""
    if abs(len(name) - len(field)) > 1:
        return False
    one, other = _difference(name, field)
    is_swapped = len(field) >= SWAPPED_LENGTH_MIN and len(one) == 2 and one == other[::-1]
    # The last letter is none: a `receiver` is not `received`.
    is_single = max(len(one), len(other)) == 1 and "_" not in one + other and name[-1:] == field[-1:]
    is_slip = is_single and len(field) >= SLIP_LENGTH_MIN
    # But `timeouts` may be a number of them.
    is_long = len(field) >= RESPELT_LENGTH_MIN and not field.endswith("_s")
    return is_swapped or is_slip or (is_long and _plain(name) == _plain(field))


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


def _difference(name: str, field: str) -> tuple[str, str]:
    """Return both without the letters that they begin and end with alike."""
    start = 0
    while start < min(len(name), len(field)) and name[start] == field[start]:
        start += 1
    name, field = name[start:], field[start:]
    end = 0
    while end < min(len(name), len(field)) and name[-1 - end] == field[-1 - end]:
        end += 1
    return name[: len(name) - end], field[: len(field) - end]
