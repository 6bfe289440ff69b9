"""Clocks of nodes may be wrong, and be set."""

from __future__ import annotations

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
