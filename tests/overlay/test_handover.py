"""Hand-over: clients move from node to node, and each event is published and delivered once."""

from __future__ import annotations

from typing import Any

import pytest
from overlay.network import App, Network

from tidings.errors import MoveRefused, TidingsError
from tidings.ids import StoredIds
from tidings.protocol.arrivals import ARRIVAL_S
from tidings.protocol.connection import Connection
from tidings.protocol.frames import FrameReader, encode
from tidings.protocol.messages import Bye, Hello, Reply, Request, Welcome


def move(net: Network, app: App, to: str, seconds: float = 10.0) -> list[Any]:
    """Have a client move; what came of it."""
    told: list[Any] = []
    app.follows = True
    app.connection.move(to).then(told.append, told.append)
    app.pump()
    net.run(seconds)
    return told


def test_a_publisher_goes_on_counting_at_another_node() -> None:
    net = Network(("a", "b"), ("b", "c"))
    got = net.app("b").subscribe("x > 0", durable="d")
    app = net.app("a", "p")
    net.run()
    app.publish(*range(1, 11))
    net.run(0.05)
    app.publish(*range(11, 21))
    assert move(net, app, "c") == [None]
    assert app.node is net["c"]
    app.publish(*range(21, 31))
    net.run()
    assert got.values == list(range(1, 31))
    assert app.connection.publications.is_empty


def test_a_live_subscription_gets_all_while_its_client_moves() -> None:
    net = Network(("a", "b"), ("b", "c"))
    app, publisher = net.app("a", "s"), net.app("b", "p")
    got = app.subscribe("x > 0")
    net.run()
    told: list[Any] = []
    app.follows = True
    for value in range(1, 401):
        publisher.publish(value)
        if value == 100:
            app.connection.move("c").then(told.append, told.append)
            app.pump()
        net.run(0.01)
    net.run(5.0)
    assert told == [None]
    assert app.node is net["c"]
    assert got.values == list(range(1, 401))
    assert got.gaps == []


def test_a_durable_subscription_moves_with_what_waits_for_it() -> None:
    net = Network(("a", "b"), ("b", "c"))
    app, publisher = net.app("a", "s"), net.app("b", "p")
    got = app.subscribe("x > 0", durable="d")
    net.run()
    told: list[Any] = []
    app.follows = True
    for value in range(1, 401):
        publisher.publish(value)
        if value == 100:
            app.connection.move("c").then(told.append, told.append)
            app.pump()
        net.run(0.01)
    net.run(5.0)
    assert told == [None]
    assert got.values == list(range(1, 401))
    assert net["a"].broker.cursors.find("s", "d") is None
    assert net["c"].broker.cursors.find("s", "d") is not None


def test_an_event_that_was_not_acknowledged_comes_once_and_is_acknowledged_at_the_other_node() -> None:
    net = Network(("a", "b"), ("b", "c"))
    app, publisher = net.app("a", "s"), net.app("b", "p")
    got = app.subscribe("x > 0", durable="d")
    acknowledged: list[tuple[int, int]] = []
    core, inner = app.connection, got.subscription

    def slow(_subscription: object, position: int, life: int | None = None) -> None:
        acknowledged.append((position, inner.life if life is None else life))

    really, core.acknowledge = core.acknowledge, slow  # type: ignore[method-assign]
    net.run()
    publisher.publish(*range(1, 11))
    net.run()
    assert got.values == list(range(1, 11))
    assert move(net, app, "c") == [None]
    publisher.publish(11)
    net.run()
    assert got.values == list(range(1, 12))
    cursor = net["c"].broker.cursors.find("s", "d")
    assert cursor is not None
    before = cursor.acknowledged
    for position, life in acknowledged:
        really(inner, position, life)
    app.pump()
    net.run()
    assert cursor.acknowledged > before
    assert cursor.passed == net["c"].broker.position
    app.crash()
    net.run()
    app.start()
    again = app.subscribe("x > 0", durable="d")
    net.run()
    assert again.values == []


def test_a_client_moves_round_and_comes_back() -> None:
    net = Network(("a", "b"), ("b", "c"), ("b", "d"))
    app, publisher = net.app("a", "s"), net.app("d", "p")
    got = [app.subscribe("x > 0", durable="d"), app.subscribe("x > 0"), app.subscribe("x > 50")]
    net.run()
    value = 0
    for to in ("c", "d", "b", "a", "b", "a"):
        told: list[Any] = []
        app.follows = True
        app.connection.move(to).then(told.append, told.append)
        app.pump()
        for _ in range(100):
            value += 1
            publisher.publish(value)
            app.publish(-value)
            net.run(0.02)
        assert told == [None], to
        assert app.node is net[to]
    net.run(5.0)
    assert got[0].values == got[1].values == list(range(1, value + 1))
    assert got[2].values == list(range(51, value + 1))
    assert not any(net[name].broker.arrivals for name in "abcd")


# What is refused


def test_a_move_to_a_node_that_does_not_exist_is_refused_and_the_client_stays() -> None:
    net = Network(("a", "b"))
    app = net.app("a", "s")
    got = app.subscribe("x > 0", durable="d")
    for to, problem in (("z", "no such node"), ("a", "is there"), ("", "no such node")):
        (error,) = move(net, app, to)
        assert isinstance(error, MoveRefused)
        assert problem in str(error)
    app.publish(1)
    net.run()
    assert app.node is net["a"]
    assert got.values == [1]


def test_a_move_to_a_node_that_is_drained_is_refused() -> None:
    net = Network(("a", "b"), ("b", "c"), ("a", "c"))
    app = net.app("a", "s")
    got = app.subscribe("x > 0", durable="d")
    net.app("b", "operator").ask("node.drain")
    net.run(0.5)
    (error,) = move(net, app, "b")
    assert isinstance(error, TidingsError)
    app.publish(1)
    net.run()
    assert got.values == [1]
    assert net["a"].broker.cursors.find("s", "d") is not None
    assert net["b"].broker.cursors.find("s", "d") is None


def test_a_node_that_has_such_a_durable_subscription_refuses_another() -> None:
    net = Network(("a", "b"))
    other = net.app("b", "s")
    other.subscribe("x > 5", durable="d")
    net.run()
    other.crash()
    app = net.app("a", "s")
    got = app.subscribe("x > 0", durable="d")
    net.run()
    (error,) = move(net, app, "b")
    assert isinstance(error, MoveRefused)
    assert "durable" in str(error)
    app.publish(1)
    net.run()
    assert got.values == [1]


def test_a_client_with_a_durable_pattern_stays() -> None:
    net = Network(("a", "b"))
    app = net.app("a", "s")
    told = app.ask("move", to="b", subscriptions=[{"number": 1, "durable": "d", "pattern": "x"}])
    net.run()
    assert isinstance(told[0], MoveRefused)
    assert "pattern" in str(told[0])


def hello(net: Network, name: str, cookie: str, system: str = "s") -> tuple[list[Any], Connection]:
    """Say HELLO to a node with a cookie; what it answers."""
    session = net[name].broker.connect(net[name].time())
    connection = Connection(StoredIds(system, 1), system)
    connection.leaving.cookie = cookie
    connection.connect(0.0)
    session.receive(b"".join(connection.output()), net[name].time())
    net[name].broker.finish_tick()
    answers = [message for message, _ in FrameReader(1 << 20).feed(b"".join(session.output()))]
    session.lost(net[name].time())
    return answers, connection


def test_a_cookie_is_taken_once_and_only_from_the_client_it_was_made_for() -> None:
    net = Network(("a", "b"))
    app = net.app("a", "s")
    app.subscribe("x > 0")
    net.run()
    told: list[Any] = []
    app.connection.move("b").then(told.append, told.append)
    app.pump()
    for _ in range(1_000):
        if app.connection.leaving.cookie:
            break
        net.run(0.001)
    cookie = app.connection.leaving.cookie
    app.crash()
    net.run()
    assert len(net["b"].broker.arrivals) == 1
    for wrong, system in ((cookie, "thief"), (cookie[:-1] + "_", "s"), ("x", "s"), ("a" * 60_000, "s")):
        answers, _ = hello(net, "b", wrong, system)
        assert [(type(one), one.code) for one in answers] == [(Bye, "move")], wrong
    answers, _ = hello(net, "b", cookie)
    assert isinstance(answers[0], Welcome)
    answers, _ = hello(net, "b", cookie)
    assert [(type(one), one.code) for one in answers] == [(Bye, "move")]
    assert net.count("b", "cookies_refused") == 5


def test_a_cookie_is_given_up_when_its_client_does_not_come() -> None:
    net = Network(("a", "b"))
    app = net.app("a", "s")
    app.subscribe("x > 0")
    app.subscribe("x > 0", durable="d")
    net.run()
    app.connection.move("b").then(lambda _none: None, lambda _error: None)
    app.pump()
    for _ in range(1_000):
        if app.connection.leaving.cookie:
            break
        net.run(0.001)
    cookie = app.connection.leaving.cookie
    app.crash()
    net.run(ARRIVAL_S + 5.0)
    answers, _ = hello(net, "b", cookie)
    assert [(type(one), one.code) for one in answers] == [(Bye, "move")]
    assert not net["b"].broker.arrivals
    assert net["b"].broker.exchange.subscriptions == 1  # the durable one is kept, as at any node


def test_a_client_whose_cookie_is_refused_connects_without_it_and_hears_of_that() -> None:
    connection = Connection(StoredIds("s", 1), "s")
    connection.connect(0.0)
    connection.receive(encode(Welcome(1, "n", 1, "1-1", 0, 1_000_000)), 0.0)
    told: list[Any] = []
    connection.move("m").then(told.append, told.append)
    frames = FrameReader(1 << 20).feed(b"".join(connection.output()))
    (asked,) = [one for one, _ in frames if isinstance(one, Request)]
    assert asked.operation == "move"
    answer = {"node": "m", "addresses": ["tidings://m:1"], "cookie": "c"}
    connection.receive(encode(Reply(asked.number, answer)), 0.0)
    connection.output()
    connection.lost(0.0)
    connection.connect(0.0)
    connection.receive(encode(Bye("move", "the cookie is not known here")), 0.0)
    assert isinstance(told[0], MoveRefused)
    assert connection.failure is None
    connection.lost(0.0)
    connection.connect(0.0)
    ((said, _),) = FrameReader(1 << 20).feed(b"".join(connection.output()))
    assert isinstance(said, Hello)
    assert said.cookie == ""


@pytest.mark.parametrize("answer", [None, 7, {}, {"node": "m"}, {"node": "m", "addresses": 1, "cookie": "c"}])
def test_a_client_ends_a_connection_on_which_the_answer_to_a_move_is_none(answer: Any) -> None:
    connection = Connection(StoredIds("s", 1), "s")
    connection.connect(0.0)
    connection.receive(encode(Welcome(1, "n", 1, "1-1", 0, 1_000_000)), 0.0)
    connection.move("m").then(lambda _none: None, lambda _error: None)
    connection.output()
    connection.receive(encode(Reply(1, answer)), 0.0)
    assert connection.is_given_up


def test_only_a_neighbour_may_announce_clients() -> None:
    net = Network(("a", "b"))
    app = net.app("a", "s")
    told = app.ask("link.move", to=net["b"].broker.node, step="forget", content={"token": "x"})
    net.run()
    assert isinstance(told[0], TidingsError)
