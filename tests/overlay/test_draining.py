"""Draining: a node is taken out of its network before it stops, and nobody misses anything."""

from __future__ import annotations

from typing import Any

import pytest
from effort import IS_SOAK
from node.peers import run
from overlay.network import Network
from overlay.real import Line
from overlay.test_moving import edges

from tidings.errors import CodecError
from tidings.event import Event
from tidings.ids import ClockIds
from tidings.protocol.connection import Connection
from tidings.protocol.frames import FrameReader, encode
from tidings.protocol.messages import Accepted, Bye, Notice, ProtocolMessage, Publish, Reply, Request, Welcome
from tidings.protocol.subscriber import Wanted

LINE = ["ab", "bc", "cd", "de"]


def drained(net: Network, node: str) -> dict[str, Any]:
    """How far the draining of a node is."""
    told = net.app(node, f"operator-{int(net.world.clock.now)}").ask("node.drain")
    net.run(1.0)
    (progress,) = told
    assert isinstance(progress, dict), progress
    return progress


def test_nothing_passes_through_a_node_that_is_drained_and_nothing_is_lost() -> None:
    net = Network(("a", "b"), ("b", "c"))
    got = {name: net.app(name).subscribe(durable="d") for name in "ac"}
    apps = {name: net.app(name) for name in "abc"}
    net.run()
    assert drained(net, "b")["between"] == ["a", "c"]
    for value in range(20):
        for app in apps.values():
            app.publish(value)
        net.run(0.2)
    net.run(10.0)
    assert ("a", "c") in edges(net, "b")
    progress = drained(net, "b")
    assert (progress["between"], progress["kept"]) == ([], 0)
    for one in got.values():
        assert sorted(one.values) == sorted([*range(20)] * 3)
    relayed = net.count("b", "relayed")
    apps["a"].publish(100)
    net.run()
    assert got["c"].values[-1] == 100
    assert net.count("b", "relayed") == relayed


def test_a_node_that_was_drained_is_like_any_other_after_its_next_start() -> None:
    net = Network(("a", "b"), ("b", "c"))
    drained(net, "b")
    net.run(10.0)
    net["b"].crash()
    net["b"].start()
    net.run(30.0)
    assert not any(link.lost for link in net["b"].core.overlay.topology.own.links)
    got = net.app("b").subscribe("x > 0")
    net.run()
    net.app("c").publish(1)
    net.run()
    assert got.values == [1]


def test_a_node_with_one_neighbour_is_drained_at_once() -> None:
    net = Network(("a", "b"))
    progress = drained(net, "b")
    assert progress["between"] == []
    assert progress["places"] == ["tidings://a:1"]


def test_a_node_stays_between_neighbours_that_cannot_reach_each_other() -> None:
    net = Network(("a", "b"), ("b", "c"))
    for name in "ac":
        net[name].core.overlay.listens_at("")
    got = net.app("c").subscribe(durable="d")
    net.run()
    assert drained(net, "b")["done"] is False
    net.run(30.0)
    progress = drained(net, "b")
    assert (progress["between"], progress["done"], progress["places"]) == (["a", "c"], False, [])
    net.app("a").publish(1)
    net.run()
    assert got.values == [1]


@pytest.mark.parametrize("links", [LINE, [*LINE, "ea"]] if IS_SOAK else [[*LINE, "ea"]])
def test_all_nodes_are_drained_and_restarted_in_turn_while_events_flow(links: list[str]) -> None:
    net = Network(*((one[0], one[1]) for one in links))
    got = {name: net.app(name).subscribe(durable="d") for name in net.names}
    apps = {name: net.app(name) for name in net.names}
    net.run()
    sent = 0

    def flow(seconds: float) -> None:
        nonlocal sent
        for _ in range(int(seconds / 0.5)):
            for number, app in enumerate(apps.values()):
                app.publish(sent * 10 + number)
            sent += 1
            net.run(0.5)

    for name in net.names:
        progress = drained(net, name)
        for _ in range(40):
            if not progress["between"]:
                break
            flow(0.5)
            progress = drained(net, name)
        assert progress["between"] == [], name
        net[name].crash()
        flow(1.0)
        net[name].start()
        flow(6.0)
    net.run(30.0)
    for name, one in got.items():
        for number in range(len(apps)):
            assert [value for value in one.values if value % 10 == number] == [
                n * 10 + number for n in range(sent)
            ], name


# The client


def talk(connection: Connection) -> list[ProtocolMessage]:
    """What a client says now."""
    return [message for message, _ in FrameReader(1 << 20).feed(b"".join(connection.output()))]


def connected() -> Connection:
    connection = Connection(ClockIds("c", 1.0), "c")
    connection.connect(0.0)
    connection.receive(encode(Welcome(1, "n", 1, "s", 0, 1_000_000)), 0.0)
    talk(connection)
    return connection


DRAIN = encode(Notice("drain", 0, {"places": ["tidings://b:1"]}))


def test_a_client_leaves_a_node_that_is_drained_and_knows_where_to_go() -> None:
    connection = connected()
    connection.receive(DRAIN, 1.0)
    assert [type(one) for one in talk(connection)] == [Bye]
    assert connection.is_given_up
    assert connection.leaving.places == ["tidings://b:1"]


def test_a_client_leaves_when_what_it_has_sent_is_accepted_and_sends_the_rest_elsewhere() -> None:
    connection = connected()
    first = connection.publish(Event("x", delivery="reliable"))
    assert [type(one) for one in talk(connection)] == [Publish]
    connection.receive(DRAIN, 1.0)
    connection.publish(Event("x", delivery="reliable"))
    assert talk(connection) == []
    assert not connection.is_given_up
    connection.receive(encode(Accepted(first)), 2.0)
    (asked,) = talk(connection)
    assert isinstance(asked, Request)
    assert (asked.operation, asked.arguments) == ("held", {"by_all": True})
    assert not connection.is_given_up
    connection.receive(encode(Reply(asked.number)), 2.0)
    assert [type(one) for one in talk(connection)] == [Bye]
    connection.lost(2.0)
    connection.connect(3.0)
    connection.receive(encode(Welcome(1, "m", 1, "t", 0, 1_000_000)), 3.0)
    assert [type(one) for one in talk(connection)][1:] == [Publish]


def test_a_client_with_a_durable_subscription_stays() -> None:
    class Nobody:
        def gap(self, *_: object) -> None: ...

    connection = connected()
    connection.subscribe(Wanted("", durable="d"), Nobody(), 10)  # type: ignore[arg-type]
    talk(connection)
    connection.receive(DRAIN, 1.0)
    assert talk(connection) == []
    assert not connection.is_given_up
    connection.lost(2.0)
    assert connection.leaving.places == []  # also when the node has stopped


@pytest.mark.parametrize("places", [[], [7, None]])
def test_a_client_that_is_told_of_no_place_stays(places: list[Any]) -> None:
    connection = connected()
    connection.receive(encode(Notice("drain", 0, {"places": places})), 1.0)
    assert not connection.is_given_up


@pytest.mark.parametrize("details", [{}, {"places": 7}])
def test_a_client_ends_a_connection_on_which_a_drain_is_no_list(details: dict[str, Any]) -> None:
    connection = connected()
    connection.receive(encode(Notice("drain", 0, details)), 1.0)
    assert isinstance(connection.trouble, CodecError)


def test_clients_of_a_drained_node_go_on_at_its_neighbour() -> None:
    async def work() -> None:
        async with Line("a", "b") as line:
            ann, bob = await line.bus("a", "ann"), await line.bus("b", "bob")
            async with ann.subscribe("n >= 0") as events:
                operator = await line.bus("b", "operator")
                number = 0
                while (await operator.drain_node())["clients"]:
                    await bob.publish("t", n=number, delivery="reliable")
                    number += 1
                assert (await bob.status())["node"] == line["a"].driver.broker.node
                await bob.publish("t", n=number, delivery="reliable")
                assert [(await anext(events))["n"] for _ in range(number + 1)] == list(range(number + 1))

    run(work())
