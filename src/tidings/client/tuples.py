"""Entries of a space as events, and templates as filters.

A tuple is an event of the type `tidings.tuple`. Its length is an attribute, and so is each of its fields,
named by kind and place: `("hello", 3, 4.5)` has `length`, `str_0`, `int_1` and `float_2`. So a template is a
plain condition that every index can use, `3` and `3.0` are never confused, and a filter may say more about a
field (`int_1 > 2`). Any other entry is an event, and is found as one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from tidings.errors import EventError, FilterError, UserError
from tidings.event import Event
from tidings.event.values import ATTRIBUTES_MAX, Value, plain_value
from tidings.filters import Filter

TUPLE = "tidings.tuple"
"""The type of the events that are tuples."""
FIELDS_MAX = ATTRIBUTES_MAX - 1
"""Fields of a tuple; its length is an attribute too."""
OWN_ID = "entry-"
"""Prefix of the ids that a space gives to its entries."""

ANYTHING = Filter()
KINDS = frozenset((bool, int, float, str, datetime, bytes))
Entry: TypeAlias = Any
"""An entry as read: an Event, or a tuple where one was written. Only the template's author knows."""
Written = Event | Mapping[str, Any] | tuple[Any, ...]
"""An entry as written; a mapping is an event with type, header fields and attributes in one."""


# Entries


def written(entry: Written) -> Event:
    """Return the event of an entry; EventError names the value that no event may have."""
    if isinstance(entry, Event):
        return entry
    if isinstance(entry, tuple):
        return Event(TUPLE, _attributes(entry))
    if isinstance(entry, Mapping):
        return Event.from_dict(entry)
    raise UserError(f"an entry is an event, a tuple or a mapping with a type, not {type(entry).__name__}")


def _attributes(fields: tuple[Any, ...]) -> dict[str, Value]:
    _check_length(fields)
    values: dict[str, Value] = {"length": len(fields)}
    for place, field in enumerate(fields):
        value = plain_value(field, f"$[{place}]")
        values[_name(type(value), place)] = value
    return values


def _check_length(fields: tuple[Any, ...]) -> None:
    if len(fields) > FIELDS_MAX:
        raise EventError("$", f"has {len(fields)} fields, a tuple has at most {FIELDS_MAX}")


def _name(kind: type, place: int) -> str:
    return f"{kind.__name__}_{place}"


def found(event: Event) -> Entry:
    """Return the entry of an event: the tuple, if it is one, else the event as it was written."""
    if event.type == TUPLE:
        length, fields = event.values.get("length"), tuple(event.values.values())[1:]
        names = [_name(type(value), place) for place, value in enumerate(fields)]
        if length == len(fields) and list(event.values) == ["length", *names]:
            return fields
    header = event.header
    if header is not None and header.id is not None and header.id.startswith(OWN_ID):
        return replace(event, header=replace(header, id=None))
    return event


# Templates


class Template:
    """A compiled selection of entries; made by `Space.template`.

    `one & other` matches the entries that both match, `one | other` those that either does. Raises
    FilterError if no entry can ever match, since a call would never return.
    """

    __slots__ = ("filter", "where")

    filter: Filter
    where: str
    """The text of the filter, empty if it means everything."""

    def __init__(self, like: Like = None, /, **fields: Any) -> None:
        filter = _filter_of(like)
        if fields:
            filter = _named(fields) if like is None else filter & _named(fields)
        self._set(filter)

    def _set(self, filter: Filter) -> None:
        if not filter.normal:
            raise FilterError(f"no entry can match this template: {filter}")
        self.filter = filter
        self.where = "" if filter == ANYTHING else str(filter)

    def __and__(self, other: Like) -> Template:
        return _of(self.filter & template_of(other).filter)

    def __or__(self, other: Like) -> Template:
        return _of(self.filter | template_of(other).filter)

    def __repr__(self) -> str:
        return f"<Template {self.filter}>"


Like = Template | Event | Mapping[str, Any] | tuple[Any, ...] | Filter | str | None
"""Any form of a template; None means all entries."""


def template_of(like: Like) -> Template:
    """Return the template itself, or one made of another form."""
    return like if isinstance(like, Template) else Template(like)


def _of(filter: Filter) -> Template:
    template = Template.__new__(Template)
    template._set(filter)
    return template


def _filter_of(like: Like) -> Filter:
    match like:
        case None:
            return ANYTHING
        case Template():
            return like.filter
        case Filter():
            return like
        case str():
            return Filter(like)
        case tuple():
            return Filter.from_terms(_terms(like))
        case Event():
            return _named(_said(like))
        case Mapping():
            return _named(like)
    raise FilterError(
        f"a template is an event, a tuple, a mapping, a filter or its text, not {type(like).__name__}"
    )


def _terms(fields: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Return the terms for a tuple with these fields; `...` and None stand for any, a type for any of it."""
    _check_length(fields)
    yield "type", "=", TUPLE
    yield "length", "=", len(fields)
    for place, field in enumerate(fields):
        if isinstance(field, type) and field is not object:
            if field not in KINDS:
                raise FilterError(f"$[{place}]: {field.__name__} is no type of value")
            yield _name(field, place), "any"
        elif field is not None and field is not ... and field is not object:
            value = plain_value(field, f"$[{place}]")
            yield _name(type(value), place), *_equal(value, place)


def _equal(value: Value, place: int) -> tuple[str, Value]:
    """Operator and value of the term for what equals this; infinities are what lies beyond all others."""
    if not isinstance(value, float) or math.isfinite(value):
        return "=", value
    if math.isnan(value):
        raise FilterError(f"$[{place}]: NaN is equal to nothing; float stands for any")
    return (">", sys.float_info.max) if value > 0 else ("<", -sys.float_info.max)


def _named(said: Mapping[str, Any]) -> Filter:
    """All that is said must agree; entries of a subtype are of the type too."""
    kind = said.get("type")
    if not isinstance(kind, str):
        return Filter.template(said)
    of_type = Filter("IS_A(type, :kind)", kind=kind)
    others = {name: value for name, value in said.items() if name != "type" and value is not None}
    return of_type & Filter.template(others) if others else of_type


def _said(event: Event) -> dict[str, Any]:
    """Return the fields of an event as a template: without its time and lease."""
    header = {} if event.header is None else msgspec.to_builtins(event.header)
    for name in ("received_us", "ttl_s"):
        header.pop(name, None)
    body = {} if event.body is None else {"body": event.body}
    return {"type": event.type, **event.values, **header, **body}
