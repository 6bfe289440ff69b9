"""How fast a back-test counts: on two tasks, from bytes and from sealed files, on one executor and on two.
How much memory a state of many keys takes, what a collapse at the node saves, and what patterns cost.

Events and filters are those of `tidings bench matching`: ten ranges out of twenty attributes. Everything is
measured after Spark has started and its workers have loaded compiled code, and each ratio in one run. Before
anything is timed it is seen that all ways count the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import neighbours, patterns, patterns_stream, peers
from benchmarks.figures import Figure, Report, gather
from benchmarks.matching import SEED, range_event, range_texts
from benchmarks.processor import busiest_s
from benchmarks.upstream import collapsed_bytes
from tidings import Filter
from tidings.client import blocking
from tidings.event import Batch, Event
from tidings.flows import count, graph, highest, history
from tidings.index_files import open_index, save_index
from tidings.log.chunks import LivePart
from tidings.log.segment_folder import Folder
from tidings.matching import Index, prepare
from tidings.node import compiled
from tidings.pipeline.backtest.cases import Case, Cases
from tidings.pipeline.backtest.run import backtest, count_matches, index_of
from tidings.pipeline.backtest.tally import TOTAL, TallyPlan
from tidings.pipeline.continuous import LOCAL
from tidings.pipeline.session import check_java, check_packages, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidings.pipeline.flow.publishing import PublishedCounts

EVENTS, FILTERS = 1_000_000, 100_000
DIFFERENT = 10_000
"""Events that are made; the log has them again and again."""
LIST_SIZE = 1_000
FILE_EVENTS = 250_000
"""Events of one sealed file."""
CORES = 2
OPENINGS = 5
WARM, WARM_TASKS = 8_000, 8
"""Events, and tasks, of a back-test after which every worker has loaded its compiled code."""
MEMORY_MB = 2_048
"""Memory of an executor."""
COUNTS = 3
"""Counts on the executors, of which the best is taken."""
EXECUTOR = b"CoarseGrainedExecutorBackend"
"""Word in the command of an executor."""
KEYS = 100_000
STATE_EVENTS, STATE_TIMES = 1_000_000, 10
"""Events of a state of so many keys, and how many times as many they are compared with."""
STATE_BATCH, STATE_BATCH_LATER = 100_000, 500_000
"""Events of a batch, first and later: ten batches fill the caches of Spark, which are bounded."""
COLLECTIONS = 3
"""How often garbage is collected before memory is looked at."""

Figures = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """Cases and history of one run."""

    home: Path
    cases: Cases
    parts: list[LivePart]
    node: str  # the address of the node, or where it was

    @property
    def folder(self) -> Path:
        """Folder with the sealed log."""
        return self.home / "log"

    @property
    def index(self) -> Path:
        """File of the saved index."""
        return self.home / "cases.index"

    @property
    def plan(self) -> TallyPlan:
        """Plan of counting, as a back-test without samples has it."""
        return TallyPlan(len(self.cases.cases), samples=0)

    @property
    def sealed(self) -> dict[str, str]:
        """Options for reading the folder in two tasks."""
        return {"path": str(self.folder), "minPartitions": str(CORES), "where": ""}

    @property
    def live(self) -> dict[str, str]:
        """Options for reading the node in two tasks."""
        return {"node": self.node, "minPartitions": str(CORES), "where": ""}


def run(quick: bool, report: Report) -> Figures:
    """Measure everything, telling lines of progress; quick: a tenth of the events and filters.

    Raises an error that says what is missing where Spark can't run.
    """
    check_packages()
    check_java()
    prepare()
    part = 10 if quick else 1
    report(f"{EVENTS // part:,} events, {FILTERS // part:,} filters of ten ranges, seed {SEED}")
    facts = {"quick": quick, "events": EVENTS // part, "filters": FILTERS // part}
    return gather(_all(part), facts, report)


def _all(part: int) -> Iterator[Figure]:
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="tidings-bench-")))
        folder, has_compiled = str(home / "node"), compiled.is_installed()
        with neighbours.node(peers.free_port(), dir=folder, compiled=has_compiled, log_seal_s=0) as node:
            stage = prepared(home, node.address, part)
            with running(f"local[{CORES}]", home) as spark:
                yield from _two_tasks(stage, spark)
                yield _state(spark, home / "state", part)
                yield from patterns_stream.figures(spark, home / "patterns", part > 1)
        yield from patterns.figures(part > 1)
        yield collapsed_bytes(home / "upstream", part > 1, has_compiled)
        yield from _executors(stage)


# What is measured


def _two_tasks(stage: Stage, spark: SparkSession) -> Iterator[Figure]:
    alone_s, build_s, counts = one_process(stage)
    save_index(index_of(stage.cases.cases), stage.index)
    opening_s = min(_timed(lambda: open_index(stage.index)) for _ in range(OPENINGS))
    yield Figure(
        "opening a saved index, over building it", "×", opening_s / build_s, 0.05,
        {"open_ms": 1e3 * opening_s, "build_ms": 1e3 * build_s}, less_is_better=True,
    )  # fmt: skip
    warm(stage, spark)
    found: dict[str, float] = {}
    for name, options in (("live", stage.live), ("sealed", stage.sealed)):
        start = time.perf_counter()
        tally = count_matches(spark, options, stage.plan, stage.index)
        found[name] = time.perf_counter() - start
        told = [tally.row(case).matched for case in range(len(counts))]
        assert told == counts, f"{name}: other counts than one process"
    whole_s = _timed(lambda: backtest(spark, stage.cases, stage.sealed, samples=0))
    yield Figure(
        "back-test by two tasks, over one process that builds the index", "×", found["live"] / alone_s, 0.65,
        {"two_tasks_s": found["live"], "one_process_s": alone_s, "with_building_sealed_s": whole_s},
        less_is_better=True,
    )  # fmt: skip
    yield Figure(
        "back-test of sealed files, over a live log", "×", found["sealed"] / found["live"], 1.3,
        {"sealed_s": found["sealed"], "live_s": found["live"]}, less_is_better=True,
    )  # fmt: skip


def _executors(stage: Stage) -> Iterator[Figure]:
    """Two executors with a core each, over one; the index is saved beforehand.

    What is compared is the processor time of the executor that has used most, with its Python workers: how
    long the count takes where each executor has a core to itself. The clock stands beside it.
    """
    took, busy = {}, {}
    for number in (1, 2):
        with running(f"local-cluster[{number},1,{MEMORY_MB}]", stage.home) as spark:
            warm(stage, spark)
            counts = [_counted(stage, spark) for _ in range(COUNTS)]
        busy[number], took[number] = map(min, zip(*counts, strict=True))
    yield Figure(
        "back-test of sealed files on two executors, over one", "×", busy[2] / busy[1], 0.6,
        {"two_busy_s": busy[2], "one_busy_s": busy[1], "by_the_clock": took[2] / took[1]},
        less_is_better=True,
    )  # fmt: skip


def _counted(stage: Stage, spark: SparkSession) -> tuple[float, float]:
    """Processor time of the busiest executor, and time, of one count."""
    start = time.perf_counter()
    busy_s = busiest_s(partial(checked_count, stage, spark), EXECUTOR)
    return busy_s, time.perf_counter() - start


def _state(spark: SparkSession, home: Path, part: int) -> Figure:
    """Memory of Spark after many times the events of a state, over that after these."""
    from tidings.pipeline.flow.stream import FlowBatches

    readings = history("readings", columns={"key": "bigint", "value": "double"})
    state = readings.collapse("key", readings=count(), high=highest("value")).named("high")
    batches = FlowBatches(graph("bench", state), spark, str(home), _discarded)
    begin = STATE_EVENTS // part
    end = begin * STATE_TIMES
    starts = [*range(0, begin, STATE_BATCH // part), *range(begin, end, STATE_BATCH_LATER // part), end]
    held: dict[int, float] = {}
    for number, (start, done) in enumerate(pairwise(starts)):
        rows = spark.range(start, done, numPartitions=CORES)
        batches(batches.stream({"readings": _readings(rows, KEYS // part)}), number)
        if done in (begin, end):
            held[done] = _heap_mb(spark)
    files = sum(file.stat().st_size for file in home.rglob("*.parquet"))
    first, last = held[begin], held[end]
    return Figure(
        "memory of a state after ten times as many events", "×", last / first, 1.1,
        {"first_mb": first, "last_mb": last, "files_mb": files / 1e6}, less_is_better=True,
    )  # fmt: skip


def _readings(numbers: DataFrame, keys: int) -> DataFrame:
    """Readings, each of the next key."""
    return numbers.selectExpr(
        "timestamp_millis(id) AS time",
        "'here' AS node",
        "id AS position",
        f"id % {keys} AS key",
        "CAST(id * 7919 % 1000 AS double) AS value",
    )


def _discarded(_batch: int, frames: Mapping[str, DataFrame]) -> PublishedCounts:
    """Calculate the changes of a batch, and publish nothing."""
    from tidings.pipeline.flow.publishing import PublishedCounts

    changed = frames["high"].count()
    return PublishedCounts({"high": changed}, {})


def _heap_mb(spark: SparkSession) -> float:
    """Memory that Java's objects take after collecting garbage, in MB; the state is worked off in there."""
    java: Any = spark.sparkContext._jvm
    for _ in range(COLLECTIONS):
        java.System.gc()
        time.sleep(1.0)  # Spark forgets what nobody refers to in a thread of its own
    runtime = java.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


def one_process(stage: Stage) -> tuple[float, float, list[int]]:
    """Build the index and match all bytes here; return the time, that of building, and the counts."""
    batches = [Batch(part.raw, part.origin) for part in stage.parts]
    filters = [Filter(str(case.where)) for case in stage.cases.cases]
    for wanted in filters:
        _ = wanted.normal  # as the cases have it, in which the back-test finds it
    start = time.perf_counter()
    index: Index[int] = Index(plain_max=0)
    for number, wanted in enumerate(filters):
        index.add(number, wanted)
    index.settle()
    build_s = time.perf_counter() - start
    counts = np.zeros(len(filters), np.int64)
    for batch in batches:
        matches = index.match_rows(batch)
        counts[np.array(matches.keys, np.int64)] += np.diff(matches.offsets)
    return time.perf_counter() - start, build_s, counts.tolist()


def warm(stage: Stage, spark: SparkSession) -> None:
    """Let every worker load its compiled code, and open the index."""
    claim = Folder(stage.folder).files()[0].claim
    few = {
        "minPartitions": str(WARM_TASKS),
        "startingOffsets": f'{{"{claim.node}": {claim.first}}}',
        "endingOffsets": f'{{"{claim.node}": {claim.first + WARM}}}',
    }
    count_matches(spark, stage.sealed | few, stage.plan, stage.index)


def checked_count(stage: Stage, spark: SparkSession) -> None:
    """Count the sealed events."""
    tally = count_matches(spark, stage.sealed, stage.plan, stage.index)
    assert tally.row(TOTAL).matched == sum(part.count for part in stage.parts)


def _timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# What it is measured on


@contextmanager
def running(master: str, home: Path) -> Iterator[SparkSession]:
    """A session on that master, which ends with the block."""
    spark = spark_session(
        master,
        "tidings bench",
        **{
            **LOCAL,
            "spark.local.dir": home / "spark",
            "spark.log.level": "ERROR",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # begin when all executors are there
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.sql.warehouse.dir": home / "warehouse",
        },
    )
    try:
        yield spark
    finally:
        spark.stop()


def prepared(home: Path, address: str, part: int) -> Stage:
    """Publish the events at a node, read them back as bytes, and write sealed files of them."""
    rng = random.Random(SEED)
    cases = tuple(
        Case(str(number), Filter(text)) for number, text in enumerate(range_texts(rng, FILTERS // part))
    )
    for case in cases:
        _ = case.where.normal
    with blocking.connect(address) as bus:
        publish(bus, rng, EVENTS // part)
        parts = [one for found, _ in bus.log.parts(1) for one in found if isinstance(one, LivePart)]
        node = bus.log.status()["node"]
    stage = Stage(home, Cases("filters", cases), parts, address.rpartition("//")[2])
    seal(stage, node)
    return stage


def publish(bus: blocking.Bus, rng: random.Random, count: int) -> None:
    """Publish so many persistent events, in lists."""
    made: list[Event] = [range_event(rng, delivery="persistent") for _ in range(min(DIFFERENT, count))]
    for begin in range(0, count, LIST_SIZE):
        first = begin % len(made)
        bus.publish_all(made[first : first + LIST_SIZE])


def seal(stage: Stage, node: str) -> None:
    """Write the events into files of about FILE_EVENTS each."""
    folder, own = Folder(stage.folder), list[LivePart]()
    for part in [*stage.parts, None]:
        if own and (part is None or sum(one.count for one in own) >= FILE_EVENTS):
            folder.write(own, node, own[0].first, own[-1].first + own[-1].count - 1)
            own = []
        if part is not None:
            own.append(part)
