"""A program of its own with a streaming query, for tests that kill it: ADDRESS LEASE."""

from __future__ import annotations

import sys

from tidings.pipeline.session import spark_session


def main() -> None:
    """Read until somebody ends it."""
    address, lease = sys.argv[1:]
    spark = spark_session("local[1]", "killed", **{"spark.ui.enabled": "false"})
    stream = spark.readStream.format("tidings").options(node=address, lease=lease, where="type = 'temp'")
    stream.schema("value double").load().writeStream.format("noop").start().awaitTermination()


if __name__ == "__main__":
    main()
