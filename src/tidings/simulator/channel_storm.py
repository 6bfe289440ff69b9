"""Storm over a channel: members send and move, while links are cut, members isolated and nodes crash.

When all is healed, each member has each event once and in the order of its sender; in a causal channel none
before one that its sender had got or sent, and in a total one all members have them in one order. The oracle
knows only what applications sent and got. What is in the logs of a persistent channel is each event once, in
the same order; and only nodes take part that have members, lie between them, or have to by the protocol.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

from msgspec import Struct

from tidings.channels.description import ChannelDelivery, ChannelOrder, ChannelProtocol
from tidings.errors import TidingsError
from tidings.event import Batch, Event
from tidings.node.assembly import CoreSettings
from tidings.peers.registry import Neighbours
from tidings.protocol.channels import MARK
from tidings.protocol.subscriber import ClientSubscription, MissedNumbers, Wanted
from tidings.simulator.channel_faults import ChannelFault, built_in
from tidings.simulator.channel_history import read_history
from tidings.simulator.client import SimulatedClient, must_not
from tidings.simulator.node import SimulatedNode, address_of
from tidings.simulator.world import World
from tidings.transport.credentials import Credentials

NAMES = ("ash", "birch", "cedar", "elm", "fir", "hazel")
"""Names of the nodes; every second has a member at first."""
MORE_LINKS = 3
"""Links more than a tree has."""
CUTS_MAX = 2
"""Links that are cut at once, save those of a member that is isolated."""
REROUTE_S = 2.0
JOIN_S = 5.0
"""Time for a member to join, and for the nodes to link."""
BURST = 3
"""Events that are sent between two changes of the weather."""
CALM_S = 90.0
"""Time for everything to arrive."""

Weather = Literal["cut", "isolate", "meet", "crash", "move", ""]
WEATHER: tuple[Weather, ...] = ("cut", "isolate", "meet", "crash", "move", "move", "")
"""What may befall, some of it more often than other things. isolate: all links of a member's node are cut."""


class ChannelPlan(Struct, frozen=True):
    """A channel and what befalls it: `weather` is chosen from, and so many nodes without members die."""

    order: ChannelOrder = "fifo"
    delivery: ChannelDelivery = "reliable"
    protocol: ChannelProtocol = "broadcast"
    weather: Sequence[Weather] = WEATHER
    deaths: int = 0


class ChannelVerdict(Struct, frozen=True):
    """Outcome of a storm."""

    seed: int
    order: ChannelOrder
    protocol: ChannelProtocol
    sent: int
    delivered: int
    moves: int
    refused: int
    faults: int

    def __str__(self) -> str:
        return (
            f"{self.order}, {self.protocol}: {self.sent} events sent, {self.delivered} delivered, "
            f"{self.moves} moves, {self.refused} refused, {self.faults} faults"
        )


class StormMember(SimulatedClient):
    """A member, which sends, gets and moves."""

    def __init__(self, world: World, name: str, node: SimulatedNode) -> None:
        self.got: list[int] = []
        self.sent: list[int] = []
        self.is_moving = False
        super().__init__(world, name, node)
        self.follows = True

    def ask(self, operation: str, **arguments: Any) -> list[Any]:
        """Send a request; the reply is in the list once it is there."""
        told: list[Any] = []
        self.connection.request(operation, arguments).then(told.append, must_not)
        self.pump()
        return told

    def join(self, channel: str, durable: str | None = "member") -> None:
        """Become a member."""
        wanted = Wanted("", channel=channel, durable=durable)
        self._subscription: ClientSubscription = self.connection.subscribe(wanted, self, 1_000)
        self._subscription.begun.then(lambda _told: None, must_not)
        self.pump()

    def send(
        self, channel: str, numbers: Iterable[int], delivery: ChannelDelivery = "reliable", body: bytes = b""
    ) -> None:
        """Send events."""
        for number in numbers:
            self.sent.append(number)
            event = Event("step", {"x": number}, channel=MARK + channel, delivery=delivery, body=body)
            self.connection.publish(event)
        self.pump()

    # Called by the core

    def deliver(self, batch: Batch, positions: Sequence[int] | None, redelivered: bool) -> None:  # noqa: ARG002
        """Take and acknowledge events."""
        self.got += [event["x"] for event in batch.events]
        self.connection.consume(self._subscription, len(batch))
        if positions is not None:
            self.connection.acknowledge(self._subscription, positions[-1])

    def gap(self, dropped: int, reason: str, missed: MissedNumbers | None = None) -> None:
        """Nothing may be lost, reported or not."""

    def ended(self, reason: str) -> None:
        """Fail: nobody ends it."""
        raise AssertionError(reason)


class ChannelStorm:
    """Run of a storm: `rage`, then `calm`."""

    def __init__(self, seed: int, plan: ChannelPlan) -> None:
        self._seed, self._plan = seed, plan
        self._chance = random.Random(seed)
        self.world = World(seed)
        self._edges = self._links()
        for name in NAMES:
            others = {far: address_of(far) for near, far in self._edges if near == name}
            peers = Neighbours(others, Credentials())
            about = CoreSettings(name=name, peers=peers, weigh_s=0.0, reroute_s=REROUTE_S)
            SimulatedNode(self.world, name, settings=about)
        self._run(JOIN_S)
        self._members = [StormMember(self.world, f"at-{name}", self.world.nodes[name]) for name in NAMES[::2]]
        self._cuts: list[tuple[str, str]] = []
        self._dead: list[SimulatedNode] = []
        self._past: dict[int, set[int]] = {}  # what the sender of an event knew, and all before that
        self._moves = self._refused = self._faults = 0
        self._channel = self._join()

    def _links(self) -> list[tuple[str, str]]:
        """Return the links of a tree and some more."""
        tree = {(self._chance.choice(NAMES[:place]), name) for place, name in enumerate(NAMES) if place}
        others = [edge for edge in combinations(NAMES, 2) if edge not in tree]
        return sorted(tree | set(self._chance.sample(others, MORE_LINKS)))

    def _join(self) -> str:
        self._run(1.0)
        plan = self._plan
        about = {"order": plan.order, "delivery": plan.delivery, "protocol": plan.protocol}
        told = self._members[0].ask("channel.create", name="trip", **about)
        self._run(JOIN_S)
        channel = str(told[0]["id"])
        for member in self._members:
            member.join(channel)
            self._run(JOIN_S)
        return channel

    def _run(self, seconds: float) -> None:
        self.world.clock.run(self.world.clock.now + seconds)

    # Rage

    def rage(self, duration_s: float) -> None:
        """Let things happen for so long."""
        end = self.world.clock.now + duration_s
        while self.world.clock.now < end:
            self._change_weather()
            for _ in range(BURST):
                self._send(self._chance.choice(self._members))
                self._run(self._chance.choice((0.02, 0.1, 0.5)))
            self._run(self._chance.choice((0.1, 1.0, 3.0, 6.0)))

    def _change_weather(self) -> None:
        acts: Mapping[Weather, Callable[[], None]] = {
            "cut": self._cut,
            "isolate": self._isolate,
            "meet": self._meet,
            "crash": self._crash,
            "move": self._move,
        }
        what = self._chance.choice(self._plan.weather)
        if what:
            acts[what]()

    def _cut(self) -> None:
        if len(self._cuts) < CUTS_MAX:
            self._part(self._chance.choice(self._edges))

    def _isolate(self) -> None:
        if not self._cuts:
            name = self._chance.choice(self._members).node.name
            for edge in self._edges:
                if name in edge:
                    self._part(edge)

    def _part(self, edge: tuple[str, str]) -> None:
        link = self.world.network.link(*edge)
        self.world.network.cut(link)
        self.world.network.part(link)
        self._cuts.append(edge)
        self._faults += 1

    def _meet(self) -> None:
        for edge in self._cuts:
            self.world.network.heal(self.world.network.link(*edge))
        self._cuts.clear()

    def _crash(self) -> None:
        node = self.world.nodes[self._chance.choice(NAMES)]
        self._faults += 1
        if node.is_dead:
            return
        if len(self._dead) < self._plan.deaths and self._is_free(node):
            self._dead.append(node)
            node.die()
            return
        node.crash()
        self._run(self._chance.choice((0.5, 5.0)))
        node.start()

    def _is_free(self, node: SimulatedNode) -> bool:
        """Whether no member is at a node, or may be on its way to or from it."""
        return not any(member.is_moving or member.node is node for member in self._members)

    def _move(self) -> None:
        member, to = self._chance.choice(self._members), self._chance.choice(NAMES)
        if member.is_moving or self.world.nodes[to].is_dead:
            return
        member.is_moving = True

        def arrived(_none: None) -> None:
            member.is_moving = False
            self._moves += 1

        def stays(_error: TidingsError) -> None:
            member.is_moving = False
            self._refused += 1

        member.connection.move(to).then(arrived, stays)
        member.pump()

    def _send(self, member: StormMember) -> None:
        number = len(self._past)
        known = [*member.got, *member.sent]
        self._past[number] = {one for near in known for one in (near, *self._past[near])}
        member.send(self._channel, [number], self._plan.delivery)

    # Calm

    def calm(self) -> ChannelVerdict:
        """Heal all, let everything arrive, and check what members got."""
        order = self._plan.order
        self._meet()
        self._run(CALM_S)
        self._bury()
        for member in self._members:
            self._check_each_once(member.name, member.got)
            if order == "causal":
                self._check_causes(member.name, member.got)
            if order == "total":
                assert member.got == self._members[0].got, f"{member.name} has another order"
        self._check_places()
        if self._plan.delivery == "persistent":
            self._check_history()
        delivered = sum(len(member.got) for member in self._members)
        counts = self._moves, self._refused, self._faults
        about = self._seed, order, self._plan.protocol, len(self._past), delivered
        return ChannelVerdict(*about, *counts)

    def _bury(self) -> None:
        """Have members remove the nodes that have died from the network, as an operator does."""
        for dead in self._dead:
            for node in self._living:
                overlay = node.core.overlay
                known = {neighbour.node for neighbour in overlay}
                known |= {link.neighbour for link in overlay.topology.own.links}
                if dead.broker.node in known:
                    operator = StormMember(self.world, f"operator-{node.name}-{dead.name}", node)
                    self._run(1.0)
                    operator.ask("topology.remove", node=dead.broker.node)
        if self._dead:
            self._run(CALM_S)

    @property
    def _living(self) -> list[SimulatedNode]:
        return [node for node in self.world.nodes.values() if not node.is_dead]

    def _check_each_once(self, reader: str, found: Sequence[int]) -> None:
        for sender in self._members:
            numbers = set(sender.sent)
            got = [one for one in found if one in numbers]
            assert got == sender.sent, f"{reader} got {got} of {sender.name}, who sent {sender.sent}"

    def _check_causes(self, reader: str, found: Sequence[int]) -> None:
        had: set[int] = set()
        for number in found:
            lacked = sorted(self._past[number] - had)
            assert not lacked, f"{reader} got {number} before {lacked}, which its sender knew"
            had.add(number)

    def _check_places(self) -> None:
        """Check that only nodes take part that must, and that those beside each other agree on that."""
        trees = {node.broker.node: node.core.channels.trees for node in self._living}
        parts = {node: part for node, one in trees.items() if (part := one.get(self._channel)) is not None}
        needed = {member.node.broker.node for member in self._members}
        for node, part in parts.items():
            name = self._name_of(node)
            is_needed = node in needed or node in part.homes or len(part.neighbours) > 1
            assert is_needed, f"{name} got no members, and takes part"
            for other in part.neighbours:
                agrees = other in parts and node in parts[other].neighbours
                assert agrees, f"{name} got {self._name_of(other)} as a neighbour, which does not agree"

    def _name_of(self, node: str) -> str:
        return next(name for name, one in self.world.nodes.items() if one.broker.node == node)

    def _check_history(self) -> None:
        """Check that the logs have each event once, in the order of the channel."""
        reader = self._members[1]

        def ask(operation: str, **arguments: Any) -> Any:
            told = reader.ask(operation, **arguments)
            self._run(2.0)
            return told[0]

        found = [event["x"] for event in read_history(ask, self._channel, self._plan.order)]
        self._check_each_once("a reader of logs", found)
        if self._plan.order == "causal":
            self._check_causes("a reader of logs", found)
        if self._plan.order == "total":
            assert found == self._members[0].got, "a reader of logs has another order"


def channel_storm(
    seed: int, duration_s: float, plan: ChannelPlan, fault: ChannelFault = ""
) -> ChannelVerdict:
    """Run a storm over a channel; AssertionError if a promise is broken."""
    with built_in(fault):
        storm = ChannelStorm(seed, plan)
        storm.rage(duration_s)
        return storm.calm()
