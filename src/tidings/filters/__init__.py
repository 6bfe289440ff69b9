"""Filters: the one language in which interest is told, from the sensor to Spark."""

from tidings.filters.filter import Filter
from tidings.filters.taxonomy import Taxonomy

__all__ = ["Filter", "Taxonomy"]
