"""A node whose disk is full loses nothing that its neighbours relay."""

from __future__ import annotations

from overlay.network import Network


def test_what_waits_for_its_turn_while_a_commit_fails_comes_again_in_order() -> None:
    net = Network(("b", "a"))
    far = net.app("b").subscribe("", durable="mine")
    source = net.app("a")
    net.run()
    link = net.world.network.link("a", "b")
    net.world.network.part(link)
    for value in range(60):
        source.publish(value)
        net.run(0.03)
    disk = net["b"].disk
    disk.size_max = len(disk.content)
    net.world.network.heal(link)
    net.run(0.03)
    disk.size_max = None
    net.run(30)
    assert far.values == list(range(60))
