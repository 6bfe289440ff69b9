"""Filters: the one language for interest, from the sensor to Spark."""

from tidings.filters.filter import Filter
from tidings.filters.taxonomy import Taxonomy

__all__ = ["Filter", "Taxonomy"]
