"""Two nodes with one id, as a copied directory has it."""

from __future__ import annotations

from copy import deepcopy

import pytest
from overlay.network import Network

from tidings.node.assembly import CoreSettings
from tidings.overlay.linking import TWINS_MAX
from tidings.peers.registry import Neighbours
from tidings.simulator.node import SimulatedNode, address_of
from tidings.simulator.world import Conditions
from tidings.transport.credentials import Credentials


def test_of_two_nodes_with_one_id_one_is_linked_and_both_and_their_neighbour_report_it() -> None:
    net = Network(("b", "a"), ("c", "a"))
    got = net.app("c").subscribe(durable="d")
    app = net.app("a")
    net.run()
    peers = Neighbours({"a": address_of("a")}, Credentials())
    copy = SimulatedNode(net.world, "copy", settings=CoreSettings(name="b", peers=peers))
    copy.crash()
    copy.disk = deepcopy(net["b"].disk)
    copy.start()
    assert copy.broker.node == net["b"].broker.node
    for value in range(10):
        app.publish(value)
        net.run(1.0)
    assert got.values == list(range(10))
    assert net.count("a", "twins_refused") > 0
    linked = net.count("a", "links_up")
    assert linked <= 2 + TWINS_MAX + 2
    net.run(30.0)
    assert net.count("a", "links_up") == linked
    assert sum("two neighbours have one id" in note for note in net.world.notes) == 1


def test_a_node_that_is_restarted_often_is_no_twin() -> None:
    net = Network(("b", "a"), suspect_s=0.0)
    for _ in range(2 * TWINS_MAX):
        net["b"].crash()
        net.run(1.0)
        net["b"].start()
        net.run(15.0)
    assert net.neighbour("a", "b").is_up
    assert net.count("a", "twins_refused") == 0


@pytest.mark.parametrize("delay_s", [0.01, 0.03])
def test_nodes_that_dial_each_other_and_can_store_nothing_for_a_while_are_no_twins(delay_s: float) -> None:
    """Each commit that fails ends all links: connections that both have made meet again and again."""
    refused = 0
    for seed in range(3):
        net = Network(("a", "b"), ("b", "a"), seed=seed, settle_s=2.0)
        net.world.network.link("a", "b").conditions = Conditions(delay_s=delay_s)
        smaller = min("ab", key=lambda name: net[name].broker.node)
        app, disk = net.app(smaller), net[smaller].disk
        disk.size_max = len(disk.content)
        for value in range(60):
            app.publish(value)
            net.run(0.03)
        disk.size_max = None
        net.run(10.0)
        refused += net.count("a", "twins_refused") + net.count("b", "twins_refused")
        assert net.neighbour("a", "b").is_up
    assert refused == 0
