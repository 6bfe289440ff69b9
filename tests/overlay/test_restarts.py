"""Nodes that start again go on with what their clients and neighbours want."""

from __future__ import annotations

from math import inf

from overlay.network import Network


def test_a_node_that_starts_again_announces_the_durable_subscriptions_that_it_has() -> None:
    net = Network(("a", "b"))
    app = net.app("b", "reader")
    app.subscribe("x > 0", durable="mine")
    net.run()
    app.crash()
    net["b"].crash()
    net["b"].start()
    net.run(30)
    assert net.table("a", of="b") == ["x > 0"]
    net.app("a").publish(1)
    net.run()
    app.start()
    again = app.subscribe("x > 0", durable="mine")
    net.run()
    assert again.values == [1]
    again.end()
    app.connection.request("unsubscribe", {"durable": "mine"})
    app.pump()
    net.run()
    assert net.table("a", of="b") == []


def test_a_relay_that_is_restored_from_a_backup_takes_nothing_back_before_it_knows_all_tables() -> None:
    """b has forgotten what c wants, and can't ask it for now: a goes on to send what it knew to be wanted."""
    net = Network(("b", "a"), ("b", "c"), reroute_s=inf)
    app = net.app("a")
    backup = net["b"].disk.content
    got = net.app("c").subscribe("x > 0", durable="c")
    net.run()
    net["b"].crash()
    net.part("b", "c")
    net["b"].disk.cut(0)
    net["b"].disk.append(backup)
    net["b"].disk.sync()
    net["b"].start()
    net.run(5)
    assert net.table("b", of="c") == []
    assert net.table("a", of="b") == ["x > 0"]
    net.heal("b", "c")
    net.run(10)
    assert net.table("b", of="c") == net.table("a", of="b") == ["x > 0"]
    app.publish(1, 2)
    net.run()
    assert got.values == [1, 2]
