"""Aggregates of clean readings: one row for each window of time, type and cell of the map.

A cell is a square of the grid over `posx` and `posy`, counted from the origin. Readings whose place is
unknown, or beyond any map, are aggregated together: their cell is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.pipeline.city.rules import CityRules
from tidings.pipeline.plan import interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CELLS_MAX = 2.0**53
"""Cells on each side of the origin; beyond that, a double can't distinguish neighbours."""


def aggregates(df: DataFrame, rules: CityRules) -> DataFrame:
    """Return count, min, max, mean and stddev of the clean readings of each window, type and cell.

    A stream needs a watermark on `time`: a window is output once, when the watermark has passed its end.
    `stddev` is that of a sample, and null for a single reading.
    """
    size = rules.common.cell_size
    is_placed = _is_on_map("posx", size) & _is_on_map("posy", size)
    window = F.window("time", interval(rules.common.window_s)).alias("window")
    groups = df.groupBy(
        window,
        F.col("type"),
        F.when(is_placed, _cell("posx", size)).alias("cell_x"),
        F.when(is_placed, _cell("posy", size)).alias("cell_y"),
    )
    value = F.col("value")
    summed = groups.agg(
        F.count(value).alias("count"),
        F.min(value).alias("min"),
        F.max(value).alias("max"),
        F.avg(value).alias("mean"),
        F.stddev_samp(value).alias("stddev"),
    )
    times = [F.col("window.start").alias("start"), F.col("window.end").alias("end")]
    return summed.select(*times, "type", "cell_x", "cell_y", "count", "min", "max", "mean", "stddev")


def in_one_cell(rules: CityRules) -> Column:
    """Return, for an aggregation, whether all readings are in one cell though their places differ.

    Null if no two places differ. Places in degrees, with a cell of 1,000 units, are what this detects.
    """
    size = rules.common.cell_size
    is_placed = _is_on_map("posx", size) & _is_on_map("posy", size)
    differ, same = F.lit(False), F.lit(True)
    for column in ("posx", "posy"):
        place, cell = F.when(is_placed, F.col(column)), F.when(is_placed, _cell(column, size))
        differ |= F.min(place) < F.max(place)
        same &= F.min(cell) == F.max(cell)
    return F.when(differ, same)


def _is_on_map(column: str, size: float) -> Column:
    return F.coalesce(F.abs(F.col(column) / size) < CELLS_MAX, F.lit(False))  # False for NaN, too


def _cell(column: str, size: float) -> Column:
    return F.floor(F.col(column) / size).cast("bigint")
