"""A network of simulated nodes: who dials whom, and applications at each of them, in virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from random import Random
from typing import Any

from tidings.event import Batch, Delivery, Event
from tidings.node.assembly import CoreSettings
from tidings.overlay.neighbours import Neighbour
from tidings.peers.registry import Neighbours
from tidings.protocol.subscriber import ClientSubscription, MissedNumbers, Wanted
from tidings.simulator.client import SimulatedClient, must_not
from tidings.simulator.node import SimulatedNode, address_of
from tidings.simulator.world import World
from tidings.transport.credentials import Credentials


class Network:
    """Nodes that dial each other: `("a", "b")` says that a dials b."""

    def __init__(
        self,
        *edges: tuple[str, str],
        seed: int = 1,
        settle_s: float = 5.0,
        weigh_s: float = 0.0,
        each: Mapping[str, dict[str, Any]] | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are those of all nodes, `each` has more for some of them."""
        self.world = World(seed)
        self.names = list(dict.fromkeys(name for edge in edges for name in edge))
        for name in self.names:
            others = {far: address_of(far) for near, far in edges if near == name}
            peers = Neighbours(others, Credentials())
            own = {**settings, **(each or {}).get(name, {})}
            about = CoreSettings(name=name, peers=peers, weigh_s=weigh_s, **own)
            SimulatedNode(self.world, name, settings=about)
        self.run(settle_s)

    def __getitem__(self, name: str) -> SimulatedNode:
        return self.world.nodes[name]

    def run(self, seconds: float = 2.0) -> None:
        self.world.clock.run(self.world.clock.now + seconds)

    def app(self, node: str, name: str = "") -> App:
        app = App(self.world, name or f"app-{node}-{len(self.world.notes)}", self[node])
        self.run(0.5)
        return app

    def cut(self, one: str, other: str) -> None:
        link = self.world.network.link(one, other)
        self.world.network.cut(link)
        self.world.network.part(link)

    def part(self, one: str, other: str) -> None:
        """Let nothing through between two nodes; neither notices that its connections are of no use."""
        self.world.network.part(self.world.network.link(one, other))

    def deafen(self, one: str, other: str) -> None:
        """Let nothing through from the second node to the first; the other way all is as before."""
        self.world.network.deafen(self.world.network.link(one, other), self[one])

    def heal(self, one: str, other: str) -> None:
        self.world.network.heal(self.world.network.link(one, other))

    def neighbour(self, node: str, other: str) -> Neighbour:
        return next(one for one in self[node].core.overlay if one.name == other)

    def neighbour_or_none(self, node: str, other: str) -> Neighbour | None:
        return next((one for one in self[node].core.overlay if one.name == other), None)

    def table(self, node: str, of: str) -> list[str]:
        """What one node knows that another wants."""
        table = self.neighbour(node, of).table
        return [] if table is None else sorted(table.entries)

    def count(self, node: str, what: str, reason: str = "") -> int:
        return self[node].broker.tallies[what, reason]


class App(SimulatedClient):
    """An application at one node."""

    def __init__(self, world: World, name: str, node: SimulatedNode) -> None:
        super().__init__(world, name, node)
        self.subscriptions: list[Listening] = []

    def subscribe(self, filter: str = "", **more: Any) -> Listening:
        listening = Listening(self, Wanted(filter, **more))
        self.subscriptions.append(listening)
        self.pump()
        return listening

    def advertise(self, filter: str) -> Advertising:
        advertising = Advertising(self, filter)
        self.pump()
        return advertising

    def ask(self, operation: str, **arguments: Any) -> list[Any]:
        """The reply, once it is there."""
        told: list[Any] = []
        self.connection.request(operation, arguments).then(told.append, told.append)
        self.pump()
        return told

    def publish(self, *values: int, delivery: Delivery = "reliable", type: str = "x", **more: Any) -> None:
        for value in values:
            self.connection.publish(Event(type, {"x": value}, delivery=delivery, **more))
        self.pump()


class Listening:
    """One subscription, and what it got."""

    def __init__(self, app: App, wanted: Wanted, prefetch: int = 1_000) -> None:
        self.app = app
        self.got: list[Event] = []
        self.gaps: list[tuple[int, str]] = []
        self.missed: list[MissedNumbers] = []
        self.late: list[Event] = []
        self.subscription: ClientSubscription = app.connection.subscribe(wanted, self, prefetch)
        self.subscription.begun.then(lambda _told: None, must_not)
        self._is_durable = wanted.durable is not None

    def deliver(self, batch: Batch, positions: Sequence[int] | None, redelivered: bool) -> None:
        self.got += batch.events
        if batch.is_late:
            self.late += batch.events
        self.app.connection.consume(self.subscription, len(batch))
        if positions is not None and self._is_durable:
            self.app.connection.acknowledge(self.subscription, positions[-1])

    def gap(self, dropped: int, reason: str, missed: MissedNumbers | None = None) -> None:
        self.gaps.append((dropped, reason))
        if missed is not None:
            self.missed.append(missed)

    def ended(self, reason: str) -> None:
        raise AssertionError(reason)

    def end(self) -> None:
        self.app.connection.unsubscribe(self.subscription)
        self.app.pump()

    @property
    def values(self) -> list[int]:
        return values(self.got)


def values(events: Iterable[Event]) -> list[int]:
    return [event["x"] for event in events]


class Advertising:
    """One advertisement, and the demand for it."""

    def __init__(self, app: App, filter: str) -> None:
        self.app = app
        self.filters: list[str] = []
        self.advertisement = app.connection.advertise(filter, self)

    def changed(self, filters: list[str]) -> None:
        self.filters = filters

    def ended(self, reason: str) -> None:
        raise AssertionError(reason)

    def end(self) -> None:
        self.app.connection.withdraw(self.advertisement)
        self.app.pump()


class BusyStar:
    """Four nodes round `b` with two programs each; some know what others store, and links may be cut."""

    def __init__(self, seed: int, has_cuts: bool) -> None:
        self.random = Random(seed)
        self.net = Network(("a", "b"), ("b", "c"), ("b", "d"), seed=seed, reroute_s=inf)
        self.sources = [self.net.app(name, f"{name}{n}") for name in "abcd" for n in range(2)]
        for name in self.random.sample("abcd", 2):
            self.net.app(name).subscribe("", durable=f"knows-{name}")
        self._has_cuts = has_cuts
        self._cut: tuple[str, str] | None = None

    def wait(self) -> None:
        """Let a moment pass; now and then a link is cut before, or healed again."""
        if self._has_cuts and self.random.random() < 0.1:
            if self._cut is None:
                self._cut = "b", self.random.choice("acd")
                self.net.cut(*self._cut)
            else:
                self.heal()
        self.net.run(self.random.choice([0.0, 0.001, 0.01, 0.3 if self._has_cuts else 0.01]))

    def heal(self) -> None:
        """Heal the link that is cut, if any is."""
        if self._cut is not None:
            self.net.heal(*self._cut)
            self._cut = None
