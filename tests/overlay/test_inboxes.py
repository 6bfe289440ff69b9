"""Answers find the inbox of the client that has asked by the node in its name, and no other node has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import pytest
from node.peers import run
from overlay.network import App, Listening, Network
from overlay.real import Line, allow

from tidings import Event
from tidings.errors import NotAllowed, Refused
from tidings.event import Delivery
from tidings.node.assembly import CoreSettings
from tidings.overlay import pacing
from tidings.peers.registry import Neighbours
from tidings.protocol.arguments import inbox_name
from tidings.protocol.inboxes import InboxAddress, inboxes_at
from tidings.protocol.inboxes import address_of as address_of_inbox
from tidings.simulator.node import SimulatedNode, address_of
from tidings.transport.credentials import Credentials

SECRET = "5eed"


class Asker:
    """An application that reads its own inbox; the answers are counted by x."""

    def __init__(self, net: Network, node: str) -> None:
        self.app = net.app(node)
        self.inbox = f"{self.app.connection.inbox}{SECRET}"
        self.answers: Listening = self.app.subscribe(f"subject = '{self.inbox}'", passive=True)
        net.run()

    @property
    def got(self) -> list[int]:
        return self.answers.values


def answer(app: App, inbox: str, *values: int, delivery: Delivery = "reliable") -> list[int]:
    """Publish answers to an inbox; their counters."""
    events = [Event("answer", {"x": value}, delivery=delivery, subject=inbox) for value in values]
    counters = [app.connection.publish(event) for event in events]
    app.pump()
    return counters


def refusals(app: App, counters: Sequence[int]) -> list[str]:
    found = app.connection.publications.refusals(counters)
    return [f"{failure.code}: {failure.text}" for failure in found.values()]


@pytest.mark.parametrize("delivery", ["transient", "reliable"])
def test_an_answer_takes_the_way_to_the_node_that_its_inbox_names_and_no_other(delivery: Delivery) -> None:
    net = Network(("a", "b"), ("b", "c"), ("b", "d"))
    asker = Asker(net, "a")
    others = {node: net.app(node).subscribe() for node in ("b", "d")}
    net.run()
    answer(net.app("c"), asker.inbox, 1, 2, delivery=delivery)
    net.run()
    assert asker.got == [1, 2]
    assert {node: one.values for node, one in others.items()} == {"b": [], "d": []}
    assert {node: net.count(node, "relayed") for node in net.names} == {"a": 0, "b": 2, "c": 2, "d": 0}


def test_no_filter_for_an_inbox_is_announced() -> None:
    net = Network(("a", "b"), ("b", "c"))
    asker = Asker(net, "a")
    asker.app.subscribe("x > 0")
    net.run()
    assert net.table("b", of="a") == net.table("c", of="b") == ["x > 0"]
    asker.answers.end()
    net.run()
    assert net.table("b", of="a") == ["x > 0"]


def test_a_client_that_names_its_inbox_without_a_node_gets_answers_from_other_nodes() -> None:
    net = Network(("a", "b"), ("b", "c"))
    old = inbox_name("", f"sys.{SECRET}")
    answers = net.app("a").subscribe(f"subject = '{old}'", passive=True)
    net.run()
    assert net.table("c", of="b") == [f"subject = '{old}'"]
    answer(net.app("c"), old, 1)
    net.run()
    assert answers.values == [1]


def test_the_answers_of_a_batch_part_where_their_ways_do() -> None:
    net = Network(("a", "b"), ("b", "c"), ("b", "d"))
    askers = {node: Asker(net, node) for node in ("a", "c", "d")}
    wanting = net.app("c").subscribe("x > 5")
    net.run()
    app = net.app("b")
    for x, node in enumerate("acdacd", start=1):
        app.connection.publish(Event("answer", {"x": x}, subject=askers[node].inbox))
        app.connection.publish(Event("other", {"x": 10 * x}))
    app.pump()
    net.run()
    assert {node: one.got for node, one in askers.items()} == {"a": [1, 4], "c": [2, 5], "d": [3, 6]}
    assert wanting.values == [10, 20, 30, 40, 50, 60]


def test_an_answer_to_a_former_life_of_a_node_is_dropped() -> None:
    net = Network(("a", "b"), ("b", "c"))
    asker = Asker(net, "a")
    net["a"].crash()
    net["a"].start()
    net.run(30)
    assert asker.app.connection.is_up
    assert not asker.inbox.startswith(asker.app.connection.inbox)
    answer(net.app("c"), asker.inbox, 1)
    net.run()
    assert asker.got == []
    assert net.count("a", "answers_dropped", "former") == 1
    again = Asker(net, "a")
    answer(net.app("c"), again.inbox, 2)
    net.run()
    assert again.got == [2]


def test_who_answers_to_a_node_without_a_way_is_told_at_once() -> None:
    net = Network(("a", "b"), ("b", "c"))
    app, beside = net.app("c"), net.app("c").subscribe()
    gone = f"{inboxes_at('nowhere', '')}1.{SECRET}"
    counters = answer(app, gone, 1) + answer(app, Asker(net, "a").inbox, 2)
    net.run()
    assert refusals(app, counters) == ["no-way: no way leads to node 'nowhere', where the request comes from"]
    assert beside.values == [2], "what was refused is published nowhere"


def test_a_reliable_answer_waits_for_a_link_and_a_transient_one_is_refused() -> None:
    net = Network(("a", "b"), ("b", "c"), reroute_s=inf)
    asker, app = Asker(net, "a"), net.app("b")
    net.cut("a", "b")
    net.run(60)
    (transient,) = answer(app, asker.inbox, 1, delivery="transient")
    net.run()
    assert app.connection.publications.unasked == 1
    assert transient <= app.connection.publications.accepted
    assert "the link to 'a'" in str(app.connection.publications.unasked_failure)
    answer(app, asker.inbox, 2)
    net.run()
    net.heal("a", "b")
    net.run(60)
    assert asker.got == [2]


def test_an_answer_that_waits_for_a_link_goes_another_way_if_there_is_one() -> None:
    net = Network(("a", "b"), ("b", "c"), ("c", "a"))
    asker, there = Asker(net, "a"), net.neighbour("a", "b").is_in_tree
    near = "b" if there else "c"
    beside = net.app({"b": "c", "c": "b"}[near]).subscribe()
    net.run()
    net.cut("a", near)
    answer(net.app(near), asker.inbox, 1)
    net.run(120)
    answer(net.app(near), asker.inbox, 2, delivery="transient")
    net.run()
    assert asker.got == [1, 2]
    assert beside.values == [], "it is on the way, and gets nothing of it"


def test_an_answer_is_read_from_the_store_for_the_neighbour_on_its_way_alone() -> None:
    net = Network(("a", "b"), ("b", "c"), ("b", "d"), reroute_s=inf)
    asker = Asker(net, "a")
    net.app("d").subscribe("x >= 0", durable="all")
    net.run()
    net.cut("a", "b")
    net.cut("d", "b")
    net.run(60)
    answer(net.app("c"), asker.inbox, 1)
    net.app("c").publish(2)
    net.run(60)
    net.heal("a", "b")
    net.heal("d", "b")
    net.run(60)
    assert asker.got == [1]
    assert net["d"].core.overlay.neighbours.others(None)[0].intake.received == 1  # type: ignore[union-attr]


def test_an_answer_goes_back_the_way_of_the_request_while_the_record_of_a_link_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "CHANGES_A_SECOND_MAX", 0.01)
    net = Network(("a", "b"), settle_s=500.0)
    asked, app = net.app("a").subscribe("x > 0"), net.app("a")
    for name in ("c", "d"):  # the record of b that has its link to the second of them waits for its turn
        settings = CoreSettings(name=name, peers=Neighbours({"b": address_of("b")}, Credentials()))
        SimulatedNode(net.world, name, settings=settings)
        net.run(5)
    asker = Asker(net, "d")
    asker.app.publish(1, reply_to=asker.inbox)
    net.run()
    assert _knows_no_way(net, "a", "d")
    answered = answer(app, str(asked.got[0].reply_to), 2)
    net.run(300)
    assert refusals(app, answered) == []
    assert asker.got == [2]


def _knows_no_way(net: Network, node: str, to: str) -> bool:
    return net[node].core.overlay.topology.way(net[to].broker.node) is None


@pytest.mark.parametrize(
    ("inbox", "address"),
    [
        ("inbox.@node./17.sys.5eed", InboxAddress("node", "17")),
        ("inbox.@node.ann.b/17.sys.5eed", InboxAddress("node", "17")),
        ("inbox.@", InboxAddress("", "")),
        ("inbox.@node", InboxAddress("node", "")),
        ("inbox.ann/sys.5eed", None),
        ("inbox.sys.5eed", None),
        ("other", None),
    ],
)
def test_the_name_of_an_inbox_says_where_it_is(inbox: str, address: InboxAddress | None) -> None:
    assert address_of_inbox(inbox) == address


# With users


def test_users_of_one_name_at_two_nodes_do_not_receive_each_others_answers(tmp_path: Path) -> None:
    async def work() -> None:
        users = {"a": ["ann"], "b": ["ann", "bob"]}
        async with Line("a", "b", home=tmp_path, users=users) as line:
            ann, other, bob = (
                await line.bus("a", "ann"),
                await line.bus("b", "ann"),
                await line.bus("b", "bob"),
            )
            inboxes = inboxes_at(line["a"].driver.broker.node, "ann")
            with pytest.raises(NotAllowed, match="the inbox of another"):
                await other.subscribe(f"STARTS_WITH(subject, '{inboxes}')").__aenter__()
            with pytest.raises(NotAllowed, match="its own inboxes only"):
                await other.publish("ask", n=0, reply_to=f"{inboxes}1.x", delivery="reliable")
            async with (
                other.subscribe("n > 0") as heard,
                bob.listen("type = 'ask'", lambda ask: bob.reply(ask, "answer", n=2)),
            ):
                await line.wait_wanted("n > 0", "type = 'ask'", at="a", of="b")
                assert (await ann.request("ask", n=1))["n"] == 2
                assert (await other.request("ask", n=3))["n"] == 2
                got = [await anext(heard) for _ in range(3)]
                assert [(event.type, event.source) for event in got] == [
                    ("ask", "ann@a"),
                    ("ask", "ann"),
                    ("answer", "bob"),
                ]

    run(work())


def test_an_answer_that_a_node_on_the_way_may_not_have_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        rules: dict[str, Any] = {
            "b": allow("a", ["publish"]) + allow("a", ["subscribe"], "type = 'air'") + allow("bob")
        }
        async with Line("a", "b", home=tmp_path, users={"a": ["ann"], "b": ["bob"]}, rules=rules) as line:
            ann, bob = await line.bus("a", "ann"), await line.bus("b", "bob")
            async with bob.subscribe("type = 'ask'") as asked:
                await line.wait_wanted("type = 'ask'", at="a", of="b")

                async def respond() -> None:
                    request = await anext(asked)
                    with pytest.raises(Refused, match="may not subscribe to this") as refused:
                        await bob.reply(request, "secret", delivery="reliable")
                    assert refused.value.code == "no-way"
                    await bob.reply(request, "air", n=7)

                answer, _ = await asyncio.gather(ann.request("ask"), respond())
                assert (answer.type, answer["n"]) == ("air", 7)

    run(work())
