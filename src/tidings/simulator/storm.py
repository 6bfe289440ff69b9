"""Storm: publishers, subscribers and a node under every fault at once, then calm, then the final check.

Safety is checked at each delivery and at each frame that leaves the node. When all is healed, every promised
event must arrive, the last values must be there after one more crash, and new events must flow.

The weather is everything that can go wrong between nodes and their clients, and its end. Links are slow, cut
and parted, nodes and their clients crash, disks are full, and the wall clocks of nodes are set ahead and
back. Each world chooses which of these happen, and how often; `calm` heals everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Struct

from tidings.event import Delivery
from tidings.event.wire import decode_event
from tidings.protocol.subscriber import Wanted
from tidings.simulator.account import StormAccount
from tidings.simulator.client import Publisher, SimulatedClient, SubscriberClient
from tidings.simulator.node import SimulatedNode
from tidings.simulator.world import Conditions, SimulatedLink, World

FAULT_S = (0.2, 0.5, 1.0)
"""Mean times between two faults; each storm chooses one."""
JUMPS_S = (5.0, 300.0, 7_200.0)
"""Largest errors of a wall clock; each jump chooses one."""
CALM_S = 60.0
"""Time for everything to recover."""
STORM_S = 15.0
PUBLISH_S = 0.2
"""Mean time between two events of a publisher."""
RECONNECT_S = 30.0
"""Time for all clients to notice that the node has crashed, and to subscribe again."""
SIZES = (0, 10, 300, 20_000)

KEPT = frozenset(("reliable", "persistent"))
# Subscribers: name, subscription, and the kinds of delivery of which it must miss nothing.
READERS: tuple[tuple[str, Wanted, frozenset[str]], ...] = (
    ("most", Wanted("third > 0", durable="most"), KEPT),
    ("odd", Wanted("parity = 1", durable="odd"), KEPT),
    ("history", Wanted(since=1), frozenset(("persistent",))),
    ("live", Wanted(), frozenset()),
    ("blocking", Wanted("parity = 0", on_slow="block"), frozenset()),
    ("latest", Wanted(on_slow="latest", slow_key="type"), frozenset()),
    ("spilling", Wanted(on_slow="spill"), frozenset()),
)
PUBLISHERS = ("ann", "bob")
DELIVERIES: tuple[Delivery, ...] = ("transient", "reliable", "persistent")

V = TypeVar("V", covariant=True)  # a verdict


class Weather:
    """Faults of nodes, links and clients; `burst` lets a client send a lot at once, and returns it."""

    def __init__(
        self,
        world: World,
        nodes: Sequence[SimulatedNode],
        clients: Sequence[SimulatedClient],
        burst: Callable[[], SimulatedClient],
    ) -> None:
        self.world = world
        self.nodes = nodes
        self.clients = clients
        self.faults = 0
        self.is_raging = False
        self._burst = burst
        kinds = [self._cut, self._part, self._slow, self._crash, self._crash_client, self._crash_both]
        kinds += [self._fill_disk, self._set_clock]
        # Not all in every storm: some trouble takes a while to build up, and other faults would end it.
        self._kinds = [*world.random.sample(kinds, world.random.randint(1, 4)), self._dawdle]
        self._fault_s = world.random.choice(FAULT_S)

    def rage(self, duration_s: float) -> None:
        """Break things for a while."""
        self.is_raging = True
        for _ in self.world.network.links:
            self._slow()
        self._dawdle()
        self._break()
        self.world.clock.run(self.world.clock.now + duration_s)
        self.is_raging = False

    def calm(self, duration_s: float = CALM_S) -> None:
        """Heal everything, and let it recover."""
        for link in self.world.network.links:
            link.conditions = Conditions()
            self.world.network.heal(link)
        for client in self.clients:
            client.pace_s = 0.0
        for node in self.nodes:
            node.disk.size_max = None
            node.ahead_s = 0.0
            node.sync_s = node.read_s = 0.01
        self.world.clock.run(self.world.clock.now + duration_s)

    def _break(self) -> None:
        random = self.world.random
        if self.is_raging:
            self.faults += 1
            random.choice(self._kinds)()
            self.world.clock.after(random.expovariate(1 / self._fault_s), self._break)

    def _node(self) -> SimulatedNode:
        return self.nodes[0] if len(self.nodes) == 1 else self.world.random.choice(self.nodes)

    def _link(self) -> SimulatedLink:
        return self.world.random.choice(self.world.network.links)

    def _cut(self) -> None:
        """Cut some link, or one in the middle of a client's burst."""
        self.world.note("fault", "cut")
        link = self._link()
        if self.world.random.random() < 0.5:
            client = self._burst()
            link = self.world.network.link(client.name, client.node.name)
        self.world.network.cut(link)

    def _part(self) -> None:
        self.world.note("fault", "part")
        link = self._link()
        self.world.network.part(link)
        length_s = self.world.random.choice((0.5, 5.0, 50.0))
        self.world.clock.after(length_s, lambda: self.world.network.heal(link))

    def _slow(self) -> None:
        random = self.world.random
        self.world.note("fault", "slow")
        self._link().conditions = Conditions(
            delay_s=random.choice((0.0001, 0.05, 0.3)),
            jitter_s=random.choice((0.0, 0.05)),
            bytes_per_s=random.choice((20_000.0, 1e6, 1e8)),
            piece_max=random.choice((100, 1_500, 1 << 16)),
        )

    def _crash(self) -> None:
        node = self._node()
        if node.is_up:
            node.crash()
            self.world.clock.after(self._pause_s(), node.start)

    def _crash_client(self) -> None:
        client = self.world.random.choice(self.clients)
        if client.is_up:
            client.crash()
            self.world.clock.after(self._pause_s(), client.start)

    def _crash_both(self) -> None:
        self._crash()
        self._crash_client()

    def _pause_s(self) -> float:
        return self.world.random.uniform(0, self.world.random.choice((0.01, 0.3, 3.0)))

    def _fill_disk(self) -> None:
        """Make a disk full for a while."""
        disk = self._node().disk
        disk.size_max = len(disk.content) + self.world.random.choice((0, 1_000))
        self.world.clock.after(self.world.random.uniform(0, 1), partial(setattr, disk, "size_max", None))

    def _set_clock(self) -> None:
        """Set the wall clock of a node ahead or back, and maybe right again a moment later."""
        random, node = self.world.random, self._node()
        most_s = random.choice(JUMPS_S)
        node.ahead_s = random.uniform(-most_s, most_s)
        self.world.note("fault", "clock", node.ahead_s)
        if random.random() < 0.5:
            self.world.clock.after(random.uniform(0, 3), partial(setattr, node, "ahead_s", 0.0))

    def _dawdle(self) -> None:
        random = self.world.random
        random.choice(self.clients).pace_s = random.choice((0.0, 0.01, 2.0))
        node = self._node()
        node.sync_s = random.choice((0.001, 0.02, 0.3))
        node.read_s = random.choice((0.001, 0.02, 0.5))


class Raging(Protocol[V]):
    """Storm that `run_storm` can run."""

    world: World

    def rage(self, duration_s: float) -> None:
        """Break things for a while."""

    def calm(self) -> V:
        """Heal everything, and return the outcome; AssertionError if a rule was broken."""


def run_storm(storm: Raging[V], duration_s: float) -> V:
    """Run a storm and its calm; add the seed and the last notes to an AssertionError."""
    try:
        storm.rage(duration_s)
        return storm.calm()
    except AssertionError as error:
        world = storm.world
        error.add_note(f"seed {world.seed}; the last that happened:\n" + "\n".join(world.notes))
        raise


class Verdict(Struct, frozen=True):
    """Outcome of a storm."""

    seed: int
    trace: str
    published: int
    promised: int
    delivered: int
    marked: int
    dropped: int
    steps: int
    faults: int

    def __str__(self) -> str:
        return (
            f"{self.faults} faults, {self.published} events published, "
            f"{self.promised} accepted, {self.delivered} deliveries, {self.marked} marked again"
        )


class Storm:
    """Run of a storm: `rage`, then `calm`."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.account = StormAccount()
        self.node = SimulatedNode(self.world, "node")
        self.readers = [self._reader(name, wanted, keeps) for name, wanted, keeps in READERS]
        self.world.clock.run(5.0)
        assert all(reader.is_open for reader in self.readers)
        self.publishers = [Publisher(self.world, name, self.node, self.account) for name in PUBLISHERS]
        clients: list[SimulatedClient] = [*self.readers, *self.publishers]
        self.weather = Weather(self.world, [self.node], clients, self._burst_somewhere)

    def _reader(self, name: str, wanted: Wanted, keeps: frozenset[str]) -> SubscriberClient:
        self.account.read_by(name, wanted, keeps)
        prefetch = self.world.random.choice((1, 3, 20, 1_000))
        return SubscriberClient(self.world, name, self.node, self.account, wanted, prefetch)

    def rage(self, duration_s: float = STORM_S) -> None:
        """Publish and break things for a while."""
        for publisher in self.publishers:
            self.world.clock.after(0.0, partial(self._publish, publisher))
        self.weather.rage(duration_s)

    def _publish(self, publisher: Publisher) -> None:
        random = self.world.random
        if self.weather.is_raging:
            self._burst(publisher, random.choice((1, 1, 2, 4, 20)))
            self.world.clock.after(random.expovariate(1 / PUBLISH_S), partial(self._publish, publisher))

    def _burst(self, publisher: Publisher, count: int) -> None:
        for _ in range(count):
            publisher.publish(self.world.random.choice(DELIVERIES), self.world.random.choice(SIZES))

    def _burst_somewhere(self) -> Publisher:
        publisher = self.world.random.choice(self.publishers)
        self._burst(publisher, 10)
        return publisher

    def calm(self) -> Verdict:
        """Heal everything, and check that every promised event has arrived and that new events flow."""
        self.weather.calm()
        self._check_promises()
        self._check_last_values()
        self._check_flow()
        return self._verdict()

    def _check_promises(self) -> None:
        for publisher in self.publishers:
            assert publisher.connection.publications.is_empty, f"{publisher.name} still waits"
        missing = self.account.missing()
        assert not missing, f"{len(missing)} events are missing, the first: {missing[:5]}"

    def _check_last_values(self) -> None:
        """Check that a node that crashes has the last value of each subject, or one accepted unheard."""
        self.node.crash()
        self.node.start()
        kept = {key[1:]: decode_event(value.raw) for key, value in self.node.broker.last_pages.all()}
        known = {(one.type, one.subject, one["n"]): one for one in self.account.events.values()}
        for event in kept.values():
            sent = known.get((event.type, event.subject, event["n"]))
            assert sent is not None, f"the last value {event} was published by nobody"
            assert event.values == sent.values, f"the last value {event} was changed"
        for event in map(self.account.events.__getitem__, self.account.promised):
            if event.subject is not None and event.delivery in KEPT:
                last = kept.get((event.type, event.subject))
                assert last is not None, f"the last value of {event.type}, {event.subject} is gone"
                assert last["n"] >= event["n"], f"the last value is {last}, not {event}"
        self.world.clock.run(self.world.clock.now + RECONNECT_S)

    def _check_flow(self) -> None:
        """Check that an event for all subscribers reaches all of them."""
        publisher = self.publishers[0]
        before = set(self.account.events)
        for _ in range(2):
            publisher.publish("transient")
            self.world.clock.run(self.world.clock.now + 5.0)
        for identity in set(self.account.events) - before:
            for name, reader in self.account.readers.items():
                is_wanted = reader.filter.matches(self.account.events[identity])
                assert not is_wanted or identity in reader.had, f"{name} does not get what is new"

    def _verdict(self) -> Verdict:
        readers = self.account.readers.values()
        return Verdict(
            seed=self.world.seed,
            trace=self.world.trace,
            published=len(self.account.events),
            promised=len(self.account.promised),
            delivered=sum(len(reader.had) for reader in readers),
            marked=sum(reader.marked for reader in readers),
            dropped=sum(reader.dropped for reader in readers),
            steps=self.world.clock.steps,
            faults=self.weather.faults,
        )


def storm(seed: int, duration_s: float = STORM_S) -> Verdict:
    """Run one storm; AssertionError names the broken rule, and the seed that repeats it."""
    return run_storm(Storm(seed), duration_s)
