"""Links that close a ring: one stands by, and the nodes at its ends take events the long way."""

from __future__ import annotations

from overlay.network import Network


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
