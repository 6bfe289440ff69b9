"""Coordinators of subnets: who they are, whom they lead, and that nothing is separated by that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from overlay.network import Network

from tidings.overlay.coordinating import AGAIN_S, LOOK_S, Coordinating, Subnets
from tidings.overlay.known_records import KnownRecords
from tidings.overlay.records import LinkRecord, NodeRecord
from tidings.overlay.tree import LOST, Edge, edges_of, is_lost, spanning_tree, ways_from

NODES = [f"n{number}" for number in range(8)]
LABELS = ("", "hall", "shed")


def records_of(edges: str, subnets: dict[str, str], leaves: str = "", lost: str = "") -> list[NodeRecord]:
    """Records of nodes of one letter: `ab bc` are links; `subnets` has the letters of each label."""
    pairs = [*edges.split(), *lost.split()]
    label = {node: name for name, nodes in subnets.items() for node in nodes}
    records = []
    for node in sorted({*"".join(pairs), *label}):
        links = sorted((pair.strip(node), number) for number, pair in enumerate(pairs) if node in pair)
        gone = {pair.strip(node) for pair in lost.split() if node in pair}
        made = tuple(LinkRecord(end, since + 1, lost=99 if end in gone else 0) for end, since in links)
        address = f"tidings://{node}:1"
        about = node in leaves, address, 0, label.get(node, "")
        records.append(NodeRecord(node, node, 1, 1, made, *about))
    return records


def subnets_of(*arguments: Any, **more: Any) -> Subnets:
    records = records_of(*arguments, **more)
    return Subnets(records, edges_of(records))


def tree_of(*arguments: Any, **more: Any) -> set[str]:
    records = records_of(*arguments, **more)
    edges = edges_of(records)
    return {one + other for _, one, other in spanning_tree(edges, Subnets(records, edges).leaves)}


MESH = "ab ac ad bc bd cd"


def test_the_smallest_of_a_subnet_is_its_coordinator_and_the_others_are_its_leaves() -> None:
    found = subnets_of(MESH, {"hall": "abcd"})
    assert found.leaves == {"b": "a", "c": "a", "d": "a"}
    assert found.members == {"a": 3}
    assert tree_of("bc cd bd ab ac ad", {"hall": "abcd"}) == {"ab", "ac", "ad"}


def test_a_node_alone_on_its_subnet_is_like_any_other() -> None:
    assert subnets_of("ab bc", {"hall": "b"}).leaves == {}
    assert tree_of("ab bc", {"hall": "b"}) == {"ab", "bc"}


def test_when_the_coordinator_is_lost_the_next_takes_over() -> None:
    found = subnets_of("bc bd cd", {"hall": "abcd"}, lost="ab ac ad")
    assert found.coordinators == {"a": "a", "b": "b", "c": "b", "d": "b"}
    assert found.leaves == {"c": "b", "d": "b"}


def test_subnets_are_joined_by_their_coordinators() -> None:
    edges = "ab ac bc de df ef ad"
    assert tree_of(edges, {"hall": "abc", "shed": "def"}) == {"ab", "ac", "de", "df", "ad"}


def test_a_member_through_which_alone_others_are_reached_carries_on() -> None:
    """c and e are linked, not their coordinators."""
    found = subnets_of("ab ac bc de df ef ce", {"hall": "abc", "shed": "def"})
    assert found.leaves == {"b": "a", "f": "d"}
    assert found.relays == {"c", "e"}
    assert subnets_of("ab ac bc de df ef ce ad", {"hall": "abc", "shed": "def"}).relays == set()


def test_a_member_that_keeps_for_a_node_that_is_gone_carries_on() -> None:
    assert subnets_of("ab ac bc", {"hall": "abc"}, lost="bz").leaves == {"c": "a"}


def test_a_leaf_by_its_settings_coordinates_nobody_and_keeps_the_one_it_hangs_on() -> None:
    found = subnets_of("ab ac bc", {"hall": "abc"}, leaves="a")
    assert found.leaves == {"a": "b", "c": "b"}
    assert subnets_of("ab ac cz", {"hall": "abc"}, leaves="z").leaves == {"z": "", "b": "a"}


def test_a_member_without_a_link_to_its_coordinator_is_no_leaf() -> None:
    assert subnets_of("ab bc", {"hall": "abc"}).leaves == {}
    assert tree_of("ab bc", {"hall": "abc"}) == {"ab", "bc"}


def test_both_parts_of_a_subnet_that_is_torn_have_a_coordinator() -> None:
    found = subnets_of("ab cd", {"hall": "abcd"}, lost="bc")
    assert found.coordinators == {"a": "a", "b": "a", "c": "c", "d": "c"}


pairs = st.lists(st.sampled_from(NODES), min_size=2, max_size=2, unique=True).map(sorted)
places = st.integers(0, 9) | st.integers(1, 9).map(lambda moment: LOST - moment)
graphs = st.dictionaries(pairs.map(tuple), places, max_size=20).map(
    lambda found: [(place, one, other) for (one, other), place in found.items()]
)
labels = st.lists(st.sampled_from(LABELS), min_size=len(NODES), max_size=len(NODES))
alone = st.sets(st.sampled_from(NODES), max_size=2)


def parts(edges: Iterable[Edge]) -> set[frozenset[str]]:
    return {frozenset(ways_from(node, list(edges))) for node in NODES}


def within(edges: Iterable[Edge], alone: set[str]) -> list[Edge]:
    """The edges between nodes that are no leaves by their settings: those may choose another end."""
    return [edge for edge in edges if not alone & {*edge[1:]}]


def ends(edges: Iterable[Edge]) -> set[str]:
    return {end for edge in edges for end in edge[1:]}


@given(graphs, labels, alone, st.randoms(use_true_random=False))
def test_no_leaf_separates_and_each_has_its_coordinator_as_its_only_neighbour(
    edges: list[Edge], labels: list[str], alone: set[str], random: Any
) -> None:
    records = [
        NodeRecord(node, node, 1, 1, leaf=node in alone, subnet=label)
        for node, label in zip(NODES, labels, strict=True)
    ]
    found = Subnets(records, edges)
    tree = spanning_tree(edges, found.leaves)
    plain = spanning_tree(edges, dict.fromkeys(alone, ""))
    assert parts(within(tree, alone)) == parts(within(plain, alone))
    assert alone.intersection(ends(tree)) == alone.intersection(ends(plain))
    live = {edge[1:] for edge in edges if not is_lost(edge)}
    for leaf, home in found.leaves.items():
        beside = [one if other == leaf else other for _, one, other in tree if leaf in (one, other)]
        assert beside == [home] if home else len(beside) <= 1
        if home:
            assert labels[NODES.index(leaf)] == labels[NODES.index(home)] != ""
            assert (min(leaf, home), max(leaf, home)) in live
            assert home not in found.leaves
    shuffled = Subnets(random.sample(records, len(records)), random.sample(edges, len(edges)))
    assert (shuffled.leaves, shuffled.relays) == (found.leaves, found.relays)


# What a node does for its subnet


def known(records: Iterable[NodeRecord]) -> KnownRecords:
    found = KnownRecords()
    for record in records:
        found.put(record)
    return found


def approached(core: Coordinating, records: list[NodeRecord], now: float = 0.0) -> list[str]:
    connected = {edge[1] for edge in edges_of(records)} | {edge[2] for edge in edges_of(records)}
    return [one.node for one in core.look(known(records), edges_of(records), connected, now)]


def test_a_member_makes_a_link_to_its_coordinator_once_in_a_while() -> None:
    core, records = Coordinating("c", "hall"), records_of("ab bc", {"hall": "abc"})
    assert approached(core, records, 0.0) == ["a"]
    assert approached(core, records, 1.0) == []
    assert core.wake_at == AGAIN_S
    assert approached(core, records, AGAIN_S) == ["a"]
    assert approached(core, records_of("ab bc ac", {"hall": "abc"}), 99.0) == []
    assert core.wake_at == float("inf")


def test_coordinators_make_the_links_for_which_members_carry_on() -> None:
    records = records_of("ab ac bc de df ef ce by", {"hall": "abc", "shed": "def"})
    assert approached(Coordinating("a", "hall"), records) == ["d", "y"]
    assert approached(Coordinating("d", "shed"), records) == ["a"]
    assert approached(Coordinating("b", "hall"), records) == []


def test_a_node_without_a_subnet_never_looks() -> None:
    core = Coordinating("a")
    core.note(0.0)
    assert core.wake_at == float("inf")
    Coordinating("a", "hall").note(0.0)
    assert approached(core, records_of("ab bc", {"hall": "bc"})) == []


def test_nodes_that_find_each_other_take_the_smallest_label_among_them() -> None:
    records = records_of("bc cd", {"@a": "b", "@c": "c", "hall": "d"})
    core = Coordinating("c", finds=True)
    assert core.label == "@c"
    approached(core, records)
    assert core.label == "@c"  # b is linked, but was not found nearby
    core.near("bob", "b", 5.0)
    core.near("dan", "d", 5.0)  # its label is a setting, for those who have it
    assert core.wake_at == 5.0 + LOOK_S
    approached(core, records)
    assert core.label == "@a"
    stranger = Coordinating("c", finds=True)
    stranger.near("bob", "b", 0.0)
    stranger.near("bob", "", 1.0)
    approached(stranger, records)
    assert stranger.label == "@c"
    given_by_hand = Coordinating("c", "hall", finds=True)
    given_by_hand.near("bob", "b", 0.0)
    approached(given_by_hand, records)
    assert given_by_hand.label == "hall"


# Whole nodes


def roles(net: Network) -> dict[str, set[str]]:
    """The neighbours of each living node in the tree, all by their names."""
    found = {}
    for name in net.names:
        if net[name].is_up:
            topology = net[name].core.overlay.topology
            found[name] = {topology.name_of(node) or "" for node in topology.tree.neighbours}
    return found


def by_id(net: Network) -> list[str]:
    return sorted((name for name in net.names if net[name].is_up), key=lambda name: net[name].broker.node)


def test_a_line_of_nodes_on_one_subnet_becomes_a_star_and_another_when_its_centre_dies() -> None:
    net = Network(("v", "w"), ("w", "x"), ("x", "y"), ("y", "z"), settle_s=20.0, subnet="hall", reroute_s=1.0)
    first, *others = by_id(net)
    assert roles(net) == {first: set(others), **{name: {first} for name in others}}
    got = {name: net.app(name).subscribe(durable="d") for name in others}
    apps = {name: net.app(name) for name in others}
    net.run()
    for app in apps.values():
        app.publish(1, 2)
    net[first].die()
    for app in apps.values():
        app.publish(3)
    net.run(20.0)
    second, *leaves = by_id(net)
    star = roles(net)
    assert {name: star[name] for name in leaves} == {name: {second} for name in leaves} | {
        name: {second, first}
        for name in leaves
        if first in star[name]  # one keeps events for the dead
    }
    assert [sorted(one.values) for one in got.values()] == [sorted([1, 2, 3] * 4)] * 4


def test_two_subnets_are_joined_by_their_coordinators_whoever_was_linked() -> None:
    edges = ("a", "b"), ("b", "c"), ("c", "x"), ("x", "y"), ("y", "z")
    labels = {name: {"subnet": "hall" if name in "abc" else "shed"} for name in "abcxyz"}
    net = Network(*edges, settle_s=30.0, each=labels, reroute_s=1.0)
    hall, shed = ([name for name in by_id(net) if name in part] for part in ("abc", "xyz"))
    found = roles(net)
    assert found[hall[0]] == {*hall[1:], shed[0]}
    assert found[shed[0]] == {*shed[1:], hall[0]}
    assert all(found[leaf] == {hall[0]} for leaf in hall[1:])
    assert all(found[leaf] == {shed[0]} for leaf in shed[1:])


def test_a_coordinator_that_is_drained_hands_over_to_the_next() -> None:
    net = Network(("v", "w"), ("w", "x"), ("x", "y"), settle_s=20.0, subnet="hall", reroute_s=1.0)
    first, second, *leaves = by_id(net)
    got = {name: net.app(name).subscribe(durable="d") for name in (second, *leaves)}
    app = net.app(first)
    net.run()
    app.publish(1)
    told = app.ask("node.drain")
    net.run(20.0)
    net.app(leaves[0]).publish(2)
    told = app.ask("node.drain")
    net.run()
    assert told[0]["between"] == []
    assert told[0]["done"]
    coordinators = net[second].core.overlay.topology.subnets.coordinators
    assert {coordinators[net[name].broker.node] for name in (second, *leaves)} == {net[second].broker.node}
    assert [one.values for one in got.values()] == [[1, 2]] * 3


def test_the_next_coordinator_takes_over_at_once_from_one_that_stops() -> None:
    """Links that are cut count as lost after ten minutes, and nobody is suspected."""
    slow = {"reroute_s": 600.0, "suspect_s": 0.0}
    net = Network(("v", "w"), ("w", "x"), ("x", "y"), settle_s=20.0, subnet="hall", **slow)
    first, second, *leaves = by_id(net)
    got = {name: net.app(name).subscribe(durable="d") for name in (second, *leaves)}
    app = net.app(leaves[0])
    net.run()
    net[first].core.hang_up()
    net[first].schedule()
    net.run(0.1)
    net[first].die()
    app.publish(1)
    net.run(15.0)
    assert [one.values for one in got.values()] == [[1]] * 3
    assert all(second in roles(net)[name] for name in leaves)
    assert net.count(second, "neighbours_suspected") == 0


def test_a_node_that_stops_and_leads_nobody_keeps_its_links() -> None:
    net = Network(("v", "w"), ("w", "x"), ("x", "y"), settle_s=20.0, subnet="hall", reroute_s=600.0)
    _, second, *_ = by_id(net)
    net[second].core.hang_up()
    assert not any(link.lost for link in net[second].core.overlay.topology.own.links)


def test_a_smaller_node_that_comes_back_coordinates_again_and_has_what_it_missed() -> None:
    net = Network(("v", "w"), ("w", "x"), ("x", "y"), settle_s=20.0, subnet="hall", reroute_s=1.0)
    first, second, *leaves = by_id(net)
    got = net.app(first).subscribe(durable="d")
    app = net.app(leaves[0])
    net.run()
    net[first].crash()
    net.run(30.0)
    assert second in roles(net)[leaves[0]]
    app.publish(1, 2)
    net.run()
    net[first].start()
    net.run(60.0)
    assert roles(net) == {first: {second, *leaves}, **{name: {first} for name in (second, *leaves)}}
    assert got.values == [1, 2]
