"""Publishing of tables that each run makes anew: states, and what is made from them.

A run publishes the rows that no run before has published. They are first written to a table of their own,
as one job with a random name; then they are published under that name, and the job is noted as done. The next
run completes one that was interrupted in between: the node publishes each job once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.pipeline.plan import Plan, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, DONE = "{}__published", "{}__done"
"""Tables of the published rows, and of the jobs that are done."""
JOB = "tidings job"
"""Column with the job; it has a blank, so that no column of an event is like it."""


def publish_changes(spark: SparkSession, plan: Plan, target: Mapping[str, str]) -> dict[str, int]:
    """Publish what is new in the tables that are made anew; return the rows of each, by its step."""
    steps = [step for step in plan.published if step.is_recomputed]
    return {step.name: Changes(spark, step, plan.target(step, target)).publish() for step in steps}


class Changes:
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
