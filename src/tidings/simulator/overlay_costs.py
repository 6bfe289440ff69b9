"""Costs of trees in a random network: how they are built, switched and used, in messages and weights.

Nodes lie at random in a square. Each has links to the nearest of some earlier ones, and a link weighs its
length. Of the nodes some are members of a group, and every member sends events to all others. Strategies:

    tree       one minimum spanning tree, pruned to what joins the members (restricted broadcast)
    sender     the shortest ways from each sender, pruned to the members: a tree for each
    insertion  a member joins by the shortest way to the nearest node that takes part already

The minimum spanning tree is built by messages (`overlay/gallager.py`), and compared with that which nodes
compute alone; then it is switched in five steps to the tree of other weights (`overlay/switching.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from itertools import pairwise
from math import inf, log2
from random import Random
from typing import Literal

from tidings.overlay.gallager import TreeBuilder, TreeMessage
from tidings.overlay.switching import SwitchMessage, TreeSwitch
from tidings.overlay.tree import Edge, spanning_tree
from tidings.simulator.message_network import MessageNetwork
from tidings.simulator.record_costs import Graph, record_costs
from tidings.simulator.repair_costs import SMALLEST, repair_costs
from tidings.simulator.whole_repair import whole_repair

Strategy = Literal["tree", "sender", "insertion"]
Place = tuple[float, float]
"""Place of a node in the square, from 0 to 1."""

LENGTH = 10_000
"""Side of the square: the largest weights are of this size."""
CHOICE = 12
"""Earlier nodes of which a new one links to the nearest."""
DELAY_S = 1e-5
"""Delay of a link for each unit of its weight."""
SENDERS_MAX = 20
"""Members of which events are sent; the others only receive."""
COLD_MAX = 100
"""Nodes that start all at once when the costs of records are measured; more know each other before."""
PATIENCE_S = 1e6
"""No node dies here, so none is asked whether it is there."""


def random_graph(random: Random, nodes: int, degree: int) -> Graph:
    """Return a connected network with about so many links of a node."""
    return random_network(random, nodes, degree)[0]


def random_network(random: Random, nodes: int, degree: int) -> tuple[Graph, dict[str, Place]]:
    """Return a connected network, and where its nodes are."""
    names = [f"n{number:05}" for number in range(nodes)]
    places = [(random.random(), random.random()) for _ in names]
    graph: Graph = {name: {} for name in names}
    for number in range(1, nodes):
        x, y = places[number]
        some = random.sample(range(number), min(number, CHOICE))
        by_length = sorted(((x - places[one][0]) ** 2 + (y - places[one][1]) ** 2, one) for one in some)
        for square, one in by_length[: max(1, degree // 2)]:
            weight = 1 + int(LENGTH * square**0.5)
            graph[names[number]][names[one]] = graph[names[one]][names[number]] = weight
    return graph, dict(zip(names, places, strict=True))


def edges_of_graph(graph: Graph) -> list[Edge]:
    """Return the links, each once."""
    return [(weight, one, two) for one, links in graph.items() for two, weight in links.items() if one < two]


def beside(edges: Iterable[Edge]) -> dict[str, set[str]]:
    """Return the neighbours of each node by some edges."""
    found: dict[str, set[str]] = {}
    for _, one, two in edges:
        found.setdefault(one, set()).add(two)
        found.setdefault(two, set()).add(one)
    return found


# Building and switching


def build(graph: Graph, seed: int) -> MessageNetwork[TreeMessage]:
    """Build the minimum spanning tree by messages; AssertionError if it is another, or costs too much."""
    cores = {name: TreeBuilder(name, links, PATIENCE_S) for name, links in graph.items()}
    net: MessageNetwork[TreeMessage] = MessageNetwork(cores, seed, lambda a, b: DELAY_S * graph[a][b])
    for name, core in cores.items():
        net.do(name, core.start(0.0))
    while net.step():
        pass
    expected = beside(spanning_tree(edges_of_graph(graph)))
    assert all(core.is_ready for core in cores.values()), "a node does not know that the tree is ready"
    assert all(core.branches == expected.get(name, set()) for name, core in cores.items()), "not the minimum"
    assert net.sent.total() <= bound(graph), f"{net.sent.total()} messages are above {bound(graph)}"
    return net


def bound(graph: Graph) -> int:
    """Return how many messages building a tree may cost: 4E + 5N·log2 N + N."""
    nodes, links = len(graph), len(edges_of_graph(graph))
    return int(4 * links + 5 * nodes * log2(max(nodes, 2)) + nodes)


def reweighed(random: Random, graph: Graph) -> Graph:
    """Return the network on another day: each link weighs up to three times as much, or as little."""
    factors = {pair[1:]: 3 ** random.uniform(-1, 1) for pair in edges_of_graph(graph)}
    return {
        one: {two: 1 + int(weight * factors[min(one, two), max(one, two)]) for two, weight in links.items()}
        for one, links in graph.items()
    }


def switch(graph: Graph, before: Iterable[Edge], seed: int) -> MessageNetwork[SwitchMessage]:
    """Switch to the minimum spanning tree of a network, found at the centre; AssertionError if it fails."""
    old = beside(before)
    cores = {name: TreeSwitch(name, old.get(name, ()), links) for name, links in graph.items()}
    net: MessageNetwork[SwitchMessage] = MessageNetwork(cores, seed, lambda a, b: DELAY_S * graph[a][b])
    first = min(cores)
    net.do(first, cores[first].begin())
    while net.step():
        pass
    expected = beside(spanning_tree(edges_of_graph(graph)))
    assert all(core.run == 1 for core in cores.values()), "a node still waits"
    assert all(core.tree == expected.get(name, set()) for name, core in cores.items()), "not the minimum"
    cost = 5 * len(graph) - 3 if len(graph) > 1 else 0
    assert net.sent.total() == cost, f"a switch has cost {net.sent.total()} messages, not {cost}"
    return net


# Using trees


class MemberGroup:
    """Members of a group, and the links on which their events travel."""

    def __init__(self, graph: Graph, strategy: Strategy, members: Iterable[str]) -> None:
        self.joined = self.left = 0
        """Messages that joining and leaving have cost."""
        self._graph = graph
        self._strategy = strategy
        self.members: set[str] = set()
        base = beside(spanning_tree(edges_of_graph(graph))) if strategy == "tree" else {}
        self._base = {name: dict.fromkeys(base.get(name, ()), 1) for name in graph}
        self._trees: dict[str, dict[str, set[str]]] = {}  # by sender, or "" for one that all share
        for member in members:
            self.join(member)

    @property
    def state(self) -> int:
        """Entries that all nodes keep: a neighbour in a tree."""
        return sum(len(found) for tree in self._trees.values() for found in tree.values())

    def join(self, member: str) -> None:
        """Let a node be a member: a request and an answer over each link to the nearest that takes part."""
        self.members.add(member)
        if self._strategy != "sender":
            self._grow("", member)
            return
        for sender in self._trees:
            self._grow(sender, member)
        if len(self._trees) < SENDERS_MAX:
            self._trees[member] = {member: set()}
            for other in sorted(self.members):
                self._grow(member, other)

    def _grow(self, sender: str, member: str) -> None:
        """Add the way of a member to a tree."""
        tree = self._trees.setdefault(sender, {})
        if member in tree:
            return
        if not tree:
            tree[member] = set()
            return
        graph = self._base if self._strategy == "tree" else self._graph
        goals = {sender} if self._strategy == "sender" else tree.keys()
        way = nearest(graph, member, goals, is_by_hops=self._strategy == "tree")
        known = set(tree)
        for one, two in pairwise(way):
            tree.setdefault(one, set()).add(two)
            tree.setdefault(two, set()).add(one)
            self.joined += 2
            if two in known:
                return  # the rest of the way is that of another member

    def leave(self, member: str) -> None:
        """Let a node be no member: links that lead to no member go, with one message each."""
        self.members.discard(member)
        if self._strategy == "sender" and self._trees.pop(member, None) is not None:
            self.left += 1
        for sender, tree in self._trees.items():
            at = member
            while at in tree and at not in self.members and at != sender and len(tree[at]) == 1:
                (above,) = tree.pop(at)
                tree[above].discard(at)
                self.left += 1
                at = above

    def senders(self) -> list[str]:
        """Return the members of which events are sent."""
        return sorted(self._trees) if self._strategy == "sender" else sorted(self.members)[:SENDERS_MAX]

    def event(self, sender: str) -> tuple[int, int]:
        """Send an event to all members; return the weight of the links it takes and its longest way."""
        tree = self._trees[sender if self._strategy == "sender" else ""]
        cost = longest = 0
        reached = {sender}
        ways = deque([(sender, "", 0)])
        while ways:
            node, source, length = ways.popleft()
            longest = max(longest, length if node in self.members else 0)
            for other in tree[node]:
                if other != source:
                    assert other not in reached, f"an event of {sender} comes to {other} twice"
                    reached.add(other)
                    cost += self._graph[node][other]
                    ways.append((other, node, length + self._graph[node][other]))
        assert self.members <= reached, f"an event of {sender} does not come to all members"
        return cost, longest


def nearest(
    graph: Mapping[str, Mapping[str, int]], start: str, goals: Iterable[str], is_by_hops: bool = False
) -> list[str]:
    """Return the shortest way from a node to the nearest of some others, both ends included."""
    wanted = set(goals)
    above: dict[str, str] = {}
    lengths = {start: 0.0}
    waiting = [(0.0, start)]
    while waiting:
        length, node = heappop(waiting)
        if length > lengths[node]:
            continue
        if node in wanted:
            way = [node]
            while way[-1] != start:
                way.append(above[way[-1]])
            return way[::-1]
        for other, weight in graph[node].items():
            further = length + (1 if is_by_hops else weight)
            if further < lengths.get(other, inf):
                lengths[other], above[other] = further, node
                heappush(waiting, (further, other))
    raise AssertionError(f"no way leads from {start} to any of {len(wanted)} nodes")


def overlay_costs(
    seed: int,
    *,
    nodes: int = 100,
    degree: int = 4,
    members: float = 0.2,
    churn: float = 0.1,
    strategy: Strategy = "tree",
    records: bool = False,
    repair: bool = False,
    whole: bool = False,
) -> dict[str, float | None]:
    """Build, switch and use trees in one network; return the costs. AssertionError if a rule is broken.

    With `records` those of flooded records are measured too, which takes long for many nodes; with `repair`
    those of a node that dies, and with `whole` of one of as many whole nodes, and how long events stop then.
    """
    random = Random(seed)
    graph = random_graph(random, nodes, degree)
    built = build(graph, seed)
    switched = switch(reweighed(random, graph), spanning_tree(edges_of_graph(graph)), seed)
    names = sorted(graph)
    group = MemberGroup(graph, strategy, random.sample(names, max(1, round(members * nodes))))
    of_first = group.joined
    moves = round(churn * len(group.members))
    for _ in range(moves):
        outside = sorted(set(names) - group.members)
        group.leave(random.choice(sorted(group.members)))
        if outside:
            group.join(random.choice(outside))
    events = [group.event(sender) for sender in group.senders()]
    return {
        "links": len(edges_of_graph(graph)),
        "build_messages": built.sent.total(),
        "build_bound": bound(graph),
        "build_s": round(built.now, 6),
        "switch_messages": switched.sent.total(),
        "rebuild_messages": switched.sent["Stop"] + switched.sent["Last"],
        "event_cost": sum(cost for cost, _ in events) / len(events) if events else None,
        "event_way": sum(way for _, way in events) / len(events) if events else None,
        "join_messages": of_first / max(1, len(group.members)),
        "churn_messages": (group.joined - of_first + group.left) / moves if moves else None,
        "state": group.state,
        **(record_costs(graph, seed, is_cold=nodes <= COLD_MAX) if records else {}),
        **(repair_costs(graph, seed) if repair else {}),
        **(whole_repair(graph, seed) if whole and nodes >= SMALLEST else {}),
    }
