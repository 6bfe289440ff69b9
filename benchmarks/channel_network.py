"""What channels cost in a network of nodes: the node's own code, in virtual time.

Bytes are those that all links between nodes carry, keepalives included; delays are from when an event is sent
until the client has it. Neither depends on the machine. Links between nodes delay by LINK_S, those of clients
by CLIENT_S.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median, quantiles
from typing import Any

from benchmarks.figures import Figure
from tidings.channels.description import ChannelOrder
from tidings.errors import PeerError
from tidings.event import Batch
from tidings.node.assembly import CoreSettings
from tidings.peers.registry import Neighbours
from tidings.protocol.subscriber import MissedNumbers
from tidings.simulator.channel_storm import StormMember
from tidings.simulator.client import must_not
from tidings.simulator.node import SimulatedNode, address_of
from tidings.simulator.world import World
from tidings.transport.credentials import Credentials

LINK_S = 0.01
CLIENT_S = 0.001
NODES = 10
MEMBERS = 50
MEASURED_S = 30.0
RATES = (1.0, 100.0)
"""Events a second, of all members together."""
CHANGE_S = 1.0
"""How often a path changes."""
BODY = b"x" * 100
STABLE_MAX = 1.05
CHANGING_MAX = 1.3
MOVE_RATE = 10_000
MOVE_PIECE = 100
"""Events that are sent at once."""
MOVES = 5
HELD_MAX = 2.0
"""Delays across the tree for which a mover's events are held."""
OTHERS_MAX = 1.2
"""The 99th percentile of the others' delays, as a multiple of that without moves."""
SETTLE_S = 5.0
RECORD_NODES = 100
RECORD_CHANNELS = 1_000
CHANNEL_MEMBERS = 10
AT_ONCE = 50
"""Channels that are created and joined at once."""
ORDERS: tuple[ChannelOrder, ...] = ("fifo", "causal", "total")


class TimedMember(StormMember):
    """A member, and when it has got each event."""

    def __init__(self, world: World, name: str, node: SimulatedNode) -> None:
        self.got_at: dict[int, float] = {}
        super().__init__(world, name, node)

    # Called by the core

    def deliver(self, batch: Batch, positions: Sequence[int] | None, redelivered: bool) -> None:
        """Note when events have come."""
        super().deliver(batch, positions, redelivered)
        self.got_at.update(dict.fromkeys(self.got[-len(batch) :], self.world.clock.now))

    def gap(self, dropped: int, reason: str, missed: MissedNumbers | None = None) -> None:  # noqa: ARG002
        """Fail: nothing may be lost."""
        raise PeerError(f"{self.name} has lost {dropped}: {reason}")


class ChannelNetwork:
    """Nodes with links, and the members of a channel at them."""

    def __init__(self, edges: Sequence[tuple[str, str]], reroute_s: float = 60.0) -> None:
        self.world = World(1)
        self.edges = edges
        self.names = sorted({name for edge in edges for name in edge})
        for edge in edges:
            link = self.world.network.link(*edge)
            link.conditions = type(link.conditions)(delay_s=LINK_S)
        for name in self.names:
            others = {far: address_of(far) for near, far in edges if near == name}
            peers = Neighbours(others, Credentials())
            settings = CoreSettings(name=name, peers=peers, weigh_s=0.0, reroute_s=reroute_s)
            SimulatedNode(self.world, name, settings=settings)
        self.run(SETTLE_S)
        self.members: list[TimedMember] = []

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        self.world.clock.run(self.world.clock.now + seconds)

    def member(self, node: str) -> TimedMember:
        """Connect a client."""
        made = TimedMember(self.world, f"m{len(self.members)}", self.world.nodes[node])
        self.members.append(made)
        link = self.world.network.link(made.name, node)
        link.conditions = type(link.conditions)(delay_s=CLIENT_S)
        return made

    def create(self, nodes: Sequence[str], name: str = "trip", **about: Any) -> str:
        """Create a channel with a member at each of these nodes."""
        members = [self.member(node) for node in nodes]
        self.run(1.0)
        told = members[0].ask("channel.create", name=name, delivery="reliable", **about)
        self.run(SETTLE_S)
        channel = str(told[0]["id"])
        for member in members:
            member.join(channel, durable=None)
        self.run(SETTLE_S)
        return channel

    def change_paths(self, seconds: float) -> None:
        """Cut one link each CHANGE_S, and heal the one before."""
        chance, end = random.Random(8), self.world.clock.now + seconds
        cut: list[tuple[str, str]] = []

        def change() -> None:
            for edge in cut:
                self.world.network.heal(self.world.network.link(*edge))
            cut.clear()
            if self.world.clock.now < end:
                cut.append(chance.choice(self.edges))
                link = self.world.network.link(*cut[0])
                self.world.network.cut(link)
                self.world.network.part(link)
                self.world.clock.after(CHANGE_S, change)

        change()

    def check(self, count: int) -> None:
        """Check that each member has got each event once."""
        for member in self.members:
            if sorted(member.got) != list(range(count)):
                raise PeerError(f"{member.name} has got {len(member.got)} times one of {count} events")

    @property
    def carried(self) -> int:
        """The bytes that all links between nodes have carried."""
        return sum(self.world.network.link(*edge).carried for edge in self.edges)


def network_figures(quick: bool) -> Iterator[Figure]:
    """Measure everything."""
    for changes, most, what in (
        (False, STABLE_MAX, "stable tree"),
        (True, CHANGING_MAX, "a path changes each second"),
    ):
        for rate in RATES:
            seconds = MEASURED_S / (10 if quick else 1)
            carried = {order: bytes_of(order, rate, seconds, changes) for order in ("fifo", "causal")}
            ratio = carried["causal"] / carried["fifo"]
            about = {f"{order}, bytes": float(carried[order]) for order in carried}
            name = f"bytes of causal over fifo, {rate:g}/s, {what}"
            yield Figure(name, "×", ratio, most, about, less_is_better=True)
    for order in ORDERS:
        yield from move_figures(order, 1 if quick else MOVES)
    part = 10 if quick else 1
    yield record_figure(RECORD_NODES // 3 if quick else RECORD_NODES, RECORD_CHANNELS // part)


def bytes_of(order: ChannelOrder, rate: float, seconds: float, changes: bool) -> int:
    """Return the bytes that links carry for events of all members, while paths change or not."""
    chance = random.Random(7)
    names = [f"n{number}" for number in range(NODES)]
    net = ChannelNetwork([*pairwise(names), (names[-1], names[0])], reroute_s=CHANGE_S / 4)  # one stands by
    channel = net.create([names[number % NODES] for number in range(MEMBERS)], order=order)
    if changes:
        net.change_paths(seconds)
    before, count = net.carried, max(MEMBERS, int(rate * seconds))
    for number in range(count):
        net.members[chance.randrange(MEMBERS)].send(channel, [number], body=BODY)
        net.run(seconds / count)
    net.run(SETTLE_S)
    net.check(count)
    return net.carried - before


def move_figures(order: ChannelOrder, moves: int) -> Iterator[Figure]:
    """Measure how long a mover's events are held, and what others notice of that.

    The tree's delay is that of events from the member at one end to that at the other, under the same load.
    """
    names = [f"n{number}" for number in range(NODES // 2)]
    net = ChannelNetwork(list(pairwise(names)))
    channel = net.create([*names, names[0]], order=order)
    first, last, sender, mover = (net.members[at] for at in (0, -2, len(names) // 2, -1))
    ends = names[-1], names[0]
    sent: dict[int, float] = {}

    def send(by: TimedMember, count: int) -> None:
        numbers = range(len(sent), len(sent) + count)
        sent.update(dict.fromkeys(numbers, net.world.clock.now))
        by.send(channel, numbers)

    def load(seconds: float) -> range:
        begin = len(sent)
        for _ in range(int(seconds * MOVE_RATE / MOVE_PIECE)):
            send(first, 1)
            send(sender, MOVE_PIECE - 1)
            net.run(MOVE_PIECE / MOVE_RATE)
        return range(begin, len(sent))

    quiet, moved = load(1.0), list[None]()
    moving = range(quiet.stop, quiet.stop)
    for move in range(moves):
        mover.connection.move(ends[move % 2]).then(moved.append, must_not)
        mover.pump()
        moving = range(moving.start, load(1.5).stop)
    net.run(SETTLE_S)
    net.check(len(sent))
    if len(moved) != moves:
        raise PeerError(f"{len(moved)} of {moves} moves are over")

    def delays(numbers: range, *of: TimedMember) -> list[float]:
        return [one.got_at[number] - sent[number] for number in numbers for one in of]

    across = median(delays(quiet[::MOVE_PIECE], last))
    held = max(delays(moving, mover)) - median(delays(quiet, mover))
    others = [one for one in net.members if one is not mover]
    about = {"across the tree, ms": across * 1_000, "held, ms": held * 1_000}
    yield Figure(f"{order}: a mover's events held", "×", held / across, HELD_MAX, about, True)
    after, before = (_percentile(delays(numbers, *others)) for numbers in (moving, quiet))
    about = {"without, ms": before * 1_000, "with moves, ms": after * 1_000}
    yield Figure(f"{order}: others while one moves, p99", "×", after / before, OTHERS_MAX, about, True)


def record_figure(nodes: int, channels: int) -> Figure:
    """Compare the records of channels at each node with the channels that pass it."""
    chance = random.Random(9)
    names = [f"n{number:03}" for number in range(nodes)]
    net = ChannelNetwork([(chance.choice(names[:at]), name) for at, name in enumerate(names) if at])
    clients = [net.member(name) for name in names]
    net.run(1.0)
    passing = Counter[str]()
    for first in range(0, channels, AT_ONCE):
        made = [
            (chance.sample(clients, CHANNEL_MEMBERS), f"c{number}")
            for number in range(first, min(first + AT_ONCE, channels))
        ]
        told = [members[0].ask("channel.create", name=name) for members, name in made]
        net.run(SETTLE_S)
        for (members, _), found in zip(made, told, strict=True):
            for member in members:
                member.join(str(found[0]["id"]), durable=None)
            passing.update(_joining(net.edges, {member.node.name for member in members}))
        net.run(SETTLE_S)
    records = {name: len(net.world.nodes[name].core.channels.trees) for name in names}
    excess = sum(abs(records[name] - passing[name]) for name in names)
    name = f"records that are no channel's, {channels:,} channels on {nodes} nodes"
    about = {"records": float(sum(records.values())), "at most at a node": float(max(records.values()))}
    return Figure(name, "", float(excess), 0.0, about, less_is_better=True)


def _joining(edges: Sequence[tuple[str, str]], members: set[str]) -> set[str]:
    """Return the nodes of the part of a tree that joins some of them."""
    beside: dict[str, set[str]] = {}
    for one, other in edges:
        beside.setdefault(one, set()).add(other)
        beside.setdefault(other, set()).add(one)
    ends = [name for name in beside if len(beside[name]) == 1 and name not in members]
    while ends:
        end = ends.pop()
        (near,) = beside.pop(end)
        beside[near].discard(end)
        if len(beside[near]) == 1 and near not in members:
            ends.append(near)
    return set(beside)


def _percentile(delays: Sequence[float]) -> float:
    return quantiles(delays, n=100)[-1]
