"""Subscriptions in force, and events that are held elsewhere."""

from __future__ import annotations

from math import inf

import pytest
from overlay.network import Network


def test_a_subscriber_learns_from_which_number_of_each_node_it_is_in_force() -> None:
    net = Network(("a", "b"), ("b", "c"))
    source = net.app("c")
    net.app("c").subscribe("", durable="keeps")
    net.run()
    source.publish(1, 2)
    app = net.app("a")
    app.subscribe("x > 0")
    told = app.ask("in_force")
    net.run()
    (in_force,) = told
    assert sorted(in_force["nodes"]) == ["a", "b", "c"]
    assert in_force["nodes"]["c"] == [net["c"].core.overlay.numbers.epoch, 2]
    assert in_force["missing"] == []


def test_what_is_published_after_a_subscription_is_in_force_comes_at_once() -> None:
    net = Network(*((f"n{one}", f"n{one + 1}") for one in range(7)))
    app, source = net.app("n0"), net.app("n7")
    listening = app.subscribe("x > 0")
    told = app.ask("in_force")
    while not told:
        net.run(0.001)
    source.publish(1, delivery="transient")
    net.run()
    assert listening.values == [1]


def test_nodes_behind_a_cut_are_missing() -> None:
    net = Network(("a", "b"), ("b", "c"), ("c", "d"), reroute_s=inf)
    app = net.app("a")
    app.subscribe("x > 0")
    net.cut("b", "c")
    net.run(10)
    told = app.ask("in_force")
    net.run()
    assert told == [{"nodes": told[0]["nodes"], "missing": ["c", "d"]}]
    assert sorted(told[0]["nodes"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("tolerates", "is_held"), [((1, 1, 1), True), ((2, 2, 2), False), ((2, 1, 1), False), ((2, 3, 0), False)]
)
def test_an_event_is_held_when_all_within_as_many_hops_have_it_as_nodes_may_die(
    tolerates: tuple[int, ...], is_held: bool
) -> None:
    """a - b - c, which need not tolerate as many deaths."""
    edges, names = (("a", "b"), ("b", "c")), ("a", "b", "c")
    each = {name: {"tolerate": count} for name, count in zip(names, tolerates, strict=True)}
    net = Network(*edges, reroute_s=inf, each=each)
    for name in "bc":
        net.app(name).subscribe("x > 0", durable="mine")
    app = net.app("a")
    net.run()
    net.cut("b", "c")
    app.publish(1)
    told = app.ask("held")
    net.run(5)
    assert told == [None] * is_held
    net.heal("b", "c")
    net.run(60)
    assert told == [None]
    assert {net.neighbour(*edge).status(1)["kept"] for edge in edges} == {0}


def test_an_event_is_held_when_the_neighbours_that_want_it_have_it() -> None:
    net = Network(("a", "b"), ("a", "c"))
    net.app("b").subscribe("x > 0", durable="mine")
    app = net.app("a")
    net.run()
    app.publish(1)
    told = app.ask("held")
    net.run()
    assert told == [None], "c does not want it"
    net.cut("a", "b")
    app.publish(2)
    told = app.ask("held")
    net.run()
    assert told == []
    net.heal("a", "b")
    net.run(60)
    assert told == [None]
