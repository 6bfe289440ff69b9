"""Definitions of a declarative project: each step of a plan as a table or a view of Spark's.

A history is a streaming table: a run adds the rows that are new. A state, and every step that needs all rows,
is a materialized view, which each run makes anew. Steps name the tables that they read, so that Spark knows
which it has to update first.

Spark has rules here that its documents do not have. `withWatermark` looks at a DataFrame, which no definition
may do, so a watermark is set by SQL. A step that reads a table with SQL, a join or a new column does not wait
until that table, there from the last run, is updated; but it waits for a view. So all of them read views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark import pipelines as dp

from tidings.pipeline.known import find
from tidings.pipeline.plan import Lateness, Plan, Step, interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidings.pipeline.settings import RunSettings

Read = Callable[[], "DataFrame"]


def define(spark: SparkSession, origin: str) -> None:
    """Define the tables of a built-in pipeline, or of a file, with the settings in Spark's configuration."""
    pipeline = find(origin)
    settings = pipeline.settings.completed(lambda key: spark.conf.get(key, None))
    Definitions(spark, pipeline.plan(settings, "tables"), settings).register()


class Definitions:
    """The tables, views and sinks of one plan."""

    def __init__(self, spark: SparkSession, plan: Plan, settings: RunSettings) -> None:
        self._spark = spark
        self._plan = plan
        self._settings = settings
        self._sources = {source.name: source for source in plan.sources}
        self._steps = {step.name: step for step in plan.steps}
        self._kept = kept_sources(plan)
        self._views: set[str] = set()

    def register(self) -> None:
        """Register everything with Spark; called while it loads the definitions."""
        for name in self._kept:
            dp.table(name=name)(self._events(name))
        for step in self._plan.steps:
            self._define(step)
        for step in self._plan.published:
            if not step.is_recomputed:
                self._publish(step)

    def _define(self, step: Step) -> None:
        if step.is_recomputed:
            define = dp.materialized_view(name=step.name, comment=step.about)
            define(_made(step, [self._all(name) for name in step.after]))
            return
        made = _made(step, [self._new(name, step.late.get(name)) for name in step.after])
        if step.is_stored:
            dp.table(name=step.name, comment=step.about)(made)
        else:
            dp.temporary_view(name=step.name)(made)

    def _publish(self, step: Step) -> None:
        end = "" if step.name == self._plan.main else f"_{step.name}"
        dp.create_sink(f"published{end}", "tidings", self._plan.target(step, self._settings.target()))
        new = self._new(step.name, None)
        dp.append_flow(target=f"published{end}", name=f"publish{end}")(lambda: step.events(new()))

    def _events(self, name: str) -> Read:
        source = self._sources[name]
        options = self._settings.source(source.where, "" if len(self._sources) == 1 else name)
        read = self._spark.readStream.format("tidings").schema(source.schema).options(**options)
        return read.load

    def _new(self, name: str, late: Lateness | None) -> Read:
        """Return how to read the new rows of a source or step, with a watermark if it is to have one."""
        if name in self._sources and name not in self._kept:
            return self._events(name)
        is_view = name in self._steps and not self._steps[name].is_stored
        view = name if is_view else self._view(f"{name}__new", lambda: self._spark.readStream.table(name))
        mark = f" WATERMARK `{late.column}` DELAY OF INTERVAL {interval(late.late_s)}" if late else ""
        return lambda: self._spark.sql(f"SELECT * FROM STREAM `{view}`{mark}")

    def _all(self, name: str) -> Read:
        """Return how to read all rows of a source or step."""
        step = self._steps.get(name)
        if step is None or step.is_stored:
            read: Read = lambda: self._spark.read.table(name)  # noqa: E731 - a name for either
        else:
            read = _made(step, [self._all(one) for one in step.after])
        view = self._view(f"{name}__all", read)
        return lambda: self._spark.read.table(view)

    def _view(self, name: str, read: Read) -> str:
        if name not in self._views:
            self._views.add(name)
            dp.temporary_view(name=name)(read)
        return name


def _made(step: Step, reads: list[Read]) -> Read:
    return lambda: step.make(*(read() for read in reads))


def kept_sources(plan: Plan) -> list[str]:
    """Return the sources that become tables: they are read by several steps, or as a whole."""
    kept = []
    for source in plan.sources:
        users = [step for step in plan.steps if source.name in step.after]
        if len(users) > 1 or any(step.is_recomputed or source.name in step.late for step in users):
            kept.append(source.name)
    return kept
