"""Clocks of nodes may be wrong, and be set."""

from __future__ import annotations

from math import inf

import pytest
from overlay.network import Network


def test_a_clock_that_was_set_back_changes_no_tree() -> None:
    net = Network(("a", "b"), ("b", "c"), ("c", "a"))
    before = net["a"].core.overlay.topology.tree.edges
    stands_by = next(
        (node, one.name) for node in net.names for one in net[node].core.overlay if not one.is_active
    )
    for name in net.names:
        net[name].ahead_s = -3_600.0
    net.cut(*stands_by)
    net.run(20)
    net.heal(*stands_by)
    net.run(60)
    assert net.neighbour(*stands_by).is_up
    assert {net[name].core.overlay.topology.tree.edges for name in net.names} == {before}


YEAR_S = 365 * 86_400.0


@pytest.mark.parametrize("wrong", ["b", "ac"])
def test_clocks_that_are_a_year_apart_lose_and_double_no_event(wrong: str) -> None:
    """Also where a node has started by the wrong clock, and starts again by the right one."""
    net = Network(("a", "b"), ("b", "c"), reroute_s=inf)
    for ahead_s in (YEAR_S, 0.0):
        for name in wrong:
            net[name].crash()
            net[name].ahead_s = ahead_s
            net[name].start()
        net.run(10)
        got = {name: net.app(name).subscribe("x > 0") for name in "abc"}
        net.run()
        for value, name in enumerate("abc", 1):
            source = net.app(name)
            source.publish(value, subject="s")
            source.publish(value + 10, delivery="transient")
        net.run()
        last = {name: net.app(name).subscribe("x > 0 AND x < 10", last=True) for name in "abc"}
        net.run()
        assert all(sorted(one.values) == [1, 2, 3, 11, 12, 13] for one in got.values())
        assert all({1, 2, 3} == set(one.values) for one in last.values())
        for one in (*got.values(), *last.values()):
            one.end()
        net.run()
