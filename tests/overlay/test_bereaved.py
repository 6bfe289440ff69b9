"""Gaps in the events of nodes that are gone for good, when more die than are tolerated."""

from __future__ import annotations

import pytest
from overlay.network import Listening, Network

from tidings.overlay.bereaved import SETTLE_S, LastNumber, LastRequest
from tidings.protocol.subscriber import MissedNumbers
from tidings.simulator.client import must_not


def star() -> Network:
    """A centre between x, b and c, which find each other when it is gone."""
    return Network(("x", "m"), ("b", "m"), ("c", "m"), reroute_s=30.0, suspect_s=0.0)


def publish_ahead(net: Network, *, wanted: str = "x >= 0") -> tuple[Listening, Listening]:
    """Let c have an event of x that b has not, as the link of b is cut."""
    at_b = net.app("b").subscribe(wanted, durable="b")
    at_c = net.app("c").subscribe("x >= 0", durable="c")
    net.run()
    app = net.app("x")
    app.publish(1)
    net.run()
    net.cut("b", "m")
    app.publish(2)
    net.run()
    assert (at_b.values, at_c.values) == ([1], [1, 2])
    return at_b, at_c


def bury(net: Network, *nodes: str) -> None:
    """Have the others forget nodes that are gone, as an operator does."""
    ids = {net[name].broker.node for name in nodes}
    for name in net.names:
        overlay = net[name].core.overlay
        known = {one.node for one in overlay} | {one.neighbour for one in overlay.topology.own.links}
        if name not in nodes:
            connection = net.app(name).connection
            for node in sorted(known & ids):
                connection.request("topology.remove", {"node": node}).then(lambda _none: None, must_not)
            net.run(0.5)


def epoch(net: Network, node: str) -> int:
    return net[node].core.overlay.numbers.epoch


def number(net: Network, node: str) -> int:
    """The last number of a node."""
    return net[node].broker.position


def test_what_only_dead_nodes_kept_is_a_gap_where_others_have_had_it() -> None:
    net = star()
    at_b, at_c = publish_ahead(net)
    expected = MissedNumbers("x", epoch(net, "x"), number(net, "x"), number(net, "x"))
    for name in "xm":
        net[name].crash()
    net.run(60.0)
    net.heal("b", "m")
    assert at_b.missed == []  # they may come back
    bury(net, "x", "m")
    net.run(2 * SETTLE_S)
    assert at_b.missed == [expected]
    assert at_c.missed == []
    assert at_b.values == [1]

    for name in "xm":
        net[name].start()
    net.run(200.0)
    net.app("x", "again").publish(3)
    net.run(20.0)
    assert at_b.values == [1, 2, 3]
    assert [event["x"] for event in at_b.late] == [2]
    assert at_c.values == [1, 2, 3]
    assert at_c.late == []


def test_no_gap_is_reported_while_no_more_die_than_are_tolerated() -> None:
    net = star()
    at_b, at_c = publish_ahead(net)
    net["x"].crash()
    net.run(60.0)
    bury(net, "x")
    net.run(2 * SETTLE_S)
    net.heal("b", "m")
    net.run(60.0)
    assert (at_b.values, at_c.values) == ([1, 2], [1, 2])
    assert (at_b.missed, at_c.missed) == ([], [])


def test_what_a_living_neighbour_has_found_to_be_nothing_for_one_is_no_gap() -> None:
    """b does not want what c has had more, and takes events from c since m is gone."""
    net = star()
    net["m"].crash()
    net.run(100.0)
    at_b = net.app("b").subscribe("x < 2", durable="b")
    at_c = net.app("c").subscribe("x >= 0", durable="c")
    net.run()
    net.app("x").publish(1, 2)
    net.run()
    assert (at_b.values, at_c.values) == ([1], [1, 2])
    net["x"].crash()
    net.run(60.0)
    bury(net, "x", "m")
    net.run(2 * SETTLE_S)
    assert (at_b.missed, at_c.missed) == ([], [])


@pytest.mark.parametrize("of", ["c", "nobody"])
def test_numbers_of_nodes_that_are_there_or_unknown_are_refused(of: str) -> None:
    net = Network(("a", "b"), ("b", "c"))
    got = net.app("b").subscribe("")
    net.run()
    node = net["c"].broker.node if of == "c" else of
    request = LastRequest([LastNumber(node, 1, 1_000)])
    net["b"].core.overlay._bereavement.hear(net.neighbour("b", "a"), request)
    net.run()
    assert got.missed == []
    assert net.count("b", "relays_refused", "gap") == 1
