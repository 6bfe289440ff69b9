"""A storm over several nodes: each has a queue that the clients of all use, a log and sinks.

Nodes are linked as clients are: links between them are slow, cut and parted too, and each node crashes by
itself. When all is healed, what was accepted at any node was dealt with once, nothing waits anywhere, and the
logs have what they must have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from tidings.event import Batch, Event
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.node.assembly import Archiving, CoreSettings
from tidings.peers.registry import Neighbours
from tidings.simulator.node import SimulatedNode, address_of
from tidings.simulator.peer_account import PeerAccount
from tidings.simulator.peer_client import PeerClient
from tidings.simulator.queue_account import Answer
from tidings.simulator.queue_storm import UseOfQueues
from tidings.simulator.storm import STORM_S
from tidings.simulator.weather import Weather, run_storm
from tidings.simulator.world import World
from tidings.transport.credentials import Credentials

NODES = ("east", "north", "west", "south", "middle")
"""What nodes are called; there are at most so many."""
CLIENTS_EACH = 2
CALM_S = 120.0
"""How long everything is given to come right again: settlements wait for nodes that were away."""
LOG_READ_MAX = 1 << 30


class PeerVerdict(Struct, frozen=True):
    """What came of a storm."""

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


class PeerStorm(UseOfQueues):
    """One run: `rage`, then `calm`."""

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

    def _client(self, node: SimulatedNode, number: int) -> PeerClient:
        places = ["jobs", *(f"jobs@{other.name}" for other in self.nodes if other is not node)]
        return PeerClient(self.world, f"{node.name}-{number}", node, self.account, places)

    def calm(self) -> PeerVerdict:
        """Heal everything, empty the queues, and see that all is accounted for and that messages flow."""
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
        """Nothing is left in any queue or any hand, of any node."""
        for node in self.nodes:
            for queue in node.queues:
                stands = queue.describe()
                left = stands.messages, stands.in_flight
                assert left == (0, 0), f"{queue.name} of {node.name}: {left} are there and in hands"
        for client in self.clients:
            assert client.connection.publications.is_empty, f"{client.name} still waits"

    def _check_flow(self) -> None:
        """What is put now reaches those who wait, wherever they are."""
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
            accepted=account.count(Answer.DONE),
            forwarded=sum(node.broker.tallies["forwarded", ""] for node in self.nodes),
            handed=sum(account.handed.values()),
            settled=sum(one.answer is Answer.DONE for one in account.settled),
            published=sum(put.answer is Answer.DONE for _, put in account.published.values()),
            batches=sum(one.answer is Answer.DONE for one in account.batches.values()),
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
    """All that is in the log of a node."""
    for stored in node.core.history.batches(1, LOG_READ_MAX, Filter("")):
        yield from Batch(stored.raw, Origin(stored.system, stored.epoch, stored.source))


def peer_storm(seed: int, duration_s: float = STORM_S, nodes: int = 3) -> PeerVerdict:
    """Run one storm over several nodes; AssertionError tells what went wrong, with the seed."""
    return run_storm(PeerStorm(seed, nodes), duration_s)
