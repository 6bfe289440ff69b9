"""Storm over several nodes: each has a queue that the clients of all use, a log and sinks.

Links between nodes are slow, cut and parted as those of clients are, and each node crashes by itself. When
all is healed, every message accepted at any node was processed once, none waits anywhere, and the logs have
the events that they must have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from tidings.errors import TidingsError
from tidings.event import Batch, Event
from tidings.event.wire import encode_events
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.node.assembly import Archiving, CoreSettings
from tidings.peers.registry import Neighbours
from tidings.protocol.messages import DONE, GIVE_BACK, UNOPENED
from tidings.queues import Description
from tidings.simulator.account import EventIdentity, Outcome, PeerAccount, SettledRecord
from tidings.simulator.node import SimulatedNode, address_of
from tidings.simulator.queue_client import Hands, QueueClient
from tidings.simulator.queue_storm import UseOfQueues
from tidings.simulator.storm import STORM_S, Weather, run_storm
from tidings.simulator.world import World
from tidings.transport.credentials import Credentials

NODES = ("east", "north", "west", "south", "middle")
"""Names of the nodes, and so their largest number."""
CLIENTS_EACH = 2
CALM_S = 120.0
"""Time for everything to recover: settlements wait for nodes that were away."""
LOG_READ_MAX = 1 << 30
JOBS = Description(name="jobs", persistent=True, keep=True, redelivery_s=10.0, deliveries_max=None)
"""Queue that each node has."""
RETRY_S = 0.5
"""Pause after a `get` that returned nothing."""
ROWS = 3
"""Rows in a batch of a sink."""


class NodesClient(QueueClient):
    """Simulated application of one node; `places` are the queues of all nodes, as its node names them.

    It puts into `jobs` of any node and gets from there, publishes persistent events, and commits batches of a
    sink. Each client settles its messages sooner or later; in the end all queues are emptied.
    """

    account: PeerAccount
    outcomes = (DONE,) * 6 + (GIVE_BACK, UNOPENED)
    created = (JOBS,)

    def __init__(
        self, world: World, name: str, node: SimulatedNode, account: PeerAccount, places: Sequence[str]
    ) -> None:
        self.places = places
        self._batch = -1  # the last batch that was staged
        self._is_staging = False
        super().__init__(world, name, node, account)

    def start(self) -> None:
        """Start without memory of a staged batch."""
        self._is_staging = False
        super().start()

    @property
    def acts(self) -> list[Callable[[], None]]:
        """Actions to choose from, each as often as it is listed."""
        return [self.put, self.put, self.get, self.get, self._cancel, self._publish, self._stage]

    @property
    def queues(self) -> Sequence[Description]:
        """Queues of all nodes."""
        return [Description(name=place, persistent=True) for place in self.places]

    def _event(self, kind: str, **more: Any) -> Event:
        """Return an event that never expires."""
        event = super()._event(kind, **more)
        return Event(event.type, event.values, time=event.time, priority=event.priority)

    @property
    def drained(self) -> Sequence[str]:
        """Queues of all nodes."""
        return self.places

    def _drain(self, queue: str, hands: Hands) -> None:
        """Process the messages; if there are none, the node may be away: get again a little later."""
        if hands:
            super()._drain(queue, hands)
            return
        life = self._life

        def again() -> None:
            if self._life == life:
                QueueClient._drain(self, queue, hands)
                self.pump()

        self.world.clock.after(RETRY_S, again)

    def put(self, queue: Description | None = None) -> None:
        """Put an event into the queue of some node."""
        queue = queue or self.world.random.choice(self.queues)
        super().put(queue)
        home = queue.name.partition("@")[2] or self.node.name
        self.account.homes[self._identity(self.connection.publications.last)] = home

    # Getting

    def _take(self, where: str, hand: list[Any]) -> EventIdentity:
        identity = super()._take(where, hand)
        number, received = hand[0], hand[8] if len(hand) > 8 else None
        now = self.world.clock.now
        self.account.met(self.name, identity, number if received is None else received, now)
        return identity

    def _answered(self, settled: SettledRecord, code: str) -> None:
        """Note the result of a settlement; if its node was away, it may have been done there."""
        if code != "away":
            settled.answer = Outcome.DONE if not code else Outcome.REFUSED
        if settled.answer is Outcome.DONE:
            home = self.world.nodes[self.account.homes[settled.identity]]
            self.account.ended(f"{self.name}/{self._epoch}", settled.identity, home.started_at)

    # The log

    def _publish(self) -> None:
        """Publish a persistent event."""
        event = self._event("news")
        event = Event(event.type, event.values, time=event.time, delivery="persistent")
        counter = self.connection.publish(event)
        self.node.watch.publishing(self.name, self._epoch, counter)
        self._pending[counter] = self.account.publish(self.node.name, self._identity(counter), event)

    # The sink

    def _stage(self) -> None:
        """Stage a batch, and commit it when the node has it."""
        if self._is_staging:
            return
        self._is_staging = True
        self._batch += 1
        batch, run = self._batch, f"{self._epoch}-{self._batch}"
        rows = [self._row(batch, number) for number in range(1, ROWS + 1)]
        self.account.stage(self.node.name, self.name, batch, ROWS)
        piece = {"attempt": "only", "number": 0, "raw": encode_events(rows)}
        self._ask_sink("sink.stage", run, piece, partial(self._staged, batch, run))

    def _row(self, batch: int, number: int) -> Event:
        time_us = round(self.world.clock.now * 1e6)
        return Event.unchecked(number, "row", time_us, {"sink": self.name, "batch": batch})

    def _staged(self, batch: int, run: str) -> None:
        wanted = {"batch": batch, "attempts": {"only": 1}}
        self._ask_sink("sink.commit", run, wanted, partial(self._committed, batch))

    def _ask_sink(self, operation: str, run: str, wanted: dict[str, Any], then: Callable[[], None]) -> None:
        connection = self.connection

        def done(_result: Any) -> None:
            then()

        def failed(error: TidingsError) -> None:
            assert connection.failure is not None, f"{self.name}: {operation}: {error}"  # else it has left

        call = connection.request(operation, {"sink": self.name, "run": run, **wanted}, "again")
        call.then(done, failed)

    def _committed(self, batch: int) -> None:
        self.account.commit(self.node.name, self.name, batch)
        self._is_staging = False


class PeerVerdict(Struct, frozen=True):
    """Outcome of a storm."""

    seed: int
    trace: str
    nodes: int
    put: int
    accepted: int
    forwarded: int
    handed: int
    settled: int
    published: int
    batches: int
    dialled: int
    steps: int
    faults: int

    def __str__(self) -> str:
        return (
            f"{self.faults} faults, {self.put} messages put, {self.accepted} accepted, "
            f"{self.handed} handed out, {self.published} events and {self.batches} batches logged, "
            f"{self.dialled} times dialled"
        )


class PeerStorm(UseOfQueues):
    """Run of a storm: `rage`, then `calm`."""

    account: PeerAccount

    def __init__(self, seed: int, nodes: int) -> None:
        self.world = World(seed)
        self.account = PeerAccount()
        names = NODES[:nodes]
        self.nodes = [SimulatedNode(self.world, name, settings=_settings(name, names)) for name in names]
        self.clients = [self._client(node, number) for node in self.nodes for number in range(CLIENTS_EACH)]
        for client in self.clients[::CLIENTS_EACH]:
            client.create()
        self.world.clock.run(5.0)
        self.weather = Weather(self.world, self.nodes, self.clients, self._burst)

    def _client(self, node: SimulatedNode, number: int) -> NodesClient:
        places = ["jobs", *(f"jobs@{other.name}" for other in self.nodes if other is not node)]
        return NodesClient(self.world, f"{node.name}-{number}", node, self.account, places)

    def calm(self) -> PeerVerdict:
        """Heal everything, empty the queues, and check the account and that messages flow."""
        for client in self.clients:
            client.empty()
        self.weather.calm(CALM_S)
        self._check_empty()
        self.account.check(0.0)
        self._check_flow()
        for node in self.nodes:
            self.account.check_log(node.name, _logged(node))
        return self._verdict()

    def _check_empty(self) -> None:
        """Check that no message waits or is in flight at any node."""
        for node in self.nodes:
            for queue in node.queues:
                stands = queue.describe()
                left = stands.messages, stands.in_flight
                assert left == (0, 0), f"{queue.name} of {node.name}: {left} are there and in flight"
        for client in self.clients:
            assert client.connection.publications.is_empty, f"{client.name} still waits"

    def _check_flow(self) -> None:
        """Check that messages put now reach the waiting consumers, wherever they are."""
        before = set(self.account.puts)
        for client in self.clients:
            for queue in client.queues:
                client.put(queue)
            client.pump()
        self._check_got(before, 10.0)
        self._check_empty()

    def _verdict(self) -> PeerVerdict:
        account = self.account
        return PeerVerdict(
            seed=self.world.seed,
            trace=self.world.trace,
            nodes=len(self.nodes),
            put=len(account.puts),
            accepted=account.count(Outcome.DONE),
            forwarded=sum(node.broker.tallies["forwarded", ""] for node in self.nodes),
            handed=sum(account.handed.values()),
            settled=sum(one.answer is Outcome.DONE for one in account.settled),
            published=sum(put.answer is Outcome.DONE for _, put in account.published.values()),
            batches=sum(one.answer is Outcome.DONE for one in account.batches.values()),
            dialled=sum(node.dialled for node in self.nodes),
            steps=self.world.clock.steps,
            faults=self.weather.faults,
        )


def _settings(name: str, names: tuple[str, ...]) -> CoreSettings:
    others: Mapping[str, str] = {one: address_of(one) for one in names if one != name}
    return CoreSettings(
        name=name, archive=Archiving(where="type = 'row'"), peers=Neighbours(others, Credentials())
    )


def _logged(node: SimulatedNode) -> Iterator[Event]:
    """Yield all events in the log of a node."""
    for stored in node.core.history.batches(1, LOG_READ_MAX, Filter("")):
        yield from Batch(stored.raw, Origin(stored.system, stored.epoch, stored.source))


def peer_storm(seed: int, duration_s: float = STORM_S, nodes: int = 3) -> PeerVerdict:
    """Run one storm over several nodes; AssertionError names the broken rule and the seed."""
    return run_storm(PeerStorm(seed, nodes), duration_s)
