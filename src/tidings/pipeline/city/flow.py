"""City pipeline as one query, from raw readings to alarms: run with `--continuous`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.pipeline.city.aggregates import aggregates, in_one_cell
from tidings.pipeline.city.alarms import alarms
from tidings.pipeline.city.readings import (
    FUTURE,
    INCOMPLETE,
    NO_NUMBER,
    RANGE,
    believed,
    heard,
    judged,
    raw,
    seconds,
)
from tidings.pipeline.city.silence import silent, silent_by_clock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidings.pipeline.city.rules import CityRules

READINGS, ALARMS, CELLS = "readings", "alarms", "cells"
"""Names of the counts that each micro-batch reports; of readings also those that are rejected."""


def alarms_of(df: DataFrame, rules: CityRules, by_clock: bool = False) -> DataFrame:
    """Return all alarms of readings as the source gives them, a stream or history.

    `by_clock` is for streams: silence is measured by the clock, and not by the time of other readings. Spark
    reads a stream once for the windows and once for the silences.
    """
    readings = raw(df)
    known_places = counted(judged(readings, rules)).observe(CELLS, in_one_cell(rules).alias("one"))
    summed = aggregates(believed(known_places, rules), rules)
    known = heard(readings, rules)
    if by_clock:
        found = silent_by_clock(known)
    else:
        found = silent(known.withWatermark("time", seconds(rules.common.late_s)) if df.isStreaming else known)
    return alarms(summed, found, rules).observe(ALARMS, F.count(F.lit(1)).alias("all"))


def counted(judged: DataFrame) -> DataFrame:
    """Return the judged readings, with counts of all and of those rejected for each reason.

    Readings rejected as duplicates, or as late, are counted by Spark's own state operators.
    """
    reasons = (INCOMPLETE, FUTURE, NO_NUMBER, RANGE)
    counts = [F.count(F.when(F.col("reason") == one, 1)).alias(one) for one in reasons]
    return judged.observe(READINGS, F.count(F.lit(1)).alias("all"), *counts)
