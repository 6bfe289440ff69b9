"""Storm over queues: applications put, get, settle and run transactions while everything breaks.

The watch checks safety at each frame that leaves the node, and the account at each message that comes. Then
all is healed, the applications empty the queues, and the account must balance: no accepted message is lost,
none is stuck, and no consumer waits in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from tidings.simulator.account import EventIdentity, Outcome, QueueAccount
from tidings.simulator.node import SimulatedNode
from tidings.simulator.queue_client import QUEUES, QueueClient
from tidings.simulator.queue_watch import QueueDiskWatch
from tidings.simulator.storm import STORM_S, Weather, run_storm
from tidings.simulator.world import World

ACT_S = 0.08
"""Mean time between two actions of an application."""
CLIENTS = ("ann", "bob", "eve")


class QueueVerdict(Struct, frozen=True):
    """Outcome of a storm."""

    seed: int
    trace: str
    put: int
    accepted: int
    refused: int
    handed: int
    marked: int
    stale: int
    settled: int
    committed: int
    steps: int
    faults: int

    def __str__(self) -> str:
        return (
            f"{self.faults} faults, {self.put} messages put, {self.accepted} accepted, "
            f"{self.handed} handed out, {self.marked} marked again, {self.committed} transactions"
        )


class UseOfQueues:
    """Applications that use queues while everything breaks; a storm adds nodes and checks."""

    world: World
    account: QueueAccount
    weather: Weather
    clients: Sequence[QueueClient]

    def rage(self, duration_s: float = STORM_S) -> None:
        """Use the queues and break things for a while."""
        for client in self.clients:
            self.world.clock.after(0.0, partial(self._act, client))
        self.weather.rage(duration_s)

    def _act(self, client: QueueClient) -> None:
        if self.weather.is_raging:
            client.act()
            self.world.clock.after(self.world.random.expovariate(1 / ACT_S), partial(self._act, client))

    def _burst(self) -> QueueClient:
        client = self.world.random.choice(self.clients)
        for _ in range(10):
            client.act()
        return client

    def _check_got(self, before: set[EventIdentity], within_s: float) -> None:
        """Check that the messages put since then are delivered soon."""
        self.world.clock.run(self.world.clock.now + within_s)
        for identity in set(self.account.puts) - before:
            assert identity in self.account.handed, f"{identity} is new, and nobody gets it"


class QueueStorm(UseOfQueues):
    """Run of a storm: `rage`, then `calm`."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.account = QueueAccount()
        self.watch = QueueDiskWatch(QUEUES, self.world.clock)
        self.node = SimulatedNode(self.world, "node", self.watch, step_s=0.0)
        self.clients = [QueueClient(self.world, name, self.node, self.account) for name in CLIENTS]
        self.clients[0].create()
        self.world.clock.run(5.0)
        self.weather = Weather(self.world, [self.node], self.clients, self._burst)

    def calm(self) -> QueueVerdict:
        """Heal everything, empty the queues, and check the account and that messages flow."""
        for client in self.clients:
            client.empty()
        self.weather.calm()
        self._check_empty()
        self.account.check(self.node.started_at)
        self._check_flow()
        return self._verdict()

    def _check_empty(self) -> None:
        """Check that no message waits or is in flight, and that each application waits once at each queue."""
        for queue in self.node.queues:
            stands = queue.describe()
            left = stands.messages, stands.in_flight, stands.waiting
            assert left == (0, 0, len(CLIENTS)), f"{queue.name}: {left} are there, in flight, and waiting"
        queues = self.node.queues
        for held in (queues.in_flight.held, queues.in_flight.holders, queues.fresh):
            assert not held, f"the node believes that these are held, or not on disk yet: {held}"
        assert queues.size == 0, f"the node believes that messages hold {queues.size} bytes"
        for client in self.clients:
            assert client.connection.publications.is_empty, f"{client.name} still waits"

    def _check_flow(self) -> None:
        """Check that messages put now reach the waiting consumers."""
        before = set(self.account.puts)
        for queue in QUEUES[:-1]:
            self.clients[0].put(queue)
        self.clients[0].pump()
        self._check_got(before, 5.0)
        self._check_empty()

    def _verdict(self) -> QueueVerdict:
        account = self.account
        return QueueVerdict(
            seed=self.world.seed,
            trace=self.world.trace,
            put=len(account.puts),
            accepted=account.count(Outcome.DONE),
            refused=account.count(Outcome.REFUSED),
            handed=sum(account.handed.values()),
            marked=self.watch.marked,
            stale=self.watch.stale,
            settled=sum(one.answer is Outcome.DONE for one in account.settled),
            committed=sum(unit.answer is Outcome.DONE for unit in account.units),
            steps=self.world.clock.steps,
            faults=self.weather.faults,
        )


def queue_storm(seed: int, duration_s: float = STORM_S) -> QueueVerdict:
    """Run one storm over queues; AssertionError names the broken rule, and the seed that repeats it."""
    return run_storm(QueueStorm(seed), duration_s)
