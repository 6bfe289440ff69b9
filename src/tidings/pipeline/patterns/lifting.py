"""Events of a DataFrame as the core of patterns takes them, and matches as rows again.

Spark evaluates the filter of each step and keeps the rows that are some step; only these are sorted or kept
as state. Times travel as microseconds, so that no time zone of a session comes in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from tidings.errors import UserError
from tidings.event.values import time_from_us, us_from_time
from tidings.patterns import Pattern
from tidings.patterns.pattern import KEY_LENGTH_MAX, KEY_TOO_LONG, NO_KEY
from tidings.patterns.runs import Found, Row, RunOutcome

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PLACE = ("time", "node", "position")
"""Columns that every row must have: when its event was, and where it is stored."""
TIME_US, NODE, POSITION, MASK, UNTIL = "time_us", "node", "position", "mask", "until_us"

_KINDS: tuple[tuple[tuple[type[st.DataType], ...], str], ...] = (
    ((st.StringType,), "string"),
    ((st.BooleanType,), "boolean"),
    ((st.ByteType, st.ShortType, st.IntegerType, st.LongType), "bigint"),
    ((st.FloatType, st.DoubleType, st.DecimalType), "double"),
    ((st.TimestampType,), "time"),
    ((st.DateType,), "date"),
    ((st.BinaryType,), "binary"),
)
_KEYS = ("string", "boolean", "bigint", "time", "date")
TIMES = frozenset(("time", "date"))
"""Kinds of columns that are moments, and travel as microseconds."""


class RowShape(Struct, frozen=True):
    """Kinds of the key and of the values of a pattern in one DataFrame; sent to the workers with it."""

    pattern: str
    key: tuple[str, ...]
    values: tuple[str, ...]


def shape_of(pattern: Pattern, frame: DataFrame) -> RowShape:
    """Return the kinds of the columns that a pattern reads; UserError if one can't be used."""
    types = {field.name: field.dataType for field in frame.schema.fields}
    for name in (*PLACE, *pattern.by):
        if name not in types:
            raise UserError(f"the pattern needs the column {name!r}; there are {', '.join(types)}")
    key = tuple(_kind(name, types[name]) for name in pattern.by)
    for name, kind in zip(pattern.by, key, strict=True):
        if kind not in _KEYS:
            raise UserError(f"column {name!r}: a key is a string, an integer, a boolean or a time")
    values = tuple(_kind(name, types[name]) if name in types else "string" for name in pattern.columns)
    return RowShape(str(pattern), key, values)


def _kind(name: str, type: st.DataType) -> str:
    for types, kind in _KINDS:
        if isinstance(type, types):
            return kind
    raise UserError(f"column {name!r}: a pattern can't read {type.simpleString()}")


def lifted(pattern: Pattern, frame: DataFrame, shape: RowShape) -> DataFrame:
    """Return the rows that are some step: k0, k1 … for the key, its place, its steps, v0, v1 … for values."""
    bits = [
        sf.when(step.filter.to_spark(frame), sf.lit(1 << number)).otherwise(sf.lit(0))
        for number, step in enumerate(pattern.steps)
    ]
    mask = bits[0].cast("bigint")
    for bit in bits[1:]:
        mask = mask + bit.cast("bigint")
    keys = [_value(name, kind).alias(f"k{n}") for n, (name, kind) in _numbered(pattern.by, shape.key)]
    known = set(frame.columns)
    values = [
        (_value(name, kind) if name in known else sf.lit(None).cast("string")).alias(f"v{n}")
        for n, (name, kind) in _numbered(pattern.columns, shape.values)
    ]
    place = [sf.unix_micros("time").alias(TIME_US), sf.col(NODE), sf.col(POSITION).cast("bigint")]
    rows = frame.select(*keys, *place, mask.alias(MASK), *values)
    return rows.where((sf.col(MASK) != 0) & sf.col(TIME_US).isNotNull())


def _numbered(names: Sequence[str], kinds: Sequence[str]) -> Iterable[tuple[int, tuple[str, str]]]:
    return enumerate(zip(names, kinds, strict=True))


def _value(name: str, kind: str) -> Column:
    column = sf.col(f"`{name.replace('`', '``')}`")
    if kind == "date":  # its first moment in UTC, as filters have it
        return sf.unix_date(column).cast("bigint") * 86_400_000_000
    return sf.unix_micros(column) if kind == "time" else column.cast(kind)


# In the workers


def plain(kinds: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    """Return values as events have them."""
    if TIMES.isdisjoint(kinds):
        return tuple(values)
    pairs = zip(kinds, values, strict=True)
    return tuple(time_from_us(one) if kind in TIMES and one is not None else one for kind, one in pairs)


def unusable_key(key: Sequence[Any]) -> str | None:
    """Return why a key can't be used, None if it can."""
    if None in key:
        return NO_KEY
    if sum(len(part) for part in key if isinstance(part, str)) > KEY_LENGTH_MAX:
        return KEY_TOO_LONG
    return None


def spoken(pattern: Pattern, shape: RowShape, key: Sequence[Any], found: Found) -> dict[str, Any]:
    """Return a match, a time-out or an event that was not used as a row of `RESULT` columns."""
    row: dict[str, Any] = {f"k{n}": part for n, part in enumerate(key)}
    if not isinstance(found, RunOutcome):
        unused, reason = found
        row |= {"kind": "unused", "start": unused.time_us, "end": unused.time_us, "reason": reason}
        return row | {"events": [_placed("", unused)]}
    last: dict[int, Row] = dict(found.events)
    row |= {"kind": "timeout" if found.is_timeout else "match", "reason": None}
    row |= {"start": found.start_us, "end": found.end_us}
    row["events"] = [_placed(pattern.steps[step].name, one) for step, one in found.events]
    numbers = {step.name: number for number, step in enumerate(pattern.steps)}
    for n, (step, name) in enumerate(pattern.returns):
        place, taken = pattern.columns.index(name), last.get(numbers[step])
        value: Any = None if taken is None else taken.values[place]
        row[f"r{n}"] = us_from_time(value) if shape.values[place] in TIMES and value is not None else value
    return row


def _placed(step: str, row: Row) -> dict[str, Any]:
    return {"step": step, "time_us": row.time_us, "node": row.node, "position": row.number}


def result_schema(pattern: Pattern, shape: RowShape) -> str:
    """Return the schema of the rows that `spoken` makes."""
    keys = [f"k{n} {_wire(kind)}" for n, kind in enumerate(shape.key)]
    events = "events array<struct<step: string, time_us: bigint, node: string, position: bigint>>"
    fixed = ["kind string", "start bigint", "end bigint", events]
    returned = [
        f"r{n} {_wire(shape.values[pattern.columns.index(name)])}"
        for n, (_, name) in enumerate(pattern.returns)
    ]
    return ", ".join([*keys, *fixed, *returned, "reason string"])


def _wire(kind: str) -> str:
    return "bigint" if kind in TIMES else kind


def named(pattern: Pattern, shape: RowShape, rows: DataFrame) -> DataFrame:
    """Return the rows of `result_schema` with names and times as people want them."""
    keys = [_read(f"k{n}", kind).alias(name) for n, (name, kind) in _numbered(pattern.by, shape.key)]
    kinds = [shape.values[pattern.columns.index(name)] for _, name in pattern.returns]
    returned = [
        _read(f"r{n}", kind).alias(f"{step}_{name}")
        for n, ((step, name), kind) in enumerate(zip(pattern.returns, kinds, strict=True))
    ]
    events = sf.expr(
        "transform(events, e -> named_struct('step', e.step, 'time', timestamp_micros(e.time_us),"
        " 'node', e.node, 'position', e.position)) AS events"
    )
    ends = [sf.timestamp_micros("start").alias("start"), sf.timestamp_micros("end").alias("end")]
    return rows.select(*keys, "kind", *ends, events, *returned, "reason")


def _read(name: str, kind: str) -> Column:
    return sf.timestamp_micros(name) if kind in TIMES else sf.col(name)
