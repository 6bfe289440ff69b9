"""A pattern in a stream of Spark, beside a processor that only counts the same rows; and the memory of both.

Rows come from files, a few in each batch. What is compared is processor time, of Java and of its Python
workers; the first batches, in which Spark starts its workers, count for both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from benchmarks.figures import Figure
from benchmarks.matching import SEED
from benchmarks.processor import used_s
from tidings import Pattern
from tidings.pipeline.patterns import matches
from tidings.pipeline.patterns.lifting import lifted, shape_of
from tidings.pipeline.patterns.stream import KEY, packed
from tidings.pipeline.running import STATE_STORE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

ROWS, FILES, KEYS = 400_000, 8, 10_000
STEP_EVERY = 10
"""One row in so many is a step."""
ROUNDS = 2
STATE_KEYS, STATE_EVENTS, STATE_TIMES = 100_000, 1_000_000, 10
STATE_FILES = 1
"""Files, and batches, of STATE_EVENTS: a key costs a few calls between Java and Python in each batch."""
COLLECTIONS = 3
"""How often garbage is collected before memory is looked at."""
TEXT = "a[type = 'A'] THEN b[type = 'B' AND value > a.value] WITHIN 60 s BY key LATE 0 s"
COLUMNS = "time timestamp, node string, position bigint, type string, key bigint, value double"


def figures(spark: SparkSession, home: Path, quick: bool) -> Iterator[Figure]:
    """Measure everything."""
    part = 10 if quick else 1
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    try:
        yield _rate(spark, home / "rate", part)
        yield _state(spark, home / "state", part)
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


class CountingProcessor(StatefulProcessor):
    """Counts the rows of each key, and nothing else."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark once in each task, before anything else."""
        self._state = handle.getValueState("count", "rows bigint")

    def handleInputRows(  # noqa: N802 - Spark calls it so
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """Called by Spark with all rows of a key in a micro-batch."""
        known = self._state.get() if self._state.exists() else None
        self._state.update(((0 if known is None else known[0]) + sum(map(len, rows)),))
        yield pd.DataFrame({"rows": pd.Series([], dtype="int64")})

    def close(self) -> None:
        """Called by Spark at the end of a task."""


def _counted(pattern: Pattern, frame: DataFrame) -> DataFrame:
    """Return the same rows as a pattern has, counted by key."""
    shape = shape_of(pattern, frame)
    rows = packed(lifted(pattern, frame, shape), shape, f"{pattern.late_us // 1000 + 1} milliseconds")
    return rows.groupBy(KEY).transformWithStateInPandas(
        CountingProcessor(), "rows bigint", "append", "eventTime"
    )


def _write(home: Path, number: int, start: int, count: int, keys: int, step_every: int, us: int) -> None:
    """Write a file of events, each `us` microseconds after the one before."""
    chance = random.Random(SEED + number)
    numbers = range(start, start + count)
    kinds = [chance.choice("AB") if one % step_every == 0 else "X" for one in numbers]
    table = pa.table(
        {
            "time": pa.array([10**9 * 1_000_000 + one * us for one in numbers], pa.timestamp("us", "UTC")),
            "node": ["n"] * count,
            "position": pa.array(numbers, pa.int64()),
            "type": kinds,
            "key": pa.array([one // step_every % keys for one in numbers], pa.int64()),
            "value": [chance.random() for _ in numbers],
        }
    )
    home.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, home / f"{number:04}.parquet")
    time.sleep(0.01)  # Spark takes files in the order of their times


def _run(frame: DataFrame, checkpoint: Path) -> Any:
    """Let a stream work off all files; return its last progress."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    started = query.trigger(availableNow=True).start()
    started.awaitTermination()
    error = started.exception()
    if error is not None:
        raise error
    return started.lastProgress


def _files(spark: SparkSession, home: Path) -> DataFrame:
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(home))


def _rate(spark: SparkSession, home: Path, part: int) -> Figure:
    rows, keys = ROWS // part, KEYS // part
    for number in range(FILES):
        count = rows // FILES
        _write(home / "in", number, number * count, count, keys, STEP_EVERY, 1_000)
    pattern, files = Pattern(TEXT), _files(spark, home / "in")
    made = {"pattern": matches(pattern, files), "count": _counted(pattern, files)}
    spent: dict[str, float] = {}
    for turn in range(ROUNDS):
        for name, frame in made.items():
            took = used_s(partial(_run, frame, home / f"{name}-{turn}"))
            spent[name] = min(took, spent.get(name, took))
    return Figure(
        "a pattern in a stream, rate over that of a processor that only counts", "×",
        spent["count"] / spent["pattern"], 0.7,
        {"pattern_busy_s": spent["pattern"], "count_busy_s": spent["count"]},
    )  # fmt: skip


def _state(spark: SparkSession, home: Path, part: int) -> Figure:
    """Memory of Java and of the state store after ten times as many events of a pattern with many keys."""
    keys, events = STATE_KEYS // part, STATE_EVENTS // part
    held: list[float] = []
    pattern = Pattern(TEXT)
    for turn in range(STATE_TIMES):
        for number in range(turn * STATE_FILES, (turn + 1) * STATE_FILES):
            count = events // STATE_FILES
            _write(home / "in", number, number * count, count, keys, 1, 600_000_000 // events)
        progress = _run(matches(pattern, _files(spark, home / "in")), home / "checkpoint")
        if turn in (0, STATE_TIMES - 1):
            held.append(_heap_mb(spark) + progress["stateOperators"][0]["memoryUsedBytes"] / 1e6)
    return Figure(
        "memory of Spark with 100,000 keys of a pattern after ten times as many events", "×",
        held[1] / held[0], 1.1, {"first_mb": held[0], "last_mb": held[1]}, less_is_better=True,
    )  # fmt: skip


def _heap_mb(spark: SparkSession) -> float:
    """Memory that Java's objects take after collecting garbage, in MB."""
    java: Any = spark.sparkContext._jvm
    for _ in range(COLLECTIONS):
        java.System.gc()
        time.sleep(1.0)  # Spark forgets what nobody refers to in a thread of its own
    runtime = java.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6
