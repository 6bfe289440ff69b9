"""Weather: everything that can go wrong between nodes and their clients, and its end.

Links are slow, cut and parted, nodes and their clients crash, disks are full, and the wall clocks of nodes
are set ahead and back. Each world chooses which of these happen, and how often; `calm` heals everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from tidings.simulator.client import SimulatedClient
from tidings.simulator.node import SimulatedNode
from tidings.simulator.world import Conditions, SimulatedLink, World

FAULT_S = (0.2, 0.5, 1.0)
"""Mean times between two faults; each storm chooses one."""
JUMPS_S = (5.0, 300.0, 7_200.0)
"""Largest errors of a wall clock; each jump chooses one."""
CALM_S = 60.0
"""Time for everything to recover."""

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

    @property
    def world(self) -> World:
        """World of the storm."""

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
