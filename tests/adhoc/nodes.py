"""Simulated nodes that meet: each pair is out of reach until `meet` lets their beacons through."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from overlay.network import App

from tidings.adhoc.beacons import FoundHost
from tidings.adhoc.settings import AdhocSettings
from tidings.event import Event
from tidings.node.assembly import CoreSettings
from tidings.peers.registry import Neighbours
from tidings.simulator.node import SimulatedNode, address_of
from tidings.simulator.world import World
from tidings.transport.credentials import Credentials


class Hosts:
    """Nodes by name, in one world; `peers` are pairs of which the first dials the second."""

    def __init__(
        self, *names: str, seed: int = 1, peers: tuple[tuple[str, str], ...] = (), **settings: Any
    ) -> None:
        self.world = World(seed)
        self.apps: dict[str, App] = {}
        for name in names:
            known = {far: address_of(far) for near, far in peers if near == name}
            about = CoreSettings(
                name=name,
                adhoc=AdhocSettings(**settings),
                peers=Neighbours(known, Credentials()),
                weigh_s=0.0,
            )
            SimulatedNode(self.world, name, settings=about)
        for one, other in combinations(names, 2):
            if (one, other) not in peers and (other, one) not in peers:
                self._part(one, other)
        self.run()

    def __getitem__(self, name: str) -> SimulatedNode:
        return self.world.nodes[name]

    def run(self, seconds: float = 2.0) -> None:
        self.world.clock.run(self.world.clock.now + seconds)

    def app(self, name: str) -> App:
        if name not in self.apps:
            self.apps[name] = App(self.world, f"app-{name}", self[name])
            self.run(0.5)
        return self.apps[name]

    def _part(self, one: str, other: str) -> None:
        link = self.world.network.link(one, other)
        self.world.network.cut(link)
        self.world.network.part(link)

    def begin(self, one: str, other: str) -> None:
        """Let two hosts come near each other."""
        self.world.network.heal(self.world.network.link(one, other))
        for near, far in ((one, other), (other, one)):
            self.beacon(near, far)
        self.run(0.5)

    def beacon(self, near: str, far: str) -> None:
        """Let one host hear another."""
        found = FoundHost(far, self[far].broker.node, address_of(far))
        self[near].time()
        self[near].core.adhoc.find(found)
        self[near].schedule()

    def meet(self, one: str, other: str, seconds: float = 3.0) -> None:
        """Let two hosts be together for a while."""
        self.begin(one, other)
        self.run(seconds)
        self._part(one, other)
        self.run(10.0)

    def meet_briefly(self, one: str, other: str, seconds: Sequence[float]) -> None:
        """Let two hosts be together for one of these times, at whose end one of them crashes now and then."""
        chance = self.world.random
        self.begin(one, other)
        self.run(chance.choice(seconds))
        if chance.random() < 0.2:
            self.restart(chance.choice([one, other]))
        self._part(one, other)
        self.run(8.0)

    def create(self, name: str, queue: str) -> None:
        self.ask(name, "queue.create", name=queue)

    def ask(self, host: str, operation: str, /, **arguments: Any) -> Any:
        told = self.app(host).ask(operation, **arguments)
        self.run(1.0)
        return told[0]

    def put(self, name: str, queue: str, **values: Any) -> list[Any]:
        """Put an event; what the put has failed with."""
        app = self.app(name)
        header = {key: values.pop(key) for key in list(values) if key in HEADER}
        counter = app.connection.put(queue, Event("job", values, **header))
        app.pump()
        self.run(1.0)
        while not app.connection.publications.is_settled:
            self.run(1.0)  # its node has just started again
        failure = app.connection.publications.refusal(counter)
        return [] if failure is None else [failure]

    def held(self, name: str) -> int:
        """How many messages a host carries."""
        return len(self[name].core.adhoc.host.buffer)

    def got(self, name: str, queue: str) -> list[dict[str, Any]]:
        """The attributes of what is in a queue."""
        found = self[name].queues.find(queue)
        return [dict(found.shelf[number].event.values) for number in found.shelf]

    def tally(self, name: str, what: str, reason: str = "") -> int:
        return self[name].core.adhoc.host.tallies[what, reason]

    def restart(self, name: str) -> None:
        self[name].crash()
        self.run(1.0)
        self[name].start()
        self.run(2.0)


HEADER = ("route", "ttl_s", "delivery", "priority", "reply_to", "subject", "reliability")
