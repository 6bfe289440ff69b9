"""Matches of patterns in history: when each would have fired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import blake2b
from heapq import heappush, heappushpop
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from tidings.event.values import time_from_us
from tidings.pipeline.backtest.cases import Case
from tidings.pipeline.backtest.steps import FAR_US, FOUND_COLUMNS, ROWS_MAX, TOTAL, FoundRow, finder
from tidings.pipeline.backtest.tally import TallyPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRINGS_MAX: Final = 10_000
"""Matches of one pattern that are listed, the first ones; the others are counted."""


class Firing(Struct, frozen=True):
    """A match: its key, its first event, and when it was complete."""

    key: list[Any]
    start: datetime
    end: datetime


class PatternTally:
    """The matches of one pattern."""

    def __init__(self) -> None:
        self.count = self.timeouts = 0
        self.unused: Counter[str] = Counter()
        self.first_us: int | None = None
        self.last_us: int | None = None
        self.fired: list[tuple[int, int, str]] = []  # a heap of the earliest, the latest of them first
        self.samples: list[tuple[int, str]] = []  # a heap of those with the lowest hash, the highest first

    def add(self, row: FoundRow, seed: int, samples: int) -> None:
        """Count what was found in the events of one key."""
        if row.kind == "unused":
            self.unused[row.place] += row.end_us
        elif row.kind == "timeout":
            self.timeouts += 1
        else:
            self.count += 1
            self.first_us = row.end_us if self.first_us is None else min(self.first_us, row.end_us)
            self.last_us = row.end_us if self.last_us is None else max(self.last_us, row.end_us)
            _keep(self.fired, (-row.end_us, -row.start_us, row.detail), FIRINGS_MAX)
            if samples:
                digest = blake2b(f"{seed} {row.place} {row.start_us}".encode(), digest_size=8).digest()
                _keep(self.samples, (-int.from_bytes(digest, "big"), row.detail), samples)

    def firings(self) -> list[Firing]:
        """Return the matches in the order of their ends."""
        ordered = sorted(self.fired, key=lambda one: (-one[0], -one[1], one[2]))
        return [
            Firing(msgspec.json.decode(detail)["key"], time_from_us(-start), time_from_us(-end))
            for end, start, detail in ordered
        ]

    def sampled(self) -> list[dict[str, Any]]:
        """Return the samples, as JSON objects with the times of their events."""
        return [_shown(detail) for _, detail in sorted(self.samples, reverse=True)]


class FoundPatterns(Struct, frozen=True):
    """All that was found, and the events that were read."""

    events: int
    first_us: int
    last_us: int
    tallies: list[PatternTally]


def find_matches(
    spark: SparkSession, options: Mapping[str, str], cases: tuple[Case, ...], plan: TallyPlan, path: Path
) -> FoundPatterns:
    """Return the matches of all patterns in history; the index of their steps is saved under this path."""
    from tidings.pipeline.backtest.reading import CountingPlan
    from tidings.pipeline.backtest.run import counting_frame

    texts = tuple(str(case.pattern) for case in cases)
    frame = counting_frame(spark, options, CountingPlan(plan, str(path), texts))
    order = ("case", "key", "reason", "time_us", "node", "position")
    sorted_steps = frame.repartition("case", "key").sortWithinPartitions(*order)
    found = sorted_steps.mapInArrow(finder(texts), FOUND_COLUMNS).toLocalIterator(prefetchPartitions=True)
    return tally_found((FoundRow(*row) for row in found), len(cases), plan)


def tally_found(found: Iterable[FoundRow], cases: int, plan: TallyPlan) -> FoundPatterns:
    """Return the tallies of all rows; what is complete only after the newest event is left out.

    The time of the newest event is known when all rows were seen. Until then only those wait that are
    complete later than all events of which something is known.
    """
    total, first_us, last_us = 0, FAR_US, -FAR_US
    tallies = [PatternTally() for _ in range(cases)]
    waiting: list[FoundRow] = []
    for row in found:
        if row.case == TOTAL:
            total, first_us = total + int(row.place), min(first_us, row.start_us)
        if row.kind != "unused":
            last_us = max(last_us, row.newest_us)
        if row.case != TOTAL:
            waiting.append(row)
        if len(waiting) >= ROWS_MAX:
            waiting = _counted(waiting, last_us, tallies, plan)
    _counted(waiting, last_us, tallies, plan)
    return FoundPatterns(total, first_us, last_us, tallies)


def _counted(
    rows: list[FoundRow], last_us: int, tallies: list[PatternTally], plan: TallyPlan
) -> list[FoundRow]:
    """Count the rows that are complete by then, and return the others."""
    others = []
    for row in rows:
        if row.kind == "unused" or row.end_us <= last_us:
            tallies[row.case].add(row, plan.seed, plan.samples)
        else:
            others.append(row)
    return others


def _keep(heap: list[Any], one: Any, most: int) -> None:
    """Keep the greatest of all, as many as are wanted."""
    if len(heap) < most:
        heappush(heap, one)
    else:
        heappushpop(heap, one)


def _shown(detail: str) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.json.decode(detail)
    for event in shown["events"]:
        event["time"] = time_from_us(event.pop("time_us"))
    return shown
