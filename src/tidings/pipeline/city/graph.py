"""City pipeline as a flow graph: from the readings of a node to alarms.

Its functions are others for streams than for history: streams have watermarks. The continuous query counts a
reading as late by its time; the tables of a declarative project, which keep what comes later, by its arrival
at the node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.pipeline.city import readings
from tidings.pipeline.city.aggregates import aggregates, in_one_cell
from tidings.pipeline.city.alarms import COLUMNS as ALARM_COLUMNS
from tidings.pipeline.city.alarms import alarms
from tidings.pipeline.city.readings import COLUMNS, FUTURE, INCOMPLETE, NO_NUMBER, RANGE, READ
from tidings.pipeline.city.settings import CitySettings
from tidings.pipeline.city.silence import silent, silent_by_clock
from tidings.pipeline.flow.building import graph, history, join
from tidings.pipeline.flow.graph import Graph
from tidings.pipeline.plan import Lateness, timed
from tidings.pipeline.running import NOTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidings.pipeline.city.rules import CityRules
    from tidings.pipeline.plan import Use

WHERE = "value IS NOT NULL AND type NOT LIKE 'alarm.%'"
"""All readings; the pipeline never reads its own alarms."""
READINGS, ALARMS = "readings", "alarms"
SUMS = {"start": "timestamp", "end": "timestamp", "type": "string", "cell_x": "bigint", "cell_y": "bigint"}
SUMS |= {"count": "bigint", **dict.fromkeys(("min", "max", "mean", "stddev"), "double")}
"""Columns of the aggregates."""


Fields = Callable[["Use"], dict[str, Any]]
"""Fields of a step for a use of the graph: `make`, and of a stream its watermarks."""


class CityFunction(Struct, frozen=True):
    """Function of DataFrames in the graph, which is another for each use of the graph."""

    after: tuple[str, ...]
    about: str
    fields: Fields

    def step(self, use: Use) -> dict[str, Any]:
        """Return the fields of the step for this use."""
        return {"about": self.about, **self.fields(use)}

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Return the rows, of streams as a continuous query has them."""
        fields = self.fields("query" if frames[0].isStreaming else "history")
        late = fields.get("late", {})
        pairs = zip(self.after, frames, strict=True)
        made: DataFrame = fields["make"](*(timed(df, late.get(name)) for name, df in pairs))
        return made


class CityFlow:
    """Steps of the city, by its rules; `by_clock`: a query measures silence by the clock."""

    def __init__(self, rules: CityRules, by_clock: bool) -> None:
        self._rules = rules
        self._by_clock = by_clock
        self._time = Lateness("time", rules.common.late_s)
        self._arrival = Lateness("received", rules.common.late_s)

    def graph(self) -> Graph:
        """Return the graph."""
        rules = self._rules
        source = history(READINGS, WHERE, READ)
        raw = join(_always((READINGS,), "columns", readings.raw), COLUMNS, source).named("raw")
        good = join(CityFunction(("raw",), "plausible", self._good), COLUMNS, raw).named("good")
        clean = join(CityFunction(("good",), "each id once", self._clean), COLUMNS, good).named("clean")
        sums = partial(aggregates, rules=rules)
        key = ("start", "type", "cell_x", "cell_y")
        by_window = _always(("clean",), "window × type × cell", sums, kind="state", by=key)
        others = partial(readings.rejected, rules=rules)
        reasons = _always(("raw", "clean"), "all others, with the reason", others, needs_all=True)
        alive = _always(("raw",), "signs of life", partial(readings.heard, rules=rules), is_stored=False)
        heard = join(alive, {**COLUMNS, "silent_s": "double"}, raw).named("heard")
        found = CityFunction(("clean", "heard"), "above a limit, or silent", self._alarms)
        return graph(
            "city",
            join(reasons, {**COLUMNS, "reason": "string"}, raw, clean).named("rejected"),
            join(by_window, SUMS, clean).named("aggregates"),
            join(found, ALARM_COLUMNS, clean, heard).named(ALARMS).published(),
        )

    def _good(self, use: Use) -> dict[str, Any]:
        return {"make": partial(_good, self._rules, use != "tables"), "is_stored": False}

    def _clean(self, use: Use) -> dict[str, Any]:
        late = {"query": self._time, "tables": self._arrival}.get(use)
        make = partial(readings.each_once, streaming=use != "history")
        return {"make": make, "late": {"good": late} if late else {}}

    def _alarms(self, use: Use) -> dict[str, Any]:
        by_clock = self._by_clock and use == "query"
        late = {"clean": self._time} if use == "tables" else {}
        late |= {"heard": self._time} if use != "history" and not by_clock else {}
        make = partial(_alarms, self._rules, use != "history", by_clock)
        return {"make": make, "late": late, "types": f"type LIKE '{readings.ALARMS}.%'"}


def city_graph(rules: CityRules | None = None, by_clock: bool = False) -> Graph:
    """Return the graph of the city, by default with the rules of the project.

    `by_clock`: a query measures silence by the clock, and not by the time of other readings.
    """
    return CityFlow(rules or CitySettings().loaded_rules(), by_clock).graph()


def _always(
    after: tuple[str, ...], about: str, make: Callable[..., DataFrame], **fields: Any
) -> CityFunction:
    """Return a function that is the same for all uses."""
    return CityFunction(after, about, lambda _: {"make": make, **fields})


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
    reasons = (INCOMPLETE, FUTURE, NO_NUMBER, RANGE)
    counts = [F.count(F.when(F.col("reason") == one, 1)).alias(one) for one in reasons]
    return judged.observe(READINGS, F.count(F.lit(1)).alias("all"), *counts)
