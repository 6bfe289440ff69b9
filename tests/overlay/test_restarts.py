"""Nodes that start again go on with what their clients and neighbours want."""

from __future__ import annotations

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
