"""Fading: after `keep_s` a reliable event is stored no longer, and is passed on as a transient one."""

from __future__ import annotations

import pytest
from overlay.network import Listening, Network


def line() -> tuple[Network, Listening, Listening]:
    """a - b - c, with a plain and a durable subscription at c."""
    net = Network(("a", "b"), ("b", "c"), reroute_s=1_000.0)
    plain = net.app("c").subscribe("x >= 0")
    durable = net.app("c", "keeper").subscribe("x >= 0", durable="all")
    net.run()
    return net, plain, durable


def part(net: Network) -> None:
    """Cut off c: no other link can be made to it, either."""
    for name in "ab":
        net.cut(name, "c")


def join(net: Network) -> None:
    for name in "ab":
        net.heal(name, "c")


def test_an_event_that_is_late_is_delivered_to_those_who_are_there_and_not_stored() -> None:
    net, plain, durable = line()
    part(net)
    net.app("a").publish(1, keep_s=5.0)
    net.app("a").publish(2, keep_s=500.0)
    net.run(10)
    join(net)
    net.run(30)
    assert plain.values == durable.values == [1, 2]
    assert net["c"].broker.position == 1


def test_an_event_that_is_in_time_is_stored_on_its_way() -> None:
    net, plain, _ = line()
    net.app("a").publish(1, keep_s=5.0)
    net.run(2)
    assert plain.values == [1]
    assert net["c"].broker.position == 1


@pytest.mark.parametrize(("away_s", "got"), [(3.0, [1, 2, 3]), (30.0, [2, 3])])
def test_a_durable_subscription_that_comes_back_later_does_not_get_it(away_s: float, got: list[int]) -> None:
    net = Network(("a", "b"))
    durable = net.app("b", "keeper").subscribe("x >= 0", durable="all")
    net.run()
    net.cut("keeper", "b")
    net.app("a").publish(1, keep_s=10.0)
    net.app("a").publish(2)
    net.app("a").publish(3, keep_s=10.0, delivery="persistent")
    net.run(away_s)
    net.heal("keeper", "b")
    net.run(5)
    assert durable.values == got


def test_an_event_that_may_not_be_stored_at_all_is_transient_from_the_start() -> None:
    net, plain, durable = line()
    net.app("a").publish(1, keep_s=0.0)
    net.run(2)
    assert plain.values == durable.values == [1]
    assert [net[name].broker.position for name in "abc"] == [0, 0, 0]


def test_a_faded_event_overtakes_no_stored_one() -> None:
    net, plain, durable = line()
    part(net)
    for value in range(20):
        net.app("a").publish(value, keep_s=5.0 if value % 2 else 500.0)
    net.run(10)
    join(net)
    net.app("a").publish(*range(20, 40), keep_s=0.0)
    net.run(10)
    assert plain.values[:20] == durable.values[:20] == list(range(20))
    assert plain.values == sorted(plain.values)
