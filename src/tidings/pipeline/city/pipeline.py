"""City pipeline, as the commands know it: its settings, its plan, and what is said of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.pipeline.city.settings import CitySettings
from tidings.pipeline.known import Pipeline, RunReport, rejected_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidings.pipeline.flow.graph import Graph
    from tidings.pipeline.plan import Plan
    from tidings.pipeline.running import BatchProgress, Total

ONE_CELL = "all readings are in one cell, though their places differ: choose a smaller --cell-size"


class CityReport(RunReport):
    """Report on readings and alarms; it says so if all readings are in one cell."""

    def __init__(self) -> None:
        super().__init__("readings")

    def line(self, progress: BatchProgress) -> str:
        """Return the line of a batch."""
        return super().line(progress) + (" · all in one cell" if progress.notes.get("one_cell") else "")

    def fields(self, counts: BatchProgress | Total) -> dict[str, Any]:
        """Return the fields of a batch, or of the totals, for a line of JSON."""
        own = {"alarms": counts.published.get("alarms", 0), "one_cell": counts.notes.get("one_cell")}
        return {**super().fields(counts), **own}

    def total_lines(self, total: Total) -> list[str]:
        """Return the totals of a query in words."""
        return super().total_lines(total) + ([ONE_CELL] if total.notes.get("one_cell") else [])

    def tables(self, spark: SparkSession, plan: Plan, settings: Any) -> dict[str, Any]:
        """Return the contents of the tables: rows, rejected ones by reason, alarms by type."""
        from tidings.pipeline.city.aggregates import in_one_cell

        def by(table: str, column: str) -> dict[str, int]:
            return {row[column]: row["count"] for row in spark.table(table).groupBy(column).count().collect()}

        return {
            **super().tables(spark, plan, settings)["tables"],
            "rejected": by("rejected", "reason"),
            "alarms": by("alarms", "type"),
            "one_cell": spark.table("clean").agg(in_one_cell(settings.loaded_rules())).collect()[0][0],
        }

    def table_lines(self, found: dict[str, Any]) -> list[str]:
        """Return the same in words."""
        rejected, alarms = found["rejected"], found["alarms"]
        return [
            f"{found['raw']:,} readings: {found['clean']:,} believed, {sum(rejected.values()):,} rejected",
            *rejected_lines(rejected),
            f"{found['aggregates']:,} rows of aggregates, {sum(alarms.values()):,} alarms",
            *(f"  {type}: {count:,}" for type, count in sorted(alarms.items())),
            *([ONE_CELL] if found["one_cell"] else []),
        ]


def _graph(settings: CitySettings) -> Graph:
    from tidings.pipeline.city.graph import city_graph

    return city_graph(settings.loaded_rules(), settings.by_clock)


CITY = Pipeline(
    name="city",
    origin="city",
    about="readings of a city's sensors: aggregates, alarms, silent sensors",
    settings=CitySettings(),
    graph=_graph,
    report=CityReport(),
    main="alarms",
)
