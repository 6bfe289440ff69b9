"""A streaming query that writes numbers into files, and a program of its own that runs it: ADDRESS FOLDER.

Each batch has a file of its own; one that is repeated replaces its file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from tidings.pipeline.session import spark_session


def main() -> None:
    """Read until somebody ends it."""
    address, folder = sys.argv[1:]
    spark = spark_session("local[1]", "collecting", **{"spark.ui.enabled": "false"})
    collecting(spark, address, Path(folder)).start().awaitTermination()


def collecting(spark: SparkSession, address: str, folder: Path) -> DataStreamWriter:
    """The query, which goes on where the last one with this folder has ended."""
    stream = spark.readStream.format("tidings").options(node=address, lease="3600", where="type = 'wanted'")

    def collect(frame: DataFrame, batch: int) -> None:
        found = sorted(row.number for row in frame.collect())
        (folder / "out" / str(batch)).write_text(" ".join(map(str, found)))

    writer = stream.schema("number long").load().writeStream.foreachBatch(collect)
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


if __name__ == "__main__":
    main()
