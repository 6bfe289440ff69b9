"""Events as DataFrames, and what a Column says of each of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession

from tidings import Event, Filter
from tidings.event.arrow import schema
from tidings.event.values import INT_MAX, INT_MIN

T = TypeVar("T")
Answer = bool | None

LETTERS: dict[type, str] = {bool: "b", int: "i", float: "f", str: "s", datetime: "t", bytes: "x"}
KINDS: dict[str, type] = {
    "boolean": bool,
    "int": int,
    "bigint": int,
    "float": float,
    "double": float,
    "string": str,
    "timestamp": datetime,
    "binary": bytes,
}


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """So many values of a strategy at once, for one Spark job instead of one for each."""
    made: list[T] = []

    @settings(
        max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def collect(value: T) -> None:
        made.append(value)

    collect()
    return made


def mapped(spark: SparkSession, events: Sequence[Event]) -> DataFrame:
    """Events with the columns of `tidings.event.arrow`: all attributes in one map."""
    arrays = [pa.array([cell(event, field.name) for event in events], field.type) for field in schema()]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema()))


def cell(event: Event, name: str) -> Any:
    """What stands of the event in the column of that name."""
    if name in ("system", "epoch"):
        return None if event.origin is None else getattr(event.origin, name)
    if name == "attributes":
        return [(own, {LETTERS[type(value)]: value}) for own, value in event.values.items()]
    return getattr(event, name)


def fitted(event: Event, columns: dict[str, str]) -> Event:
    """The event with just those attributes that fit these columns."""
    held = {name: fit(event.values.get(name), kind) for name, kind in columns.items()}
    known = {name: value for name, value in held.items() if value is not None}
    return Event(event.type, known, priority=event.priority)


def fit(value: Any, kind: str) -> Any:
    """The value as a column of that type has it, or None."""
    if type(value) is not KINDS[kind]:
        return None
    if type(value) is int:
        least = INT_MIN if kind == "bigint" else -(2**31)
        most = INT_MAX if kind == "bigint" else 2**31 - 1
        return value if least <= value <= most else None
    if kind == "float":
        return struct.unpack("<f", struct.pack("<f", value))[0] if abs(value) < 1e38 else None
    return value


def in_columns(spark: SparkSession, events: Sequence[Event], columns: dict[str, str]) -> DataFrame:
    """Events with a column for their type, one for their priority and one for each of these attributes."""
    schema = ", ".join(["type string", "priority tinyint", *(f"`{n}` {k}" for n, k in columns.items())])
    rows = [(e.type, e.priority, *(e.values.get(name) for name in columns)) for e in events]
    return spark.createDataFrame(rows, schema)


def answers(frame: DataFrame, conditions: Sequence[Column]) -> list[tuple[Answer, ...]]:
    """What each condition says of each row, in one job."""
    named = [condition.alias(f"c{number}") for number, condition in enumerate(conditions)]
    return [tuple(row) for row in frame.select(*named).collect()]


def differences(
    filters: Sequence[Filter], events: Sequence[Event], said: Sequence[tuple[Answer, ...]]
) -> list[tuple[str, Event, Answer, Answer]]:
    """Where Spark says something else than the filter: the filter, the event, ours and Spark's answer."""
    return [
        (str(filter), event, filter.test(event), answer)
        for event, row in zip(events, said, strict=True)
        for filter, answer in zip(filters, row, strict=True)
        if filter.test(event) is not answer
    ]
