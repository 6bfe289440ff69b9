"""Alarms: rows that become events, one for each thing that needs attention.

| type | when |
| --- | --- |
| `alarm.mean` | the mean of a window, type and cell is above the type's `mean_limit` |
| `alarm.max` | the greatest value of it is above the type's `max_limit` |
| `alarm.silent` | a sensor has sent nothing for `silent_s` |

An alarm has a place (`posx`, `posy`: the middle of the cell, or where the sensor was), so that it can be
subscribed to by area as readings can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.pipeline.city.readings import ALARMS, limit
from tidings.pipeline.city.rules import CityRules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS = {
    "type": "string",  # of the alarm
    "time": "timestamp",  # when the window ended, or the silence began to count
    "about": "string",  # the type of the readings
    "cell": "string",  # column and row of the grid, as in 12:-3
    "network": "string",
    "sensor": "string",
    "value": "double",
    "limit": "double",
    "count": "bigint",  # of the readings in the window
    "start": "timestamp",
    "end": "timestamp",
    "posx": "double",
    "posy": "double",
}
"""Columns of alarms. A null is no attribute of the event."""
KINDS = {"mean": "mean_limit", "max": "max_limit"}
"""Columns of the aggregates that are watched, and their limits."""


def alarms(aggregates: DataFrame, silent: DataFrame, rules: CityRules) -> DataFrame:
    """Return all alarms."""
    return levels(aggregates, rules).unionByName(silences(silent))


def levels(aggregates: DataFrame, rules: CityRules) -> DataFrame:
    """Return the alarms of windows whose values are too high."""
    size = rules.common.cell_size
    kinds = [
        F.struct(
            F.lit(f"{ALARMS}.{kind}").alias("kind"),
            F.col(kind).alias("value"),
            limit(rules, name).alias("limit"),
        )
        for kind, name in KINDS.items()
    ]
    found = aggregates.withColumn("alarm", F.explode(F.array(*kinds))).where("alarm.value > alarm.limit")
    cell = F.concat(F.col("cell_x").cast("string"), F.lit(":"), F.col("cell_y").cast("string"))
    return _alarms(
        found,
        {
            "type": F.col("alarm.kind"),
            "time": F.col("end"),
            "about": F.col("type"),
            "cell": cell,
            "value": F.col("alarm.value"),
            "limit": F.col("alarm.limit"),
            "count": F.col("count"),
            "start": F.col("start"),
            "end": F.col("end"),
            "posx": (F.col("cell_x") + 0.5) * size,
            "posy": (F.col("cell_y") + 0.5) * size,
        },
    )


def silences(silent: DataFrame) -> DataFrame:
    """Return the alarms of silent sensors: `start` is when they were last heard of."""
    return _alarms(
        silent,
        {
            "type": F.lit(f"{ALARMS}.silent"),
            "time": F.col("begin"),
            "about": F.col("type"),
            "network": F.col("network"),
            "sensor": F.nullif("sensor", F.lit("")),
            "limit": F.col("silent_s"),
            "start": F.col("last"),
            "end": F.col("begin"),
            "posx": F.col("posx"),
            "posy": F.col("posy"),
        },
    )


def _alarms(found: DataFrame, columns: dict[str, Column]) -> DataFrame:
    nothing = F.lit(None)
    return found.select(
        *(columns.get(name, nothing).cast(kind).alias(name) for name, kind in COLUMNS.items())
    )
