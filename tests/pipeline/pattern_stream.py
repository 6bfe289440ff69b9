"""A program with a pattern over a stream of files, for tests that kill it: one JSON object says how.

A row that says `hold` has its task wait in the middle of its batch, until the test has killed what it wants.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pipeline.moving import wait_at

from tidings import Pattern
from tidings.pipeline.patterns import matches
from tidings.pipeline.session import spark_session

COLUMNS = "time timestamp, node string, position bigint, type string, k string, hold string"
PATTERN = "a[type = 'A'] THEN NO c[type = 'C'] THEN b[type = 'B'] WITHIN 1 h BY k LATE 0 s"


class PatternPlan(msgspec.Struct):
    """What the query is told."""

    master: str
    folder: str  # with the files, and where tasks say that they wait
    config: dict[str, str]


def holding(folder: str) -> Any:
    """A function for `mapInArrow` that waits where a row says so."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, len(batch) // 2)
            for one in filter(None, batch.column("hold").to_pylist()):
                wait_at(Path(folder), one)
            yield batch.slice(len(batch) // 2)

    return hold


def main() -> None:
    """Match until somebody ends it."""
    plan = msgspec.json.decode(sys.argv[1], type=PatternPlan)
    spark = spark_session(plan.master, "patterns", **plan.config)
    files = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(f"{plan.folder}/in")
    held = files.repartition(2).mapInArrow(holding(plan.folder), COLUMNS)
    found = matches(Pattern(PATTERN), held).selectExpr("k", "kind", "CAST(events AS STRING) AS events")
    writer = found.writeStream.format("json").option("path", f"{plan.folder}/out")
    writer.option("checkpointLocation", f"{plan.folder}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main()
