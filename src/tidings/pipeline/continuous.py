"""A pipeline as one query that runs until it is stopped: events in, events out."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from tidings.errors import TidingsError
from tidings.pipeline.known import Pipeline
from tidings.pipeline.plan import Plan
from tidings.pipeline.running import (
    STATE_STORE,
    BatchProgress,
    Counts,
    Total,
    counting,
    failure,
    watch,
)
from tidings.pipeline.session import spark_session
from tidings.pipeline.settings import RunSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOCAL = {
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.ui.enabled": "false",
    # Spark remembers what it has done for the pages of its UI, which are off: 100,000 tasks, for instance.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
}
"""Settings of a session on this machine; those of the run take precedence."""


class ContinuousRun(Struct, frozen=True, kw_only=True):
    """Run of a continuous query: its pipeline, its node, and its checkpoint."""

    pipeline: Pipeline
    settings: RunSettings
    master: str | None = None
    checkpoint: str | None = None
    """Spark's checkpoint; None: in a folder that is removed at the end."""
    trigger_s: float = 5.0
    config: Mapping[str, str] = {}

    @property
    def plan(self) -> Plan:
        """Plan of the pipeline with these settings."""
        return self.pipeline.plan(self.settings, "query")


class StartedQuery(NamedTuple):
    """Query that runs, and the counts of its last batches as far as it counts them itself."""

    query: StreamingQuery
    counts: Mapping[int, Counts]


def run_continuously(
    run: ContinuousRun,
    report: Callable[[BatchProgress], None],
    stop: Event,
    begun: Callable[[], None] = lambda: None,
) -> Total:
    """Run until `stop`; `begun` is called when the query has been started. PeerError if it fails."""
    spark = open_session(run)
    try:
        with tempfile.TemporaryDirectory(prefix=f"tidings-{run.pipeline.name}-") as folder:
            query, counts = start(spark, run, folder)
            begun()
            return watch(query, report, stop, run.plan, counts)
    finally:
        close(spark)


def close(spark: SparkSession) -> None:
    """Close a session, which the signal that ended this process may have ended too."""
    with contextlib.suppress(Exception):
        spark.stop()


def open_session(run: ContinuousRun) -> SparkSession:
    """Open a session as a query needs it."""
    is_local = (run.master or "local").startswith("local")
    settings = {
        "spark.log.level": "ERROR",
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        **(LOCAL if is_local else {}),
        **run.config,
    }
    return spark_session(run.master, f"tidings {run.pipeline.name}", **settings)


def start(spark: SparkSession, run: ContinuousRun, folder: str) -> StartedQuery:
    """Start the query. Without a checkpoint of the user's it uses the folder."""
    settings = run.settings.named(run.checkpoint)
    try:
        begin = start_graph if run.pipeline.main is None else start_main
        return begin(spark, run, settings, run.checkpoint or folder)
    except TidingsError:
        raise
    except Exception as error:
        raise failure(error) from error


def start_graph(
    spark: SparkSession, run: ContinuousRun, settings: RunSettings, checkpoint: str
) -> StartedQuery:
    """Start the query of a graph, which keeps the graph's states in the checkpoint."""
    from tidings.pipeline.flow import stream

    graph, target = run.pipeline.graph(settings), settings.target()
    read = stream.read_streams(graph, spark, settings.source)
    place = (target, checkpoint, run.trigger_s, graph.name)
    started = stream.start(graph, spark, read.inputs, *place, collapsed=read.collapsed)
    return StartedQuery(started.query, started.counts)


def start_main(
    spark: SparkSession, run: ContinuousRun, settings: RunSettings, checkpoint: str
) -> StartedQuery:
    """Start the query of a pipeline with one source and one published table; Spark keeps its state."""
    plan, graph = run.plan, run.pipeline.graph(settings)
    (step,), (source,) = plan.published, plan.sources
    read = spark.readStream.format("tidings").schema(source.schema)
    readings = read.options(**settings.source(source.where)).load()
    rows = step.events(graph.frames({source.name: readings})[step.name])
    query = (
        counting(rows, step.name)
        .writeStream.format("tidings")
        .options(**plan.target(step, settings.target()))
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .trigger(processingTime=f"{round(run.trigger_s * 1000)} milliseconds")
        .queryName(plan.name)
        .start()
    )
    return StartedQuery(query, {})
