"""Experiments on Spark: one run a task, with the rows that `simulator/experiments.py` writes on one machine.

The folder must be one that driver and executors share. A task that Spark runs again finds its row there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.simulator.experiments import Point, Row, Run, Task, read_rows, tasks_of, write_row

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def run_on_spark(
    spark: SparkSession, run: Run, points: Sequence[Point], seeds: int, first: int, folder: Path
) -> list[Row]:
    """Run everything that was not run yet, and return all rows. `run` is found by its module and name."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = tasks_of(points, seeds, first)
    waiting = [task for task in tasks if not task.path(folder, run).exists()]
    if waiting:
        one_each = spark.range(0, len(waiting), 1, len(waiting))
        one_each.mapInArrow(_Running(run, waiting, str(folder.absolute())), "id BIGINT").count()
    return read_rows(run, tasks, folder)


class _Running:
    """Runs the tasks of a partition, at an executor."""

    def __init__(self, run: Run, tasks: Sequence[Task], folder: str) -> None:
        self._run = run
        self._tasks = tasks
        self._folder = folder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                write_row(self._run, self._tasks[number], Path(self._folder))
            yield batch
