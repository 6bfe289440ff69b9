"""Running and watching a query of the pipeline: reported batch by batch, stopped by Ctrl-C or SIGTERM.

Stopping is clean: the query is stopped and waited for, so that its reader leaves the node, and the sensors
that only it wanted go off.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from tidings.errors import PeerError

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from tidings.pipeline.plan import Plan

LOOK_S = 0.5
"""Time between two polls of a query."""
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""State store that Spark needs for timers."""
ALL, NOTES = "all", "notes"
"""Count of all rows in what a step observes, and the name of the observation of facts."""
_OURS = re.compile(r"tidings\.errors\.(?P<kind>\w+): (?P<problem>.+)")


class BatchProgress(Struct, frozen=True, kw_only=True):
    """Progress of a query in one micro-batch."""

    batch: int
    rows: int
    """Events read."""
    rows_s: float
    """Events per second."""
    published: dict[str, int]
    """Events published, by the step of the pipeline that made them."""
    rejected: dict[str, int]
    """Events rejected, by reason; only reasons that occurred."""
    lag: int | None
    """Positions that the node has and the query has not read yet; None: unknown."""
    seconds: float
    """Duration of the batch."""
    notes: dict[str, bool | None] = {}
    """Further facts about the rows, by the pipeline; None: unknown."""
    mismatches: dict[str, int] = {}
    """Values that did not fit their columns and are null, by source."""

    def line(self, what: str) -> str:
        """Return it as a line; `what` is the word for the rows."""
        refused = ", ".join(f"{count} {reason}" for reason, count in self.rejected.items())
        lag = "?" if self.lag is None else f"{self.lag:,}"
        parts = [f"batch {self.batch}", f"{self.rows:,} {what}", f"{self.rows_s:,.0f}/s", f"lag {lag}"]
        parts += [f"{count:,} {name}" for name, count in self.published.items()]
        parts += [f"rejected: {refused}"] if refused else []
        nulls = ", ".join(f"{count} of {source}" for source, count in self.mismatches.items())
        return " · ".join(parts + ([f"null, don't fit: {nulls}"] if nulls else []))


class Total(Struct):
    """Totals of a query from its start to its end."""

    batches: int = 0
    rows: int = 0
    published: dict[str, int] = msgspec.field(default_factory=dict)
    rejected: dict[str, int] = msgspec.field(default_factory=dict)
    notes: dict[str, bool | None] = msgspec.field(default_factory=dict)
    """Whether a fact held in all batches in which it was known."""
    mismatches: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, progress: BatchProgress) -> None:
        """Add the counts of one batch."""
        self.batches += 1
        self.rows += progress.rows
        for sums, counts in (
            (self.published, progress.published),
            (self.rejected, progress.rejected),
            (self.mismatches, progress.mismatches),
        ):
            for name, count in counts.items():
                sums[name] = sums.get(name, 0) + count
        for name, fact in progress.notes.items():
            known = self.notes.get(name)
            self.notes[name] = known if fact is None else fact and known is not False


class Counts(Protocol):
    """Counts of a batch that a query has made itself."""

    @property
    def rows(self) -> dict[str, int]:
        """Rows that were read, by source."""

    @property
    def published(self) -> dict[str, int]:
        """Events that were published, by step."""

    @property
    def late(self) -> dict[str, int]:
        """Rows that were not taken, by reason."""

    @property
    def mismatches(self) -> dict[str, int]:
        """Values that did not fit their columns, by source."""


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set; a second signal acts as before."""
    stop = threading.Event()
    before: dict[int, Any] = {}

    def ask(number: int, _: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[number])

    for one in (signal.SIGINT, signal.SIGTERM):
        before[one] = signal.signal(one, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch(
    query: StreamingQuery,
    report: Callable[[BatchProgress], None],
    stop: threading.Event,
    plan: Plan,
    counts: Mapping[int, Counts] | None = None,
) -> Total:
    """Report each micro-batch until the end is requested, then stop the query; PeerError if it fails."""
    total = Total()
    seen = -1
    problem: Exception | None = None
    try:
        is_over = False
        while not is_over:
            is_over = stop.wait(LOOK_S) or not query.isActive
            if is_over:
                query.stop()
            for reported in query.recentProgress:
                if reported["batchId"] > seen:
                    seen = reported["batchId"]
                    progress = read_progress(reported, plan, (counts or {}).get(seen))
                    total.add(progress)
                    report(progress)
        problem = query.exception()
    except Exception as error:
        if not stop.is_set():  # else the same signal has ended Spark, too: there is nothing left to stop
            raise failure(error) from error
    if problem is not None and not stop.is_set():
        raise failure(problem)
    return total


def read_progress(progress: Mapping[str, Any], plan: Plan, counts: Counts | None = None) -> BatchProgress:
    """Read Spark's progress of a micro-batch.

    The steps of the plan observe counts under the names of sources and steps: of all rows, and of those that
    are rejected by their reasons. A query that counts them itself has its own `counts`.
    """
    observed = {name: _counts(row) for name, row in (progress["observedMetrics"] or {}).items()}
    if counts is None:
        published = {step.name: observed.get(step.name, {}).get(ALL, 0) for step in plan.published}
        rows = sum(observed.get(source.name, {}).get(ALL, 0) for source in plan.sources)
        rejected = _rejected(observed, progress["stateOperators"] or [])
    else:
        published, rows, rejected = counts.published, sum(counts.rows.values()), counts.late
    seconds = progress["batchDuration"] / 1000
    return BatchProgress(
        batch=progress["batchId"],
        rows=rows,
        rows_s=rows / seconds if seconds else 0.0,
        published=published,
        rejected=rejected,
        lag=_lag(progress["sources"]),
        seconds=seconds,
        notes=observed.get(NOTES, {}),
        mismatches={} if counts is None else counts.mismatches,
    )


def counting(df: DataFrame, name: str) -> DataFrame:
    """Return the rows of a step, which are counted in each batch."""
    from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

    return df.observe(name, F.count(F.lit(1)).alias(ALL))


def _rejected(observed: dict[str, dict[str, Any]], operators: list[Any]) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for name, row in observed.items():
        if name != NOTES:
            reasons |= {reason: count for reason, count in row.items() if reason != ALL}
    twice = sum(one["customMetrics"].get("numDroppedDuplicateRows", 0) for one in operators)
    reasons |= {"duplicate": twice, "late": _late(operators)}
    return {reason: count for reason, count in reasons.items() if count}


def _counts(row: Any) -> dict[str, Any]:
    return row.asDict() if hasattr(row, "asDict") else dict(row)


def _late(operators: list[Any]) -> int:
    """Count rows too late for their window. Late ones are dropped before the other operators."""
    dedup = [one for one in operators if one["operatorName"].startswith("dedupe")]
    return sum(one["numRowsDroppedByWatermark"] for one in dedup)


def _lag(sources: Any) -> int | None:
    """Return how many positions the offset of the first source is behind its latest one, over all nodes."""
    try:
        offsets = [sources[0][name] for name in ("endOffset", "latestOffset")]
        ends, latests = (msgspec.json.decode(one) if isinstance(one, str) else dict(one) for one in offsets)
        return sum(max(0, at - int(ends[node])) for node, at in latests.items() if isinstance(at, int))
    except (AttributeError, TypeError, ValueError, LookupError):  # of another format, or missing
        return None


def failure(error: Exception, what: str = "pipeline") -> Exception:
    """Return an error of Spark in one line; a message of tidings somewhere inside it comes first."""
    if isinstance(error, PeerError):
        return error
    text = str(error)
    found = _OURS.findall(text)
    if found:
        return PeerError(f"the {what} failed: {found[-1][1].strip()}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return PeerError(f"the {what} failed: {lines[0] if lines else type(error).__name__}")
