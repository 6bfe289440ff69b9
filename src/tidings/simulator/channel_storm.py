"""Storm over a channel: members send and move, while links are cut, members isolated and nodes crash.

When all is healed, each member has each event once and in the order of its sender; in a causal channel none
before one that its sender had got or sent, and in a total one all members have them in one order. The oracle
knows only what applications sent and got. Mistakes can be built in, and are found.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any, Literal, get_args

from msgspec import Struct

from tidings.channels import service
from tidings.channels.causal import CausalOrder
from tidings.channels.description import ChannelOrder
from tidings.channels.ordering import Ordering
from tidings.channels.sequencer import Sequencer
from tidings.errors import TidingsError
from tidings.event import Batch, Event
from tidings.node.assembly import CoreSettings
from tidings.peers.registry import Neighbours
from tidings.protocol.channels import MARK
from tidings.protocol.relays import Relays
from tidings.protocol.subscriber import ClientSubscription, MissedNumbers, Wanted
from tidings.replies import resolved
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

ChannelFault = Literal[
    "", "twice", "had-again", "unnamed", "lone-sequencer", "early-arrival", "early-release"
]
CHANNEL_FAULTS: tuple[ChannelFault, ...] = get_args(ChannelFault)
"""Mistakes that can be built in, and are found.

twice: events that come over two ways are not recognised. had-again: a member that has moved gets what it had
(causal, total). unnamed: events of a causal channel name no predecessors. lone-sequencer: a sequencer waits
for nobody (total). early-arrival: a member arrives before its new node is as far as it was (total).
early-release: a node hands events on to members as they come (causal).
"""


class ChannelVerdict(Struct, frozen=True):
    """Outcome of a storm."""

    seed: int
    order: ChannelOrder
    sent: int
    delivered: int
    moves: int
    refused: int
    faults: int

    def __str__(self) -> str:
        return (
            f"{self.order}: {self.sent} events sent, {self.delivered} delivered, {self.moves} moves, "
            f"{self.refused} refused, {self.faults} faults"
        )


class Member(SimulatedClient):
    """A member with a durable subscription, which sends, gets and moves."""

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

    def join(self, channel: str) -> None:
        """Become a member."""
        wanted = Wanted("", channel=channel, durable="member")
        self._subscription: ClientSubscription = self.connection.subscribe(wanted, self, 1_000)
        self._subscription.begun.then(lambda _told: None, must_not)
        self.pump()

    def send(self, channel: str, number: int) -> None:
        """Send a reliable event."""
        self.sent.append(number)
        event = Event("step", {"n": number}, channel=MARK + channel, delivery="reliable")
        self.connection.publish(event)
        self.pump()

    # Called by the core

    def deliver(self, batch: Batch, positions: Sequence[int] | None, redelivered: bool) -> None:  # noqa: ARG002
        """Take and acknowledge events."""
        self.got += [event["n"] for event in batch.events]
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

    def __init__(self, seed: int, order: ChannelOrder) -> None:
        self._seed, self._order = seed, order
        self._chance = random.Random(seed)
        self.world = World(seed)
        self._edges = self._links()
        for name in NAMES:
            others = {far: address_of(far) for near, far in self._edges if near == name}
            peers = Neighbours(others, Credentials())
            about = CoreSettings(name=name, peers=peers, weigh_s=0.0, reroute_s=REROUTE_S)
            SimulatedNode(self.world, name, settings=about)
        self._run(JOIN_S)
        self._members = [Member(self.world, f"at-{name}", self.world.nodes[name]) for name in NAMES[::2]]
        self._cuts: list[tuple[str, str]] = []
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
        about = {"name": "trip", "order": self._order, "delivery": "reliable"}
        told = self._members[0].ask("channel.create", **about)
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
        acts: Mapping[str, Callable[[], None]] = {
            "cut": self._cut,
            "isolate": self._isolate,
            "meet": self._meet,
            "crash": self._crash,
            "move": self._move,
        }
        what = self._chance.choice((*acts, "move", ""))
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
        node.crash()
        self._run(self._chance.choice((0.5, 5.0)))
        node.start()
        self._faults += 1

    def _move(self) -> None:
        member, to = self._chance.choice(self._members), self._chance.choice(NAMES)
        if member.is_moving:
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

    def _send(self, member: Member) -> None:
        number = len(self._past)
        known = [*member.got, *member.sent]
        self._past[number] = {one for near in known for one in (near, *self._past[near])}
        member.send(self._channel, number)

    # Calm

    def calm(self) -> ChannelVerdict:
        """Heal all, let everything arrive, and check what members got."""
        self._meet()
        self._run(CALM_S)
        for member in self._members:
            self._check_each_once(member)
            if self._order == "causal":
                self._check_causes(member)
            if self._order == "total":
                assert member.got == self._members[0].got, f"{member.name} has another order"
        delivered = sum(len(member.got) for member in self._members)
        counts = self._moves, self._refused, self._faults
        return ChannelVerdict(self._seed, self._order, len(self._past), delivered, *counts)

    def _check_each_once(self, member: Member) -> None:
        for sender in self._members:
            numbers = set(sender.sent)
            got = [one for one in member.got if one in numbers]
            assert got == sender.sent, f"{member.name} got {got} of {sender.name}, who sent {sender.sent}"

    def _check_causes(self, member: Member) -> None:
        had: set[int] = set()
        for number in member.got:
            lacked = sorted(self._past[number] - had)
            assert not lacked, f"{member.name} got {number} before {lacked}, which its sender knew"
            had.add(number)


@contextmanager
def built_in(fault: ChannelFault) -> Iterator[None]:
    """Build a mistake in, until the end of the block."""
    where: dict[ChannelFault, tuple[Any, str, Any]] = {
        "twice": (Relays, "_had", lambda _self, _batch: 0),
        "had-again": (service, "beyond", lambda _told, batch: list(range(len(batch)))),
        "unnamed": (CausalOrder, "send", lambda _self: {}),
        "lone-sequencer": (Sequencer, "_count", _agree_alone),
        "early-arrival": (Ordering, "reach", lambda _self, _channel, _told, is_coming: resolved(None)),  # noqa: ARG005
        "early-release": (CausalOrder, "_missing", lambda _self, _arrival: []),
    }
    if not fault:
        yield
        return
    place, name, wrong = where[fault]
    right = getattr(place, name)
    setattr(place, name, wrong)
    try:
        yield
    finally:
        setattr(place, name, right)


def _agree_alone(sequencer: Sequencer, _now: float) -> None:
    sequencer.agreed = sequencer.last


def channel_storm(
    seed: int, duration_s: float, order: ChannelOrder, fault: ChannelFault = ""
) -> ChannelVerdict:
    """Run a storm over a channel of this order; AssertionError if a promise is broken."""
    with built_in(fault):
        storm = ChannelStorm(seed, order)
        storm.rage(duration_s)
        return storm.calm()
