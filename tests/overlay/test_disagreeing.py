"""Links whose ends disagree for a moment: on the tree, on what was greeted, and on which connection it is."""

from __future__ import annotations

from overlay.network import Network


def test_a_connection_that_was_not_needed_makes_the_link_when_the_other_one_is_gone() -> None:
    """Both dial, and one connection is the link; when that has ended for good the other one is."""
    net = Network(("a", "b"), ("b", "a"))
    near, far = ("a", "b") if net.neighbour("a", "b").link.is_dialled else ("b", "a")  # type: ignore[union-attr]
    (outbound,) = net[near].core.peering._outbound.values()
    outbound.end()
    net.run(5)
    neighbour = net.neighbour(far, near)
    assert neighbour.is_up
    assert neighbour.link is not None
    assert neighbour.link.is_dialled
