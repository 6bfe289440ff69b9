"""Sensors that have fallen silent: a row each time that a silence begins.

Time is that of the readings: a sensor is silent if other readings are `silent_s` later than its last one. So
history and a stream of it have the same silences. A stream may go by the clock instead: then a city that
falls silent altogether is noticed, too, but a recording that is replayed faster than it was made is
misjudged. A sensor that sends again may fall silent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

SENSOR = ("network", "sensor", "type")
"""Columns that identify a sensor."""
STATE = "last_us bigint, posx double, posy double, silent_s double, heard_ms bigint"
OUTPUT = (
    "network string, sensor string, type string, last_us bigint, posx double, posy double, silent_s double"
)


def silent(df: DataFrame, until: datetime | None = None, streaming: bool | None = None) -> DataFrame:
    """Return the silences among readings of `heard`: the sensor, its `last` reading and place, and `begin`.

    `begin` is the moment from which it counts as silent. History goes up to `until`, or to the latest reading
    in it. A stream needs a watermark on `time`; a silence is output once the watermark has passed its
    `begin`.
    """
    gap = F.concat(
        F.round(F.col("silent_s") * 1_000_000).cast("bigint").cast("string"), F.lit(" microseconds")
    )
    stays = df.groupBy(*SENSOR, F.session_window("time", gap)).agg(
        F.max("time").alias("last"),
        F.max_by("posx", "time").alias("posx"),
        F.max_by("posy", "time").alias("posy"),
        F.max("silent_s").alias("silent_s"),
    )
    # Not the end of the session window, which is the same: Spark would apply a condition on that to the
    # readings before it has joined them to sessions, with another result.
    begin = F.col("last") + F.make_dt_interval(secs=F.col("silent_s"))
    found = stays.select(*SENSOR, "posx", "posy", "silent_s", "last", begin.alias("begin"))
    if df.isStreaming if streaming is None else streaming:
        return found
    latest = F.lit(until) if until else df.select(F.max("time")).scalar()
    return found.where(F.col("begin") <= latest)


def silent_by_clock(df: DataFrame) -> DataFrame:
    """Return the silences of a stream, by the clock of the machines on which Spark runs."""
    rows = df.select(*SENSOR, F.unix_micros("time").alias("time_us"), "posx", "posy", "silent_s")
    found = rows.groupBy(*SENSOR).transformWithState(SilenceProcessor(), OUTPUT, "append", "processingTime")
    last = F.timestamp_micros("last_us")
    begin = last + F.make_dt_interval(secs=F.col("silent_s"))
    return found.select(*SENSOR, "posx", "posy", "silent_s", last.alias("last"), begin.alias("begin"))


class SensorState(NamedTuple):
    """State of a sensor: its last reading, and when that came."""

    last_us: int
    posx: float | None
    posy: float | None
    silent_s: float
    heard_ms: int

    @property
    def due_ms(self) -> int:
        """Time at which it counts as silent unless it sends before."""
        return self.heard_ms + round(self.silent_s * 1000)


class SilenceProcessor(StatefulProcessor):
    """Remembers the last reading of each sensor, and wakes up when the next is overdue.

    There is one timer for each sensor. It is not moved with each reading: when it fires, the processor checks
    whether the sensor is silent, and otherwise sets it anew.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark once in each task, before anything else."""
        self._handle = handle
        self._heard = handle.getValueState("heard", STATE)

    def handleInputRows(  # noqa: N802 - Spark calls it so
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        """Called by Spark with all readings of a sensor in a micro-batch."""
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        latest = max(rows, key=lambda row: row.time_us, default=None)
        if latest is not None:
            known = self._known()
            heard = SensorState(latest.time_us, latest.posx, latest.posy, latest.silent_s, now_ms)
            if known is not None and known.last_us > heard.last_us:  # an old reading is a sign of life, too
                heard = known._replace(heard_ms=now_ms)
            if known is None:
                self._handle.registerTimer(heard.due_ms)
            self._heard.update(tuple(heard))
        return iter(())

    def handleExpiredTimer(  # noqa: N802 - Spark calls it so
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """Called by Spark when the timer of a sensor has fired, after the readings of the micro-batch."""
        heard = self._known()
        if heard is None:
            return
        if heard.due_ms > timerValues.getCurrentProcessingTimeInMs():
            self._handle.registerTimer(heard.due_ms)
            return
        self._heard.clear()
        sensor = dict(zip(SENSOR, key, strict=True))
        last = {"last_us": heard.last_us, "posx": heard.posx, "posy": heard.posy}
        yield Row(**sensor, **last, silent_s=heard.silent_s)

    def close(self) -> None:
        """Called by Spark at the end of a task; does nothing."""

    def _known(self) -> SensorState | None:
        found = self._heard.get()
        return None if found is None else SensorState(*found)
