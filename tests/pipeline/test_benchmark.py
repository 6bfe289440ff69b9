"""The benchmark of the pipeline, on the Spark that these tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
from benchmarks import flows, patterns, patterns_stream, pipeline, pipeline_size, pipeline_spark
from tidings.node import compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [
    "append, wire, persistent",
    "append, wire, by an archive",
    "append, API, lists of 1,000 persistent",
    "read by Spark, live",
    "a filter that 1 % match, pushed to the log, live",
    "seal",
    "read by Spark, sealed",
    "a filter that 1 % match, pushed to the log, sealed",
    "read by Spark, sealed, without a node",
    "a filter that 1 % match, pushed to the log, sealed, without a node",
    "sealed files by Spark's own reader, summed up by type",
    "from a publication to the event that a stream makes of it, median",
    "sealed files of a generated recording, over JSON",
]


@pytest.fixture
def small(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a run as small as can be; it must not end the session, which is the only one of this process."""

    @contextmanager
    def running(_: Path) -> Iterator[SparkSession]:
        spark.dataSource.register(pipeline_spark.IdleSource)
        yield spark

    monkeypatch.setattr(pipeline_spark, "running", running)
    monkeypatch.setattr(compiled, "is_installed", lambda: False)
    monkeypatch.setenv(pipeline_size.DATA, "/nowhere")
    for name, value in (("COUNT", 200_000), ("PART", 50_000), ("FILE_ROWS", 80_000), ("ANSWERS", 1)):
        monkeypatch.setattr(pipeline, name, value)
    monkeypatch.setattr(pipeline, "QUICK_DAYS", 0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_small_run_measures_every_workload() -> None:
    figures = pipeline.run(True, print)
    assert [one["name"] for one in figures["workloads"]] == ROWS
    for one in figures["workloads"]:
        assert {"name", "unit", "value", "target", "reached", "beside"} <= set(one)
        assert (one["reached"] is None) == (one["target"] is None)


@pytest.mark.slow
def test_a_small_run_of_back_tests_measures_every_workload(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def running(_master: str, _home: Path) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(flows, "running", running)
    monkeypatch.setattr(compiled, "is_installed", lambda: False)
    sizes = {"EVENTS": 40_000, "FILTERS": 1_000, "DIFFERENT": 1_000, "WARM": 800}
    sizes |= {"KEYS": 100, "STATE_EVENTS": 1_000, "STATE_BATCH": 1_000, "STATE_TIMES": 2, "COLLECTIONS": 1}
    for name, value in sizes.items():
        monkeypatch.setattr(flows, name, value)
    for name, value in (("EVENTS", 20_000), ("ROWS", 20_000), ("STATE_KEYS", 2_000), ("STATE_EVENTS", 4_000)):
        monkeypatch.setattr(patterns, name, value)
    small = {"ROWS": 8_000, "FILES": 2, "KEYS": 100, "ROUNDS": 1}
    small |= {"STATE_KEYS": 100, "STATE_EVENTS": 2_000, "STATE_TIMES": 2, "COLLECTIONS": 1}
    for name, value in small.items():
        monkeypatch.setattr(patterns_stream, name, value)
    figures = flows.run(True, print)
    assert [one["name"] for one in figures["workloads"]] == [
        "opening a saved index, over building it",
        "back-test by two tasks, over one process that builds the index",
        "back-test of sealed files, over a live log",
        "memory of a state after ten times as many events",
        "a pattern in a stream, rate over that of a processor that only counts",
        "memory of Spark with 100,000 keys of a pattern after ten times as many events",
        "100 patterns at a node, rate over that of plain subscriptions",
        "a pattern in a task, one row in ten a step, over an idle task",
        "memory of 100,000 keys of a pattern after ten times as many events",
        "bytes to Spark of a collapse by the minute, over those of its readings",
        "back-test of sealed files on two executors, over one",
    ]
