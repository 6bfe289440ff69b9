"""Costs of flooded records: what the tree of real nodes costs in messages, beside one that is built by them.

Topologies of all nodes (`overlay/topology.py`), whose links come up at once, or were there before. Measured
are the messages until all know everything, those for a link with another weight, and those for a rebuild.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import NamedTuple

from msgspec import Struct

from tidings.overlay.rebuilding import Rebuilding
from tidings.overlay.records import Digest, NodeRecord, Stamps
from tidings.overlay.topology import Topology
from tidings.overlay.topology_effects import Effect, SendDigest, SendRecords, SendStamps
from tidings.overlay.tree import spanning_tree
from tidings.simulator.message_network import MessageNetwork

Graph = dict[str, dict[str, int]]
"""Weights of the links of each node, by the neighbours."""
SETTLE_S = 60.0
"""Time for all records to be everywhere."""
DELAY_S = 0.01
"""Least delay of a message; the longest is twice as long."""
WAIT_S = 5.0
"""How long a better tree must be there."""


class Records(NamedTuple):
    """Records, as one message."""

    records: tuple[NodeRecord, ...]


TopologyMessage = Digest | Stamps | Records


class TopologySend(Struct, frozen=True):
    """Message of a topology to a neighbour."""

    neighbour: str
    message: TopologyMessage


class TopologyNode:
    """Topology of one node, driven by messages."""

    def __init__(self, node: str, reroute_s: float = inf) -> None:
        """After `reroute_s` a link that is cut is lost."""
        rules = reroute_s, Rebuilding(node, 0.0, WAIT_S)
        self.topology = Topology(node, node, 1, False, (), "", 0, *rules)
        self._tree = self.topology.tree
        self.changed_at = 0.0
        """When a message has changed its tree last."""

    @property
    def wake_at(self) -> float:
        """When `wake` is to be called."""
        return self.topology.wake_at

    def hear(self, neighbour: str, message: TopologyMessage, now: float) -> Iterator[TopologySend]:
        """Take a message of a neighbour."""
        effects = self._hear(neighbour, message, now)
        if self.topology.tree is not self._tree:
            self._tree, self.changed_at = self.topology.tree, now
        return sends(effects)

    def _hear(self, neighbour: str, message: TopologyMessage, now: float) -> list[Effect]:
        match message:
            case Digest():
                return self.topology.comparing.hear_digest(neighbour, message, now)
            case Stamps():
                return self.topology.comparing.hear_stamps(neighbour, message)
            case Records(records):
                return self.topology.hear(neighbour, records, now)

    def wake(self, now: float) -> Iterator[TopologySend]:
        """Do what is due."""
        return sends(self.topology.wake(now))


def sends(effects: Iterable[Effect]) -> Iterator[TopologySend]:
    """Yield the messages among effects."""
    for effect in effects:
        match effect:
            case SendDigest(neighbour, digest):
                yield TopologySend(neighbour, digest)
            case SendStamps(neighbour, stamps):
                yield TopologySend(neighbour, stamps)
            case SendRecords(neighbour, records):
                yield TopologySend(neighbour, Records(records))


class RecordNetwork:
    """Topologies of all nodes of a network, and the messages between them."""

    def __init__(self, graph: Graph, seed: int, delay_s: float = DELAY_S, reroute_s: float = inf) -> None:
        self.graph = graph
        self.nodes = {name: TopologyNode(name, reroute_s) for name in graph}
        self.net: MessageNetwork[TopologyMessage] = MessageNetwork(
            self.nodes, seed, lambda _one, _two: delay_s
        )
        self.links = [
            (weight, one, two) for one, found in graph.items() for two, weight in found.items() if one < two
        ]

    def connect(self) -> None:
        """Let all links come up at once."""
        for name, found in self.graph.items():
            for other in found:
                self.net.do(name, sends(self.nodes[name].topology.link_up(other, 1, self.net.now)))

    def acquaint(self) -> None:
        """Let all nodes know all records and weights without a message, as after a long time."""
        for name, found in self.graph.items():
            topology = self.nodes[name].topology
            for other, weight in found.items():
                topology.link_up(other, 1, 0.0)
                topology.measured(other, weight, 0.0)
        records = [node.topology.own for node in self.nodes.values()]
        for name, node in self.nodes.items():
            others = [record for record in records if record.node != name]
            node.topology.hear(node.topology.connected[0], others, 0.0)
            node.topology.wake(SETTLE_S)
        self.net.now = SETTLE_S

    def measure(self, one: str, two: str, weight: int) -> None:
        """Let both ends of a link measure a weight."""
        for near, far in ((one, two), (two, one)):
            self.net.do(near, sends(self.nodes[near].topology.measured(far, weight, self.net.now)))

    def settled(self) -> int:
        """Return the messages since the last time, until nothing more is said."""
        self.net.run(self.net.now + SETTLE_S)
        total = self.net.sent.total()
        self.net.sent.clear()
        return total

    def check(self) -> set[tuple[str, str]]:
        """Return the tree; AssertionError unless it is the minimum, at all nodes."""
        expected = {edge[1:] for edge in spanning_tree(self.links)}
        for node in self.nodes.values():
            found = {edge[1:] for edge in node.topology.tree.edges}
            assert found == expected, f"{node.topology.node} has another tree"
        return expected


def record_costs(graph: Graph, seed: int, is_cold: bool = True) -> dict[str, float | None]:
    """Let nodes flood their records; return the messages. AssertionError if they have another tree.

    `is_cold`: all nodes start at once, and know nothing.
    """
    network = RecordNetwork(graph, seed)
    build: int | None = None
    if is_cold:
        network.connect()
        build = network.settled()
        for weight, one, two in network.links:
            network.measure(one, two, weight)
    else:
        network.acquaint()
    network.settled()
    tree = network.check()
    heaviest = max(network.links)
    network.measure(*heaviest[1:], heaviest[0] + 1)
    weigh = network.settled()
    standby = [edge for edge in network.links if edge[1:] not in tree]
    rebuild: int | None = None
    if standby:
        run = network.nodes[min(graph)].topology.own.run
        network.measure(*standby[0][1:], 1)
        rebuild = network.settled() - weigh
        assert network.nodes[min(graph)].topology.own.run > run, "no run has begun"
    return {"records_build": build, "records_weigh": weigh, "records_rebuild": rebuild}
