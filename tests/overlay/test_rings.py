"""Links that close a ring: one stands by, and the nodes at its ends take events the long way."""

from __future__ import annotations

from overlay.network import Network

from tidings.simulator.world import Conditions


def test_a_node_that_starts_in_a_ring_refuses_no_event_for_good_while_it_learns_the_links() -> None:
    net = Network(("a", "b"), ("b", "d"), ("d", "c"), ("c", "a"), seed=2)
    near, far = next(
        (name, one.name) for name in net.names for one in net[name].core.overlay if not one.is_active
    )
    reader = net.app(near, "reader").subscribe("", durable="mine")
    source = net.app(far)
    net.run()
    (before,) = (one.name for one in net[near].core.overlay if one.is_active)
    for other in (before, far):
        net.world.network.link(near, other).conditions = Conditions(delay_s=0.2)
    net[near].crash()
    net[near].start()
    for value in range(40):
        source.publish(value)
        net.run(0.1)
    net.run(30)
    assert reader.values == list(range(40))


def test_a_node_that_asks_again_for_events_goes_on_announcing() -> None:
    net = Network(("a", "b"))
    neighbour = net.neighbour("a", "b")
    assert neighbour.intake is not None
    neighbour.intake.ended("the link stands by")
    net.run(5)
    far = net.app("a").subscribe("x > 0")
    net.run()
    assert net.table("b", of="a") == ["x > 0"]
    net.app("b").publish(1)
    net.run()
    assert far.values == [1]


def test_a_link_that_stands_by_stays_so_while_a_node_starts_again() -> None:
    net = Network(("a", "b"), ("b", "d"), ("d", "c"), ("c", "a"), seed=2, suspect_s=0.0)
    near, far = next(
        (name, one.name) for name in net.names for one in net[name].core.overlay if not one.is_active
    )
    net[near].crash()
    net[near].start()
    for _ in range(200):
        net.run(0.01)
        assert not any(one.is_active for one in net[near].core.overlay if one.name == far)
        assert not net.neighbour(far, near).is_active
    assert sum(one.is_up for one in net[near].core.overlay) == 2
