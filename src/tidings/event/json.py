"""Events as JSON, for people, devices and the web.

    {"type": "air.pm10", "time": "2026-11-15T08:00:00.000001Z", "priority": 7, "attributes": {"value": 41.2}}

Header fields stand by name when they are set. Values that JSON lacks are tagged: `{"$time": "…Z"}`,
`{"$bytes": "base64"}`, `{"$float": "nan"}`. The body is text under `body` when its content type says so, else
under `body_base64`. Reading the written text gives the same event, numbered ones by their id.

Devices may put attributes beside the header instead, nested or flat. Of members of one name the last counts.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from tidings.errors import CodecError, EventError
from tidings.event.header import EMPTY_HEADER, SHOWN_FIELDS
from tidings.event.model import Event
from tidings.event.values import HEADER_NAMES, Value, flatten, place_of, plain_moment, time_from_us

_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_TAGS = ("$time", "$bytes", "$float")
_TEXTUAL = re.compile(r"text/|application/json\s*(;|$)|[^;]*\+json\s*(;|$)", re.IGNORECASE)


def to_json(event: Event) -> bytes:
    """Encode the event as one JSON object on one line."""
    members = {"type": event.type, "time": time_text(event.time), **header_members(event)}
    members["attributes"] = {name: to_tagged(value) for name, value in event.values.items()}
    if event.body is not None:
        members |= _body_member(event.body, event.content_type)
    return msgspec.json.encode(members)


def header_members(event: Event) -> dict[str, Any]:
    """Return the header fields that are set, as JSON writes them; not type, time and body."""
    members: dict[str, Any] = {"id": event.id, "source": event.source}
    if event.received is not None:
        members["received"] = time_text(event.received)
    header = event.header or EMPTY_HEADER
    for name in SHOWN_FIELDS:
        value = getattr(header, name)
        members[name] = None if value == getattr(EMPTY_HEADER, name) else value
    return {name: value for name, value in members.items() if value is not None}


def time_text(moment: datetime) -> str:
    """Return RFC 3339 to the microsecond, in UTC."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def to_tagged(value: Value) -> object:
    """Return the value in a form that JSON has."""
    if isinstance(value, datetime):
        return {"$time": time_text(value)}
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    if isinstance(value, float) and not abs(value) < float("inf"):
        return {"$float": str(value)}
    return value


def is_textual(content_type: str | None) -> bool:
    """Whether a body of that content type is text: `text/…`, or JSON."""
    return content_type is not None and _TEXTUAL.match(content_type) is not None


def _body_member(body: bytes, content_type: str | None) -> dict[str, str]:
    if is_textual(content_type):
        try:
            return {"body": body.decode()}
        except UnicodeDecodeError:
            pass  # the content type is wrong; the bytes still have to arrive
    return {"body_base64": b64encode(body).decode()}


def from_json(
    data: bytes | str,
    rename: Mapping[str, str] | None = None,
    lists: Literal["refuse", "body"] = "refuse",
) -> Event:
    """Return the event in one JSON object; `rename` and `lists` as in `Event.from_dict`."""
    try:
        return event_of(read_object(data), rename, lists)
    except EventError as error:
        raise CodecError(error.place, error.problem) from None


def read_object(data: bytes | str) -> dict[str, Any]:
    """Return the members of the JSON object in `data`; CodecError for anything else."""
    try:
        members = msgspec.json.decode(data)
    except RecursionError:
        raise CodecError("$", "is nested too deep") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise CodecError("$", str(error)) from None
    if not isinstance(members, dict):
        raise CodecError("$", f"{type(members).__name__} is not an object")
    return members


def event_of(
    members: dict[str, Any],
    rename: Mapping[str, str] | None = None,
    lists: Literal["refuse", "body"] = "refuse",
) -> Event:
    """Return the event of members read from JSON; EventError names a mistake."""
    outer = {name: value for name, value in members.items() if name not in ("attributes", "body_base64")}
    if outer.get("body") is not None:
        outer["body"] = _text_body(outer["body"])
    if members.get("body_base64") is not None:
        if outer.get("body") is not None:
            raise EventError("$.body_base64", "there is a body already")
        outer["body"] = _from_base64(members["body_base64"], "$.body_base64")
    flat = dict(_untagged(_renamed(outer, rename)))
    attributes = members.get("attributes")
    if attributes is not None and not isinstance(attributes, dict):
        raise EventError("$.attributes", f"{type(attributes).__name__} is not an object")
    for name, value in _untagged(attributes or {}):
        if name in HEADER_NAMES:
            raise EventError(place_of(name), "is a header field, not an attribute")
        if name in flat:
            raise EventError(place_of(name), "is given twice")
        flat[name] = value
    return Event.from_dict(flat, lists=lists)


def _renamed(members: dict[str, Any], rename: Mapping[str, str] | None) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for name, value in members.items():
        new = rename.get(name, name) if rename else name
        if new in renamed:
            raise EventError(place_of(new), "is given twice")
        renamed[new] = value
    return renamed


def _untagged(members: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the members, flat, with every tagged value decoded; a name may come only once."""
    seen = set()
    for name, value in flatten(members, is_value=_is_tagged):
        if name in seen:
            raise EventError(place_of(name), "is given twice")
        seen.add(name)
        yield name, from_tagged(value, place_of(name))


def _is_tagged(value: Mapping[Any, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in _TAGS


def from_tagged(value: object, place: str) -> object:
    """Return the value of `to_tagged` for one read from JSON; one without a tag is left as it is."""
    if not (isinstance(value, dict) and _is_tagged(value)):
        return value
    ((tag, text),) = value.items()
    if not isinstance(text, str):
        raise EventError(place, f"{tag} takes text, not {type(text).__name__}")
    if tag == "$time":
        return time_from_us(plain_moment(text, place))
    if tag == "$bytes":
        return _from_base64(text, place)
    if text not in _FLOATS:
        raise EventError(place, f"$float is one of {', '.join(_FLOATS)}, not {text!r}")
    return _FLOATS[text]


def _text_body(value: object) -> bytes:
    if not isinstance(value, str):
        raise EventError("$.body", f"{type(value).__name__} is not text")
    return value.encode()


def _from_base64(value: object, place: str) -> bytes:
    if not isinstance(value, str):
        raise EventError(place, f"{type(value).__name__} is not base64 text")
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise EventError(place, "is not base64") from None
