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
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from tidings.errors import PeerError

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.5
"""Time between two polls of a query."""
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""State store that Spark needs for timers."""
_OURS = re.compile(r"tidings\.errors\.(?P<kind>\w+): (?P<problem>.+)")


class BatchProgress(Struct, frozen=True, kw_only=True):
    """Progress of a query in one micro-batch."""

    batch: int
    rows: int
    """Readings taken."""
    rows_s: float
    """Readings per second."""
    alarms: int
    rejected: dict[str, int]
    """Readings rejected, by reason; only reasons that occurred."""
    lag: int | None
    """Positions that the node has and the query has not read yet; None: unknown."""
    seconds: float
    """Duration of the batch."""
    one_cell: bool | None = None
    """Whether readings at different places are all in one cell; None: no two places differ."""

    def __str__(self) -> str:
        refused = ", ".join(f"{count} {reason}" for reason, count in self.rejected.items())
        lag = "?" if self.lag is None else f"{self.lag:,}"
        parts = [f"batch {self.batch}", f"{self.rows:,} readings", f"{self.rows_s:,.0f}/s", f"lag {lag}"]
        parts += [f"{self.alarms} alarms"] + ([f"rejected: {refused}"] if refused else [])
        return " · ".join(parts + (["all in one cell"] if self.one_cell else []))


class Total(Struct):
    """Totals of a query from its start to its end."""

    batches: int = 0
    rows: int = 0
    alarms: int = 0
    rejected: dict[str, int] = msgspec.field(default_factory=dict)
    one_cell: bool | None = None

    def add(self, progress: BatchProgress) -> None:
        """Add the counts of one batch."""
        self.batches += 1
        self.rows += progress.rows
        self.alarms += progress.alarms
        if progress.one_cell is not None:
            self.one_cell = progress.one_cell and self.one_cell is not False
        for reason, count in progress.rejected.items():
            self.rejected[reason] = self.rejected.get(reason, 0) + count


class Stop:
    """Request to end: by Ctrl-C, SIGTERM, or `now()`."""

    def __init__(self) -> None:
        self._is_set = threading.Event()

    def now(self) -> None:
        """Request the end; may be called from anywhere."""
        self._is_set.set()

    @property
    def is_wanted(self) -> bool:
        """Whether the end was requested."""
        return self._is_set.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for that long, or until the end is requested: True."""
        return self._is_set.wait(timeout_s)

    @contextlib.contextmanager
    def by_signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM request the end; a second one acts as before."""
        before: dict[int, Any] = {}

        def ask(number: int, _: FrameType | None) -> None:
            self.now()
            signal.signal(number, before[number])

        for one in (signal.SIGINT, signal.SIGTERM):
            before[one] = signal.signal(one, ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def watch(query: StreamingQuery, tell: Callable[[BatchProgress], None], stop: Stop) -> Total:
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
                    progress = read_progress(reported)
                    total.add(progress)
                    tell(progress)
        problem = query.exception()
    except Exception as error:
        if not stop.is_wanted:  # else the same signal has ended Spark, too: there is nothing left to stop
            raise failure(error) from error
    if problem is not None and not stop.is_wanted:
        raise failure(problem)
    return total


def read_progress(progress: Mapping[str, Any]) -> BatchProgress:
    """Read Spark's progress of a micro-batch; see `flow.counted` for the counts in it."""
    observed = {name: _counts(row) for name, row in (progress["observedMetrics"] or {}).items()}
    readings = observed.get("readings", {})
    operators = progress["stateOperators"] or []
    reasons = {**readings, "duplicate": _duplicates(operators), "late": _late(operators)}
    rejected = {reason: count for reason, count in reasons.items() if reason != "all" and count}
    seconds = progress["batchDuration"] / 1000
    rows = readings.get("all", 0)
    return BatchProgress(
        batch=progress["batchId"],
        rows=rows,
        rows_s=rows / seconds if seconds else 0.0,
        alarms=observed.get("alarms", {}).get("all", 0),
        rejected=rejected,
        lag=_lag(progress["sources"] or []),
        seconds=seconds,
        one_cell=observed.get("cells", {}).get("one"),
    )


def _counts(row: Any) -> dict[str, Any]:
    return row.asDict() if hasattr(row, "asDict") else dict(row)


def _duplicates(operators: list[Any]) -> int:
    return sum(one["customMetrics"].get("numDroppedDuplicateRows", 0) for one in operators)


def _late(operators: list[Any]) -> int:
    """Count readings too late for their window. Late ones are dropped before the other operators."""
    dedup = [one for one in operators if one["operatorName"].startswith("dedupe")]
    return sum(one["numRowsDroppedByWatermark"] for one in dedup)


def _lag(sources: list[Any]) -> int | None:
    lags = [_behind(source["endOffset"], source["latestOffset"]) for source in sources[:1]]
    return lags[0] if lags else None


def _behind(end: Any, latest: Any) -> int | None:
    """Return how many positions one offset of the format `tidings` is behind another, over all nodes."""
    try:
        ends, latests = (
            msgspec.json.decode(text) if isinstance(text, str) else dict(text) for text in (end, latest)
        )
        return sum(max(0, at - int(ends[node])) for node, at in latests.items() if isinstance(at, int))
    except (AttributeError, TypeError, ValueError, KeyError):  # of another format, or missing
        return None


def failure(error: Exception) -> Exception:
    """Return an error of Spark in one line; a message of tidings somewhere inside it comes first."""
    if isinstance(error, PeerError):
        return error
    text = str(error)
    found = _OURS.findall(text)
    if found:
        return PeerError(f"the pipeline failed: {found[-1][1].strip()}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return PeerError(f"the pipeline failed: {lines[0] if lines else type(error).__name__}")
