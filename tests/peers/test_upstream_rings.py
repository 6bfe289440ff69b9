"""Upstreams of upstreams, in virtual time: an event goes up as far as it can, once, also in rings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pytest
from effort import often
from overlay.network import App, Network

from tidings.event import Batch, Event
from tidings.filters import Filter
from tidings.node.assembly import CoreSettings
from tidings.peers.registry import ForwardOrder, Neighbours, Upstream
from tidings.simulator.node import SimulatedNode, address_of
from tidings.simulator.world import World
from tidings.transport.credentials import Credentials

RING = {"a": "b", "b": "c", "c": "a"}


class Climb(Network):
    """Nodes by name, each with the one above it; `peers` are links beside that."""

    def __init__(
        self, above: dict[str, str], order: ForwardOrder = "oldest", peers: dict[str, str] | None = None
    ) -> None:
        self.world = World(1)
        self.names = sorted({*above, *above.values()})
        for name in self.names:
            far = (peers or {}).get(name)
            known = Neighbours({} if far is None else {far: address_of(far)}, Credentials())
            up = Upstream(address_of(above[name]), Credentials(), order) if name in above else None
            settings = CoreSettings(name=name, peers=known, upstream=up)
            SimulatedNode(self.world, name, settings=settings)
        self.run(5.0)
        for name in self.names:
            self.app(name, f"collector-{name}").ask("queue.create", name="all", bind="type = 'x'")
        self.run(1.0)

    def collected(self, node: str) -> list[int]:
        """What was published at a node, in order."""
        (queue,) = (one for one in self[node].queues if one.name == "all")
        return [queue.shelf[number].event["x"] for number in queue.shelf]

    def waiting(self) -> int:
        return sum(node.broker.status()["upstream"]["waiting"] for node in self.world.nodes.values())


def publish(network: Climb, node: str, *values: int) -> App:
    app = network.app(node, f"source-{node}-{values[0]}")
    app.publish(*values)
    return app


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_three_nodes_whose_upstreams_form_a_ring_publish_an_event_once_each(order: ForwardOrder) -> None:
    network = Climb(RING, order)
    for node, value in zip("abc", (1, 2, 3), strict=True):
        publish(network, node, value)
    network.run(30.0)
    for node in "abc":
        assert sorted(network.collected(node)) == [1, 2, 3]
    assert network.waiting() == 0


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_what_comes_into_a_ring_from_outside_goes_round_once(order: ForwardOrder) -> None:
    network = Climb({**RING, "d": "e", "e": "a"}, order)
    publish(network, "d", *range(20))
    network.run(30.0)
    for node in "deabc":
        assert sorted(network.collected(node)) == list(range(20))
    assert network.waiting() == 0


def test_two_nodes_that_are_upstream_of_each_other_send_nothing_back() -> None:
    network = Climb({"a": "b", "b": "a"})
    publish(network, "a", 1, 2)
    network.run(10.0)
    assert (network.collected("a"), network.collected("b")) == ([1, 2], [1, 2])
    assert network.count("a", "forwarded_back") == 0


def test_a_ring_ends_though_its_nodes_are_killed_while_events_go_round() -> None:
    network = Climb(RING)
    killed = cycle("bca")
    for turn in range(often(6)):
        publish(network, "a", *range(10 * turn, 10 * turn + 10))
        node = network[next(killed)]
        network.run(0.01)
        node.crash()
        network.run(1.0)
        node.start()
        network.run(1.0)
    network.run(60.0)
    for node in "bc":
        assert network.collected(node) == network.collected("a")
    assert len(set(network.collected("a"))) == len(network.collected("a"))
    assert network.waiting() == 0


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_a_backlog_goes_round_a_ring_once_after_a_cut(order: ForwardOrder) -> None:
    network = Climb(RING, order)
    for one, other in RING.items():
        network.cut(one, other)
    for node, first in zip("abc", (0, 100, 200), strict=True):
        publish(network, node, *range(first, first + 30))
    network.run(5.0)
    for one, other in RING.items():
        network.heal(one, other)
    network.run(60.0)
    wanted = [*range(30), *range(100, 130), *range(200, 230)]
    for node in "abc":
        assert sorted(network.collected(node)) == wanted


def test_what_a_neighbour_has_relayed_is_not_sent_up_so_links_and_upstreams_form_no_ring() -> None:
    network = Climb({"a": "b", "c": "a"}, peers={"b": "c"})
    subscriber = network.app("c")
    subscriber.subscribe("type = 'x'")
    network.run(2.0)
    publish(network, "a", 1)
    network.run(30.0)
    assert network.collected("a") == [1]
    assert network.collected("b") == [1]
    assert network.count("c", "forwarded_back") == 0


# The log


def logged(network: Climb, node: str) -> Iterator[Event]:
    history = network[node].core.history
    for stored in history.batches(1, 1 << 30, Filter("")):
        yield from Batch(stored.raw)


def test_a_device_leaves_the_log_to_the_node_above_which_has_the_ids_of_the_device() -> None:
    network = Climb({"a": "b"})
    app = network.app("a", "source")
    app.publish(1, 2, delivery="persistent")
    network.run(5.0)
    assert list(logged(network, "a")) == []
    (stored,) = network["b"].core.history.batches(1, 1 << 30, Filter(""))
    assert (stored.system, stored.source) == (app.connection._origin.system, "source")
    assert [event.counter for event in logged(network, "b")] == [1, 2]


def test_a_device_has_in_its_log_what_does_not_go_up() -> None:
    network = Climb({"a": "b"})
    app = network.app("a", "source")
    app.publish(1, delivery="persistent", reply_to="inbox.source/1")
    network.run(5.0)
    assert [event["x"] for event in logged(network, "a")] == [1]
