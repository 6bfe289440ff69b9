"""Events as CloudEvents 1.0: one JSON object, or HTTP headers with the body beside them.

id, source, type, subject, time, datacontenttype and data are the same in both. Attributes that
fit an extension (a name of small letters and digits; bool, 32-bit int or text) are extensions, and
`dataschema` is an attribute. An extension named like a header field of ours is the attribute `ce.NAME`. All
else goes into one extension, `tidings`, as the JSON of `tidings.event.json`, whose members take precedence.
So nothing is lost either way, except parts of a time finer than a microsecond.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import msgspec

from tidings.errors import CodecError, EventError
from tidings.event.json import event_of, header_members, is_textual, read_object, time_text, to_tagged
from tidings.event.model import Event
from tidings.event.values import HEADER_NAMES, Value, place_of

CONTENT_TYPE = "application/cloudevents+json"
OURS = "tidings"

_REQUIRED = ("specversion", "id", "source", "type")
_SAME = ("id", "source", "type", "subject", "time")
_DATA = ("data", "data_base64")
_EXTENSION = re.compile(r"[a-z0-9]+")
# Text a context attribute may hold: no control characters, no code points that are no characters.
_TEXT = re.compile("[^\x00-\x1f\x7f-\x9f\ufdd0-\ufdef" + "".join(chr(16**4 * i + 0xFFFE) for i in range(17))
                   + "".join(chr(16**4 * i + 0xFFFF) for i in range(17)) + "]+")  # fmt: skip
_URI_REFERENCE = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:" + _URI_REFERENCE.pattern)
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_MEDIA_TYPE = re.compile(
    rf'{_TOKEN}/{_TOKEN}(?:[ \t]*;[ \t]*{_TOKEN}=(?:{_TOKEN}|"(?:[ !#-\[\]-~]|\\[ -~])*"))*'
)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_JSON_TYPE = re.compile(r"[^;]*[/+]json\s*(?:;.*)?", re.IGNORECASE)
# Characters that must be percent-encoded in an HTTP header, the rest of ASCII may stand.
_HTTP_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def to_cloudevent(event: Event) -> dict[str, Any]:
    """Return the event as a CloudEvent's JSON object, to be written with any JSON encoder."""
    context, ours = _context_of(event)
    if event.body is not None:
        context |= _data_of(event.body, context.get("datacontenttype"))
    return _with_ours(context, ours)


def encode_cloudevent(event: Event) -> bytes:
    """Encode the event as a CloudEvent in JSON."""
    return msgspec.json.encode(to_cloudevent(event))


def to_headers(event: Event) -> tuple[dict[str, str], bytes]:
    """Return the event as HTTP headers (`ce-…` and `content-type`) and the body of the message."""
    context, ours = _context_of(event)
    for name, value in event.values.items():
        # A header is text, so other values also go where their kind is kept.
        if not isinstance(value, str) and name not in ours["attributes"]:
            ours["attributes"][name] = value
    if event.body == b"":
        ours["body_base64"] = ""  # a message without a body looks the same
    content_type = context.pop("datacontenttype", None)
    if content_type is not None and content_type.lower().startswith("application/cloudevents"):
        ours["content_type"], content_type = content_type, None  # it would say that the body is the event
    headers = {f"ce-{name}": _header_text(value) for name, value in _with_ours(context, ours).items()}
    return headers | ({} if content_type is None else {"content-type": content_type}), event.body or b""


def from_cloudevent(data: bytes | str | Mapping[str, Any]) -> Event:
    """Return the event in a CloudEvent's JSON, as bytes, text or object; CodecError names a mistake."""
    members = read_object(_json_of_object(data) if isinstance(data, Mapping) else data)
    context = {name: value for name, value in members.items() if name not in _DATA and value is not None}
    return _event_of(context, _body_of(members, context), members.get("data_base64"))


def from_headers(headers: Mapping[str, str], body: bytes) -> Event:
    """Return the event in an HTTP message, with its context in the headers or a CloudEvent as the body."""
    context: dict[str, Any] = {}
    for name, value in headers.items():
        key = name.lower()
        if key == "content-type":
            if value.lower().startswith(CONTENT_TYPE):
                return from_cloudevent(body)
            context["datacontenttype"] = value
        elif key.startswith("ce-"):
            context[key[3:]] = _from_header_text(value, f"$.{key}")
    return _event_of(context, body or None)


def _context_of(event: Event) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the context attributes of an event, and the members that only `tidings` can have."""
    ours = header_members(event)
    context: dict[str, Any] = {"specversion": "1.0", "type": event.type, "time": time_text(event.time)}
    for name in ("id", "source"):
        if name not in ours:
            raise EventError(f"$.{name}", f"a CloudEvent has one; make the event with {name}=…")
        context[name] = ours.pop(name) if _CHECKS[name](ours[name]) else quote(ours[name])
    for name, theirs in (("subject", "subject"), ("content_type", "datacontenttype")):
        if name in ours and _CHECKS[theirs](ours[name]):
            context[theirs] = ours.pop(name)
    ours["attributes"] = {}
    for name, value in event.values.items():
        theirs = name[3:] if name[:3] == "ce." and name[3:] in _SHADOWED else name
        if _fits(theirs, value) and (theirs not in HEADER_NAMES or theirs != name):
            context[theirs] = value
        else:
            ours["attributes"][name] = value
    return context, ours


def _with_ours(context: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    ours["attributes"] = {name: to_tagged(value) for name, value in ours["attributes"].items()}
    said = {name: value for name, value in ours.items() if value != {}}
    # ASCII only, so that no character that a context attribute may not hold stands in it.
    return context | ({OURS: json.dumps(said, separators=(",", ":"))} if said else {})


def _fits(name: str, value: Value) -> bool:
    """Whether an attribute can be a context attribute of that name as it is."""
    if name == "dataschema":
        return _is_like(_URI, value)
    return name not in _CONTEXT and _EXTENSION.fullmatch(name) is not None and _is_extension_value(value)


def _data_of(body: bytes, content_type: str | None) -> dict[str, Any]:
    """Return `data` if reading it gives the same bytes, else `data_base64`."""
    try:
        if content_type is not None and _JSON_TYPE.fullmatch(content_type):
            value = msgspec.json.decode(body)
            if value is not None and msgspec.json.encode(value) == body:
                return {"data": value}
        elif is_textual(content_type):
            return {"data": body.decode()}
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        pass  # a body that contradicts its content type travels as bytes
    return {"data_base64": to_tagged(body)["$bytes"]}  # type: ignore[index]


def _body_of(members: Mapping[str, Any], context: dict[str, Any]) -> bytes | None:
    """Return the bytes that `data` stands for, if present; set the content type that JSON data implies."""
    data = members.get("data")
    if data is not None and members.get("data_base64") is not None:
        raise CodecError("$.data_base64", "stands beside data")
    if data is None:
        return None
    content_type = context.setdefault("datacontenttype", "application/json")
    if isinstance(content_type, str) and not _JSON_TYPE.fullmatch(content_type):
        if not isinstance(data, str):
            raise CodecError("$.data", f"{content_type} is text, not {type(data).__name__}")
        return data.encode()
    return _json_of(data)


def _json_of(value: object) -> bytes:
    """Return JSON of a value that was read from JSON, as `_data_of` writes it again."""
    try:
        try:
            return msgspec.json.encode(value)
        except OverflowError:  # msgspec writes no int of more than 64 bits
            return json.dumps(value).encode()
    except RecursionError:
        raise CodecError("$.data", "is nested too deep") from None


def _json_of_object(members: Mapping[str, Any]) -> bytes:
    """Return JSON of a caller's value; unlike msgspec, this accepts only values that JSON has."""
    try:
        return json.dumps(dict(members), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CodecError("$", f"is not JSON: {error}") from None


def _event_of(context: dict[str, Any], body: bytes | None, encoded: object = None) -> Event:
    """Return the event of this context and body, or base64 of one; `tidings` takes precedence."""
    _check(context)
    members: dict[str, Any] = {name: context[name] for name in _SAME if name in context}
    if "time" in members:
        members["time"] = members["time"].upper()
    members["content_type"] = context.get("datacontenttype")
    members["body_base64"] = to_tagged(body)["$bytes"] if body is not None else encoded  # type: ignore[index]
    attributes: dict[str, Any] = {}
    for name, value in context.items():
        if name == "dataschema" or name not in _CONTEXT:
            attributes[f"ce.{name}" if name in HEADER_NAMES else name] = value
    ours = read_object(context[OURS]) if OURS in context else {}
    more = ours.pop("attributes", {})
    if not isinstance(more, dict):
        raise CodecError(f"$.{OURS}", "its attributes are not an object")
    try:
        return event_of({**members, **ours, "attributes": {**attributes, **more}})
    except EventError as error:
        raise CodecError(error.place, error.problem) from None


def _check(context: Mapping[str, Any]) -> None:
    for name in _REQUIRED:
        if name not in context:
            raise CodecError(f"$.{name}", "is missing")
    for name, value in context.items():
        if name in _DATA or not _EXTENSION.fullmatch(name):
            raise CodecError(place_of(name), "is no name of a context attribute")
        if not _CHECKS.get(name, _is_extension_value)(value):
            raise CodecError(place_of(name), f"{value!r} is not what CloudEvents 1.0 allows here")


def _is_like(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_extension_value(value: object) -> bool:
    if isinstance(value, int):
        return -(2**31) <= value < 2**31
    return value == "" or _is_like(_TEXT, value)


_CHECKS: dict[str, Callable[[object], bool]] = {
    "specversion": lambda value: value == "1.0",
    **dict.fromkeys(("id", "type", "subject", OURS), partial(_is_like, _TEXT)),
    "source": partial(_is_like, _URI_REFERENCE),
    "time": partial(_is_like, _TIME),
    "datacontenttype": partial(_is_like, _MEDIA_TYPE),
    "dataschema": partial(_is_like, _URI),
}
# Names that mean something in CloudEvents, and those that an extension and a header field of ours share.
_CONTEXT = frozenset({*_CHECKS, *_DATA})
_SHADOWED = HEADER_NAMES - _CONTEXT


def _header_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(str(value), safe=_HTTP_SAFE)


def _from_header_text(value: str, place: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeError:
        raise CodecError(place, "is not percent-encoded UTF-8") from None
