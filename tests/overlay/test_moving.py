"""Nodes that are reached over other links than before: nothing is lost, doubled or out of order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from overlay.network import Listening, Network

LONG_S = 30.0
"""Time for a link to be called lost, and for what follows."""


def network(
    *links: tuple[str, str], spare: Sequence[tuple[str, str]], seed: int = 1, suspect_s: float = 0.0
) -> Network:
    """Nodes with links, and spare links that come later and stand by; silence is not noticed unless asked."""
    net = Network(*links, *spare, seed=seed, settle_s=0.0, suspect_s=suspect_s)
    for one in spare:
        net.cut(*one)
    net.run(5.0)
    for one in spare:
        net.heal(*one)
    net.run(LONG_S)
    assert edges(net, links[0][0]) == {tuple(sorted(one)) for one in links}
    return net


def die(net: Network, name: str) -> None:
    """Cut a node off from all others, for good."""
    for other in net.names:
        if other != name and net.neighbour_or_none(name, other) is not None:
            net.cut(name, other)


def edges(net: Network, node: str) -> set[tuple[str, str]]:
    topology = net[node].core.overlay.topology
    names = {record.node: record.name for record in topology.records}
    pairs = [(names[one], names[other]) for _, one, other in topology.tree.edges]
    return {(min(pair), max(pair)) for pair in pairs}


def run_until(net: Network, node: str, edge: tuple[str, str]) -> None:
    """Run until a node has an edge in its tree; the ends of a cut link notice that in their own time."""
    for _ in range(1_000):
        if edge in edges(net, node):
            return
        net.run(0.1)
    raise AssertionError(f"{node} has no edge {edge}")


def test_a_standby_link_takes_over_when_another_is_lost() -> None:
    net = network(("b", "a"), ("c", "b"), spare=[("c", "a")])
    got = net.app("c").subscribe(durable="d")
    app = net.app("a")
    net.run()
    net.cut("b", "c")
    app.publish(1, 2, 3)
    net.run(LONG_S)
    assert edges(net, "a") == {("a", "b"), ("a", "c")}
    assert got.values == [1, 2, 3]
    app.publish(4)
    net.run()
    net.heal("b", "c")
    net.run(LONG_S)
    app.publish(5)
    net.run()
    assert got.values == [1, 2, 3, 4, 5]
    assert edges(net, "a") == {("a", "b"), ("a", "c")}


def test_a_new_neighbour_gets_what_the_dead_one_had_and_it_had_not() -> None:
    """b has confirmed that it has stored 1 and 2, and dies before c has them: a still keeps them for c."""
    net = network(("b", "a"), ("c", "b"), spare=[("c", "a")])
    got = net.app("c").subscribe(durable="d")
    app = net.app("a")
    net.run()
    net.cut("b", "c")
    app.publish(1, 2)
    net.run(0.5)
    cursor = net.neighbour("a", "b").cursor
    assert cursor is not None
    assert cursor.acknowledged > cursor.released
    net["b"].die()
    net.run(LONG_S)
    assert ("a", "c") in edges(net, "a")
    assert got.values == [1, 2]


def test_the_star() -> None:
    """d was cut off from a, which dies: d gets from b what c has published, though b has had it."""
    net = network(("b", "a"), ("c", "a"), ("d", "a"), spare=[("c", "b"), ("d", "b")])
    at_b = net.app("b").subscribe("type = 'a'", durable="b")
    at_d = net.app("d").subscribe("type = 'a' OR type = 'b'", durable="d")
    app = net.app("c")
    net.run()
    net.cut("a", "d")
    net.run(0.2)
    app.publish(1, type="b")
    app.publish(2, type="a")
    app.publish(3, type="b")
    net.run(0.5)
    assert at_b.values == [2]
    assert at_d.values == []
    die(net, "a")
    net.run(LONG_S)
    assert at_d.values == [1, 2, 3]
    assert at_b.values == [2]
    app.publish(4, type="a")
    net.run()
    assert at_b.values == [2, 4]
    assert at_d.values == [1, 2, 3, 4]
    assert not [one.name for one in net["b"].core.overlay if one.is_ghost]


def test_what_comes_again_is_marked_also_by_a_node_that_has_not_had_it() -> None:
    """b has had what d lacks, and is reached over c now, where it is new."""
    net = network(("b", "a"), ("c", "a"), ("d", "a"), spare=[("c", "b"), ("d", "b")])
    got = {name: net.app(name).subscribe(durable=name) for name in "bd"}
    app = net.app("a")
    net.run()
    net.cut("a", "d")
    app.publish(1, 2)
    net.run(0.1)
    net.cut("a", "b")
    assert {name: one.values for name, one in got.items()} == {"b": [1, 2], "d": []}
    net.run(LONG_S)
    assert edges(net, "a") == {("a", "c"), ("b", "c"), ("b", "d")}
    assert {name: one.values for name, one in got.items()} == {"b": [1, 2], "d": [1, 2]}


def test_an_event_that_has_faded_is_handed_on_again_and_not_stored_again() -> None:
    """As above, later than the events may be stored: b hands them on to d, which is there."""
    net = network(("b", "a"), ("c", "a"), ("d", "a"), spare=[("c", "b"), ("d", "b")])
    got = {name: net.app(name).subscribe(durable=name) for name in "bd"}
    app = net.app("a")
    net.run()
    net.cut("a", "d")
    app.publish(1, 2, keep_s=2.0)
    app.publish(3)
    net.run(0.1)
    net.cut("a", "b")
    stored = net["b"].broker.position
    assert stored == 3
    net.run(LONG_S)
    assert edges(net, "a") == {("a", "c"), ("b", "c"), ("b", "d")}
    assert {name: one.values for name, one in got.items()} == {"b": [1, 2, 3], "d": [1, 2, 3]}
    assert net["b"].broker.position == stored + 1


def moved_behind_c(seed: int) -> tuple[Network, Listening, Listening]:
    """b has had 2 of a, not 1, and d nothing. b sees c in place of a, over a link that is dead, too."""
    net = network(("b", "a"), ("c", "a"), ("d", "a"), spare=[("c", "b"), ("d", "b")], seed=seed)
    at_b, at_d = net.app("b").subscribe("x = 2", durable="b"), net.app("d").subscribe(durable="d")
    app = net.app("a")
    net.run()
    net.part("a", "d")
    app.publish(1, 2)
    net.run(0.1)
    assert (at_b.values, at_d.values) == ([2], [])
    net.cut("a", "b")
    net.run(4.5)
    net.part("b", "c")
    run_until(net, "b", ("b", "c"))
    return net, at_b, at_d


def test_a_node_sends_nothing_of_a_stream_that_it_has_had_a_part_of() -> None:
    """b knew d behind a, then behind c, and is its neighbour in the end."""
    tried = map(moved_behind_c, range(1, 20))  # a and d notice in their own time that their link is dead
    before = {("a", "c"), ("a", "d"), ("b", "c")}
    net, at_b, at_d = next(one for one in tried if edges(one[0], "b") == before)
    run_until(net, "b", ("b", "d"))
    net.run(1.0)
    net.heal("b", "c")
    net.run(LONG_S)
    assert edges(net, "b") == {("a", "c"), ("b", "c"), ("b", "d")}
    assert (at_b.values, at_d.values) == ([2], [1, 2])


def test_a_node_that_has_not_moved_gets_what_is_left_out_for_one_that_has() -> None:
    """d, which has had all of a, moves behind c, which has had nothing: b asks a again for what c lacks."""
    net = network(("b", "a"), ("c", "b"), ("d", "a"), spare=[("d", "c")])
    got = {name: net.app(name).subscribe(durable=name) for name in "cd"}
    app = net.app("a")
    net.run()
    between = net.world.network
    between.part(between.link("b", "c"))
    app.publish(1, 2)
    net.run(0.5)
    assert {name: one.values for name, one in got.items()} == {"c": [], "d": [1, 2]}
    net.cut("a", "d")
    run_until(net, "b", ("c", "d"))
    run_until(net, "c", ("c", "d"))
    net.heal("b", "c")
    net.run(LONG_S)
    assert edges(net, "b") == {("a", "b"), ("b", "c"), ("c", "d")}
    assert {name: one.values for name, one in got.items()} == {"c": [1, 2], "d": [1, 2]}


@pytest.mark.parametrize("seed", range(2, 5))
def test_nothing_goes_back_where_it_came_from_when_its_first_node_has_moved(seed: int) -> None:
    """b has had 2 of e, not 1, from c: d, which is behind c still, gets both from e, which is not.

    The seed says which nodes notice first that a is gone.
    """
    net = network(("c", "b"), ("a", "c"), ("d", "a"), ("e", "a"), spare=[("e", "b"), ("d", "c")], seed=seed)
    at_b, at_d = net.app("b").subscribe("x = 2", durable="b"), net.app("d").subscribe(durable="d")
    app = net.app("e")
    net.run()
    net.cut("a", "d")
    app.publish(1, 2)
    net.run(0.1)
    assert (at_b.values, at_d.values) == ([2], [])
    die(net, "a")
    net.run(LONG_S)
    assert {("b", "e"), ("b", "c"), ("c", "d")} < edges(net, "b")
    assert (at_b.values, at_d.values) == ([2], [1, 2])


def test_a_node_is_not_whole_while_the_table_of_a_neighbour_is_out_of_date() -> None:
    """a stores for c until b knows what c wants: they are neighbours still, by a link that stands still."""
    net = network(("c", "a"), ("c", "b"), spare=[("b", "a")])
    app, between = net.app("a"), net.world.network
    net.run()
    between.part(between.link("b", "c"))
    got = net.app("c").subscribe(durable="c")
    net.run()
    assert (net.table("a", of="c"), net.table("b", of="c")) == (["TRUE"], [])
    net.cut("a", "c")
    run_until(net, "a", ("a", "b"))
    assert edges(net, "a") == {("a", "b"), ("b", "c")}
    net.run(1.0)
    app.publish(1, 2)
    net.run(1.0)
    net.heal("b", "c")
    net.run(LONG_S)
    assert edges(net, "a") == {("a", "b"), ("b", "c")}
    assert got.values == [1, 2]
    assert not [one.name for one in net["a"].core.overlay if one.is_ghost]


def test_what_a_lost_neighbour_wants_is_known_from_the_one_that_asks() -> None:
    """The link of b and c is lost, too, before c has told b what it wants: b stores for c what a did."""
    net = network(("c", "a"), ("b", "c"), spare=[("b", "a")])
    app, between = net.app("a"), net.world.network
    net.run()
    between.part(between.link("b", "c"))
    got = net.app("c").subscribe(durable="c")
    net.run()
    net.cut("a", "c")
    run_until(net, "a", ("a", "b"))
    net.run(3 * LONG_S)  # until the silence is noticed
    assert edges(net, "a") == {("a", "b"), ("b", "c")}
    assert not [one.name for one in net["a"].core.overlay if one.is_ghost]
    app.publish(1, 2)
    net.run()
    net.heal("b", "c")
    net.run(LONG_S)
    assert got.values == [1, 2]


def test_the_neighbours_of_a_dead_node_make_links_round_it() -> None:
    """No link stands by: those who miss the same node make links to the smallest of its neighbours."""
    net = Network(("b", "a"), ("c", "a"), ("d", "a"))
    got = {name: net.app(name).subscribe(durable=name) for name in "bcd"}
    app = net.app("c")
    net.run()
    app.publish(1)
    net.run()
    die(net, "a")
    app.publish(2)
    net.run(2 * LONG_S)
    centre = min("bcd", key=lambda name: net[name].broker.node)
    others = {tuple(sorted((centre, name))) for name in set("bcd") - {centre}}
    assert others < edges(net, centre)
    app.publish(3)
    net.run()
    assert {tuple(one.values) for one in got.values()} == {(1, 2, 3)}


def test_a_node_that_was_gone_for_long_gets_what_it_missed() -> None:
    net = Network(("b", "a"), ("c", "a"))
    got = net.app("a").subscribe(durable="a")
    app = net.app("c")
    net.run()
    net["a"].crash()
    app.publish(1, 2)
    net.run(LONG_S)
    app.publish(3)
    net.run()
    net["a"].start()
    net.run(LONG_S)
    app.publish(4)
    net.run(LONG_S)
    assert got.values == [1, 2, 3, 4]
