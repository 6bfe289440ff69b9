"""Storm: publishers, subscribers and a node under every fault at once, then calm, then the final check.

Links are slow, cut and parted, the node and its clients crash, and safety is checked at each delivery and at
each frame that leaves the node. When all is healed, every promised event must arrive, the last values must be
there after one more crash, and new events must flow.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from tidings.event import Delivery
from tidings.event.wire import decode_event
from tidings.protocol.subscriber import Wanted
from tidings.simulator.account import StormAccount
from tidings.simulator.client import Publisher, SimulatedClient, SubscriberClient
from tidings.simulator.node import SimulatedNode
from tidings.simulator.weather import Weather, run_storm
from tidings.simulator.world import World

STORM_S = 15.0
PUBLISH_S = 0.2
"""Mean time between two events of a publisher."""
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
        self.world.clock.run(self.world.clock.now + 5.0)

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
