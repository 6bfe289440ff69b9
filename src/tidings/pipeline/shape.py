"""Mapping of the columns of a DataFrame to events: made before anything runs, or refused by column.

A column that is named like a header field is that field, the map `attributes` has attributes by name, and any
other column is the attribute of its name. Members of a struct are attributes with dotted names, as everywhere
with events. A date becomes the midnight, in UTC, with which it begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from pyspark.sql import types as spark

from tidings.errors import ConfigError, EventError
from tidings.event.header import DELIVERIES, ROUTES
from tidings.event.values import ATTRIBUTES_MAX, HEADER_NAMES, RESERVED, check_name

FLOAT_DIGITS = 15
"""Digits of a decimal that a float represents exactly."""
INT_DIGITS = 18
"""Digits of a decimal without a fraction that fit an integer of 64 bits."""

TEXTS = ("id", "channel", "subject", "reply_to", "correlation_id", "object_class", "content_type")
NUMBERS = ("ttl_s", "keep_s", "reliability")
WORDS = {"delivery": DELIVERIES, "route": ROUTES}
SET_BY_NODES = ("position", "node", "source", "received", "system", "epoch", "counter", "mismatches")
"""Columns of a read that a write refuses."""
OWN_NAMES = {*HEADER_NAMES, *SET_BY_NODES, "attributes"}
"""Columns that are no attributes."""


class Leaf(Struct, frozen=True):
    """Column, or a member of one that is a struct, and its form on the wire."""

    name: str
    path: tuple[str, ...]
    kind: str


class Shape(Struct, frozen=True):
    """Mapping of the columns of a DataFrame to events."""

    header: tuple[Leaf, ...]
    attributes: tuple[Leaf, ...]
    map: tuple[str, ...]  # the kinds of the values of `attributes`, each a member if they are several
    delivery: str = "persistent"
    type: str | None = None


def shape_of(schema: spark.StructType, delivery: str = "persistent", type: str | None = None) -> Shape:
    """Return the mapping of this schema to events; ConfigError names the first column that has none."""
    header: list[Leaf] = []
    attributes: list[Leaf] = []
    members: tuple[str, ...] = ()
    for field in schema.fields:
        if field.name == "attributes":
            members = _members(field.dataType)
        elif field.name in HEADER_NAMES or field.name in SET_BY_NODES:
            header.append(_header_leaf(field))
        else:
            attributes += _leaves((field.name,), field.dataType)
    if type is None and all(leaf.name != "type" for leaf in header):
        raise _error("type", "is missing: give every row a type, or all of them one with the option 'type'")
    _check_twice([field.name for field in schema.fields])
    _check_names([leaf.name for leaf in attributes])
    return Shape(tuple(header), tuple(attributes), members, delivery, type)


def _error(name: str, problem: str) -> ConfigError:
    return ConfigError(f"column {name!r}", "", problem)


def _check_twice(names: Sequence[str]) -> None:
    """Refuse two columns of one name, without regard to case: Spark could not distinguish them in a read."""
    seen: dict[str, str] = {}
    for name in names:
        known = seen.get(name.lower())
        if known is not None:
            problem = "is there twice" if known == name else f"differs from {known!r} by case only"
            raise _error(name, f"{problem}; rename one")
        seen[name.lower()] = name


def _check_names(names: Sequence[str]) -> None:
    _check_twice(names)
    for name in names:
        if name.lower() in OWN_NAMES and name not in OWN_NAMES:
            like = f"differs from {name.lower()!r} by case only"
            raise _error(name, f"{like}; rename it to that, or to a name of its own")
        try:
            check_name(name)
        except EventError as error:
            problem = "is the name of a header field" if name in RESERVED else error.problem
            raise _error(name, f"can't be an attribute: {problem}; rename it") from None
    if len(names) > ATTRIBUTES_MAX:
        raise _error(names[ATTRIBUTES_MAX], f"is one too many: an event has {ATTRIBUTES_MAX} attributes")


def _header_leaf(field: spark.StructField) -> Leaf:
    name, found = field.name, _kind(field.dataType)
    if name in SET_BY_NODES:
        raise _error(name, "is set by the nodes an event passes; drop it, or rename it")
    wanted = _HEADER_KINDS[name]
    if found not in wanted:
        raise _error(name, f"is {field.dataType.simpleString()}, and must be {wanted[0]}")
    return Leaf(name, (name,), found)


_HEADER_KINDS = {
    **dict.fromkeys(("type", *TEXTS, *WORDS), ("text", "nothing")),
    **dict.fromkeys(NUMBERS, ("number", "float", "integer", "decimal", "whole", "nothing")),
    "priority": ("integer", "whole", "nothing"),
    "time": ("time", "date", "nothing"),
    "body": ("bytes", "text", "nothing"),
}


def _leaves(path: tuple[str, ...], type: spark.DataType) -> Iterator[Leaf]:
    """Yield a column, or if it is a struct its members, by dotted names as everywhere with events."""
    name = ".".join(path)
    if isinstance(type, spark.StructType):
        for field in type.fields:
            yield from _leaves((*path, field.name), field.dataType)
        return
    kind = _kind(type)
    if kind is None:
        raise _error(name, f"is {type.simpleString()}, which no attribute can hold; {_hint(type)}")
    yield Leaf(name, path, kind)


def _kind(type: spark.DataType) -> str | None:
    """Return how the values of a type are written; None for one that can't be."""
    for kinds, kind in _KINDS:
        if isinstance(type, kinds):
            return kind
    if isinstance(type, spark.DecimalType):
        if type.scale == 0 and type.precision <= INT_DIGITS:
            return "whole"
        return "decimal" if type.precision <= FLOAT_DIGITS else None
    return None


_KINDS: tuple[tuple[Any, str], ...] = (
    ((spark.StringType, spark.CharType, spark.VarcharType), "text"),
    (spark.BooleanType, "truth"),
    ((spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType), "integer"),
    ((spark.FloatType, spark.DoubleType), "float"),
    ((spark.TimestampType, spark.TimestampNTZType), "time"),
    (spark.DateType, "date"),
    (spark.BinaryType, "bytes"),
    (spark.NullType, "nothing"),
)


def _hint(type: spark.DataType) -> str:
    if isinstance(type, spark.DecimalType):
        return f"more than {FLOAT_DIGITS} digits: cast it to double, or to string to keep them all"
    if isinstance(type, spark.ArrayType | spark.MapType):
        return "use explode, or put to_json of it into a string or into the column 'body'"
    return "cast it to a number or to a string"


def _members(type: spark.DataType) -> tuple[str, ...]:
    """Return the values of the attribute map: of one kind, or a struct with a member for each kind."""
    if not isinstance(type, spark.MapType) or not isinstance(type.keyType, spark.StringType):
        raise _error("attributes", f"is {type.simpleString()}, and must be a map with strings as keys")
    values = type.valueType
    types = [one.dataType for one in values.fields] if isinstance(values, spark.StructType) else [values]
    kinds = []
    for one in types:
        kind = _kind(one)
        if kind is None:
            raise _error("attributes", f"has values of {one.simpleString()}; {_hint(one)}")
        kinds.append(kind)
    return tuple(kinds)
