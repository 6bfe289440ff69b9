"""Data in the body of an event: a model written as JSON or msgpack, and read again.

A model is an instance of a msgspec struct, a dataclass or a pydantic model. The content type says how it is
written, JSON by default, and `object_class` is the name of its class. Reading goes by the content type and by
the class that the reader names; the name in the event is only shown in errors, since a consumer may have a
class of its own.

pydantic is never imported here: a value can only be one of its models if the program has imported it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, get_args

import msgspec
from msgspec import Struct

from tidings.errors import CodecError, EventError, UserError

if TYPE_CHECKING:
    from tidings.event.model import Event

Model = TypeVar("Model")
ModelType: TypeAlias = type[Model]
"""A class that data is read as, or a list of one."""

MODELS_KEPT_MAX = 256
"""Models whose decoders are kept."""
JSON = "application/json"
MSGPACK = "application/msgpack"

PLACED = re.compile(r"(?P<problem>.*) - at `(?:key` in `)?\$(?P<place>.*)`", re.DOTALL)
"""An error of msgspec, as text."""
_IS_JSON = re.compile(r"(application/json|[^;]*\+json)\s*(;|$)", re.IGNORECASE)
_IS_MSGPACK = re.compile(r"(application/(x-|vnd\.)?msgpack|[^;]*\+msgpack)\s*(;|$)", re.IGNORECASE)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")

Decode = Callable[[bytes], Any]


def is_data(value: object) -> bool:
    """Whether a value is written into the body: a model, or a list."""
    kind = type(value)
    # This attribute marks a dataclass; the module `dataclasses`, which checks it too, is slow to import.
    return (
        isinstance(value, Struct | list | tuple)
        or hasattr(kind, "__dataclass_fields__")
        or _is_pydantic(kind)
    )


def _is_pydantic(kind: object) -> bool:
    """Whether a class is a pydantic model, or a type has one among its arguments."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return False
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        return True
    return any(map(_is_pydantic, get_args(kind)))


# Writing


def data_fields(value: object, header: dict[str, object]) -> dict[str, object]:
    """Return the header fields of an event with the data: body, content type and class."""
    if header.get("body") is not None:
        raise EventError("$.data", "there is a body already; give either data or body")
    content_type = header.get("content_type") or JSON
    fields = {"body": _written(value, content_type), "content_type": content_type}
    if not isinstance(value, list | tuple) and header.get("object_class") is None:
        fields["object_class"] = type(value).__name__
    return fields


def _written(value: object, content_type: object) -> bytes:
    try:
        encode = msgspec.json.encode if _is_json(content_type) else msgspec.msgpack.encode
        return encode(value, enc_hook=_plain_model)
    except (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError) as error:
        if isinstance(error, EventError):
            raise
        raise EventError("$.data", f"{type(value).__name__} can't be written: {error}") from None


def _plain_model(value: Any) -> object:
    """A pydantic model as plain values; msgspec knows the other models."""
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    raise NotImplementedError(f"{type(value).__name__} has no place in JSON and msgpack")


def _is_json(content_type: object) -> bool:
    """Whether it is JSON, which is also taken for granted if nothing is said; else it is msgpack."""
    if content_type is None or _IS_JSON.match(str(content_type)):
        return True
    if _IS_MSGPACK.match(str(content_type)):
        return False
    raise EventError("$.content_type", f"data is {JSON} or {MSGPACK}, not {content_type!r}")


# Reading


def read_data(event: Event, model: ModelType[Model]) -> Model:
    """Return the body as an instance of the model; CodecError has the place and the type expected."""
    if event.body is None:
        raise CodecError("$.body", f"is missing; it is to be read as {name_of(model)}")
    decode = _decoder_of(cast("Hashable", model), _is_json(event.content_type))
    try:
        data: Model = decode(event.body)
        return data
    except msgspec.ValidationError as error:
        place, problem = place_and_problem(error, "$.body")
        raise CodecError(place, problem + _read_as(model, event)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CodecError("$.body", f"can't be read as {name_of(model)}: {error}") from None
    except ValueError as error:
        if _is_pydantic(model) and hasattr(error, "errors"):
            raise CodecError(*_explained_by_pydantic(error, model, event)) from None
        raise


@lru_cache(MODELS_KEPT_MAX)
def _decoder_of(model: Any, is_json: bool) -> Decode:
    if _is_pydantic(model):
        adapter = sys.modules["pydantic"].TypeAdapter(model)
        if is_json:
            return adapter.validate_json  # type: ignore[no-any-return]
        return lambda body: adapter.validate_python(msgspec.msgpack.decode(body))
    try:
        return msgspec.json.Decoder(model).decode if is_json else msgspec.msgpack.Decoder(model).decode
    except (TypeError, NameError) as error:
        raise UserError(f"{name_of(model)} is no model: {error}") from None


def name_of(model: Any) -> str:
    """Return the name of a model, as errors write it."""
    return model.__name__ if isinstance(model, type) else str(model)


def place_and_problem(error: msgspec.ValidationError, root: str) -> tuple[str, str]:
    """Return where an error of msgspec is and what is wrong there: `$.price`, `expected int, got str`."""
    found = PLACED.fullmatch(str(error))
    problem, place = (found["problem"], found["place"]) if found else (str(error), "")
    if (missing := _MISSING.fullmatch(problem)) is not None:
        return f"{root}{place}.{missing['name']}", "is missing"
    return root + place, problem[:1].lower() + problem[1:].replace("`", "")


def _explained_by_pydantic(error: Any, model: Any, event: Event) -> tuple[str, str]:
    """The first of the errors that pydantic has found."""
    first = error.errors(include_url=False)[0]
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]]
    problem = first["msg"][:1].lower() + first["msg"][1:]
    return "$.body" + "".join(steps), problem + _read_as(model, event)


def _read_as(model: Any, event: Event) -> str:
    name = name_of(model)
    said = f"; it is read as {name}"
    return said if event.object_class in (None, name) else f"{said} and was written as {event.object_class}"
