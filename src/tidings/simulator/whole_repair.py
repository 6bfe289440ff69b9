"""Death of one of many whole nodes: how long events stop, and which nodes speak of it.

All links have one delay. Nodes are acquainted without a message, as after a long time. One within the tree
falls silent while a client on one side of it publishes, and others on all sides subscribe. Measured is the
time from the verdict of the dead node's neighbours until all have what was published when it died; the unit
is the delay of the longest way of the new tree. Requests between nodes are counted by their kinds, with the
nodes that have received any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from tidings.event import Batch, Event
from tidings.node.assembly import CoreSettings
from tidings.overlay.tree import Tree
from tidings.peers.registry import Neighbours
from tidings.protocol.subscriber import MissedNumbers, Wanted
from tidings.simulator.client import SimulatedClient, must_not
from tidings.simulator.node import SimulatedNode, address_of
from tidings.simulator.record_costs import Graph
from tidings.simulator.repair_costs import longest_way
from tidings.simulator.world import Conditions, World
from tidings.transport.credentials import Credentials

DELAY_S = 0.05
"""Of each link."""
LINK_S, SETTLE_S = 3.0, 8.0
"""Time for all links to be there, and for what is wanted to be known to all."""
STEP_S = 0.02
"""How often it is looked what has arrived."""
PATIENCE_S = 60.0
"""After that events do not flow again."""
NEAR_PING_S, FAR_PING_S = 0.5, 5.0
"""Pings on links round nodes that may die, and on all others, which see nobody die."""
CANDIDATES = 5
"""Nodes of which one dies, chosen by the tree; at least."""
NODES_EACH = 80
"""There is a candidate for so many nodes: with 5 of 1,000, all were leaves of the tree."""
FOR_GOOD_S = 1e6
"""How long the dead node does nothing: no connection of it ends, as if its machine had lost power."""
READERS_EACH = 6
"""Subscribers in each part that the dead node leaves, the farthest node's among them."""
SUBJECTS = {"link.heard": "heard", "link.topology": "records", "link.whole": "whole"}
"""Requests that are counted, and as what."""


class _Reader:
    """Durable subscription of one client: counts its events."""

    def __init__(self, client: SimulatedClient) -> None:
        self.got: list[int] = []
        self._connection = client.connection
        self._subscription = self._connection.subscribe(Wanted("n >= 0", durable="all"), self, 1_000)
        self._subscription.begun.then(lambda _told: None, must_not)
        client.pump()

    def deliver(self, batch: Batch, positions: Sequence[int] | None, _redelivered: bool) -> None:
        self.got += [event["n"] for event in batch.events]
        self._connection.consume(self._subscription, len(batch))
        if positions is not None:
            self._connection.acknowledge(self._subscription, positions[-1])

    def gap(self, dropped: int, reason: str, missed: MissedNumbers | None = None) -> None:
        raise AssertionError(f"a gap of {dropped} events: {reason}, {missed}")

    def ended(self, reason: str) -> None:
        raise AssertionError(reason)


class _Death:
    """Network of whole nodes, of which one dies."""

    def __init__(self, graph: Graph, seed: int) -> None:
        self.graph = graph
        self.world = World(seed)
        self.random = Random(seed)
        self.received: Counter[str] = Counter()
        self.receivers: dict[str, set[str]] = {name: set() for name in SUBJECTS.values()}
        count = min(max(CANDIDATES, len(graph) // NODES_EACH), len(graph))
        self.candidates = self.random.sample(sorted(graph), count)
        self._start()
        self.ids = {name: self.node(name).broker.node for name in graph}
        self._acquaint()

    def node(self, name: str) -> SimulatedNode:
        return self.world.nodes[name]

    def run(self, seconds: float) -> None:
        self.world.clock.run(self.world.clock.now + seconds)

    @property
    def tree(self) -> Tree:
        """The tree, as a node knows it that does not die."""
        name = next(name for name in sorted(self.graph) if not self.node(name).is_dead)
        return self.node(name).core.overlay.topology.tree

    def _start(self) -> None:
        near = {*self.candidates, *(other for name in self.candidates for other in self.graph[name])}
        for name, links in sorted(self.graph.items()):
            peers = Neighbours({far: address_of(far) for far in links if far < name}, Credentials())
            ping_s = NEAR_PING_S if name in near else FAR_PING_S
            settings = CoreSettings(name=name, peers=peers, weigh_s=0.0, ping_s=ping_s)
            node = SimulatedNode(self.world, name, settings=settings)
            node.core.overlay.records.tell = lambda _node, _news: None
            for far in links:
                self.world.network.link(name, far).conditions = Conditions(delay_s=DELAY_S)

    def _acquaint(self) -> None:
        """Let all nodes know all records without a message."""
        self.run(LINK_S)
        overlays = {name: self.node(name).core.overlay for name in self.graph}
        records = [overlay.topology.own for overlay in overlays.values()]
        assert all(len(one.links) == len(self.graph[one.name]) for one in records), "a link is not there"
        for name, overlay in overlays.items():
            others = [record for record in records if record.name != name]
            now = self.node(name).time()
            overlay.topology.hear(overlay.topology.connected[0], others, now)
            overlay.routing.follow_tree()
            overlay.records.tell = overlay.records.send
        self.run(SETTLE_S)

    def parts(self, name: str) -> list[list[str]]:
        """Return the nodes on each side of one, the smallest part first, and the farthest node last."""
        beside: dict[str, list[str]] = {}
        for _, one, other in self.tree.edges:
            beside.setdefault(one, []).append(other)
            beside.setdefault(other, []).append(one)
        names = {node: one for one, node in self.ids.items()}
        found = []
        for start in beside[self.ids[name]]:
            order, seen = [start], {start, self.ids[name]}
            for node in order:
                order += [other for other in beside[node] if other not in seen]
                seen.update(beside[node])
            found.append([names[node] for node in order])
        return sorted(found, key=len)

    def watch(self) -> None:
        """Count the requests that nodes receive from now on."""
        for name in self.graph:
            operations = self.node(name).broker.operations
            for operation, subject in SUBJECTS.items():
                shape, answer = operations[operation]
                operations[operation] = shape, self._counting(name, subject, answer)

    def _counting(self, name: str, subject: str, answer: Any) -> Any:
        def count(asked: Any, request: Any) -> Any:
            self.received[subject] += 1
            self.receivers[subject].add(name)
            return answer(asked, request)

        return count

    def verdicts(self, dead: str) -> int:
        """How many of its neighbours have found a node, or the link to it, dead."""
        causes = ("link", "node", "alone")
        tallies = [self.node(name).broker.tallies for name in self.graph[dead]]
        return sum(one["neighbours_dead", cause] for one in tallies for cause in causes)


def whole_repair(graph: Graph, seed: int) -> dict[str, float | None]:
    """Let a node die and return how long events stop, and the requests that it costs."""
    net = _Death(graph, seed)
    dead = max(net.candidates, key=lambda name: (len(parts := net.parts(name)) > 1, len(parts[0])))
    parts = net.parts(dead)
    assert len(parts) > 1, "no node within the tree was chosen"
    source = SimulatedClient(net.world, "source", net.node(parts[-1][0]))
    places = _readers_at(net.random, parts)
    clients = [SimulatedClient(net.world, f"reader-{name}", net.node(name)) for name in places]
    net.run(1.0)
    readers = [_Reader(client) for client in clients]
    net.run(SETTLE_S)
    _publish(source, 0)
    net.run(SETTLE_S)
    assert all(reader.got == [0] for reader in readers), "events do not flow"
    net.watch()
    net.node(dead).is_dead = True
    net.node(dead).stand_still(FOR_GOOD_S)
    _publish(source, 1)
    died = net.world.clock.now
    _run_until(net, lambda: net.verdicts(dead) >= len(graph[dead]))
    judged = net.world.clock.now
    _run_until(net, lambda: all(reader.got == [0, 1] for reader in readers))
    flow_s = net.world.clock.now - judged
    net.run(SETTLE_S)
    edges = [edge for edge in net.tree.edges if net.ids[dead] not in edge[1:]]
    delay_s = DELAY_S * longest_way(edges)
    counts = {f"whole_{subject}": float(net.received[subject]) for subject in SUBJECTS.values()}
    nodes = {f"whole_{subject}_nodes": float(len(found)) for subject, found in net.receivers.items()}
    return {
        "whole_verdict_s": round(judged - died, 3),
        "whole_flow_s": round(flow_s, 3),
        "whole_flow_delays": round(flow_s / delay_s, 3),
        **counts,
        **nodes,
    }


def _readers_at(random: Random, parts: Iterable[list[str]]) -> list[str]:
    """Choose the nodes of subscribers: in each part its farthest one, and some more."""
    places = [
        name for part in parts for name in (part[-1], *random.sample(part, min(READERS_EACH, len(part))))
    ]
    return sorted(set(places))


def _publish(source: SimulatedClient, number: int) -> None:
    source.connection.publish(Event("death", {"n": number}, delivery="reliable"))
    source.pump()


def _run_until(net: _Death, is_so: Any) -> None:
    end = net.world.clock.now + PATIENCE_S
    while not is_so():
        net.run(STEP_S)
        assert net.world.clock.now < end, "events do not flow again"
