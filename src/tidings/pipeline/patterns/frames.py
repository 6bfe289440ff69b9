"""The matches of a pattern in a DataFrame: sorted partitions over history, state by key in a stream.

Over history the rows of a key are in one partition, in the order of the pattern, and pass through the core
once. In a stream each key has its partial matches as one value of state, and a timer for its next deadline;
the watermark is Spark's. Both find what a node finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as sf

from tidings.event.values import plain_moment
from tidings.patterns import Pattern
from tidings.patterns.runs import Found, KeyRuns, RefusedRow, Row
from tidings.pipeline.patterns.lifting import (
    MASK,
    NODE,
    POSITION,
    TIME_US,
    TIMES,
    UNTIL,
    RowShape,
    lifted,
    named,
    plain,
    result_schema,
    shape_of,
    spoken,
    unusable_key,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESULTS_MAX = 10_000
"""Matches that a task returns at once."""

Batches = Iterator[pa.RecordBatch]


def matches(pattern: Pattern, frame: DataFrame, until: datetime | None = None) -> DataFrame:
    """Return the matches of a pattern in events: those of a history, or of a stream as they come.

    Parameters
    ----------
    pattern : Pattern
        The pattern. Its `LATE` is the delay of the watermark of a stream, and means nothing over history.
    frame : DataFrame
        Events, with the columns `time`, `node` and `position`, those of the key, and those that steps read.
        An attribute without a column is unknown.
    until : datetime, optional
        Over history, the time up to which all events are there. By default that of the newest step.

    Returns
    -------
    DataFrame
        A row for each match: the key, `kind` (`match`, `timeout`, or `unused` for an event that could not be
        used), `start`, `end`, the `events` with their steps and places, `STEP_NAME` for each value that
        RETURN names, and the `reason` why an event was not used.
    """
    shape = shape_of(pattern, frame)
    rows = lifted(pattern, frame, shape)
    if frame.isStreaming:
        from tidings.pipeline.patterns.stream import stream_found

        return named(pattern, shape, stream_found(pattern, rows, shape))
    end = sf.lit(plain_moment(until, "until")) if until is not None else rows.select(sf.max(TIME_US)).scalar()
    keys = [f"k{number}" for number in range(len(pattern.by))]
    parted = rows.repartition(*keys) if keys else rows.coalesce(1)
    ordered = parted.withColumn(UNTIL, end).sortWithinPartitions(*keys, TIME_US, NODE, POSITION)
    return named(pattern, shape, ordered.mapInArrow(finder(shape), result_schema(pattern, shape)))


def finder(shape: RowShape) -> Callable[[Batches], Batches]:
    """Return the function of a task, which gets rows sorted by key, time, node and position."""

    def find(batches: Batches) -> Batches:
        pattern = Pattern(shape.pattern)
        schema = arrow_schema(pattern, shape)
        results: list[dict[str, Any]] = []
        for key, rows in groupby(_rows(shape, batches), key=lambda row: row[0]):
            results += [spoken(pattern, shape, key, found) for found in _found(pattern, key, rows)]
            if len(results) >= RESULTS_MAX:
                yield pa.RecordBatch.from_pylist(results, schema)
                results = []
        if results:
            yield pa.RecordBatch.from_pylist(results, schema)

    return find


_Read = tuple[tuple[Any, ...], Row, int]


def _rows(shape: RowShape, batches: Batches) -> Iterator[_Read]:
    """Yield the key, the row and the end of time of each row."""
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        keys = _tuples(columns, "k", len(shape.key), batch.num_rows)
        values = _tuples(columns, "v", len(shape.values), batch.num_rows)
        if not TIMES.isdisjoint(shape.values):
            values = [plain(shape.values, one) for one in values]
        nodes = [node or "" for node in columns[NODE]]
        positions = [position or 0 for position in columns[POSITION]]
        rows = map(Row, columns[TIME_US], nodes, positions, columns[MASK], values)
        yield from zip(keys, rows, columns[UNTIL], strict=True)


def _tuples(columns: dict[str, list[Any]], letter: str, width: int, rows: int) -> Sequence[tuple[Any, ...]]:
    named = [columns[f"{letter}{number}"] for number in range(width)]
    return list(zip(*named, strict=True)) if named else [()] * rows


def _found(pattern: Pattern, key: tuple[Any, ...], rows: Iterator[_Read]) -> Iterator[Found]:
    """Yield what a pattern finds in the rows of one key."""
    reason = unusable_key(key)
    if reason is not None:
        for _, row, _ in rows:
            yield RefusedRow(row, reason)
        return
    runs, until = KeyRuns(pattern.compiled), 0
    found: list[Found] = []
    for _, row, until_us in rows:
        until = until_us
        if row.time_us <= until:
            runs.use(row, found)
            if found:
                yield from found
                found.clear()
    runs.expire(until, found)
    yield from found


def arrow_schema(pattern: Pattern, shape: RowShape) -> pa.Schema:
    """Return the schema of results for Arrow."""
    kinds = {
        "string": pa.string(),
        "boolean": pa.bool_(),
        "double": pa.float64(),
        "binary": pa.binary(),
    }
    event = pa.struct(
        [("step", pa.string()), ("time_us", pa.int64()), ("node", pa.string()), ("position", pa.int64())]
    )
    fields: list[tuple[str, pa.DataType]] = [
        (f"k{n}", kinds.get(kind, pa.int64())) for n, kind in enumerate(shape.key)
    ]
    fields += [("kind", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("events", pa.list_(event))]
    fields += [
        (f"r{n}", kinds.get(shape.values[pattern.columns.index(name)], pa.int64()))
        for n, (_, name) in enumerate(pattern.returns)
    ]
    return pa.schema([*fields, ("reason", pa.string())])
