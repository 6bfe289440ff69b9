"""Module in which Spark finds the format `tidings` by itself: it imports every module `pyspark_*`."""

from tidings.pipeline.source import TidingsSource as DefaultSource

__all__ = ["DefaultSource"]
