#!/usr/bin/env python
"""Count the instructions that a node executes for fixed workloads, in two source trees, and compare them.

    benchmarks/instructions.py --base main              # the working tree against a revision
    benchmarks/instructions.py --base HEAD --rounds 5   # the noise, where nothing was changed

The clock of a shared machine is too noisy to show a few per cent; what a node executes is not. Both nodes run
under callgrind, which counts only while a workload is under way: not the start, nor what is compiled or
connected before. The clients are those of the working tree, outside callgrind, and do the same for both. The
trees take turns; a figure is the median of the rounds, the spread that of the ratios. It takes ten minutes on
a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Not the folder of this program, which has modules with names of Python's own.
sys.path[0:1] = [str(ROOT / "src"), str(ROOT)]
# Compiled code must be for a processor that valgrind has, and the same for both trees.
SETTINGS = {
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_CPU_FEATURES": "",
    "PYTHONHASHSEED": "0",
    "TIDINGS_BENCH_WAIT_S": os.environ.get("TIDINGS_BENCH_WAIT_S", "120"),
}
os.environ.update(SETTINGS)
os.environ["PYTHONPATH"] = str(ROOT / "src")
# What follows is imported with these settings, which it reads when it is imported.

import msgspec  # noqa: E402

from benchmarks import clients, load, peers, queue_load  # noqa: E402
from benchmarks.queue_wires import TidingsQueueWire  # noqa: E402
from benchmarks.wires import TOPICS, TidingsWire  # noqa: E402

ROUNDS = 3
CHANGE_MAX = 0.03
"""By how much a workload may cost more."""
WARM = 200_000
START_S_MAX = 900.0
"""How long a node may take to compile, start and load its code, on a busy machine and under callgrind."""
START = """
import runpy, time
time.perf_counter = time.thread_time  # turns go by this: what else the machine does must not end them
try:  # callgrind is some fifty times slower, and turns go by the clock: they are to hold as much as ever
    from tidings import turns
    for name in {"SLICE_S", "SLICE_S_MIN", "ROUND_S", "TURN_S", "REST_S"} & vars(turns).keys():
        setattr(turns, name, 50 * getattr(turns, name))
except ImportError:
    pass
runpy.run_module("tidings.node.main", run_name="__main__", alter_sys=False)
"""
CALLGRIND = ("valgrind", "--tool=callgrind", "--instr-atstart=no", "--quiet")
ALONE = [[topic] for topic in range(TOPICS)]


@dataclass(frozen=True)
class Counted:
    """A node under callgrind."""

    broker: peers.Broker
    home: Path

    def count(self, workload: Workload) -> int:
        """The instructions of a workload, in all threads."""
        run_workload(workload, self.broker, lambda: self._tell("--zero", "--instr=on"))
        self._tell("--instr=off")
        return self._dumped()

    def _dumped(self) -> int:
        before = set(self.home.glob("counts.*"))
        self._tell("--dump")
        (dump,) = set(self.home.glob("counts.*")) - before
        totals = next(line for line in dump.read_text().splitlines() if line.startswith("totals:"))
        return int(totals.split()[1])

    def _tell(self, *words: str) -> None:
        for word in words:
            command = ["callgrind_control", word, str(self.broker.process.pid)]
            subprocess.run(command, check=True, capture_output=True)


Start = Callable[[peers.Broker], list[load.Child]]


@dataclass(frozen=True)
class Workload:
    """The clients that make it, in the order in which they begin, and those whose end is its end."""

    name: str
    start: Start
    awaited: tuple[int, ...] = (0, 1)


def run_workload(workload: Workload, node: peers.Broker, begin: Callable[[], None] = lambda: None) -> None:
    """Have all clients get ready, begin, and wait until those are done whose end is the end."""
    with ExitStack() as stack:
        children = [stack.enter_context(child) for child in workload.start(node)]
        for child in children:
            child.receive()
        begin()
        for child in children:
            child.send("go")
        for place in workload.awaited:
            children[place].receive()


def carried(count: int, frame_events: int, topics: list[list[int]] | list[None]) -> Start:
    """Frames on a raw socket, to subscribers."""

    def start(node: peers.Broker) -> list[load.Child]:
        wire = TidingsWire(node.port, frame_events)
        return [
            load.Child(load.tap, wire, count, topics),
            load.Child(load.feed, wire, count, 100, range(TOPICS), None),
        ]

    return start


def requested(count: int) -> Start:
    """Requests on raw sockets, one after the other."""

    def start(node: peers.Broker) -> list[load.Child]:
        wire = TidingsWire(node.port, 1)
        return [load.Child(load.answer, wire, count), load.Child(load.ask, wire, count)]

    return start


def published(way: clients.Way, count: int) -> Start:
    """The client library at both ends."""

    def start(node: peers.Broker) -> list[load.Child]:
        return [
            load.Child(clients.subscribe, node.address, way, count),
            load.Child(clients.publish, node.address, way, count, 100),
        ]

    return start


def queued(count: int, connections: int, outstanding: int) -> Start:
    """Persistent messages that are put, got and acknowledged."""

    def start(node: peers.Broker) -> list[load.Child]:
        wire = TidingsQueueWire(node.port)
        queue_load.prepare(wire)
        return [
            load.Child(queue_load.get, wire, count),
            load.Child(queue_load.put, wire, count, connections, outstanding),
        ]

    return start


WORKLOADS = (
    Workload("wire, batch frames", carried(100_000, 100, [None])),
    Workload("wire, one event a frame", carried(100_000, 1, [None])),
    Workload("wire, 1,000 filters on one connection", carried(20_000, 100, [list(range(TOPICS))])),
    Workload("wire, 1,000 connections with a filter each", carried(10_000, 100, ALONE)),
    Workload("wire, request and reply", requested(200), awaited=(1,)),
    Workload("API, one by one", published("one by one", 20_000)),
    Workload("API, 100 outstanding reliable publications", published("reliable", 5_000)),
    Workload("queue, put and get, 100 connections", queued(3_000, 100, 1)),
    Workload("queue, put and get, 1,000 outstanding on one", queued(3_000, 1, 1_000)),
)


@contextmanager
def counted(tree: Path, home: Path) -> Iterator[Counted]:
    """A node of a source tree, with compiled code that is loaded."""
    home.mkdir()
    port = peers.free_port()  # an older tree knows fewer settings: those that are needed, and no others
    config = {"port": port, "dir": str(home / "node"), "log_seal_s": 0.0}
    settings = {"PYTHONPATH": str(tree / "src"), "XDG_CACHE_HOME": str(home / "cache")}
    command = [
        *("env", *(f"{name}={value}" for name, value in settings.items())),
        *(*CALLGRIND, f"--callgrind-out-file={home}/counts"),
        *(sys.executable, "-c", START, msgspec.json.encode(config).decode()),
    ]
    with peers.running("counted", port, command) as broker:
        run_workload(Workload("warm", carried(WARM, 100, [None])), broker)
        broker.wait_log(peers.COMPILED)
        yield Counted(broker, home)


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """The sources of a revision, in a folder that goes again."""
    with tempfile.TemporaryDirectory(prefix="tidings-base-") as home:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", revision, "src"], check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", home], input=archive.stdout, check=True)
        yield Path(home)


def main() -> int:
    """Compare, print a line for each workload, and fail if one costs too much more."""
    parser = argparse.ArgumentParser(description="Compare the instructions of two source trees.")
    parser.add_argument("--base", default="HEAD", help="the revision to compare with")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", action="append", help="a part of the names of workloads; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE")
    said = parser.parse_args()
    chosen = [one for one in WORKLOADS if not said.only or any(part in one.name for part in said.only)]
    peers.START_S_MAX = START_S_MAX
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the nodes end too
    with (
        checked_out(said.base) as base,
        tempfile.TemporaryDirectory(prefix="tidings-count-") as home,
        counted(base, Path(home) / "base") as old,
        counted(ROOT, Path(home) / "new") as new,
    ):
        figures = [compare(one, old, new, said.rounds) for one in chosen]
    if said.json is not None:
        said.json.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    worst = max(figure["ratio"] for figure in figures)
    print(f"the most: {worst:.3f} ×, allowed {1 + CHANGE_MAX:.3f} ×")
    return int(worst > 1 + CHANGE_MAX)


def compare(workload: Workload, old: Counted, new: Counted, rounds: int) -> dict[str, Any]:
    """The medians of both, and how much more the new one costs."""
    turns = [(old.count(workload), new.count(workload)) for _ in range(rounds)]
    before, after = (median(column) for column in zip(*turns, strict=True))
    ratios = sorted(theirs / ours for ours, theirs in turns)
    print(
        f"{workload.name:46s}{before / 1e6:>10,.1f} M{after / 1e6:>10,.1f} M{after / before:>8.3f} ×"
        f"   ({ratios[0]:.3f} to {ratios[-1]:.3f})",
        flush=True,
    )
    return {"name": workload.name, "before": before, "after": after, "ratio": after / before, "turns": turns}


if __name__ == "__main__":
    sys.exit(main())
