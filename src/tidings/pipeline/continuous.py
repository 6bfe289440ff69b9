"""A pipeline as one query that runs until it is stopped: events in, events out."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from tidings.errors import UserError
from tidings.pipeline.plan import Plan
from tidings.pipeline.running import ALL, STATE_STORE, BatchProgress, Stop, Total, failure, watch
from tidings.pipeline.session import spark_session
from tidings.pipeline.settings import RunSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class ContinuousRun(Struct, frozen=True, kw_only=True):
    """Run of a continuous query: its plan, its node, and its checkpoint."""

    plan: Plan
    settings: RunSettings
    master: str | None = None
    checkpoint: str | None = None
    """Spark's checkpoint; None: in a folder that is removed at the end."""
    trigger_s: float = 5.0
    config: Mapping[str, str] = {}


def run_continuously(
    run: ContinuousRun,
    tell: Callable[[BatchProgress], None],
    stop: Stop,
    begun: Callable[[], None] = lambda: None,
) -> Total:
    """Run until `stop`; `begun` is called when the query has been started. PeerError if it fails."""
    spark = open_session(run)
    try:
        with tempfile.TemporaryDirectory(prefix=f"tidings-{run.plan.name}-") as folder:
            query = start(spark, run, folder)
            begun()
            return watch(query, tell, stop, run.plan)
    finally:
        close(spark)


def close(spark: SparkSession) -> None:
    """Close a session, which the signal that ended this process may have ended too."""
    with contextlib.suppress(Exception):
        spark.stop()


def open_session(run: ContinuousRun) -> SparkSession:
    """Open a session as a query needs it."""
    is_local = (run.master or "local").startswith("local")
    here = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": str(os.cpu_count() or 2)}
    settings = {
        "spark.log.level": "ERROR",
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        **(here if is_local else {}),
        **run.config,
    }
    return spark_session(run.master, f"tidings {run.plan.name}", **settings)


def start(spark: SparkSession, run: ContinuousRun, folder: str) -> StreamingQuery:
    """Start the query. Without a checkpoint of the user's it uses the folder."""
    settings = run.settings.named(run.checkpoint)
    try:
        return (
            published(spark, run.plan, settings)
            .writeStream.format("tidings")
            .options(**run.plan.target(run.plan.published[0], settings.target()))
            .option("checkpointLocation", run.checkpoint or folder)
            .outputMode("append")
            .trigger(processingTime=f"{round(run.trigger_s * 1000)} milliseconds")
            .queryName(run.plan.name)
            .start()
        )
    except Exception as error:
        raise failure(error) from error


def published(spark: SparkSession, plan: Plan, settings: RunSettings) -> DataFrame:
    """Return the stream of the step that is published, which counts its rows; UserError unless it is one."""
    from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

    if len(plan.published) != 1:
        raise UserError(f"pipeline {plan.name!r} publishes {len(plan.published)} tables; one query has one")
    step = plan.published[0]
    inputs = {
        source.name: spark.readStream.format("tidings")
        .schema(source.schema)
        .options(**settings.source(source.where))
        .load()
        for source in plan.sources
    }
    found = step.events(plan.frames(inputs, [step.name])[step.name])
    return found.observe(step.name, F.count(F.lit(1)).alias(ALL))
