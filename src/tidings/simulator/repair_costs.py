"""Costs of a repair: one node of a network dies, its neighbours find out, and the tree goes round it.

The neighbours ask others about it (`overlay/liveness.py`), call their links lost, and flood their records;
each node computes the tree of all others from these (`overlay/topology.py`). Where no link stands by that
joins the parts, a bypass is made: its neighbours link to the smallest of them.

The seed's repair knows no records: the smallest of the d neighbours in the tree builds links to the others,
with a message and an answer each, 2(d - 1) in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from random import Random
from typing import NamedTuple

from tidings.overlay.liveness import ASKED_MAX, HOPS_MAX, paths_over
from tidings.overlay.topology_effects import Approach, Effect
from tidings.overlay.tree import Edge
from tidings.simulator.record_costs import DELAY_S, Graph, RecordNetwork, sends

SMALLEST = 3
"""Nodes without which a death leaves nothing to repair."""
REROUTE_S = 5.0
"""How long a link may be cut before it is lost, unless a neighbour was found dead."""
STEP_S, STEPS = 0.1, 200
"""How often nodes are looked at that seek a way round, and how many times."""


class Repair(NamedTuple):
    """What the death of a node has cost."""

    dead: str
    neighbours: int
    """Links that it had."""
    tree_neighbours: int
    """Those of them that were in the tree."""
    links: int
    """All links that are left."""
    sent: Counter[str]
    """Messages by their kinds."""
    asked: set[str]
    """Nodes that were asked about the dead one, or passed that on."""
    seconds: float
    """Time from the verdict of its neighbours until the last node has the new tree."""
    tree_delay_s: float
    """Time that a message may take over the longest way of the new tree."""
    before: list[Edge]
    after: list[Edge]

    @property
    def bound(self) -> int:
        """The most messages: of each neighbour a record over all links, both ways, and its questions.

        Those that make links round the dead one have a second record.
        """
        return self.neighbours * (2 * 2 * self.links + 2 * ASKED_MAX * HOPS_MAX)

    @property
    def new_links(self) -> list[Edge]:
        """Links that are in the tree since then."""
        known = {edge[1:] for edge in self.before}
        return [edge for edge in self.after if edge[1:] not in known]


def repair(graph: Graph, seed: int) -> Repair:
    """Let a node within the tree die; AssertionError if the others do not agree on the tree without it."""
    network = RecordNetwork(graph, seed, reroute_s=REROUTE_S)
    for name, node in network.nodes.items():
        node.topology.set_address(f"tidings://{name}:7300", 0.0)
    network.acquaint()
    network.settled()
    before = list(network.nodes[min(graph)].topology.tree.edges)
    dead = _inner(Random(seed), before, graph)
    net = network.net
    net.silent.add(dead)
    asked, questions = _questions(network, dead)
    net.sent["Heard"] += questions
    begun = net.now
    for name in graph[dead]:
        topology = network.nodes[name].topology
        _do(network, name, [*topology.link_down(dead, net.now, is_dead=True), *topology.wake(net.now)])
    _run(network)
    others = [name for name in graph if name != dead]
    after = list(network.nodes[others[0]].topology.tree.edges)
    assert len(after) >= len(others) - 1, "the network has fallen apart"
    for name in others:
        found = set(network.nodes[name].topology.tree.edges)
        assert found == set(after), f"{name} has another tree"
    joined = [edge for edge in after if dead not in edge[1:]]
    return Repair(
        dead,
        len(graph[dead]),
        sum(dead in edge[1:] for edge in before),
        sum(dead not in edge[1:] for edge in network.links),
        net.sent,
        asked,
        max(network.nodes[name].changed_at for name in others) - begun,
        2 * DELAY_S * longest_way(joined),
        before,
        joined,
    )


def repair_costs(graph: Graph, seed: int) -> dict[str, float | None]:
    """Let a node die and return the costs; AssertionError if they are above their bounds."""
    if len(graph) < SMALLEST:
        return dict.fromkeys(("repair_messages", "repair_bound", "repair_bypass", "repair_asked"))
    found = repair(graph, seed)
    total = found.sent.total()
    assert total <= found.bound, f"a repair has cost {total} messages, above {found.bound}"
    assert len(found.new_links) == found.tree_neighbours - 1, "the tree has changed elsewhere"
    gone = [edge for edge in found.before if found.dead in edge[1:]]
    return {
        "repair_messages": total,
        "repair_bound": found.bound,
        "repair_bypass": 2 * (found.tree_neighbours - 1),
        "repair_asked": len(found.asked),
        "repair_s": round(found.seconds, 6),
        "repair_delays": round(found.seconds / found.tree_delay_s, 3),
        "repair_detour": _weight(graph, found.new_links) - _weight(graph, gone),
    }


def _weight(graph: Graph, edges: Iterable[Edge]) -> int:
    """Return the weight of links, as far as they were there before."""
    return sum(graph[one].get(two, 0) for _, one, two in edges)


def _inner(random: Random, tree: Iterable[Edge], graph: Graph) -> str:
    """Choose a node that joins others in the tree, or any if there is none."""
    count = Counter(node for edge in tree for node in edge[1:])
    return random.choice(sorted(node for node in count if count[node] > 1) or sorted(graph))


def _questions(network: RecordNetwork, dead: str) -> tuple[set[str], int]:
    """Return whom the neighbours of a dead node ask about it, and with how many messages."""
    asked: set[str] = set()
    messages = 0
    beside = network.graph[dead].keys()
    for name in beside:
        topology = network.nodes[name].topology
        records = {record.node: record for record in topology.records}
        first = [one for one in network.graph[name] if one != dead]
        found = (path for path in paths_over(records, name, first, dead) if path[-1] in beside)
        for path in islice(found, ASKED_MAX):
            asked.update(path)
            messages += 2 * len(path)
    return asked, messages


def _do(network: RecordNetwork, node: str, effects: Iterable[Effect]) -> None:
    """Send the messages among effects, and make the links that they ask for."""
    taken = list(effects)
    network.net.do(node, sends(taken))
    for effect in taken:
        if isinstance(effect, Approach) and effect.record.node not in network.net.silent:
            _link(network, node, effect.record.node)


def _link(network: RecordNetwork, one: str, two: str) -> None:
    network.net.sent["Hello"] += 2
    for near, far in ((one, two), (two, one)):
        effects = network.nodes[near].topology.link_up(far, 2, network.net.now)
        network.net.do(near, sends(effects))


def _run(network: RecordNetwork) -> None:
    """Run until nothing is said any more; a node that looks for a way round makes links."""
    net = network.net
    for _ in range(STEPS):
        net.run(net.now + STEP_S)
        for name, node in network.nodes.items():
            if name not in net.silent and node.topology.wake_at <= net.now + STEP_S:
                _do(network, name, node.topology.wake(net.now + STEP_S))


def longest_way(tree: Iterable[Edge]) -> int:
    """Return the number of links on the longest way of a tree."""
    beside: dict[str, set[str]] = {}
    for _, one, two in tree:
        beside.setdefault(one, set()).add(two)
        beside.setdefault(two, set()).add(one)
    if not beside:
        return 0
    far, _ = _farthest(beside, min(beside))
    return _farthest(beside, far)[1]


def _farthest(beside: dict[str, set[str]], start: str) -> tuple[str, int]:
    ring, seen, steps = {start}, {start}, 0
    while True:
        further = {other for node in ring for other in beside[node]} - seen
        if not further:
            return min(ring), steps
        seen |= further
        ring, steps = further, steps + 1
