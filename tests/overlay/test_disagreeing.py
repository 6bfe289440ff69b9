"""Links whose ends disagree for a moment: on the tree, on what was greeted, and on which connection it is."""

from __future__ import annotations

from overlay.network import Network


def test_a_subscription_is_not_in_force_by_the_word_of_a_node_that_knows_another_tree() -> None:
    """b answers a only when both know the same nodes on either side of their link."""
    net = Network(("a", "b"))
    app = net.app("a")
    app.subscribe("x > 0")
    places = net["b"].core.overlay.routing._places
    sides, places._sides = places._sides, dict.fromkeys(places._sides, (1, 2))
    told = app.ask("in_force")
    net.run(3)
    assert told == []
    places._sides = sides
    net.run(1)
    assert sorted(told[0]["nodes"]) == ["a", "b"]
    assert told[0]["missing"] == []


def test_what_a_neighbour_is_taken_to_want_after_it_has_greeted_is_taken_back() -> None:
    """a has greeted b with the digest of the table that b has; then b takes it to want what others do."""
    net = Network(("a", "b"))
    app = net.app("a")
    app.subscribe("x > 5")
    net.run()
    net.cut("a", "b")
    net.run(3)
    net.heal("a", "b")
    neighbour = net.neighbour("b", "a")
    while neighbour.link is None or not neighbour.link.has_greeted:
        net.run(0.0005)
    assert not neighbour.is_up
    net["b"].core.overlay.routing.tables.lend(neighbour, "TRUE", passive=False)
    assert net.table("b", of="a") == ["TRUE", "x > 5"]
    net.run(5)
    assert neighbour.is_up
    assert net.table("b", of="a") == ["x > 5"]


def test_a_neighbour_that_says_itself_what_it_wants_is_not_taken_to_want_more() -> None:
    net = Network(("a", "b"))
    neighbour = net.neighbour("b", "a")
    net["b"].core.overlay.routing.tables.lend(neighbour, "TRUE", passive=False)
    assert net.table("b", of="a") == []


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
