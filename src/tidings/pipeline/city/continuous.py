"""City pipeline as one query that runs until it is stopped: readings in, alarms out."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
from msgspec import Struct

from tidings.pipeline.city.settings import CitySettings
from tidings.pipeline.running import STATE_STORE, BatchProgress, Stop, Total, failure, watch
from tidings.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "tidings city"


class ContinuousPlan(Struct, frozen=True, kw_only=True):
    """Run of the continuous query: its source, its sink, and its checkpoint."""

    settings: CitySettings
    master: str | None = None
    checkpoint: str | None = None
    """Spark's checkpoint; None: in a folder that is removed at the end."""
    trigger_s: float = 5.0
    by_clock: bool = True
    config: Mapping[str, str] = {}


def run_continuously(
    plan: ContinuousPlan,
    tell: Callable[[BatchProgress], None],
    stop: Stop,
    begun: Callable[[], None] = lambda: None,
) -> Total:
    """Run until `stop`; `begun` is called when the query has been started. PeerError if it fails."""
    spark = open_session(plan)
    try:
        with tempfile.TemporaryDirectory(prefix="tidings-city-") as folder:
            query = start(spark, plan, folder)
            begun()
            return watch(query, tell, stop)
    finally:
        close(spark)


def close(spark: SparkSession) -> None:
    """Close a session, which the signal that ended this process may have ended too."""
    with contextlib.suppress(Exception):
        spark.stop()


def open_session(plan: ContinuousPlan) -> SparkSession:
    """Open a session as the pipeline needs it."""
    is_local = (plan.master or "local").startswith("local")
    here = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": str(os.cpu_count() or 2)}
    settings = {
        "spark.log.level": "ERROR",
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        **(here if is_local else {}),
        **plan.config,
    }
    return spark_session(plan.master, NAME, **settings)


def start(spark: SparkSession, plan: ContinuousPlan, folder: str) -> StreamingQuery:
    """Start the query. Without a checkpoint of the user's it uses the folder."""
    checkpoint = plan.checkpoint or folder
    settings = plan.settings
    if settings.sink is None:
        settings = msgspec.structs.replace(settings, sink=sink_name(plan.checkpoint))
    try:
        return (
            alarms(spark, settings, plan.by_clock)
            .writeStream.format("tidings")
            .options(**settings.target())
            .option("checkpointLocation", checkpoint)
            .outputMode("append")
            .trigger(processingTime=f"{round(plan.trigger_s * 1000)} milliseconds")
            .queryName("city")
            .start()
        )
    except Exception as error:
        raise failure(error) from error


def alarms(spark: SparkSession, settings: CitySettings, by_clock: bool) -> DataFrame:
    """Return the alarms of events that arrive at the node from now on."""
    from tidings.pipeline.city.flow import alarms_of
    from tidings.pipeline.city.readings import SCHEMA

    readings = spark.readStream.format("tidings").schema(SCHEMA).options(**settings.source()).load()
    return alarms_of(readings, settings.loaded_rules(), by_clock)


def sink_name(checkpoint: str | None) -> str:
    """Return the name of the sink at the node: the same for the same checkpoint, else new for each run."""
    if checkpoint is None:
        return f"city-{uuid4().hex[:12]}"
    where = checkpoint if "://" in checkpoint else str(Path(checkpoint).resolve())
    return f"city-{hashlib.sha256(where.encode()).hexdigest()[:12]}"
