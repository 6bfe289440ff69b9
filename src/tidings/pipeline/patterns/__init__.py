"""Patterns in Spark: the matches of a pattern in a DataFrame, over history or in a stream."""

from tidings.pipeline.patterns.frames import matches

__all__ = ["matches"]
