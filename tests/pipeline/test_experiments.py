"""Experiments on Spark: the same rows as without it, one run a task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidings.pipeline.experiments import run_on_spark
from tidings.simulator.experiments import parse_grid, run_experiment, tasks_of
from tidings.simulator.overlay_costs import overlay_costs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_makes_the_rows_that_one_machine_makes_and_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    points = [*parse_grid(overlay_costs, ["nodes=3,5", "strategy=tree,insertion"]), {"nodes": 0}]
    alone = run_experiment(overlay_costs, points, 2, 7, tmp_path / "alone")
    rows = run_on_spark(spark, overlay_costs, points, 2, 7, tmp_path / "spark")
    assert rows == alone
    assert [row["error"] is None for row in rows] == [True, True, True, True, False] * 2
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "spark").iterdir()}
    lost = tasks_of(points, 2, 7)[3].path(tmp_path / "spark", overlay_costs)
    lost.unlink()
    assert run_on_spark(spark, overlay_costs, points, 2, 7, tmp_path / "spark") == alone
    changed = {path for path, at in files.items() if path.stat().st_mtime_ns != at}
    assert changed == {lost}
