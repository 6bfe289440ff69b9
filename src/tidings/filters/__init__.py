"""Filters: the one language for interest, from the sensor to Spark."""

from tidings.filters.converting import Converter
from tidings.filters.filter import Filter
from tidings.filters.taxonomy import Taxonomy
from tidings.filters.units import Quantity

__all__ = ["Converter", "Filter", "Quantity", "Taxonomy"]
