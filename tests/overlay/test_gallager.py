"""Gallager, Humblet and Spira: the tree by messages, its cost, and nodes that die while it is built."""

from __future__ import annotations

from math import log2
from random import Random

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.overlay.gallager import Accept, Connect, Here, Report, TreeBuilder, TreeMessage, Weigh
from tidings.simulator.message_network import MessageNetwork

Weights = dict[tuple[str, str], float]

nodes = st.sampled_from([f"n{number}" for number in range(9)])
graphs = st.dictionaries(
    st.tuples(nodes, nodes).filter(lambda ends: ends[0] < ends[1]), st.integers(1, 6), min_size=1, max_size=30
)


def network(weights: Weights, seed: int = 0) -> MessageNetwork[TreeMessage]:
    links: dict[str, dict[str, float]] = {}
    for (one, other), weight in weights.items():
        links.setdefault(one, {})[other] = weight
        links.setdefault(other, {})[one] = weight
    cores = {node: TreeBuilder(node, found) for node, found in sorted(links.items())}
    random = Random(seed)
    delays = {(one, two): random.choice((0.001, 0.01, 0.1, 1.0)) for one in cores for two in cores}
    return MessageNetwork(cores, seed, lambda *ends: delays[ends])


def start(net: MessageNetwork[TreeMessage]) -> None:
    for node, core in net.cores.items():
        net.do(node, core.start(0.0))


def tree(net: MessageNetwork[TreeMessage]) -> set[tuple[str, str]]:
    """The edges by what both ends say."""
    said = {(node, other) for node, core in net.cores.items() for other in core.branches}
    assert all((other, node) in said for node, other in said if not {node, other} & net.silent)
    return {(one, other) for one, other in said if one < other and not {one, other} & net.silent}


def minimum(weights: Weights) -> set[tuple[str, str]]:
    graph = nx.Graph()
    for rank, (_, one, other) in enumerate(sorted((weights[pair], *pair) for pair in weights)):
        graph.add_edge(one, other, weight=rank)
    return {tuple(sorted(edge)) for edge in nx.minimum_spanning_edges(graph, data=False)}


def test_of_equal_weights_the_ids_decide() -> None:
    net = network({("1", "2"): 5, ("1", "3"): 5, ("2", "3"): 5})
    start(net)
    net.run()
    assert tree(net) == {("1", "2"), ("1", "3")}


def test_a_path_of_four_takes_34_messages_and_has_its_core_in_the_middle() -> None:
    net = network({("1", "2"): 1, ("2", "3"): 3, ("3", "4"): 2})
    start(net)
    net.run()
    assert tree(net) == {("1", "2"), ("2", "3"), ("3", "4")}
    assert {core.core for core in net.cores.values()} == {None, ("2", "3")}
    assert all(core.is_ready for core in net.cores.values())
    assert net.sent["Ready"] == 2
    assert net.sent.total() == 34


def test_both_ends_take_the_mean_of_what_they_have_measured() -> None:
    one, other = TreeBuilder("a", {"b": 4}), TreeBuilder("b", {"a": 8})
    (to_b,), (to_a,) = one.start(0.0), other.start(0.0)
    assert (to_b.message, to_a.message) == (Weigh(1, 4), Weigh(1, 8))
    one.hear("b", to_a.message, 0.0)
    other.hear("a", to_b.message, 0.0)
    assert one._key["b"] == other._key["a"] == (6, "a", "b")


@given(graphs, st.integers(0, 2**32))
def test_random_graphs_get_their_minimum_spanning_tree_within_the_bound(weights: Weights, seed: int) -> None:
    net = network(weights, seed)
    start(net)
    net.run(until=10_000.0)
    assert tree(net) == minimum(weights)
    assert all(core.is_ready for core in net.cores.values())
    count = len(net.cores)
    assert net.sent.total() <= 4 * len(weights) + 5 * count * log2(count) + count


def test_a_ring_is_built_without_a_node_that_falls_silent_after_its_connect() -> None:
    net = network({("1", "2"): 1, ("2", "3"): 2, ("3", "4"): 3, ("4", "5"): 4, ("1", "5"): 5})
    start(net)
    while not net.sent["Connect"] or not _has_sent_connect(net, "3"):
        assert net.step()
    net.silent.add("3")
    net.run()
    expected = {("1", "2"), ("1", "5"), ("4", "5")}
    assert tree(net) == expected
    others = {node: core for node, core in net.cores.items() if node != "3"}
    assert all(core.is_ready for core in others.values())
    assert {core.run for core in others.values()} == {2}
    before = net.sent.total()
    late = (Weigh(1, 2), Connect(1, 0), Accept(1), Report(1, (9, "2", "3")), Here(1, is_used=True))
    for message in late:
        for node in ("2", "4"):
            net.do(node, others[node].hear("3", message, net.now))
    net.silent.clear()
    net.run()
    assert net.sent.total() - before <= 2 * 5, "3 asks, and nobody answers"
    assert {tuple(sorted((one, two))) for one, core in others.items() for two in core.branches} == expected


def _has_sent_connect(net: MessageNetwork[TreeMessage], node: str) -> bool:
    return any(one[2] == node and isinstance(one[4], Connect) for one in net._under_way)


@given(graphs, st.integers(0, 2**32), st.integers(0, 120), nodes)
def test_a_node_may_die_at_any_moment_of_the_run(weights: Weights, seed: int, steps: int, dead: str) -> None:
    net = network(weights, seed)
    start(net)
    for _ in range(steps):
        net.step()
    were_ready = all(core.is_ready for core in net.cores.values())
    net.silent.add(dead)
    net.run(until=10_000.0)
    alive = {pair: weight for pair, weight in weights.items() if dead not in pair}
    if not were_ready and all(core.run == 2 for node, core in net.cores.items() if node != dead):
        assert tree(net) == minimum(alive)
    assert all(core.is_ready for node, core in net.cores.items() if node != dead)


def test_a_run_that_others_have_begun_is_joined() -> None:
    net = network({("1", "2"): 1, ("2", "3"): 1})
    start(net)
    net.run()
    net.do("3", net.cores["3"].start(net.now, 7))
    net.run()
    assert {core.run for core in net.cores.values()} == {7}
    assert tree(net) == {("1", "2"), ("2", "3")}


@pytest.mark.parametrize("message", [Report(1, (1, "a", "b")), Connect(1, 9), Accept(1)])
def test_messages_that_do_not_fit_raise_nothing(message: TreeMessage) -> None:
    core = TreeBuilder("a", {"b": 1, "c": 2})
    core.start(0.0)
    assert core.hear("z", message, 0.0) == []
    core.hear("b", message, 0.0)
    core.hear("b", Weigh(1, 3), 0.0)
    core.hear("c", Weigh(1, 3), 0.0)
