"""How fast the log takes readings and Spark reads them, and how small and how soon all that is.

Node, load and Spark are processes of their own on the loopback address; Spark has two cores, which it shares
with the node. Rates are the best of ROUNDS, in which what is compared takes turns. Before anything is timed
it is seen that all rows are there.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks import neighbours, peers, pipeline_size
from benchmarks.figures import Figure, Report, gather
from benchmarks.pipeline_load import ReadingWire, append, append_lists
from benchmarks.processor import used_s
from tidings.client import blocking
from tidings.errors import PeerError
from tidings.node import compiled
from tidings.pipeline.session import check_java, check_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT, PART = 4_000_000, 1_000_000
"""Readings in the log that Spark reads, and how many of them are appended at once."""
WARM = 250_000
"""Readings after which a node has loaded its compiled code."""
ROUNDS = 3
ARCHIVED = "type LIKE 'air.%'"
SELECTED, SHARE = "value >= 99", 0.01
"""A filter, and the share of the readings that it has."""
FILE_ROWS = 10_000_000
"""Rows that Spark's own reader is given at least: it is so quick that the files are linked to be more."""
ANSWERS = 20
DAYS, QUICK_DAYS = 31.0, 1.0
"""How long a recording is that is generated where there is no real one."""
SEAL_S = 3_600.0
"""After this a node would seal by itself; it is asked to before."""
SEALED_S_MAX = 300.0

Figures = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """Where things are, and how much is asked of them."""

    home: Path
    count: int
    rounds: int
    has_compiled: bool

    @property
    def part(self) -> int:
        """Readings that are appended at once."""
        return self.count * PART // COUNT

    def node(self, name: str, **settings: Any) -> AbstractContextManager[peers.Broker]:
        """A node with a directory of that name, which it may have had before."""
        folder = str(self.home / name)
        return neighbours.node(peers.free_port(), dir=folder, compiled=self.has_compiled, **settings)

    def best(self, measures: Mapping[str, Callable[[], float]], of: Callable[..., float]) -> dict[str, float]:
        """The best value of each, taking turns."""
        turns = [{name: measure() for name, measure in measures.items()} for _ in range(self.rounds)]
        return {name: of(turn[name] for turn in turns) for name in measures}


def run(quick: bool, report: Report) -> Figures:
    """Measure everything, telling lines of progress; quick: a tenth of the load, in one round.

    Raises an error that says what is missing where Spark can't run.
    """
    check_packages()
    check_java()
    size = len(ReadingWire(0, delivery="persistent").pattern)
    report(f"readings of {size} bytes; Spark on two cores")
    facts = {"quick": quick, "compiled": compiled.is_installed(), "reading_bytes": size}
    return gather(_all(quick), facts, report)


def _all(quick: bool) -> Iterator[Figure]:
    from benchmarks import pipeline_spark

    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="tidings-bench-")))
        part, rounds = (10, 1) if quick else (1, ROUNDS)
        stage = Stage(home, COUNT // part, rounds, compiled.is_installed())
        yield from _append(stage)
        spark = stack.enter_context(pipeline_spark.running(home))
        yield from _live(stage, spark)
        yield from _sealed(stage, spark)
        yield _soon(stage, spark)
    yield _small(quick)


# Append


def _append(stage: Stage) -> Iterator[Figure]:
    """Readings that are on the disk when they are accepted: one sync for all that came meanwhile."""
    count = stage.part
    with stage.node("appending", log_seal_s=0) as node:
        if stage.has_compiled:
            append(node.address, ReadingWire(node.port, delivery="persistent"), WARM)
            node.wait_log(peers.COMPILED)
        persistent = partial(append, node.address, ReadingWire(node.port, delivery="persistent"), count)
        lists = partial(append_lists, node.address, count // 5)
        found = stage.best({"persistent": persistent, "lists": lists}, max)
        with blocking.connect(node.address) as bus:
            bus.log.keep("bench", ARCHIVED)
        archived = partial(append, node.address, ReadingWire(node.port), count)
        archived()
        found |= stage.best({"archived": archived}, max)
    yield Figure("append, wire, persistent", "events/s", found["persistent"], 300_000.0, {})
    yield Figure("append, wire, by an archive", "events/s", found["archived"], 300_000.0, {})
    yield Figure("append, API, lists of 1,000 persistent", "events/s", found["lists"], 300_000.0, {})


# Read


def _live(stage: Stage, spark: SparkSession) -> Iterator[Figure]:
    with stage.node("log", log_seal_s=0) as node:
        for _ in range(COUNT // PART):
            append(node.address, ReadingWire(node.port, delivery="persistent"), stage.part)
        yield from _read(stage, spark, "live", {"node": node.address})


def _sealed(stage: Stage, spark: SparkSession) -> Iterator[Figure]:
    """The same log, started anew and sealed."""
    folder = stage.home / "log" / "log"
    with stage.node("log", log_seal_s=SEAL_S) as node:
        yield Figure("seal", "events/s", stage.count / _seal_s(node.address), None, {})
        yield from _read(stage, spark, "sealed", {"node": node.address})
        yield from _read(stage, spark, "sealed, without a node", {"path": str(folder)})
    yield _by_parquet(stage, spark, folder)


def _seal_s(address: str) -> float:
    """The seconds until all there is lies in files."""
    with blocking.connect(address) as bus:
        started = time.monotonic()
        bus.log.seal(timeout_s=SEALED_S_MAX)
        return time.monotonic() - started


def _read(stage: Stage, spark: SparkSession, part: str, options: dict[str, str]) -> Iterator[Figure]:
    """All of the log, and what a filter has of it: pushed to the log, or left to Spark."""
    from benchmarks.pipeline_spark import check_count, of_log, of_nothing, took_s

    frames = {
        "all": of_log(spark, options),
        "idle": of_nothing(spark, stage.count),
        "pushed": of_log(spark, {**options, "where": SELECTED}),
        "left to Spark": of_log(spark, options).where(SELECTED),
    }
    for name, frame in frames.items():
        check_count(frame, stage.count if name in ("all", "idle") else round(stage.count * SHARE))
    took = stage.best({name: partial(took_s, frame) for name, frame in frames.items()}, min)
    rates = {name: stage.count / took_s for name, took_s in took.items()}
    beside = {"a source that does nothing": rates["idle"]}
    yield Figure(f"read by Spark, {part}", "rows/s", rates["all"], 1e6, beside)
    used = {name: used_s(partial(took_s, frames[name])) for name in ("pushed", "left to Spark")}
    ratio, beside = took["left to Spark"] / took["pushed"], {"s pushed": took["pushed"]}
    beside |= {"s left to Spark": took["left to Spark"]}
    beside |= {"× in processor time": used["left to Spark"] / used["pushed"]}
    yield Figure(f"a filter that 1 % match, pushed to the log, {part}", "× Spark's", ratio, 5.0, beside)


def _by_parquet(stage: Stage, spark: SparkSession, folder: Path) -> Figure:
    """Spark's own reader, over the sealed files."""
    from benchmarks.pipeline_spark import of_files, took_s

    times = -(-FILE_ROWS // stage.count)
    with _linked(folder, stage.home / "linked", times) as many:
        frame, rows = of_files(spark, many), times * stage.count
        found = sum(row["count"] for row in frame.collect())
        if found != rows:
            raise PeerError(f"{found} of {rows} rows were read")
        rate = rows / min(took_s(frame) for _ in range(stage.rounds))
    return Figure("sealed files by Spark's own reader, summed up by type", "rows/s", rate, 5e6, {})


@contextmanager
def _linked(folder: Path, other: Path, times: int) -> Iterator[Path]:
    """A folder that has all files of this one so many times, without those that others have replaced."""
    from tidings.log.segment_folder import Folder

    other.mkdir()
    for info in Folder(folder).files():
        for number in range(times):
            os.link(folder / info.path, other / f"{number}-{Path(info.path).name}")
    yield other
    shutil.rmtree(other)


# Time and size


def _soon(stage: Stage, spark: SparkSession) -> Figure:
    from benchmarks.pipeline_spark import answered_s

    with stage.node("answering") as node:
        took_s = answered_s(spark, node.address, stage.home, ANSWERS)
    name = "from a publication to the event that a stream makes of it, median"
    return Figure(name, "s", took_s, 1.5, {}, less_is_better=True)


def _small(quick: bool) -> Figure:
    found = pipeline_size.measure(QUICK_DAYS if quick else DAYS)
    beside = {"readings": 1.0 * found.readings, "bytes": 1.0 * found.files, "bytes of JSON": 1.0 * found.json}
    name = f"sealed files of {found.what}, over JSON"
    return Figure(name, "×", found.files / found.json, 0.2, beside, less_is_better=True)
