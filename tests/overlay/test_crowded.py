"""Crowded links: transient events that a neighbour is slow to take hold their publishers, for a moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from overlay.network import App, Network

from tidings.overlay import intake, relaying
from tidings.overlay.relaying import LinkConsumer


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> set[object]:
    """Sessions of neighbours that get no credit, at links that are soon crowded."""
    monkeypatch.setattr(intake, "PREFETCH", 10)
    monkeypatch.setattr(relaying, "CROWD_MAX", 20)
    found: set[object] = set()
    go_on: Callable[[intake.Intake], None] = intake.Intake.go_on

    def go_on_unless_stuck(self: intake.Intake) -> None:
        if self._session not in found:
            go_on(self)

    monkeypatch.setattr(intake.Intake, "go_on", go_on_unless_stuck)
    return found


def stop(net: Network, stuck: set[object], node: str, other: str) -> None:
    """Let a node give no more credit to another."""
    link = net.neighbour(node, other).link
    assert link is not None
    stuck.add(link.session)


def publish(net: Network, app: App, first: int, last: int) -> None:
    for value in range(first, last):
        app.publish(value, delivery="transient")
        net.run(0.001)


def consumer(net: Network, node: str, other: str) -> LinkConsumer:
    cursor = net.neighbour(node, other).cursor
    assert cursor is not None
    assert isinstance(cursor.consumer, LinkConsumer)
    return cursor.consumer


def unaccepted(app: App) -> int:
    publications = app.connection.publications
    return publications.last - publications.accepted


def test_a_crowded_link_holds_publishers_until_half_of_what_waits_has_left(stuck: set[object]) -> None:
    net = Network(("a", "b"))
    there = net.app("b").subscribe("x >= 0")
    net.run()
    stop(net, stuck, "b", "a")
    app = net.app("a")
    publish(net, app, 0, 20)
    net.run(0.2)
    assert unaccepted(app) == 0
    publish(net, app, 20, 40)
    net.run(0.2)
    assert unaccepted(app) > 0
    stuck.clear()
    net.run(2)
    assert there.values == list(range(40))
    assert unaccepted(app) == 0
    assert not net.count("a", "holds_ended", "link")
    assert not net.count("a", "dropped", "slow")


def test_a_neighbour_that_takes_nothing_holds_nobody_for_long(
    stuck: set[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaying, "WAITING_MAX", 50)
    net = Network(("a", "b"))
    there = net.app("b").subscribe("x >= 0")
    here = net.app("a").subscribe("x >= 0")
    net.run()
    stop(net, stuck, "b", "a")
    app = net.app("a")
    publish(net, app, 0, 40)
    assert unaccepted(app) > 0
    net.run(relaying.CROWDED_S)
    assert unaccepted(app) == 0
    publish(net, app, 40, 100)
    net.run(0.1)
    assert unaccepted(app) == 0
    assert here.values == list(range(100))
    assert net.count("a", "holds_ended", "link") == 1
    assert net.count("a", "dropped", "slow") == 40
    stuck.clear()
    net.run(2)
    assert there.values == [*range(10), *range(50, 100)]
    assert net.count("b", "relays_lost", "slow") == 40


def test_a_node_between_gives_no_credit_while_its_next_link_is_crowded(stuck: set[object]) -> None:
    net = Network(("a", "b"), ("b", "c"))
    there = net.app("c").subscribe("x >= 0")
    net.run()
    stop(net, stuck, "c", "b")
    app = net.app("a")
    publish(net, app, 0, 100)
    assert consumer(net, "b", "c").count < 40
    assert consumer(net, "a", "b").count > 20
    assert unaccepted(app) > 0
    stuck.clear()
    net.run(2)
    assert there.values == list(range(100))
    assert unaccepted(app) == 0
    assert not consumer(net, "b", "c").broker.crowded_links


def test_a_link_that_ends_while_it_is_crowded_holds_nobody(
    stuck: set[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaying, "CROWDED_S", 1_000.0)
    net = Network(("a", "b"))
    net.app("b").subscribe("x >= 0")
    net.run()
    stop(net, stuck, "b", "a")
    app = net.app("a")
    publish(net, app, 0, 40)
    assert unaccepted(app) > 0
    net.cut("a", "b")
    net.run(4)
    assert unaccepted(app) == 0
    assert not net["a"].broker.crowded_links
