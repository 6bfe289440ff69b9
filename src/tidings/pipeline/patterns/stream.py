"""The matches of a pattern in a stream: a value of state and a timer for each key.

Keys and values of a row are packed into bytes before they reach the processor: pandas would make floats of
integers where some are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tidings.patterns import Pattern
from tidings.patterns.runs import Found, KeyRuns, RefusedRow, Row
from tidings.pipeline.patterns.lifting import (
    MASK,
    NODE,
    POSITION,
    TIME_US,
    RowShape,
    plain,
    result_schema,
    spoken,
    unusable_key,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

KEY, VALUES = "key", "packed"
PACKED = f"{KEY} binary, {TIME_US} bigint, {NODE} string, {POSITION} bigint, {MASK} bigint, {VALUES} binary"
_PACKED = pa.schema(
    [
        (KEY, pa.binary()),
        (TIME_US, pa.int64()),
        (NODE, pa.string()),
        (POSITION, pa.int64()),
        (MASK, pa.int64()),
        (VALUES, pa.binary()),
    ]
)


def stream_found(pattern: Pattern, rows: DataFrame, shape: RowShape) -> DataFrame:
    """Return what a pattern finds in a stream of lifted rows, as rows of `result_schema`."""
    delay_ms = pattern.late_us // 1000 + 1  # Spark's watermark is late by its own time, ours just before it
    return (
        packed(rows, shape, f"{delay_ms} milliseconds")
        .groupBy(KEY)
        .transformWithStateInPandas(
            PatternProcessor(shape), result_schema(pattern, shape), "append", "eventTime"
        )
    )


def packed(rows: DataFrame, shape: RowShape, delay: str) -> DataFrame:
    """Return lifted rows with their keys and values as bytes, and with Spark's watermark."""
    timed = rows.mapInArrow(_packer(shape), PACKED).withColumn("time", sf.timestamp_micros(TIME_US))
    return timed.withWatermark("time", delay)


def _packer(shape: RowShape) -> Any:
    keys = [f"k{number}" for number in range(len(shape.key))]
    values = [f"v{number}" for number in range(len(shape.values))]

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encode = msgspec.msgpack.Encoder().encode
        for batch in batches:
            columns = {name: batch.column(name) for name in batch.schema.names}
            packed = [
                [encode(row) for row in _rows([columns[name] for name in names], batch.num_rows)]
                for names in (keys, values)
            ]
            middle = [columns[name] for name in (TIME_US, NODE, POSITION, MASK)]
            arrays = [pa.array(packed[0], pa.binary()), *middle, pa.array(packed[1], pa.binary())]
            yield pa.RecordBatch.from_arrays(arrays, schema=_PACKED)

    return pack


def _rows(columns: list[pa.Array], count: int) -> list[tuple[Any, ...]]:
    lists = [column.to_pylist() for column in columns]
    return list(zip(*lists, strict=True)) if lists else [()] * count


class PatternProcessor(StatefulProcessor):
    """Partial matches of each key; a timer wakes it when the watermark reaches its next event or deadline."""

    def __init__(self, shape: RowShape) -> None:
        self._shape = shape

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark once in each task, before anything else."""
        self._handle = handle
        self._state = handle.getValueState("runs", "state binary, timer_ms bigint")
        self._pattern = Pattern(self._shape.pattern)

    def handleInputRows(  # noqa: N802 - Spark calls it so
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Called by Spark with all rows of a key in a micro-batch."""
        parts = msgspec.msgpack.decode(bytes(key[0]), type=tuple[Any, ...])
        reason = unusable_key(parts)
        if reason is not None:
            yield from self._output(parts, [RefusedRow(row, reason) for row in self._read(rows)])
            return
        runs, timer_ms = self._known()
        for row in self._read(rows):
            runs.offer(row)
        yield from self._go_on(parts, runs, timer_ms, timerValues)

    def handleExpiredTimer(  # noqa: N802 - Spark calls it so
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """Called by Spark when the watermark has reached the timer of a key, after the rows of the batch."""
        parts = msgspec.msgpack.decode(bytes(key[0]), type=tuple[Any, ...])
        runs, _ = self._known()
        yield from self._go_on(parts, runs, None, timerValues)

    def close(self) -> None:
        """Called by Spark at the end of a task; does nothing."""

    def _known(self) -> tuple[KeyRuns, int | None]:
        found = self._state.get()
        if found is None:
            return KeyRuns(self._pattern.compiled), None
        return KeyRuns.decode(self._pattern.compiled, bytes(found[0])), found[1]

    def _read(self, frames: Iterator[pd.DataFrame]) -> Iterator[Row]:
        kinds = self._shape.values
        for frame in frames:
            columns = (frame[name].tolist() for name in (TIME_US, NODE, POSITION, MASK, VALUES))
            for time_us, node, position, mask, packed in zip(*columns, strict=True):
                values = plain(kinds, msgspec.msgpack.decode(packed)) if kinds else ()
                yield Row(time_us, node or "", position or 0, mask, values)

    def _go_on(
        self,
        key: tuple[Any, ...],
        runs: KeyRuns,
        timer_ms: int | None,
        times: TimerValues,
    ) -> Iterator[pd.DataFrame]:
        """Use what is due, keep the rest with a timer, and return what was found."""
        mark_ms = times.getCurrentWatermarkInMs()
        found = runs.advance(mark_ms * 1000) if mark_ms > 0 else []
        wake_us = runs.wake_us
        if runs.is_idle:
            self._state.clear()
        else:
            due_ms = None if wake_us is None else max(-(-wake_us // 1000), mark_ms + 1)
            if due_ms is not None and (timer_ms is None or due_ms < timer_ms):
                self._handle.registerTimer(due_ms)
                timer_ms = due_ms
            self._state.update((runs.encode(), timer_ms))
        yield from self._output(key, found)

    def _output(self, key: tuple[Any, ...], found: list[Found]) -> Iterator[pd.DataFrame]:
        if not found:
            return
        names = [field.partition(" ")[0] for field in _fields(result_schema(self._pattern, self._shape))]
        rows = [spoken(self._pattern, self._shape, key, one) for one in found]
        yield pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=object) for name in names})


def _fields(schema: str) -> list[str]:
    """Return the fields of a schema; commas within brackets separate nothing."""
    fields, depth = [""], 0
    for character in schema:
        depth += (character == "<") - (character == ">")
        if character == "," and not depth:
            fields.append("")
        else:
            fields[-1] += character
    return [field.strip() for field in fields]
