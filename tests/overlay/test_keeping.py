"""What is kept for neighbours, and for how long."""

from __future__ import annotations

from typing import Any

from overlay.network import App, Network


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


def test_a_neighbour_that_is_gone_for_good_is_forgotten_with_what_waits_for_it() -> None:
    net = Network(("a", "b"), ("b", "c"))
    net.app("c").subscribe("x > 0", durable="mine")
    app = net.app("b")
    net.run()
    (there,) = _asked(net, app, "c")
    assert "stop that node first" in str(there)
    net["c"].crash()
    net.run(120)
    net.app("a").publish(1, 2, 3)
    net.run()
    assert net.neighbour("b", "c").status(net["b"].broker.position)["kept"] == 3
    assert _asked(net, app, "c") == [None]
    assert [one.name for one in net["b"].core.overlay] == ["a"]
    assert net.table("a", of="b") == []
    (unknown,) = _asked(net, app, "c")
    assert "no link" in str(unknown)


def _asked(net: Network, app: App, node: str) -> list[Any]:
    told = app.ask("topology.remove", node=node)
    net.run()
    return told


def test_a_dead_neighbour_that_is_known_by_the_records_only_can_be_removed_too() -> None:
    net = Network(("a", "b"), ("b", "c"), ("c", "a"))
    dead = net["c"].broker.node
    net["c"].crash()
    net.run(30)
    net["a"].crash()
    net.run(1)
    net["a"].start()
    net.run(30)
    assert net.neighbour_or_none("a", "c") is None or not net.neighbour("a", "c").is_up
    assert _asked(net, net.app("a"), "c") == [None]
    assert dead not in [link.neighbour for link in net["a"].core.overlay.topology.own.links]
