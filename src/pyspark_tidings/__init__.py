"""Where Spark finds the format `tidings` by itself: it looks into each module whose name begins so."""

from tidings.pipeline.source import TidingsSource as DefaultSource

__all__ = ["DefaultSource"]
