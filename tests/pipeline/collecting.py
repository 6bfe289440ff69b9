"""A program of its own with a streaming query that writes numbers into files: ADDRESS FOLDER [now].

Each batch has a file of its own; one that is repeated replaces its file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from tidings.pipeline.session import spark_session


def main() -> None:
    """Read until somebody ends it, or, `now`, what there is."""
    address, folder, *trigger = sys.argv[1:]
    spark = spark_session("local[1]", "collecting", **{"spark.ui.enabled": "false"})
    stream = spark.readStream.format("tidings").options(node=address, lease="3600", where="type = 'wanted'")

    def collect(frame: DataFrame, batch: int) -> None:
        found = sorted(row.number for row in frame.collect())
        Path(folder, "out", str(batch)).write_text(" ".join(map(str, found)))

    writer = stream.schema("number long").load().writeStream.foreachBatch(collect)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    if trigger:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
