"""City pipeline as a plan: the steps from the readings of a node to alarms.

The continuous query counts a reading as late by its time; the tables of a declarative project, which keep
what comes later, by its arrival at the node.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.pipeline.city import readings
from tidings.pipeline.city.aggregates import aggregates, in_one_cell
from tidings.pipeline.city.alarms import alarms
from tidings.pipeline.city.readings import FUTURE, INCOMPLETE, NO_NUMBER, RANGE, SCHEMA
from tidings.pipeline.city.silence import silent, silent_by_clock
from tidings.pipeline.plan import Lateness, Plan, Source, Step
from tidings.pipeline.running import NOTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidings.pipeline.city.rules import CityRules
    from tidings.pipeline.plan import Use

WHERE = "value IS NOT NULL AND type NOT LIKE 'alarm.%'"
"""All readings; the pipeline never reads its own alarms."""
READINGS, ALARMS = "readings", "alarms"


def city(rules: CityRules, use: Use = "history", by_clock: bool = False) -> Plan:
    """Return the plan for history, for a continuous query, or for the tables of a declarative project.

    `by_clock` is for a query: silence is measured by the clock, and not by the time of other readings.
    """
    streaming, tables, by_clock = use != "history", use == "tables", by_clock and use == "query"
    time = Lateness("time", rules.common.late_s)
    arrival = Lateness("received", rules.common.late_s)
    good = {"good": arrival if tables else time}
    of_alarms = {"clean": time} if tables else {}
    of_alarms |= {} if by_clock else {"heard": time}
    return Plan(
        name="city",
        sources=(Source(READINGS, WHERE, SCHEMA),),
        steps=(
            Step(name="raw", after=(READINGS,), make=readings.raw, about="columns"),
            Step(
                name="good",
                after=("raw",),
                make=partial(_good, rules, not tables),
                about="plausible",
                is_stored=False,
            ),
            Step(
                name="clean",
                after=("good",),
                about="each id once",
                make=partial(readings.each_once, streaming=streaming),
                late=good if streaming else {},
            ),
            Step(
                name="rejected",
                after=("raw", "clean"),
                about="all others, with the reason",
                make=partial(readings.rejected, rules=rules),
                needs_all=True,
            ),
            Step(
                name="aggregates",
                after=("clean",),
                about="window × type × cell",
                make=partial(aggregates, rules=rules),
                kind="state",
                by=("start", "type", "cell_x", "cell_y"),
            ),
            Step(
                name="heard",
                after=("raw",),
                make=partial(readings.heard, rules=rules),
                about="signs of life",
                is_stored=False,
            ),
            Step(
                name=ALARMS,
                after=("clean", "heard"),
                about="above a limit, or silent",
                make=partial(_alarms, rules, streaming, by_clock),
                late=of_alarms if streaming else {},
                is_published=True,
                types="type LIKE 'alarm.%'",
            ),
        ),
        main=ALARMS,
    )


def alarms_of(df: DataFrame, rules: CityRules, by_clock: bool = False) -> DataFrame:
    """Return all alarms of readings as the source gives them, a stream or history.

    Spark reads a stream once for the windows and once for the silences.
    """
    plan = city(rules, "query" if df.isStreaming else "history", by_clock)
    return plan.frames({READINGS: df}, [ALARMS])[ALARMS]


def _good(rules: CityRules, is_counted: bool, raw: DataFrame) -> DataFrame:
    judged = readings.judged(raw, rules)
    if is_counted:
        judged = counted(judged).observe(NOTES, in_one_cell(rules).alias("one_cell"))
    return readings.good(judged)


def _alarms(
    rules: CityRules, streaming: bool, by_clock: bool, clean: DataFrame, heard: DataFrame
) -> DataFrame:
    quiet = silent_by_clock(heard) if by_clock else silent(heard, streaming=streaming)
    return alarms(aggregates(clean, rules), quiet, rules)


def counted(judged: DataFrame) -> DataFrame:
    """Return the judged readings, with counts of all and of those rejected for each reason.

    Readings rejected as duplicates, or as late, are counted by Spark's own state operators.
    """
    counts = [
        F.count(F.when(F.col("reason") == one, 1)).alias(one)
        for one in (INCOMPLETE, FUTURE, NO_NUMBER, RANGE)
    ]
    return judged.observe(READINGS, F.count(F.lit(1)).alias("all"), *counts)
