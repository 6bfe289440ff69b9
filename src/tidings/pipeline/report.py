"""What the commands say of a run: a line for each batch, the totals of a query, the contents of tables.

A built-in pipeline with counts of its own has a report of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidings.pipeline.plan import Plan
    from tidings.pipeline.running import BatchProgress, Total


class Report:
    """Report of a pipeline whose rows are named by a word, such as readings."""

    def __init__(self, what: str) -> None:
        self._what = what

    def line(self, progress: BatchProgress) -> str:
        """Return the line of a batch."""
        return progress.line(self._what)

    def fields(self, counts: BatchProgress | Total) -> dict[str, Any]:
        """Return the fields of a batch, or of the totals, for a line of JSON."""
        return dict(msgspec.to_builtins(counts))

    def total_lines(self, total: Total) -> list[str]:
        """Return the totals of a query in words."""
        parts = [f"{total.rows:,} {self._what} in {total.batches:,} batches"]
        parts += [f"{count:,} {name}" for name, count in total.published.items()]
        return [", ".join(parts), *rejected_lines(total.rejected)]

    def tables(self, spark: SparkSession, plan: Plan, settings: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return the contents of the tables after a declarative run: the number of rows of each."""
        stored = [step.name for step in plan.steps if step.is_stored]
        return {"tables": {name: spark.table(name).count() for name in stored}}

    def table_lines(self, found: dict[str, Any]) -> list[str]:
        """Return the same in words."""
        return [f"{name}: {count:,} rows" for name, count in found["tables"].items()]


def rejected_lines(rejected: dict[str, int]) -> list[str]:
    """Return a line for each reason for which events were rejected."""
    return [f"  rejected, {reason}: {count:,}" for reason, count in sorted(rejected.items())]
