"""A program of its own with a streaming query that publishes what it reads: one JSON object says how.

Between source and sink the rows are dealt out anew and put in an order that differs with each attempt. A row
that says `hold` has its task wait in the middle of the batch, until the test has killed what it wants to.
A flow beside it, if there is to be one, counts and adds up the same rows by their last digits.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from effort import patience

from tidings.flows import Graph, count, graph, history, total
from tidings.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOLD_S_MAX = patience(240.0)
LOOK_S = 0.02
PARTS = 3


class Plan(msgspec.Struct):
    """What a query is told."""

    master: str
    reach: dict[str, str]
    checkpoint: str
    folder: str
    """Where tasks say that they wait, and look whether they may go on."""
    config: dict[str, str]
    has_flow: bool = False


def totals() -> Graph:
    """The rows counted and added up by their last digits."""
    rows = history("rows", "type = 'in'", {"digit": "int", "number": "int"})
    return graph("totals", rows.collapse("digit", n=count(), sum=total("number")).published("totals"))


def scrambled(folder: str) -> Any:
    """A function for `mapInArrow` that changes the order of rows, and waits where a row says so."""

    def scramble(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            order = list(range(len(batch)))
            SystemRandom().shuffle(order)
            middle = len(order) // 2
            yield batch.take(pa.array(order[:middle], pa.int64()))
            for hold in filter(None, batch.column("hold").to_pylist()):
                wait_at(Path(folder), hold)
            yield batch.take(pa.array(order[middle:], pa.int64()))

    return scramble


def wait_at(folder: Path, hold: str) -> None:
    """Say who waits here, and wait until that is over."""
    aside = folder / f"{hold}.{os.getpid()}"
    aside.write_text(str(os.getpid()))
    aside.replace(folder / f"{hold}.reached")
    deadline = time.monotonic() + HOLD_S_MAX
    while not (folder / f"{hold}.over").exists() and time.monotonic() < deadline:
        time.sleep(LOOK_S)


def start_flow(spark: SparkSession, plan: Plan) -> None:
    """Publish the totals, too."""
    from tidings.pipeline.flow.stream import start

    (source,) = totals().sources
    stream = spark.readStream.format("tidings").options(**plan.reach).schema(source.schema)
    rows = stream.options(where=source.where, durable="totals", startingOffsets="earliest").load()
    target = {**plan.reach, "sink": "totals"}
    start(totals(), spark, {source.name: rows}, target, f"{plan.checkpoint}-flow", trigger_s=0.5)


def main() -> None:
    """Read and publish until somebody ends it."""
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    spark = spark_session(plan.master, "moving", **plan.config)
    columns = "number int, hold string"
    stream = spark.readStream.format("tidings").options(**plan.reach).schema(columns)
    frame = stream.options(where="type = 'in'", durable="moving", startingOffsets="earliest").load()
    if plan.has_flow:
        start_flow(spark, plan)
    moved = frame.repartition(PARTS).mapInArrow(scrambled(plan.folder), columns)
    target = moved.selectExpr("'out' AS type", "number").writeStream.format("tidings").options(**plan.reach)
    target.options(sink="moved", checkpointLocation=plan.checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
