"""A publisher whose node dies goes on at another one: each event is delivered once, though both have it."""

from __future__ import annotations

import pytest
from overlay.network import App, Listening, Network

from tidings.ids import Origin
from tidings.protocol.repeats import Repeats, publisher_of

EDGES = (("a", "b"), ("b", "c"), ("c", "a"))


def stored_and_not_confirmed(net: Network, app: App, value: int) -> None:
    """Publish an event; its node stores it, and dies before it has answered, or told any other node."""
    node = net[app.node.name]
    position, broker = node.broker.position, node.broker
    stored = broker.durable

    def die(mark: int) -> None:
        stored(mark)
        if broker.position_durable > position:
            node.crash()

    broker.durable = die  # type: ignore[method-assign]
    app.publish(value)
    while node.is_up:
        net.run(0.001)


def network() -> tuple[Network, App, dict[str, Listening]]:
    net = Network(*EDGES, reroute_s=2.0)
    got = {name: net.app(name, f"s{name}").subscribe("x > 0", durable="d") for name in "abc"}
    app = net.app("a", "p")
    app.roams = True
    net.run()
    return net, app, got


def test_each_event_comes_once_though_the_first_node_comes_back() -> None:
    net, app, got = network()
    app.publish(1, 2, 3)
    net.run()
    stored_and_not_confirmed(net, app, 4)
    net.run(10.0)
    assert app.node is not net["a"]
    app.publish(5, 6)
    net.run()
    assert app.connection.publications.is_empty
    assert got["b"].values == got["c"].values == [1, 2, 3, 4, 5, 6]
    net["a"].start()
    net.run(60.0)
    assert got["b"].values == got["c"].values == [1, 2, 3, 4, 5, 6]
    assert sorted(got["a"].values) == [1, 2, 3, 4, 5, 6]
    app.publish(7)
    net.run()
    assert [one.values[-1] for one in got.values()] == [7, 7, 7]


def test_a_repeat_is_had_by_nodes_to_which_the_first_node_has_told_the_event() -> None:
    net, app, got = network()
    app.publish(1, 2, 3)
    net.run()
    link = net.world.network.link(app.name, "a")
    net.world.network.deafen(link, app)
    app.publish(4)
    net.run(1.0)
    assert got["b"].values == got["c"].values == [1, 2, 3, 4]
    net["a"].crash()
    assert app._end is not None
    app._end.break_off()
    app.lost(app._end)
    net.run(20.0)
    assert app.node is not net["a"]
    app.publish(5)
    net.run()
    assert got["b"].values == got["c"].values == [1, 2, 3, 4, 5]
    net["a"].start()
    net.run(60.0)
    assert sorted(got["a"].values) == [1, 2, 3, 4, 5]
    assert got["b"].values == got["c"].values == [1, 2, 3, 4, 5]
    assert net.count(app.node.name, "repeated") == 1


def test_an_event_that_only_the_first_node_had_comes_when_it_is_back() -> None:
    net, app, got = network()
    for edge in EDGES:
        if "a" in edge:
            net.cut(*edge)
    net.run(1.0)
    app.publish(1)
    net.run(0.5)
    assert app.connection.publications.is_empty
    stored_and_not_confirmed(net, app, 2)
    net.run(10.0)
    app.publish(3)
    net.run()
    assert got["b"].values == got["c"].values == [2, 3]
    for edge in EDGES:
        net.heal(*edge)
    net["a"].start()
    net.run(60.0)
    assert [sorted(one.values) for one in got.values()] == [[1, 2, 3]] * 3


def test_repeats_are_remembered_by_a_node_that_is_restarted() -> None:
    net, app, got = network()
    app.publish(1)
    net.run()
    stored_and_not_confirmed(net, app, 2)
    net.run(10.0)
    app.publish(3)
    net.run()
    for name in "bc":
        net[name].crash()
        net.run(1.0)
        net[name].start()
        net.run(10.0)
    net["a"].start()
    net.run(60.0)
    assert [sorted(one.values) for one in got.values()] == [[1, 2, 3]] * 3


def test_the_checker_finds_duplicates_that_are_judged_by_their_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repeats, "originals", lambda *_: [])
    net, app, got = network()
    app.publish(1)
    net.run()
    stored_and_not_confirmed(net, app, 2)
    net.run(10.0)
    net["a"].start()
    net.run(60.0)
    assert sorted(got["b"].values) == [1, 2, 2]


def test_a_user_can_t_repeat_in_the_name_of_another() -> None:
    names = publisher_of(Origin("s", 1, "ann/app")), publisher_of(Origin("s", 1, "bob"))
    assert names[0] != names[1]
    assert names[0] == publisher_of(Origin("s", 1, "ann/app@kitchen")) == publisher_of(Origin("s", 1, "ann"))
