"""Spark's conditions as a filter, so that the node or the files apply them and Spark gets less to read.

Spark's conditions are about columns, filters about attributes, and a column is not always its attribute: a
value that does not fit is NULL in it, a double rounds large integers, a float rounds nearly everything, a
date has lost its hours. A filter made here therefore matches every event whose row Spark would select, and
perhaps more; Spark need not apply a condition only if both agree on every value. The rule kept: no row is
lost.

| Spark | filter | is Spark needed again |
| --- | --- | --- |
| `= <> < <= > >=`, IN and NOT IN with strings, times, bytes | the same | no |
| `=` and `<>` with booleans | the same | no |
| `= <> < <= > >=` with dates | the day's first and last moment | no |
| STARTS WITH, ENDS WITH, CONTAINS, and NOT of them | the functions of that name | no |
| `= <> < <= > >=`, IN and NOT IN with integers | the same | yes |
| `=`, `<`, `<=` with floats | up to the neighbouring floats of 32 bits | yes |
| `>`, `>=`, `<>`, IN, NOT IN with floats | IS NOT NULL, as NaN may be meant | yes |
| IS NOT NULL | the same | yes |
| anything else | nothing | yes |
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

from pyspark.sql import Column
from pyspark.sql import datasource as spark

from tidings.errors import FilterError
from tidings.event.values import JMS_ALIASES, in_utc
from tidings.filters import Filter
from tidings.filters.text import write_name
from tidings.filters.tree import OPPOSITE
from tidings.pipeline.expressions import from_column

# Columns that are no attributes, and `received`, which has more values in a column than in events.
NOT_IN_EVENTS = frozenset(
    {
        "position",
        "node",
        "attributes",
        "mismatches",
        "system",
        "epoch",
        "counter",
        "date",
        "stored",
        "received",
    }
)
DAY = timedelta(days=1)

OPERATORS: dict[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
FUNCTIONS: dict[type[spark.Filter], str] = {
    spark.StringStartsWith: "STARTS_WITH",
    spark.StringEndsWith: "ENDS_WITH",
    spark.StringContains: "CONTAINS",
}


class ReadCondition(NamedTuple):
    """Condition as a filter, and whether the filter matches nothing more."""

    filter: Filter
    exact: bool


def from_spark(filters: Any, nan: bool = True) -> tuple[Filter, list[Any]]:
    """Implement `Filter.from_spark`."""
    if isinstance(filters, Column):
        return from_column(filters), []
    if not isinstance(filters, list | tuple):
        raise FilterError(f"Spark's filters come as a list, or as one Column, not {type(filters).__name__}")
    made: list[ReadCondition] = []
    left_over: list[Any] = []
    for condition in filters:
        translated = translate(condition, nan)
        if translated is not None:
            made.append(translated)
        if translated is None or not translated.exact:
            left_over.append(condition)
    if not made:
        return Filter(), left_over
    joined = reduce(and_, (one.filter for one in made))
    return Filter._of(joined.condition, None, all(one.exact for one in made)), left_over


def translate(condition: spark.Filter, nan: bool = True) -> ReadCondition | None:
    """Return one of Spark's conditions as a filter, or None."""
    negative = isinstance(condition, spark.Not)
    plain: Any = condition.child if isinstance(condition, spark.Not) else condition
    path: tuple[str, ...] = getattr(plain, "attribute", ())
    if len(path) != 1 or path[0] in NOT_IN_EVENTS or path[0] in JMS_ALIASES:
        return None
    try:
        return _translate(_ColumnName(path[0], write_name(path[0])), plain, negative, nan)
    except FilterError:  # a value that no filter can contain, such as an infinite number or half a character
        return None


class _ColumnName(NamedTuple):
    """Column, and its name in a filter."""

    name: str
    written: str

    def condition(self, text: str, exact: bool = True, **values: Any) -> ReadCondition:
        """Return a condition; values of timestamp_ntz have no zone, and count as UTC."""
        plain = {name: _zoned(value) for name, value in values.items()}
        return ReadCondition(Filter(text.replace("@", self.written), **plain), exact)

    def present(self) -> ReadCondition:
        return self.condition("@ IS NOT NULL", exact=False)


def _zoned(value: Any) -> Any:
    if isinstance(value, list):
        return [_zoned(one) for one in value]
    return in_utc(value) if isinstance(value, datetime) else value


def _translate(place: _ColumnName, plain: Any, negative: bool, nan: bool) -> ReadCondition | None:
    kind = type(plain)
    if kind in OPERATORS:
        operator = OPPOSITE[OPERATORS[kind]] if negative else OPERATORS[kind]
        return _compared(place, operator, plain.value, nan)
    if kind in FUNCTIONS:
        return place.condition(f"{'NOT ' if negative else ''}{FUNCTIONS[kind]}(@, :v)", v=plain.value)
    if kind is spark.In:
        return _among(place, plain.value, negative)
    if kind is spark.EqualNullSafe and plain.value is not None and not negative:
        return _compared(place, "=", plain.value, nan)
    # A column is also NULL if the attribute did not fit it, so IS NULL can't be translated.
    return place.present() if (kind, negative) in _PRESENT else None


_PRESENT = {(spark.IsNotNull, False), (spark.IsNull, True)}


def _compared(place: _ColumnName, operator: str, value: Any, nan: bool) -> ReadCondition | None:
    match value:
        case bool():
            return place.condition(f"@ {operator} :v", v=value) if operator in ("=", "<>") else None
        case int():
            return place.condition(f"@ {operator} :v", exact=False, v=value)
        case float():
            return _real(place, operator, value, nan)
        case str() | datetime() | bytes() | bytearray():
            return place.condition(f"@ {operator} :v", v=value)
        case date():
            return _day(place, operator, value)
    return None


def _real(place: _ColumnName, operator: str, value: float, nan: bool) -> ReadCondition | None:
    """Return a filter for events whose number may be rounded to one that meets the condition."""
    if not math.isfinite(value):
        return None
    low, high = neighbours(value)
    if operator == "<>" or (nan and ">" in operator):
        return place.present()
    if operator == "=":
        return place.condition("@ BETWEEN :low AND :high", exact=False, low=low, high=high)
    if "<" in operator:
        return place.condition("@ <= :high", exact=False, high=high)
    return place.condition("@ >= :low", exact=False, low=low)


def neighbours(value: float) -> tuple[float, float]:
    """Return the adjacent numbers, of 32 bits if it is one: all that are rounded to it lie between these."""
    try:
        short = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        short = math.inf
    if short != value:
        return math.nextafter(value, -math.inf), math.nextafter(value, math.inf)
    size = int.from_bytes(struct.pack("<f", abs(value)), "little")
    above = struct.unpack("<f", (size + 1).to_bytes(4, "little"))[0]
    below = struct.unpack("<f", (size - 1).to_bytes(4, "little"))[0] if size else -above
    return (-above, -below) if value < 0 else (below, above)


def _day(place: _ColumnName, operator: str, day: date) -> ReadCondition | None:
    if day == date.max:
        return None
    first = datetime(day.year, day.month, day.day, tzinfo=UTC)
    text = {
        "=": "@ >= :first AND @ < :next",
        "<>": "@ < :first OR @ >= :next",
        "<": "@ < :first",
        "<=": "@ < :next",
        ">": "@ >= :next",
        ">=": "@ >= :first",
    }[operator]
    ends: dict[str, Any] = {"first": first, "next": first + DAY}
    return place.condition(text, **{name: end for name, end in ends.items() if f":{name}" in text})


def _among(place: _ColumnName, values: Iterable[Any], negative: bool) -> ReadCondition | None:
    """Translate IN; a NULL in the list never makes it true, and NOT IN never true at all."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    kinds = {type(value) for value in known}
    if len(kinds) != 1 or (negative and len(known) < len(listed)):
        return None
    (kind,) = kinds
    if kind is float:
        return place.present()
    if kind not in (int, str, datetime, bytes, bytearray):
        return None
    return place.condition(f"@ {'NOT ' if negative else ''}IN :values", exact=kind is not int, values=known)
