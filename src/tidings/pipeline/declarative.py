"""A pipeline as a declarative project, run once: over the events since the last run.

The project, its tables, Spark's checkpoints, and the catalog that knows the tables lie in one folder, so the
next run goes on where this one ended. On a Spark Connect server (`SPARK_REMOTE`) the tables are those of the
server's catalog, and only the checkpoints lie where the run says.

States, and what is made from them, are made anew in each run; `TableChanges` publishes what is new in them.
The new rows are first written to a table of their own, as one job with a random name; then they are published
under that name, and the job is noted as done. The next run completes one that was interrupted in between: the
node publishes each job once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.errors import UserError
from tidings.pipeline.known import Pipeline
from tidings.pipeline.plan import Plan, Step
from tidings.pipeline.project import SPEC_FILE, project_files, write_files
from tidings.pipeline.running import failure
from tidings.pipeline.session import spark_session
from tidings.pipeline.settings import RunSettings

if TYPE_CHECKING:
    from pyspark.pipelines.cli import PipelineSpec
    from pyspark.sql import DataFrame, SparkSession


CONNECT_PORT = 15_002
"""Port of PySpark's own Spark Connect server on this machine."""
SERVER = "SparkConnectService"
"""Word in the error of a server that can't listen."""


class DeclarativeRun(Struct, frozen=True, kw_only=True):
    """One run of a declarative project."""

    pipeline: Pipeline
    settings: RunSettings
    folder: str
    """Folder of everything: on this machine, or a place that all of Spark reaches (hdfs://…)."""
    master: str | None = None
    dry: bool = False
    config: Mapping[str, str] = {}

    @property
    def is_elsewhere(self) -> bool:
        """Whether the folder is not on this machine."""
        return "://" in self.folder

    @property
    def storage(self) -> str:
        """Place of the checkpoints, as Spark takes it."""
        return (
            f"{self.folder}/notes" if self.is_elsewhere else (Path(self.folder).resolve() / "notes").as_uri()
        )


def run_once(run: DeclarativeRun, report: Callable[[str], None]) -> dict[str, Any] | None:
    """Run the project, and return the contents of its tables; None if it was only checked (`dry`).

    PeerError if Spark refuses.
    """
    settings = run.settings.named(run.folder)
    if settings.reader is None:
        settings = msgspec.structs.replace(settings, reader=settings.sink)
    plan = run.pipeline.plan(settings, "tables")
    with _project(run, plan) as project:
        spark = _session(run, settings)
        try:
            _carry_out(spark, run, settings, project, report)
            if run.dry:
                return None
            publish_changes(spark, plan, settings.target())
            return run.pipeline.report.tables(spark, plan, settings)
        except Exception as error:
            raise failure(error) from error
        finally:
            spark.stop()


@contextlib.contextmanager
def _project(run: DeclarativeRun, plan: Plan) -> Iterator[Path]:
    """Write the project beside the tables, or, if it is not to stay there, for as long as the block lasts."""
    files = project_files(plan, run.pipeline.origin, run.storage)
    with tempfile.TemporaryDirectory(prefix=f"tidings-{plan.name}-") as passing:
        is_kept = not run.dry and not run.is_elsewhere
        folder = Path(run.folder) / "project" if is_kept else Path(passing)
        write_files(folder, files)
        yield folder


def _session(run: DeclarativeRun, settings: RunSettings) -> SparkSession:
    """Open a session of Spark Connect, on which declarative pipelines run: a server's, or our own."""
    config = {**settings.configuration(), **run.config}
    master = run.master or os.environ.get("SPARK_REMOTE") or "local[*]"
    if not master.startswith("sc://"):
        _check_port()
        config = {"spark.api.mode": "connect", "spark.log.level": "ERROR", **config}
    if master.startswith("local"):
        # Else its server, which runs what it is sent, listens on all interfaces.
        own = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.ui.enabled": "false"}
        config = {**own, **_catalog(Path(run.folder)), **config}
    with warnings.catch_warnings():  # it warns of each setting that it can't change in a running session
        warnings.simplefilter("ignore", UserWarning)
        try:
            return spark_session(master, f"tidings {run.pipeline.name}", **config)
        except Exception as error:
            if SERVER in str(error):  # another program took the port since it was checked
                raise _port_in_use() from error
            raise


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
            raise _port_in_use() from None


def _port_in_use() -> UserError:
    return UserError(
        f"port {CONNECT_PORT} of this machine is in use, perhaps by another declarative pipeline: "
        "wait for its end, or name its server in SPARK_REMOTE"
    )


def _carry_out(
    spark: SparkSession,
    run: DeclarativeRun,
    settings: RunSettings,
    project: Path,
    report: Callable[[str], None],
) -> None:
    """Do what `spark-pipelines run` does, with the settings and the folder of this run."""
    from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

    spec = _configured(load_pipeline_spec(project / SPEC_FILE), {**settings.configuration(), **run.config})
    graph = create_dataflow_graph(spark, spec.catalog, spec.database, spec.configuration)
    for key, value in spec.configuration.items():
        spark.conf.set(key, value)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its imports
        registry = SparkConnectGraphElementRegistry(spark, graph)
        register_definitions(project / SPEC_FILE, registry, spec, spark, graph)
    events = start_run(spark, graph, [], False, [], run.dry, spec.storage)
    for message in _messages(events):
        report(message)


def _configured(spec: PipelineSpec, configuration: Mapping[str, str]) -> PipelineSpec:
    from pyspark.pipelines.cli import LibrariesGlob

    globs = [LibrariesGlob(one.include.removesuffix("/*")) for one in spec.libraries]  # as they were written
    return dataclasses.replace(spec, configuration={**spec.configuration, **configuration}, libraries=globs)


def _messages(events: Iterator[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        if "pipeline_event_result" in event:
            yield event["pipeline_event_result"].event.message


# Publishing of tables that each run makes anew


ROWS, DONE = "{}__published", "{}__done"
"""Tables of the published rows, and of the jobs that are done."""
JOB = "tidings job"
"""Column with the job; it has a blank, so that no column of an event is like it."""


def publish_changes(spark: SparkSession, plan: Plan, target: Mapping[str, str]) -> dict[str, int]:
    """Publish what is new in the tables that are made anew; return the rows of each, by its step."""
    steps = [step for step in plan.published if step.is_recomputed]
    return {step.name: TableChanges(spark, step, plan.target(step, target)).publish() for step in steps}


class TableChanges:
    """Rows of one step that are published, over all runs."""

    def __init__(self, spark: SparkSession, step: Step, target: Mapping[str, str]) -> None:
        self._spark = spark
        self._step = step
        self._target = target
        self._rows, self._done = ROWS.format(step.name), DONE.format(step.name)

    def publish(self) -> int:
        """Complete an interrupted run, then publish the new rows; return their number."""
        for job in sorted(self._jobs(self._rows) - self._jobs(self._done)):
            self._carry_out(job)
        new = self._step.events(self._spark.table(self._step.name))
        if self._exists(self._rows):
            new = new.exceptAll(self._spark.table(self._rows).drop(JOB))
        job = uuid4().hex
        new.withColumn(JOB, F.lit(job)).write.mode("append").saveAsTable(self._rows)
        return self._carry_out(job)

    def _carry_out(self, job: str) -> int:
        rows = self._of(job)
        count = rows.count()
        if count:
            rows.write.format("tidings").options(**self._target).option("job", job).mode("append").save()
        note = self._spark.createDataFrame([(job,)], f"`{JOB}` string")
        note.write.mode("append").saveAsTable(self._done)
        return count

    def _of(self, job: str) -> DataFrame:
        return self._spark.table(self._rows).where(F.col(f"`{JOB}`") == job).drop(JOB)

    def _jobs(self, table: str) -> set[str]:
        if not self._exists(table):
            return set()
        return {row[0] for row in self._spark.table(table).select(f"`{JOB}`").distinct().collect()}

    def _exists(self, table: str) -> bool:
        return bool(self._spark.catalog.tableExists(table))
