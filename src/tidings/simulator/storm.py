"""A storm: publishers, subscribers and a node under every fault at once, then calm, then the reckoning.

While it lasts, links are slow, cut and parted, the node and its clients crash, and safety is checked at each
delivery and at each frame that leaves the node. When all is healed, everything that was promised must
arrive, and new events must flow.
"""

from __future__ import annotations

from msgspec import Struct

from tidings.event import Delivery
from tidings.protocol.intake import Wanted
from tidings.simulator.account import Account
from tidings.simulator.client import Publisher, SimulatedClient, SubscriberClient
from tidings.simulator.network import Conditions, Link
from tidings.simulator.node import SimulatedNode
from tidings.simulator.world import World

STORM_S = 15.0
CALM_S = 60.0
FAULT_S = (0.2, 0.5, 1.0)
"""The mean time from one fault to the next, in one storm or another."""
PUBLISH_S = 0.2
"""The mean time from one event of a publisher to its next."""
SIZES = (0, 10, 300, 20_000)

KEPT = frozenset(("reliable", "persistent"))
# Who listens: its name, what it wants, and the deliveries of which it must miss nothing.
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
    """What came of a storm."""

    seed: int
    trace: str
    published: int
    promised: int
    delivered: int
    marked: int
    dropped: int
    steps: int
    faults: int


class Storm:
    """One run: `rage`, then `calm`."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.account = Account()
        self.faults = 0
        self.is_raging = True
        kinds = [self._cut, self._part, self._slow, self._crash, self._crash_client, self._crash_both]
        kinds += [self._fill_disk]
        # Not all in every storm: some trouble takes a while to build up, which others would end.
        self._kinds = [*self.world.random.sample(kinds, self.world.random.randint(1, 4)), self._dawdle]
        self._fault_s = self.world.random.choice(FAULT_S)
        self.node = SimulatedNode(self.world, "node")
        self.readers = [self._reader(name, wanted, keeps) for name, wanted, keeps in READERS]
        self.world.clock.run(5.0)
        assert all(reader.is_open for reader in self.readers)
        self.publishers = [Publisher(self.world, name, self.node, self.account) for name in PUBLISHERS]

    def _reader(self, name: str, wanted: Wanted, keeps: frozenset[str]) -> SubscriberClient:
        self.account.read_by(name, wanted, keeps)
        prefetch = self.world.random.choice((1, 3, 20, 1_000))
        return SubscriberClient(self.world, name, self.node, self.account, wanted, prefetch)

    # The storm

    def rage(self, duration_s: float = STORM_S) -> None:
        """Publish and break things for a while."""
        for publisher in self.publishers:
            self._publish(publisher)
        for _ in self.world.network.links:
            self._slow()
        self._dawdle()
        self._break()
        self.world.clock.run(self.world.clock.now + duration_s)
        self.is_raging = False

    def _publish(self, publisher: Publisher) -> None:
        random = self.world.random
        if self.is_raging:
            self._burst(publisher, random.choice((1, 1, 2, 4, 20)))
            self.world.clock.after(random.expovariate(1 / PUBLISH_S), lambda: self._publish(publisher))

    def _burst(self, publisher: Publisher, count: int) -> None:
        for _ in range(count):
            publisher.publish(self.world.random.choice(DELIVERIES), self.world.random.choice(SIZES))

    def _break(self) -> None:
        random = self.world.random
        if self.is_raging:
            self.faults += 1
            random.choice(self._kinds)()
            self.world.clock.after(random.expovariate(1 / self._fault_s), self._break)

    def _link(self) -> Link:
        return self.world.random.choice(self.world.network.links)

    def _cut(self) -> None:
        """Cut some link, or one in the middle of what a publisher sends."""
        self.world.note("fault", "cut")
        random, link = self.world.random, self._link()
        if random.random() < 0.5:
            publisher = random.choice(self.publishers)
            link = self.world.network.link(publisher.name, self.node.name)
            self._burst(publisher, 10)
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
        if self.node.is_up:
            self.node.crash()
            self.world.clock.after(self._pause_s(), self.node.start)

    def _crash_client(self) -> None:
        client: SimulatedClient = self.world.random.choice([*self.readers, *self.publishers])
        if client.is_up:
            client.crash()
            self.world.clock.after(self._pause_s(), client.start)

    def _crash_both(self) -> None:
        self._crash()
        self._crash_client()

    def _pause_s(self) -> float:
        return self.world.random.uniform(0, self.world.random.choice((0.01, 0.3, 3.0)))

    def _fill_disk(self) -> None:
        """Have the disk full for a while."""
        disk = self.node.disk
        disk.size_max = len(disk.content) + self.world.random.choice((0, 1_000))
        self.world.clock.after(self.world.random.uniform(0, 1), self._empty_disk)

    def _empty_disk(self) -> None:
        self.node.disk.size_max = None

    def _dawdle(self) -> None:
        random = self.world.random
        random.choice(self.readers).pace_s = random.choice((0.0, 0.01, 2.0))
        self.node.sync_s = random.choice((0.001, 0.02, 0.3))
        self.node.read_s = random.choice((0.001, 0.02, 0.5))

    # The calm

    def calm(self, duration_s: float = CALM_S) -> Verdict:
        """Heal everything, and see that all that was promised has arrived, and that new events flow."""
        for link in self.world.network.links:
            link.conditions = Conditions()
            self.world.network.heal(link)
        for reader in self.readers:
            reader.pace_s = 0.0
        self._empty_disk()
        self.node.sync_s = self.node.read_s = 0.01
        self.world.clock.run(self.world.clock.now + duration_s)
        self._check_promises()
        self._check_flow()
        return self._verdict()

    def _check_promises(self) -> None:
        for publisher in self.publishers:
            assert publisher.connection.publications.is_empty, f"{publisher.name} still waits"
        missing = self.account.missing()
        assert not missing, f"{len(missing)} events are missing, the first: {missing[:5]}"

    def _check_flow(self) -> None:
        """An event for everybody reaches everybody."""
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
            faults=self.faults,
        )


def storm(seed: int, duration_s: float = STORM_S) -> Verdict:
    """Run one storm; AssertionError tells what went wrong, with the seed that repeats it."""
    run = Storm(seed)
    try:
        run.rage(duration_s)
        return run.calm()
    except AssertionError as error:
        error.add_note(f"seed {seed}; the last that happened:\n" + "\n".join(run.world.notes))
        raise
