"""What is kept for neighbours, and for how long."""

from __future__ import annotations

from overlay.network import Network


def test_nothing_is_kept_for_a_neighbour_that_has_stored_everything() -> None:
    net = Network(("a", "b"), ("b", "c"))
    far = net.app("b").subscribe("", durable="mine")
    net.run()
    source = net.app("a")
    for value in range(5):
        source.publish(value)
        net.run(0.05)
    net.run(10)
    assert far.values == [0, 1, 2, 3, 4]
    cursor = net.neighbour("a", "b").cursor
    assert cursor is not None
    assert cursor.released == net["a"].broker.position
