"""The spanning tree, against its definition."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from overlay.cores import oracle

from tidings.overlay.records import LinkRecord, NodeRecord
from tidings.overlay.tree import Edge, Tree, edges_of, spanning_tree

NODES = [f"n{number}" for number in range(8)]
pairs = st.lists(st.sampled_from(NODES), min_size=2, max_size=2, unique=True).map(sorted)
edge_lists = st.dictionaries(pairs.map(tuple), st.integers(0, 9), max_size=20).map(
    lambda found: [(since, one, other) for (one, other), since in found.items()]
)
leaf_sets = st.dictionaries(st.sampled_from(NODES), st.just(""), max_size=3)


@given(edge_lists, leaf_sets)
def test_the_tree_is_the_minimum_spanning_tree_with_leaves_at_its_ends(
    edges: list[Edge], leaves: dict[str, str]
) -> None:
    assert set(spanning_tree(edges, leaves)) == oracle(edges, leaves)


@given(edge_lists, leaf_sets, st.randoms(use_true_random=False))
def test_the_order_of_the_edges_does_not_matter(
    edges: list[Edge], leaves: dict[str, str], random: Random
) -> None:
    shuffled = random.sample(edges, len(edges))
    assert spanning_tree(shuffled, leaves) == spanning_tree(edges, leaves)


@given(edge_lists, pairs)
def test_a_younger_edge_takes_none_out_of_the_tree(edges: list[Edge], ends: list[str]) -> None:
    added = (10, ends[0], ends[1])
    assert set(spanning_tree(edges)) <= set(spanning_tree([*edges, added]))


@given(edge_lists, leaf_sets)
def test_a_leaf_has_one_edge_in_the_tree_and_none_to_another_leaf(
    edges: list[Edge], leaves: dict[str, str]
) -> None:
    tree = spanning_tree(edges, leaves)
    for leaf in leaves:
        own = [edge for edge in tree if leaf in edge[1:]]
        assert len(own) <= 1
        assert all(not leaves.keys() >= set(edge[1:]) for edge in own)


@given(edge_lists, leaf_sets)
def test_a_walk_by_the_ways_of_each_node_ends_at_its_goal(edges: list[Edge], leaves: dict[str, str]) -> None:
    forest = spanning_tree(edges, leaves)
    trees = {node: Tree(node, forest) for node in NODES}
    for goal in NODES:
        for start in trees[goal].nodes:
            at, steps = start, 0
            while (way := trees[at].way(goal)) is not None:
                assert (min(at, way), max(at, way)) in {edge[1:] for edge in forest}
                at, steps = way, steps + 1
                assert steps < len(NODES)
            assert at == goal


@given(edge_lists, st.sampled_from(NODES))
def test_each_other_node_of_the_tree_is_behind_one_neighbour(edges: list[Edge], own: str) -> None:
    tree = Tree(own, spanning_tree(edges))
    behind = [node for neighbour in tree.neighbours for node in tree.behind(neighbour)]
    assert sorted(behind) == sorted(set(tree.nodes) - {own})
    assert all(tree.way(node) == one for one in tree.neighbours for node in tree.behind(one))
    assert tree.edges == {edge for edge in spanning_tree(edges) if edge[1] in tree}


def test_a_neighbour_whose_link_stands_by_has_nothing_behind_it() -> None:
    tree = Tree("a", spanning_tree([(1, "a", "b"), (2, "b", "c"), (3, "a", "c")]))
    assert tree.neighbours == ["b"]
    assert tree.behind("b") == {"b", "c"}
    assert tree.behind("c") == set()
    assert tree.way("c") == "b"
    assert tree.way("a") is None
    assert tree.way("elsewhere") is None


def test_an_edge_is_a_link_that_both_ends_name_since_the_later_moment() -> None:
    records = [
        NodeRecord("a", "", 1, 1, (LinkRecord("b", 7), LinkRecord("c", 5))),
        NodeRecord("b", "", 1, 1, (LinkRecord("a", 3, is_up=False), LinkRecord("z", 1))),
        NodeRecord("c", "", 1, 1),
    ]
    assert edges_of(records) == edges_of(records[::-1]) == [(7, "a", "b")]
