"""A program with a flow of trades at a node, for tests that kill it: ADDRESS CHECKPOINT PLACE BATCH.

It kills itself in that batch, once the state is stored (`state`) or the results are published (`published`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidings.flows import Graph, count, graph, highest, history, total
from tidings.pipeline.flow import stream
from tidings.pipeline.flow.publishing import PublishedCounts
from tidings.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {"symbol": "string", "price": "double", "volume": "bigint"}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.codegen.wholeStage": "false",
}
BATCH = 8
"""Positions in a batch."""


def quotes() -> Graph:
    """Trades, the large ones, and the highest price of each share."""
    trades = history("trades", "type = 'trade'", COLUMNS)
    large = trades.select("volume >= 1000").named("large").published("quotes.large")
    rules = {"high": highest("price"), "trades": count(), "amount": total("price")}
    return graph("quotes", large.collapse("symbol", **rules).named("high").published("quotes.high"))


def inputs(spark: SparkSession, address: str) -> dict[str, DataFrame]:
    """The streams of the graph."""
    (source,) = quotes().sources
    reader = spark.readStream.format("tidings").schema(source.schema).option("where", source.where)
    options = {
        "node": address,
        "startingOffsets": "earliest",
        "durable": "flow",
        "maxOffsetsPerTrigger": BATCH,
    }
    return {source.name: reader.options(**options).load()}


def target(address: str) -> dict[str, str]:
    """The sink of the graph."""
    return {"node": address, "sink": "quotes"}


def die() -> None:
    """End as a machine ends that loses its power."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run until it kills itself."""
    address, checkpoint, place, batch = sys.argv[1:]
    spark = spark_session("local[1]", "killed", **SETTINGS)
    publish = stream.publish

    def published(
        graph: Graph, frames: Mapping[str, DataFrame], options: Mapping[str, str], job: str
    ) -> PublishedCounts:
        is_time = job.endswith(f"-{batch}")
        if is_time and place == "state":
            die()
        found = publish(graph, frames, options, job)
        if is_time:
            die()
        return found

    stream.publish = published
    flow = stream.start(quotes(), spark, inputs(spark, address), target(address), checkpoint)
    flow.query.awaitTermination()


if __name__ == "__main__":
    main()
