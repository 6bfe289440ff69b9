"""City pipeline as a declarative project, run once: over the events since the last run.

The tables, Spark's checkpoints, and the catalog that knows the tables lie in one folder, so the next run goes
on where this one ended. On a Spark Connect server (`SPARK_REMOTE`) the tables are those of the server's
catalog, and only the checkpoints lie where the run says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from tidings.errors import UserError
from tidings.pipeline.city.continuous import NAME, sink_name
from tidings.pipeline.city.rules import CityRules
from tidings.pipeline.city.settings import SPEC, CitySettings, project_folder
from tidings.pipeline.running import failure
from tidings.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.pipelines.cli import PipelineSpec
    from pyspark.sql import SparkSession

CONNECT_PORT = 15_002
"""Address of PySpark's own Spark Connect server on this machine."""


class DeclarativeRun(Struct, frozen=True, kw_only=True):
    """One run of the declarative project."""

    settings: CitySettings
    folder: str
    """Folder of everything: on this machine, or a place that all of Spark reaches (hdfs://…)."""
    master: str | None = None
    dry: bool = False
    config: Mapping[str, str] = {}


class TableSummary(Struct, frozen=True, kw_only=True):
    """Contents of the tables after a run."""

    raw: int
    clean: int
    rejected: dict[str, int]
    aggregates: int
    alarms: dict[str, int]
    one_cell: bool | None = None
    """Whether clean readings at different places are all in one cell; None: no two places differ."""


def run_once(run: DeclarativeRun, tell: Callable[[str], None]) -> TableSummary | None:
    """Run the project; return None if it was only checked (`dry`). PeerError if Spark refuses."""
    settings = run.settings
    if settings.sink is None:
        settings = msgspec.structs.replace(settings, sink=sink_name(run.folder))
    if settings.reader is None:
        settings = msgspec.structs.replace(settings, reader=settings.sink)
    if not run.dry and "://" not in run.folder:
        Path(run.folder).mkdir(parents=True, exist_ok=True)
    spark = _session(run, settings)
    try:
        _carry_out(spark, run, settings, tell)
        return None if run.dry else _summary(spark, settings.loaded_rules())
    except Exception as error:
        raise failure(error) from error
    finally:
        spark.stop()


def _session(run: DeclarativeRun, settings: CitySettings) -> SparkSession:
    """Open a session of Spark Connect, on which declarative pipelines run: a server's, or our own."""
    config = {**settings.configuration(), **run.config}
    master = run.master or os.environ.get("SPARK_REMOTE") or "local[*]"
    if not master.startswith("sc://"):
        _check_port()
        config = {"spark.api.mode": "connect", "spark.log.level": "ERROR", **config}
    if master.startswith("local"):
        config = {"spark.ui.enabled": "false", **_catalog(Path(run.folder)), **config}
    with warnings.catch_warnings():  # it warns of each setting that it can't change in a running session
        warnings.simplefilter("ignore", UserWarning)
        return spark_session(master, NAME, **config)


def _catalog(folder: Path) -> dict[str, str]:
    """Return the settings of a catalog of tables that survives until the next run."""
    base = folder.resolve()
    database = f"jdbc:derby:;databaseName={base / 'catalog'};create=true"
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(base / "tables"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": database,
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={base / 'catalog.log'}",
    }


def _check_port() -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", CONNECT_PORT))
        except OSError:
            raise UserError(
                f"port {CONNECT_PORT} of this machine is in use, perhaps by another declarative pipeline: "
                "wait for its end, or name its server in SPARK_REMOTE"
            ) from None


def _carry_out(
    spark: SparkSession, run: DeclarativeRun, settings: CitySettings, tell: Callable[[str], None]
) -> None:
    """Do what `spark-pipelines run` does, with the settings and the folder of this run."""
    from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

    path = project_folder() / SPEC
    spec = _told(load_pipeline_spec(path), run, settings)
    graph = create_dataflow_graph(spark, spec.catalog, spec.database, spec.configuration)
    for key, value in spec.configuration.items():
        spark.conf.set(key, value)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its imports
        registry = SparkConnectGraphElementRegistry(spark, graph)
        register_definitions(path, registry, spec, spark, graph)
    events = start_run(spark, graph, [], False, [], run.dry, spec.storage)
    for message in _messages(events):
        tell(message)


def _told(spec: PipelineSpec, run: DeclarativeRun, settings: CitySettings) -> PipelineSpec:
    from pyspark.pipelines.cli import LibrariesGlob

    is_there = "://" in run.folder
    storage = f"{run.folder}/notes" if is_there else (Path(run.folder).resolve() / "notes").as_uri()
    configuration = {**spec.configuration, **settings.configuration(), **run.config}
    globs = [LibrariesGlob(one.include.removesuffix("/*")) for one in spec.libraries]  # as they were written
    return dataclasses.replace(spec, storage=storage, configuration=configuration, libraries=globs)


def _messages(events: Iterator[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        if "pipeline_event_result" in event:
            yield event["pipeline_event_result"].event.message


def _summary(spark: SparkSession, rules: CityRules) -> TableSummary:
    from tidings.pipeline.city.aggregates import in_one_cell

    def by(table: str, column: str) -> dict[str, int]:
        return {row[column]: row["count"] for row in spark.table(table).groupBy(column).count().collect()}

    return TableSummary(
        raw=spark.table("raw").count(),
        clean=spark.table("clean").count(),
        rejected=by("rejected", "reason"),
        aggregates=spark.table("aggregates").count(),
        alarms=by("alarms", "type"),
        one_cell=spark.table("clean").agg(in_one_cell(rules)).collect()[0][0],
    )
