"""Names and values of attributes, and the flattening of nested input.

A value is a bool, an int of 64 bits, a float, a str, a time or bytes. Any value of the caller is converted to
exactly one of these, or refused with its place (`$.pos.z: set is not a value`). The rule: the stored value
equals the given one, and every event that exists can be written by every codec.

`are_plain` is on the hot path: it says in one loop that a dict needs none of the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from tidings.errors import EventError

if TYPE_CHECKING:
    Value: TypeAlias = bool | int | float | str | datetime | bytes
else:
    Value = Any  # msgspec refuses unions of str with bytes or datetime; the checks here say what it can't

NAME_LENGTH_MAX = 255
ATTRIBUTES_MAX = 1_000
NESTING_MAX = 32
MEMBERS_MAX = 10_000  # members visited while flattening, so that shared empty dicts can't multiply
NAMES_KEPT_MAX = 10_000

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
EXACT_MAX = 2**53
"""Integers up to here equal floats."""
AWARE = "use datetime.now(UTC), or .replace(tzinfo=UTC) if it is in UTC"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
TIME_US_MIN = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
TIME_US_MAX = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND

# fmt: off
HEADER_NAMES = frozenset({
    "type", "id", "source", "time", "received", "channel", "subject", "priority", "ttl_s", "keep_s",
    "delivery", "route", "reliability", "reply_to", "correlation_id", "object_class", "body", "content_type",
})
# fmt: on
JMS_ALIASES = {
    "JMSType": "type",
    "JMSMessageID": "id",
    "JMSTimestamp": "time",
    "JMSPriority": "priority",
    "JMSDeliveryMode": "delivery",
    "JMSCorrelationID": "correlation_id",
    "JMSReplyTo": "reply_to",
}
RESERVED = HEADER_NAMES | JMS_ALIASES.keys()

_WIRE_KINDS = frozenset({bool, float, str, datetime, bytes})
# Names and types that passed their check: events of one kind come in millions and use the same few.
_good_names: set[str] = set()
good_types: set[str] = set()


def place_of(name: object, root: str = "$") -> str:
    """Return the place of a member, as errors write it: `$.pos.x`; odd names are quoted and long ones cut."""
    text = name if isinstance(name, str) else repr(name)
    if len(text) > 80:
        text = text[:80] + "…"
    return f"{root}.{text}" if text and text.isprintable() else f"{root}[{text!a}]"


def are_plain(attributes: Mapping[str, object]) -> bool:
    """Whether all names are known to be valid and all values can be stored as they are."""
    good = _good_names
    for name, value in attributes.items():
        if name.__class__ is not str or name not in good:
            return False
        kind = value.__class__
        if kind is str:
            if not value.isascii() and not _is_encodable(value):  # type: ignore[attr-defined, arg-type]
                return False
        elif kind is int:
            if not INT_MIN <= value <= INT_MAX:  # type: ignore[operator]
                return False
        elif kind is not float and kind is not bool:
            return False
    return len(attributes) <= ATTRIBUTES_MAX


def are_wire_values(values: Mapping[str, object]) -> bool:
    """Whether all names are known to be valid and all values are those of events, as decoded."""
    good = _good_names
    for name, value in values.items():
        if name not in good:
            return False
        kind = value.__class__
        if kind is int:
            if not INT_MIN <= value <= INT_MAX:  # type: ignore[operator]
                return False
        elif kind not in _WIRE_KINDS:
            return False
    return len(values) <= ATTRIBUTES_MAX


def check_name(name: str) -> None:
    """Refuse a name that no attribute may have; remember a valid one."""
    if name in _good_names:
        return
    if not name:
        raise EventError(place_of(name), "a name may not be empty")
    if len(name) > NAME_LENGTH_MAX:
        raise EventError(place_of(name), f"a name has at most {NAME_LENGTH_MAX} characters")
    if "\0" in name or not _is_encodable(name):
        raise EventError(place_of(name), "a name may not hold NUL or half a character")
    if name in RESERVED:
        raise EventError(place_of(name), "is a header field; give it as a keyword, or rename it")
    remember(_good_names, name)


def check_type(text: object) -> str:
    """Return the type of an event, if valid: dotted, no empty segment, no blanks or control characters."""
    if text.__class__ is str and text in good_types:
        return text
    kind = plain_text(text, "$.type")
    if not kind or len(kind) > NAME_LENGTH_MAX:
        raise EventError("$.type", f"a type has 1 to {NAME_LENGTH_MAX} characters")
    if "" in kind.split("."):
        raise EventError("$.type", f"{kind!r} has an empty segment")
    if not kind.isprintable() or any(character.isspace() for character in kind):
        raise EventError("$.type", f"{kind!r} contains a space or a control character")
    remember(good_types, kind)
    return kind


def remember(kept: set[str], text: str) -> None:
    """Keep a text that passed its check, within the limit of such texts."""
    if len(kept) >= NAMES_KEPT_MAX:
        kept.clear()
    kept.add(text)


def plain_value(value: object, place: str) -> Value:
    """Return `value` as exactly bool, int, float, str, datetime in UTC or bytes, or EventError at `place`."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _fitting(int.__index__(value), place)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return plain_text(value, place)
    if isinstance(value, datetime):
        return plain_time(value, place)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return _plain_scalar(value, place)


def plain_text(value: object, place: str) -> str:
    """Return a str that can be written as UTF-8."""
    if not isinstance(value, str):
        raise EventError(place, f"{type(value).__name__} is not text")
    if not _is_encodable(value):
        raise EventError(place, "half a character (a lone surrogate) can't be written")
    return str.__str__(value)


def plain_time(value: datetime, place: str) -> datetime:
    """Return the same moment in UTC; refuse one without a zone, since its moment depends on the reader."""
    if getattr(value, "nanosecond", 0):
        raise EventError(place, f"{value} is finer than a microsecond")
    if value.tzinfo is None:
        raise EventError(place, f"{value} has no time zone; {AWARE}")
    try:
        return time_from_us(us_from_time(value.astimezone(UTC)))
    except (OverflowError, ValueError) as error:
        raise EventError(place, f"{value!r} is not a time: {error}") from None


def plain_bytes(value: object, place: str) -> bytes:
    """Return bytes, from anything bytes-like."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise EventError(place, f"{type(value).__name__} is not bytes")


def plain_moment(value: object, place: str) -> int:
    """Return microseconds since 1970 of a datetime or ISO 8601 text, in UTC if no zone is written."""
    if isinstance(value, str):
        try:
            value = in_utc(datetime.fromisoformat(value))
        except ValueError:
            raise EventError(place, f"{value!r} is not a time as in 2026-11-15T08:00:00Z") from None
    if not isinstance(value, datetime):
        raise EventError(place, f"{type(value).__name__} is not a time; give a datetime or ISO 8601 text")
    return us_from_time(plain_time(value, place))


def in_utc(moment: datetime) -> datetime:
    """Return the moment, in UTC if it has no zone: for texts and formats that agree on that."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def time_from_us(time_us: int) -> datetime:
    """Return the moment so many microseconds after 1970, exactly."""
    return EPOCH + timedelta(microseconds=time_us)


def us_from_time(moment: datetime) -> int:
    """Return microseconds since 1970 of an aware datetime, exactly."""
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _fitting(value: int, place: str) -> int:
    if not INT_MIN <= value <= INT_MAX:
        # Writing out a huge int is slow and by default limited; its size is enough.
        shown = str(value) if value.bit_length() <= 128 else f"an int of {value.bit_length()} bits"
        raise EventError(place, f"{shown} does not fit 64 bits")
    return value


def _plain_scalar(value: object, place: str) -> Value:
    """Return a scalar of numpy, known by its dtype so that numpy itself is not needed, if it is exact."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    plain: object = None
    if kind and kind in "biuf" and hasattr(value, "item") and getattr(value, "shape", None) == ():
        plain = value.item()
    elif kind == "M" and hasattr(value, "astype"):
        moment = value.astype("datetime64[us]")
        plain = in_utc(moment.item()) if moment == value else None
    if type(plain) in (bool, int, float, datetime):
        return plain_value(plain, place)
    raise EventError(place, f"{type(value).__name__} is not a value")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def flatten(
    attributes: Mapping[Any, Any],
    is_value: Callable[[Mapping[Any, Any]], bool] | None = None,
) -> Iterator[tuple[str, object]]:
    """Yield the members of nested mappings with dotted names, in their order; None members are left out.

    Names are only joined here, values not checked; a mapping that `is_value` is not opened. Depth, length and
    number are bounded, so cyclic input ends in an EventError.
    """
    open_mappings = [("", iter(attributes.items()))]
    looked_at = 0
    while open_mappings:
        prefix, members = open_mappings[-1]
        member = next(members, None)
        if member is None:
            open_mappings.pop()
            continue
        key, value = member
        looked_at += 1
        name = _joined(prefix, key)
        if looked_at > MEMBERS_MAX:
            raise EventError(place_of(name), f"there are more than {MEMBERS_MAX} members")
        if isinstance(value, Mapping) and not (is_value and is_value(value)):
            if len(open_mappings) >= NESTING_MAX:
                raise EventError(place_of(name), f"is nested deeper than {NESTING_MAX} levels")
            open_mappings.append((name + ".", iter(value.items())))
        elif value is not None:
            yield name, value


def _joined(prefix: str, key: object) -> str:
    if not isinstance(key, str):
        raise EventError(place_of(key), f"a name is text, not {type(key).__name__}")
    if not key:
        raise EventError(place_of(prefix), "a name may not be empty")
    name = prefix + str.__str__(key)
    if len(name) > NAME_LENGTH_MAX:
        raise EventError(place_of(name), f"a name has at most {NAME_LENGTH_MAX} characters")
    return name


def add_value(values: dict[str, Value], name: str, value: object) -> None:
    """Add one flat attribute to `values`, checked."""
    check_name(name)
    if name in values:
        raise EventError(place_of(name), "is given twice")
    if len(values) >= ATTRIBUTES_MAX:
        raise EventError(place_of(name), f"an event has at most {ATTRIBUTES_MAX} attributes")
    if isinstance(value, (list, tuple)):
        raise EventError(place_of(name), "a list is not a value; put it into the body")
    values[name] = plain_value(value, place_of(name))


def json_body(lists: Mapping[str, object]) -> bytes:
    """Return list-valued members as one JSON object, for the body of an event."""
    members = []
    for name, value in lists.items():
        try:
            members.append(f"{json.dumps(name)}:{json.dumps(value, allow_nan=False, separators=(',', ':'))}")
        except (TypeError, ValueError, RecursionError) as error:
            raise EventError(place_of(name), f"can't be written as JSON: {error}") from None
    return f"{{{','.join(members)}}}".encode()
