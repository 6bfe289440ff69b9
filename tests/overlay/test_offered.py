"""Advertisements of a network: any node lists those of all, and notifies of their changes."""

from __future__ import annotations

import asyncio
from math import inf
from pathlib import Path
from typing import Any

import pytest
from node.peers import run
from overlay.network import App, Network
from overlay.real import Line, allow

from tidings.client.advertisements import Offered
from tidings.errors import Disconnected, Refused
from tidings.overlay import offered

AIR, WATER = "type = 'air'", "type = 'water'"


def line() -> Network:
    return Network(("a", "b"), ("b", "c"), reroute_s=inf)


def ask(net: Network, app: App, operation: str, **arguments: Any) -> Any:
    told = app.ask(operation, **arguments)
    net.run(10)
    assert told, "it is answered"
    return told[0]


def listed(net: Network, app: App, **arguments: Any) -> list[tuple[str, str]]:
    answer = ask(net, app, "advertisements.list", **arguments)
    return [(one["filter"], one["source"]) for one in answer["advertisements"]]


class Waiting:
    """A client that waits for changes, one after the other, and counts them."""

    def __init__(self, net: Network, app: App) -> None:
        self.count = -1  # the first version is no change
        self._app = app
        self._told({"version": ask(net, app, "advertisements.list")["version"]})

    def _told(self, answer: dict[str, int]) -> None:
        self.count += 1
        self._app.connection.request("advertisements.wait", answer).then(self._told)
        self._app.pump()


# Lists


def test_what_is_advertised_at_another_node_is_listed_there() -> None:
    net = line()
    reader, maker = net.app("a"), net.app("c", "quay")
    maker.advertise(AIR)
    maker.advertise(WATER)
    net.run()
    answer = ask(net, reader, "advertisements.list")
    assert (answer["advertisements"], sorted(answer["others"].values())) == ([], ["b", "c"])
    to = net["c"].broker.node
    assert listed(net, reader, to=to) == [(AIR, "quay@c"), (WATER, "quay@c")]
    assert listed(net, reader, to=to, filter=AIR) == [(AIR, "quay@c")]
    assert listed(net, reader, to=net["b"].broker.node) == []
    assert listed(net, maker, to=to) == [(AIR, "quay"), (WATER, "quay")], "its own node"


def test_a_node_that_can_not_be_reached_refuses_its_list() -> None:
    net = line()
    reader = net.app("a")
    net.cut("b", "c")
    net.run(10)
    assert isinstance(ask(net, reader, "advertisements.list", to=net["c"].broker.node), Disconnected)
    assert isinstance(ask(net, reader, "advertisements.list", to="nobody"), Disconnected)
    alone = Network(("a", "b"))
    alone.cut("a", "b")
    assert isinstance(ask(alone, alone.app("a"), "advertisements.list", to="nobody"), Disconnected)


@pytest.mark.parametrize(
    "page",
    [
        {"advertisements": [{"number": 1, "filter": AIR, "source": "oven@a"}]},  # of another node
        {"advertisements": [{"number": 1}]},
        {"advertisements": None},
        {},
    ],
)
def test_a_list_that_is_none_or_has_others_sources_is_refused(
    monkeypatch: pytest.MonkeyPatch, page: dict[str, Any]
) -> None:
    net = Network(("a", "b"))
    reader = net.app("a")

    def lie(*_: Any) -> Any:
        yield
        return {"version": 1, "next": None, **page}

    monkeypatch.setattr(offered.OfferedElsewhere, "_own_page", lie)
    answer = ask(net, reader, "advertisements.list", to=net["b"].broker.node)
    assert isinstance(answer, Refused)
    assert answer.code == "protocol"


# Changes


def test_a_client_is_notified_of_changes_at_every_node() -> None:
    net = line()
    waiting = [Waiting(net, net.app(name)) for name in "ac"]
    counts = [one.count for one in waiting]
    for name in "abc":
        offer = net.app(name).advertise(AIR)
        net.run(5)
        assert all(one.count > before for one, before in zip(waiting, counts, strict=True)), name
        counts = [one.count for one in waiting]
        offer.end()
        net.run(5)
        assert all(one.count > before for one, before in zip(waiting, counts, strict=True)), name
        counts = [one.count for one in waiting]


def test_without_changes_nodes_say_nothing_to_those_who_wait() -> None:
    net = line()
    waiting = [Waiting(net, net.app(name)) for name in "abc"]
    net.run(5)
    counts = [one.count for one in waiting]
    net.run(60)
    assert [one.count for one in waiting] == counts


def test_a_client_is_notified_when_a_list_can_not_be_read_any_more_and_when_it_can() -> None:
    net = line()
    waiting = Waiting(net, net.app("a"))
    net.run(5)
    count = waiting.count
    net.cut("b", "c")
    net.run(5)
    assert waiting.count > count
    count = waiting.count
    net.heal("b", "c")
    net.run(10)
    assert waiting.count > count
    count = waiting.count
    net.app("c").advertise(AIR)
    net.run(5)
    assert waiting.count > count


def test_where_nobody_waits_nodes_ask_for_nothing() -> None:
    net = line()
    maker = net.app("c")
    asked: list[object] = []
    for name in "abc":
        overlay = net[name].core.overlay
        overlay.offered._ask = lambda *about: asked.append(about)  # type: ignore[method-assign]
    maker.advertise(AIR)
    net.run(5)
    assert asked == []


# Real nodes


def test_a_bus_lists_the_advertisements_of_all_nodes_and_watches_them() -> None:
    async def work() -> None:
        async with Line("a", "b", "c") as line:
            ann, cleo = await line.bus("a", "ann"), await line.bus("c", "cleo")
            offers = ann.watch_advertisements("type LIKE 'a%'")
            assert await anext(offers) == []
            async with cleo.advertise(AIR), cleo.advertise(WATER), ann.advertise("type = 'ash'"):
                expected = [Offered("type = 'ash'", "ann"), Offered(AIR, "cleo@c")]
                while (found := await asyncio.wait_for(anext(offers), 60)) != expected:
                    pass
                assert found.missing == ()
                assert await ann.advertisements(WATER) == [Offered(WATER, "cleo@c")]

    run(work())


def test_a_node_that_has_gone_is_missing_in_the_next_list() -> None:
    async def work() -> None:
        async with Line("a", "b") as line:
            ann = await line.bus("a", "ann")
            offers = ann.watch_advertisements()
            assert (await anext(offers)).missing == ()
            await line["b"].close()
            found = await asyncio.wait_for(anext(offers), 60)
            assert (found, found.missing) == ([], ("b",))

    run(work())


def test_a_peer_lists_only_what_it_may_subscribe_to_and_brings_only_what_it_may_publish(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        rules = {"b": allow("a", ["subscribe", "publish"], AIR) + allow("bob")}
        async with Line("a", "b", home=tmp_path, users={"a": ["ann"], "b": ["bob"]}, rules=rules) as line:
            ann, bob = await line.bus("a", "ann"), await line.bus("b", "bob")
            async with bob.advertise(WATER), bob.advertise(AIR), ann.advertise(WATER), ann.advertise(AIR):
                assert await ann.advertisements() == [
                    Offered(WATER, "ann"),
                    Offered(AIR, "ann"),
                    Offered(AIR, "bob@b"),
                ]
                assert await bob.advertisements() == [
                    Offered(WATER, "bob"),
                    Offered(AIR, "bob"),
                    Offered(AIR, "ann@a"),
                ]
                assert (await ann.advertisements(WATER)).missing == ("b",), "it may not ask for that"

    run(work())
