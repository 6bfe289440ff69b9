"""A pattern over a stream whose driver, executor or worker is killed in mid-batch finds each match once."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random

import msgspec
import pytest
from effort import IS_SOAK, SEED, often
from pipeline.cluster import SURROUNDINGS, TESTS, Cluster, Mortal, wait_until
from pipeline.pattern_stream import PatternPlan
from quick_java import QUICK_JAVA

from tidings.pipeline.running import STATE_STORE

VICTIMS = ["executor", "driver", "worker"] * often(1) if IS_SOAK else ["driver"]
FIRST_FILE_S = 1_777_000_000
"""When the first file was changed, as Spark is told."""
KEYS = 20
"""Keys of a batch: a match of each that has no C between."""


class PatternShow:
    """A query on a cluster, or without one in a process of its own, that finds a pattern in files."""

    def __init__(self, home: Path, cluster: Cluster | None) -> None:
        self._home = home
        self._cluster = cluster
        self._files = 0
        (home / "in").mkdir()
        self._driver = self._started()

    def _started(self) -> Mortal:
        config = {
            "spark.cores.max": "2",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK_JAVA,
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": SURROUNDINGS["PYTHONPATH"],
            "spark.log.level": "WARN",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
            "spark.ui.enabled": "false",
        }
        master = "local[2]" if self._cluster is None else self._cluster.address
        plan = PatternPlan(master, str(self._home), config)
        program = [sys.executable, str(TESTS / "pipeline" / "pattern_stream.py")]
        return Mortal(self._home / "driver.log", [*program, msgspec.json.encode(plan).decode()])

    def write(self, rows: list[tuple[str, int, str]], hold: str = "") -> None:
        """Write a file of events, each with its type, second and key."""
        number = self._files
        self._files += 1
        lines = [
            {"time": f"2026-05-01T{at // 3600:02}:{at % 3600 // 60:02}:{at % 60:02}Z", "node": "n"}
            | {"position": number * 1_000 + place, "type": kind, "k": key}
            for place, (kind, at, key) in enumerate(rows)
        ]
        if hold:
            lines[-1]["hold"] = hold
        aside = self._home / "new.json"
        aside.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(aside, (FIRST_FILE_S + number, FIRST_FILE_S + number))  # Spark takes the oldest first
        aside.rename(self._home / "in" / f"{number:03}.json")

    def kill(self, number: int, victim: str) -> None:
        """Kill something once a task has come to the row that holds it."""
        hold = f"hold-{number}"
        reached = self._home / f"{hold}.reached"
        wait_until(reached.exists, self._driver)
        task = int(reached.read_text())
        if victim == "driver":
            self._driver.kill()
        elif self._cluster is not None and victim == "executor":
            self._cluster.kill_executor(task)
        elif self._cluster is not None:
            self._cluster.start_worker(self._cluster.kill_worker(task))
        (self._home / f"{hold}.over").touch()
        if victim == "driver":
            self._driver = self._started()

    def found(self) -> list[str]:
        """The keys of all matches that were written."""
        log = self._home / "out" / "_spark_metadata"
        files = [one for one in log.iterdir() if not one.name.startswith(".")] if log.exists() else []
        lines = [line for one in files for line in one.read_text().splitlines()[1:]]
        paths = {json.loads(line)["path"].removeprefix("file://") for line in lines}
        rows = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
        assert all(row["kind"] == "match" for row in rows)
        return [row["k"] for row in rows]

    def wait_found(self, count: int) -> None:
        wait_until(lambda: len(self.found()) >= count, self._driver)

    def close(self) -> None:
        self._driver.kill()


@pytest.mark.slow
def test_each_match_is_found_once_whatever_is_killed_in_mid_stream(tmp_path: Path) -> None:
    random, wanted = Random(SEED), list[str]()
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(tmp_path / "cluster")) if IS_SOAK else None
        show = PatternShow(tmp_path, cluster)
        stack.callback(show.close)
        for number, victim in enumerate(VICTIMS):
            keys, begin = [f"{number}-{key}" for key in range(KEYS)], number * 600
            prevented = set(random.sample(keys, KEYS // 4))
            show.write([("A", begin + 1, key) for key in keys])
            show.write(
                [("C", begin + 20, key) for key in prevented] + [("X", begin + 30, "x")], f"hold-{number}"
            )
            show.kill(number, victim)
            show.write([("B", begin + 60, key) for key in keys])
            show.write([("A", begin + 500, "push")])
            wanted += [key for key in keys if key not in prevented]
            show.write([("A", begin + 501, "push")])
            show.wait_found(len(wanted))
        assert Counter(show.found()) == Counter(wanted)
