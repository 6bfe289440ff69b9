"""A query on a cluster, of which everything is killed in the middle of a batch, publishes each event once."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest
from effort import IS_SOAK, SEED, often
from node.peers import Process, Start
from node.secured import Secured
from pipeline.cluster import QUICK_JAVA, SURROUNDINGS, TESTS, Cluster, Mortal, wait_until
from pipeline.moving import Plan

from tidings import Event, blocking
from tidings.security.passwords import hash_token, make_token

VICTIMS = ("executor", "worker", "driver", "node")
"""A worker that is killed takes its executor with it; one whose executor is killed starts another."""
ROUNDS = often(len(VICTIMS), at_least=len(VICTIMS))
EVENTS = 300
"""Events of a round, all of them in one batch or two."""
ACCESS = """
[[allow]]
users = ["spark"]
actions = ["publish", "subscribe"]
"""


class Show:
    """A node with TLS, a cluster, and a query on it that moves events from `in` to `out`."""

    def __init__(self, home: Path, start: Start, cluster: Cluster) -> None:
        self._home = home
        self._start = start
        self._cluster = cluster
        self._secured = Secured(home)
        self._token = home / "token"
        self._set_up()
        self._port = "0"
        self._next, self._count = 1, 0  # where the log was not looked at yet, and what came out before
        self._node: Process
        self.start_node()
        self._driver = self._started()

    def _set_up(self) -> None:
        secret = make_token(os.urandom)
        self._token.write_text(secret)
        self._secured.write_users(f"spark token first sha256:{hash_token(secret)}\n")
        self._secured.write_access(ACCESS)

    # What there is

    def start_node(self) -> None:
        """Start the node; it has the same port and directory in all its lives."""
        flags = ("--dir", str(self._home / "node"), "--security", str(self._secured.path))
        self._node = self._start("--port", self._port, *flags, "--log-level", "error")
        self._port = self._node.address().rpartition(":")[2]

    @property
    def _place(self) -> str:
        return f"tidings+tls://127.0.0.1:{self._port}"

    def bus(self) -> blocking.Bus:
        return blocking.connect(self._place, token=self._token, ca=self._secured.ca)

    def _started(self) -> Mortal:
        reach = {"node": self._place, "tokenFile": str(self._token), "ca": str(self._secured.ca)}
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
            "spark.ui.enabled": "false",
        }
        checkpoint = str(self._home / "checkpoint")
        plan = Plan(self._cluster.address, reach, checkpoint, str(self._home), config, has_flow=IS_SOAK)
        program = [sys.executable, str(TESTS / "pipeline" / "moving.py"), msgspec.json.encode(plan).decode()]
        return Mortal(self._home / "driver.log", program)

    # What happens

    def run(self, number: int, victim: str, random: Random) -> None:
        """Publish events, kill something when a task is in the middle of them, and wait until all are out."""
        hold, place = f"{number}-{victim}", random.randrange(EVENTS)
        numbers = range(number * EVENTS, (number + 1) * EVENTS)
        with self.bus() as bus:
            bus.publish_all([_event(one, hold if one == numbers[place] else None) for one in numbers])
        reached = self._home / f"{hold}.reached"
        wait_until(reached.exists, self._driver)
        with self._after_death(victim, int(reached.read_text())):
            (self._home / f"{hold}.over").touch()
        with self.bus() as bus:
            wait_until(lambda: self._look(bus) >= numbers.stop, self._driver)

    def _look(self, bus: blocking.Bus) -> int:
        """How many events have come out so far."""
        for position, _ in bus.log.read(self._next, where="type = 'out'"):
            self._count, self._next = self._count + 1, position + 1
        return self._count

    @contextmanager
    def _after_death(self, victim: str, task: int) -> Iterator[None]:
        """Kill something; behind the block, see that there is another one of it."""
        if victim == "executor":
            self._cluster.kill_executor(task)
            yield
        elif victim == "worker":
            number = self._cluster.kill_worker(task)
            yield
            self._cluster.start_worker(number)
        elif victim == "driver":
            self._driver.kill()
            yield
            self._driver = self._started()
        else:
            self._node.process.kill()
            self._node.finish()
            yield
            self.start_node()

    def out(self) -> list[int]:
        """The numbers of what was published, in the order of the log."""
        with self.bus() as bus:
            return [event["number"] for _, event in bus.log.read(where="type = 'out'")]

    def totals(self) -> dict[int, list[tuple[int, int]]]:
        """Counts and sums by digit, as a flow has published them; waits until they have all events."""
        with self.bus() as bus:

            def found() -> dict[int, list[tuple[int, int]]]:
                by_digit: dict[int, list[tuple[int, int]]] = {}
                for _, event in bus.log.read(where="type = 'totals'"):
                    by_digit.setdefault(event["digit"], []).append((event["n"], event["sum"]))
                return by_digit

            def has_all() -> bool:
                return sum(rows[-1][0] for rows in found().values()) >= self._count

            wait_until(has_all, self._driver)
            return found()

    def close(self) -> None:
        self._driver.kill()


def _event(number: int, hold: str | None) -> Event:
    values: dict[str, object] = {"number": number, "digit": number % 10}
    values |= {} if hold is None else {"hold": hold}
    return Event("in", values, delivery="persistent")


@pytest.mark.slow
def test_each_event_is_published_once_whatever_is_killed_in_mid_batch(tmp_path: Path, start: Start) -> None:
    random = Random(SEED)
    wanted = dict.fromkeys(range(ROUNDS * EVENTS), 1)
    with Cluster(tmp_path / "cluster") as cluster:
        show = Show(tmp_path, start, cluster)
        try:
            with show.bus() as bus, bus.subscribe("type = 'out'", durable="all"):
                pass
            for number in range(ROUNDS):
                victim = VICTIMS[number] if number < len(VICTIMS) else random.choice(VICTIMS)
                show.run(number, victim, random)
            assert Counter(show.out()) == wanted
            assert _received(show) == wanted
            if IS_SOAK:
                check_totals(show.totals())
        finally:
            show.close()


def check_totals(found: dict[int, list[tuple[int, int]]]) -> None:
    """Each change of a state was published once, and the last one has all events."""
    for digit, rows in found.items():
        counts = [count for count, _ in rows]
        assert counts == sorted(set(counts)), f"of digit {digit} a change was published twice"
        numbers = range(digit, ROUNDS * EVENTS, 10)
        assert rows[-1] == (len(numbers), sum(numbers))
    assert len(found) == 10


def _received(show: Show) -> Counter[int]:
    """What a subscriber gets that was away all the time."""
    found: Counter[int] = Counter()
    with show.bus() as bus, bus.subscribe("type = 'out'", durable="all") as events:
        for event in events:
            found[event["number"]] += 1
            if found.total() == ROUNDS * EVENTS:
                return found
    raise AssertionError(f"there came only {found.total()}")
