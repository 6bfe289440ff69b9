"""A back-test from its cases to its report: the index is built here, and the counting is done by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec
from msgspec import Struct

from tidings.errors import UserError
from tidings.event.values import time_from_us
from tidings.index_files import save_index
from tidings.matching import Index
from tidings.pipeline.backtest.cases import Case, Cases, Kind
from tidings.pipeline.backtest.firing import Firing, FoundPatterns, find_matches
from tidings.pipeline.backtest.tally import (
    SAMPLES_MAX,
    TOTAL,
    CounterRow,
    Detail,
    Tally,
    TallyPlan,
)
from tidings.pipeline.options import read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidings.pipeline.backtest.reading import CountingPlan

EVERYTHING: Final = ""
"""Filter of the events that are read, unless the options have one: all, as subscriptions may match all."""
HOUR_US: Final = 3_600_000_000


class CaseResult(Struct, frozen=True, omit_defaults=True):
    """Result of one case."""

    name: str
    where: str
    """Its filter or pattern."""
    count: int
    share: float
    """Part of all events that were read."""
    per_hour: float | None
    """Matches an hour, over the time between the first and the last event; None if that is no time."""
    first: datetime | None
    last: datetime | None
    samples: list[dict[str, Any]]
    """Events as JSON objects, each with its `node` and `position`."""
    types: dict[str, int] | None
    """For an access rule: the events by type."""
    fired: list[Firing] | None = None
    """For a pattern: its matches in the order of their ends, the first FIRINGS_MAX of them."""
    timeouts: int | None = None
    """For a pattern with TIMEOUTS: runs that timed out."""
    unused: dict[str, int] | None = None
    """For a pattern: events that could not be used, by reason."""


class BacktestReport(Struct, frozen=True):
    """Results of all cases, in the order of the file, and the events that were read."""

    kind: Kind
    events: int
    first: datetime | None
    last: datetime | None
    seed: int
    cases: list[CaseResult]


def backtest(
    spark: SparkSession,
    cases: Cases,
    options: Mapping[str, str],
    *,
    samples: int = 3,
    seed: int = 0,
) -> BacktestReport:
    """Count, for each case, the events in history that its filter matches, or the matches of its pattern.

    `options` are those of a batch read (docs/spark.md): `node` or `path`, `startingTimestamp` and so on. The
    same seed gives the same samples. Nothing is published, and no sensor is turned on. If numba is installed
    here, the executors need it too.
    """
    if not 0 <= samples <= SAMPLES_MAX:
        raise UserError(f"samples must be from 0 to {SAMPLES_MAX}, not {samples}")
    given = {"where": EVERYTHING, **options}
    read_options(given, "batch")  # mistakes are found before anything is built
    plan = TallyPlan(len(cases.cases), samples, seed, by_type=cases.kind == "access")
    with TemporaryDirectory(prefix="tidings-backtest-") as folder:
        path = Path(folder) / f"{uuid4().hex}.index"
        save_index(index_of(cases.cases), path)
        if cases.kind == "patterns":
            return _pattern_report(cases, find_matches(spark, given, cases.cases, plan, path), seed)
        tally = count_matches(spark, given, plan, path)
    return _report(cases, tally, seed)


def index_of(cases: tuple[Case, ...]) -> Index[int]:
    """Return the index of the cases, under their numbers, compiled where that is possible."""
    index: Index[int] = Index(plain_max=0)
    for number, case in enumerate(cases):
        for filter in [case.where] if case.pattern is None else [step.filter for step in case.pattern.steps]:
            index.extend(number, filter)
    return index


def count_matches(spark: SparkSession, options: Mapping[str, str], plan: TallyPlan, path: Path) -> Tally:
    """Return the counters of the cases whose index is saved under this path, merged from all tasks."""
    from tidings.pipeline.backtest.reading import CountingPlan, rows_of

    tally = Tally(plan)
    for row in rows_of(counting_frame(spark, options, CountingPlan(plan, str(path))).toArrow()):
        tally.merge(row)
    return tally


def counting_frame(spark: SparkSession, options: Mapping[str, str], plan: CountingPlan) -> DataFrame:
    """Return what tasks make of history by a plan."""
    from tidings.pipeline.backtest.reading import FORMAT, PLAN, BacktestSource

    _ship(spark, Path(plan.index))
    spark.dataSource.register(BacktestSource)
    counting = msgspec.json.encode(plan).decode()
    return spark.read.format(FORMAT).options(**options, **{PLAN: counting}).load()


def _ship(spark: SparkSession, path: Path) -> None:
    """Bring the file to every executor, once."""
    if hasattr(spark, "addArtifacts") and type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.addArtifacts(str(path), file=True)
    else:
        spark.sparkContext.addFile(str(path))


def _report(cases: Cases, tally: Tally, seed: int) -> BacktestReport:
    total = tally.row(TOTAL)
    span_us = total.last_us - total.first_us if total.matched else 0
    results = [
        _result(case, tally.row(number), total.matched, span_us, cases.kind)
        for number, case in enumerate(cases.cases)
    ]
    return BacktestReport(cases.kind, total.matched, *_bounds(total), seed, results)


def _pattern_report(cases: Cases, found: FoundPatterns, seed: int) -> BacktestReport:
    span_us = found.last_us - found.first_us if found.events else 0
    results = [
        CaseResult(
            name=case.name,
            where=str(case.pattern),
            count=tally.count,
            share=tally.count / found.events if found.events else 0.0,
            per_hour=tally.count * HOUR_US / span_us if span_us else None,
            first=None if tally.first_us is None else time_from_us(tally.first_us),
            last=None if tally.last_us is None else time_from_us(tally.last_us),
            samples=tally.sampled(),
            types=None,
            fired=tally.firings(),
            timeouts=tally.timeouts if case.pattern is not None and case.pattern.timeouts else None,
            unused=dict(sorted(tally.unused.items())),
        )
        for case, tally in zip(cases.cases, found.tallies, strict=True)
    ]
    first, last = (time_from_us(us) if found.events else None for us in (found.first_us, found.last_us))
    return BacktestReport(cases.kind, found.events, first, last, seed, results)


def _result(case: Case, row: CounterRow, events: int, span_us: int, kind: Kind) -> CaseResult:
    detail = msgspec.json.decode(row.detail, type=Detail) if row.detail else Detail()
    return CaseResult(
        name=case.name,
        where=str(case.where),
        count=row.matched,
        share=row.matched / events if events else 0.0,
        per_hour=row.matched * HOUR_US / span_us if span_us else None,
        first=_bounds(row)[0],
        last=_bounds(row)[1],
        samples=[
            {"node": one.node, "position": one.position, **msgspec.json.decode(one.event)}
            for one in detail.samples
        ],
        types=dict(sorted(detail.types.items())) if kind == "access" else None,
    )


def _bounds(row: CounterRow) -> tuple[datetime | None, datetime | None]:
    return (time_from_us(row.first_us), time_from_us(row.last_us)) if row.matched else (None, None)
