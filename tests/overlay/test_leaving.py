"""Publishers at a drained node: they go on elsewhere when all others have what they have sent, not before."""

from __future__ import annotations

from typing import Any

import pytest
from overlay.network import App, Listening, Network

from tidings.overlay import waiting

NUMBERS = list(range(1, 7))
SEEDS = range(4)
"""What is under way at a crash gets through or does not."""


class Drained:
    """Nodes a and b: b is drained while a has not got all that was published there, nor can get it now."""

    def __init__(self, seed: int = 1) -> None:
        self.net = Network(("a", "b"), seed=seed)
        self.listening: Listening = self.net.app("a").subscribe("x > 0", durable="d")
        self.publisher = self.net.app("b", "publisher")
        self.publisher.follows = True
        self.net.run()
        self.publisher.publish(1, 2)
        self.net.run()
        self.net.part("a", "b")
        self.publisher.publish(3, 4)
        self.drain()
        self.publisher.publish(5)

    def drain(self) -> dict[str, Any]:
        """Drain the node, or ask how far that is."""
        told = self.operator().ask("node.drain")
        self.net.run(0.5)
        (progress,) = told
        assert isinstance(progress, dict), progress
        return progress

    def operator(self) -> App:
        return self.net.app("b", f"operator-{int(self.net.world.clock.now * 1e3)}")

    def settle(self) -> None:
        """Heal all, publish once more, and see that it has come in order."""
        self.net.heal("a", "b")
        self.net.run(60.0)
        self.publisher.publish(6)
        self.net.run(30.0)
        assert self.listening.values == NUMBERS


@pytest.mark.parametrize("seed", SEEDS)
def test_a_publisher_waits_for_a_drained_node_that_dies_before_others_have_all(seed: int) -> None:
    case = Drained(seed)
    case.net["b"].crash()
    case.net.run(10.0)
    assert case.publisher.node is case.net["b"]
    case.net["b"].start()
    case.settle()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_publisher_waits_for_a_node_that_stops_as_soon_as_it_is_drained(seed: int) -> None:
    """It stops between its notice and the client's question."""
    net = Network(("a", "b"), seed=seed)
    listening = net.app("a").subscribe("x > 0", durable="d")
    publisher = net.app("b", "publisher")
    publisher.follows = True
    net.run()
    net.part("a", "b")
    publisher.publish(1)
    net.run(0.5)
    operator = App(net.world, "operator", net["b"])
    operator.ask("node.drain")
    while not publisher.connection.leaving.elsewhere:
        net.run(0.0005)
    net["b"].crash()
    publisher.publish(2)
    net.run(10.0)
    net["b"].start()
    net.heal("a", "b")
    net.run(60.0)
    assert listening.values == [1, 2]


def test_a_publisher_goes_on_at_a_drained_node_until_others_have_all() -> None:
    case = Drained()
    case.net.run(3 * waiting.HELD_S)
    assert case.publisher.node is case.net["b"]
    assert case.publisher.connection.publications.is_empty, "it is not held up for ever"
    case.settle()
    assert case.publisher.node is case.net["a"]


def test_nothing_holds_a_client_that_has_published_nothing() -> None:
    net = Network(("a", "b"))
    app = net.app("b", "client")
    app.follows = True
    net.part("a", "b")
    operator = net.app("b", "operator")
    operator.ask("node.drain")
    net.run(1.0)
    assert app.node is net["a"]
