"""Rebuilding: when a better tree is used, by which node's word, and that the switch costs no event."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from overlay.cores import Network as Cores
from overlay.network import App, Listening, Network
from overlay.test_moving import edges

from tidings.overlay.rebuilding import Rebuilding
from tidings.overlay.records import LinkRecord, NodeRecord
from tidings.overlay.topology import Topology
from tidings.overlay.topology_effects import SendRecords
from tidings.overlay.tree import Edge, edges_of, spanning_tree
from tidings.simulator.world import Conditions

Weights = dict[tuple[str, str], int]
WAIT_S = 5.0

nodes = st.sampled_from([f"n{number}" for number in range(9)])
graphs = st.dictionaries(
    st.tuples(nodes, nodes).filter(lambda ends: ends[0] < ends[1]), st.integers(1, 6), min_size=1, max_size=30
)


def records(weights: Weights, run: int = 1) -> list[NodeRecord]:
    """Records of nodes that have measured all their links."""
    links: dict[str, dict[str, int]] = {}
    for (one, other), weight in weights.items():
        links.setdefault(one, {})[other] = weight
        links.setdefault(other, {})[one] = weight
    return [
        NodeRecord(
            node, "", 1, 1, tuple(LinkRecord(to, 1, weight=found[to]) for to in sorted(found)), run=run
        )
        for node, found in sorted(links.items())
    ]


def ends(tree: list[Edge] | frozenset[Edge]) -> set[tuple[str, str]]:
    return {edge[1:] for edge in tree}


@given(graphs)
def test_the_tree_is_the_minimum_spanning_tree_of_networkx(weights: Weights) -> None:
    graph = nx.Graph()
    for rank, (_, one, other) in enumerate(sorted((weights[pair], *pair) for pair in weights)):
        graph.add_edge(one, other, weight=rank)  # no two are equal, so there is one minimum
    expected = nx.minimum_spanning_edges(graph, algorithm="prim", data=False)
    assert ends(spanning_tree(edges_of(records(weights)))) == {tuple(sorted(edge)) for edge in expected}


def test_of_equal_weights_the_ids_decide() -> None:
    triangle = {("1", "2"): 5, ("1", "3"): 5, ("2", "3"): 5}
    assert ends(spanning_tree(edges_of(records(triangle)))) == {("1", "2"), ("1", "3")}


def test_links_that_are_not_weighed_come_after_all_others_and_the_oldest_first() -> None:
    said = [
        NodeRecord(
            "a", "", 1, 1, (LinkRecord("b", 3), LinkRecord("c", 2), LinkRecord("d", 9, weight=99)), run=1
        ),
        NodeRecord("b", "", 1, 1, (LinkRecord("a", 3), LinkRecord("c", 1))),
        NodeRecord("c", "", 1, 1, (LinkRecord("a", 2), LinkRecord("b", 1))),
        NodeRecord("d", "", 1, 1, (LinkRecord("a", 9, weight=99),)),
    ]
    assert [edge[1:] for edge in spanning_tree(edges_of(said))] == [("a", "d"), ("b", "c"), ("a", "c")]


# When a run begins


def cores(weights: Weights, threshold: float = 0.3) -> Cores:
    """Cores of nodes that are linked, in this order, and have measured their links."""
    network = Cores(1)
    for node in sorted({node for pair in weights for node in pair}):
        rebuilding = Rebuilding(node, threshold, WAIT_S)
        network.cores[node] = Topology(node, node, 1, rebuilding=rebuilding)
    for one, other in weights:
        network.connect(one, other)
        network.settle(0.1)
    for (one, other), weight in weights.items():
        measure(network, one, other, weight)
    return network


def measure(network: Cores, one: str, other: str, weight: int) -> None:
    for near, far in ((one, other), (other, one)):
        network.do(near, network.cores[near].measured(far, weight, network.now))


def trees(network: Cores) -> set[frozenset[tuple[str, str]]]:
    return {frozenset(ends(core.tree.edges)) for core in network.cores.values()}


LINE = frozenset({("1", "2"), ("2", "3")})
STAR = frozenset({("1", "2"), ("1", "3")})


@pytest.mark.parametrize(("weight", "tree"), [(8, LINE), (7, LINE), (6, STAR)])
def test_a_tree_stays_until_another_saves_more_than_the_threshold_of_a_link(
    weight: int, tree: frozenset[tuple[str, str]]
) -> None:
    network = cores({("1", "2"): 10, ("2", "3"): 10, ("1", "3"): weight})
    network.settle(WAIT_S - 1)
    assert trees(network) == {LINE}
    network.settle(4 * WAIT_S)
    assert trees(network) == {tree}
    assert {core.own.run for core in network.cores.values()} == ({0, 1} if tree == STAR else {0})


def test_a_better_tree_that_does_not_last_is_not_used() -> None:
    network = cores({("1", "2"): 10, ("2", "3"): 10, ("1", "3"): 10})
    for _ in range(4):
        measure(network, "1", "3", 1)
        network.settle(WAIT_S + 1)
        measure(network, "1", "3", 10)
        network.settle(WAIT_S)
    assert trees(network) == {LINE}
    assert network.cores["1"].own.run == 0


def test_a_run_floods_one_record() -> None:
    network = cores({("1", "2"): 10, ("2", "3"): 10, ("1", "3"): 2})
    network.settle(1.9 * WAIT_S)
    before = len(network.sent)
    network.settle(3 * WAIT_S)
    assert trees(network) == {STAR}
    links = 3
    assert 0 < len(network.sent) - before <= 2 * links


def test_a_late_record_of_an_old_run_changes_nothing() -> None:
    network = cores({("1", "2"): 10, ("2", "3"): 10, ("1", "3"): 2})
    late = [core.own for core in network.cores.values()]
    network.settle(4 * WAIT_S)
    for node, core in network.cores.items():
        told = core.hear(core.connected[0], [one for one in late if one.node != node], network.now)
        assert not [effect for effect in told if isinstance(effect, SendRecords)]
    assert trees(network) == {STAR}


def test_what_is_measured_after_a_run_began_counts_from_the_next_one_on() -> None:
    network = cores({("1", "2"): 10, ("2", "3"): 10, ("1", "3"): 2})
    network.settle(4 * WAIT_S)
    measure(network, "1", "3", 11)
    network.settle(WAIT_S)
    assert trees(network) == {STAR}, "10 does not save 0.3 of 11"
    measure(network, "1", "3", 20)
    network.settle(4 * WAIT_S)
    assert trees(network) == {LINE}
    assert network.cores["1"].own.run == 2


def test_the_next_smallest_node_takes_the_number_over() -> None:
    network = cores({("1", "2"): 9, ("1", "3"): 9, ("2", "3"): 9, ("2", "4"): 9, ("3", "4"): 1})
    network.settle(4 * WAIT_S)
    assert network.cores["1"].own.run == 1
    network.remove("1", "2")
    network.remove("1", "3")
    network.settle(4 * WAIT_S)
    assert network.cores["2"].own.run == 1
    measure(network, "2", "4", 2)
    network.settle(4 * WAIT_S)
    assert trees(network) - {frozenset()} == {frozenset({("2", "4"), ("3", "4")})}
    assert network.cores["2"].own.run == 2


def test_parts_that_meet_after_different_runs_have_one_tree() -> None:
    network = cores(
        {("1", "2"): 10, ("2", "3"): 10, ("1", "3"): 2, ("5", "6"): 4, ("6", "7"): 4, ("5", "7"): 4}
    )
    network.settle(4 * WAIT_S)
    assert (network.cores["1"].own.run, network.cores["5"].own.run) == (1, 0)
    network.connect("3", "7")
    network.settle(4 * WAIT_S)
    assert len(trees(network)) == 1
    assert STAR | {("3", "7")} < trees(network).pop()


@given(graphs, st.randoms(use_true_random=False))
def test_nodes_agree_on_a_tree_that_no_link_beats_by_the_threshold(weights: Weights, random: Random) -> None:
    network = cores(dict(sorted(weights.items(), key=lambda _item: random.random())))
    network.settle(4 * WAIT_S)
    for pair in weights:
        weights[pair] = random.randint(1, 20)
        measure(network, *pair, weights[pair])
    network.settle(6 * WAIT_S)
    for core in network.cores.values():
        assert all(core.tree.edges == network.cores[other].tree.edges for other in core.tree.nodes)
    graph = nx.Graph([edge[1:] for core in network.cores.values() for edge in core.tree.edges])
    for (one, other), weight in weights.items():
        way = nx.shortest_path(graph, one, other)
        heaviest = max(weights[min(pair), max(pair)] for pair in pairwise(way))
        # Of links that save just as much, the ids decide.
        assert 2 * weight >= int(2 * heaviest * 0.7) - 1, (one, other)


# The switch of whole nodes under load


def weather(net: Network, slow: tuple[str, str]) -> None:
    """Let one link be slow, and the others quick."""
    for one, other in (("a", "b"), ("b", "c"), ("a", "c")):
        delay_s = 0.2 if {one, other} == set(slow) else 0.02
        net.world.network.link(one, other).conditions = Conditions(delay_s)


def test_switches_to_better_trees_lose_double_and_reorder_nothing() -> None:
    net = Network(("b", "a"), ("c", "b"), ("c", "a"), weigh_s=0.5)
    got: dict[str, Listening] = {name: net.app(name).subscribe(durable=name) for name in "abc"}
    apps: dict[str, App] = {name: net.app(name) for name in "abc"}
    sent = 0
    seen = set()
    for slow in (("a", "b"), ("b", "c"), ("a", "c"), ("a", "b")):
        weather(net, slow)
        for _ in range(75):
            sent += 1
            for number, app in enumerate(apps.values()):
                app.publish(10 * sent + number)
            net.run(0.4)
        assert slow not in edges(net, "a")
        seen.add(frozenset(edges(net, "a")))
    net.run(20.0)
    assert len(seen) == 3
    assert max(net[name].core.overlay.topology.own.run for name in "abc") >= 3
    for listening in got.values():
        for number in range(3):
            values = [value for value in listening.values if value % 10 == number]
            assert values == [10 * one + number for one in range(1, sent + 1)]
