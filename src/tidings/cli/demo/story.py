"""Output of the demo: occurrences, the figures of each second, and a summary at the end."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

Note = Callable[[str, str, str], None]
"""Called with subject, verb and details of each occurrence."""


class Line(Struct, frozen=True, tag_field="kind", tag="line"):
    """Occurrence in the demo."""

    at_s: float
    who: str
    does: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} s  {self.who:<8}  {self.does:<10}  {self.what}"


class Figures(Struct, frozen=True, tag_field="kind", tag="figures", kw_only=True):
    """Counts and rates of the whole demo at one moment."""

    at_s: float
    published: int = 0
    published_per_s: float = 0.0
    logged: int = 0
    logged_per_s: float = 0.0
    log_bytes: int = 0
    sensors: int = 0
    sensors_on: int = 0
    jobs_waiting: int = 0
    jobs_in_hand: int = 0
    jobs_done: int = 0
    redelivered: int = 0
    killed: int = 0
    ledger_got: int = 0
    ledger_waiting: int = 0
    spark: bool = True
    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    lag: int | None = None
    alarms: int = 0

    def __str__(self) -> str:
        parts = [
            f"{self.at_s:6.1f} s",
            f"published {self.published_per_s:,.0f}/s",
            f"logged {self.logged_per_s:,.0f}/s ({self.logged:,}, {size_text(self.log_bytes)})",
            f"sensors {self.sensors_on:,} of {self.sensors:,} on",
            f"jobs {self.jobs_waiting:,} waiting, {self.jobs_done:,} done",
        ]
        if self.spark:
            parts += [f"Spark {self.rows_per_s:,.0f} rows/s{self.behind}", f"alarms {self.alarms:,}"]
        return "  ".join(parts)

    @property
    def behind(self) -> str:
        """Number of events that Spark has not read yet, as words for the end of a sentence."""
        return "" if self.lag is None else f", {self.lag:,} behind"


class Summary(Struct, frozen=True, tag_field="kind", tag="summary", kw_only=True):
    """Results of a demo, and what is missing from those it should have."""

    seconds: float
    spark: bool
    readings_logged: int
    log_bytes: int
    alarms: int
    sensors_on: int
    """Sensors that were on before the query stopped."""
    sensors_left_on: int
    """Sensors that were on after that."""
    jobs_done: int
    redelivered: int
    killed: int
    missing: list[str] = field(default_factory=list)

    @property
    def asker(self) -> str:
        """Name of the part that requested the readings."""
        return "query" if self.spark else "mayor"

    def __str__(self) -> str:
        alarms = f"{self.alarms:,} alarms from Spark" if self.spark else "without Spark, so no alarms"
        size = size_text(self.log_bytes)
        return (
            f"in {self.seconds:.0f} s: {self.readings_logged:,} readings logged ({size}), "
            f"{alarms}, {self.jobs_done:,} jobs done\n"
            f"sensors on: {self.sensors_on:,} → {self.sensors_left_on:,} when the {self.asker} stopped; "
            f"workers killed: {self.killed}, jobs handed out again: {self.redelivered}"
        )


def judged(summary: Summary) -> Summary:
    """Return the summary with `missing` filled in."""
    asker, left_on = summary.asker, summary.sensors_left_on
    wishes = {
        "no reading was logged": summary.readings_logged > 0,
        "no alarm came back from Spark": summary.alarms > 0 or not summary.spark,
        f"no sensor was on before the {asker} stopped": summary.sensors_on > 0,
        f"{left_on:,} sensors were still on after the {asker} had stopped": left_on == 0,
    }
    return replace(summary, missing=[what for what, is_so in wishes.items() if not is_so])


Told = Line | Figures | Summary


def size_text(size: float) -> str:
    """Return a number of bytes in the unit that people would choose."""
    for unit in ("bytes", "KB", "MB"):
        if size < 1_000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1_000
    return f"{size:,.1f} GB"
