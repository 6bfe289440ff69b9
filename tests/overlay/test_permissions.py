"""Permissions over links of real nodes: rules say what crosses, both ways, and only nodes are linked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from node.peers import Peer, run
from overlay.real import EVERYTHING, Line, allow

from tidings import Event
from tidings.errors import NoAnswer, NotAllowed
from tidings.overlay.linking import VERSION
from tidings.protocol.arguments import INBOX
from tidings.protocol.messages import Reverse
from tidings.transport.tls import client_context

NO_ALARM = "NOT type LIKE 'alarm.%'"
AIR = "type = 'air'"


@asynccontextmanager
async def stranger(line: Line, node: str, name: str) -> AsyncIterator[Peer]:
    """One who speaks the protocol by hand, with the certificate of this name."""
    files = line.places[node].client(name)
    context = client_context(files["ca"], files["cert"], files["key"])
    host, _, port = line.address(node).rpartition("//")[2].rpartition(":")
    peer = Peer(*await asyncio.open_connection(host, int(port), ssl=context))
    await peer.hello()
    yield peer
    peer.close()
    await peer.writer.wait_closed()


def greeting(node: str, name: str) -> dict[str, object]:
    return {"version": VERSION, "node": node, "name": name}


# What users may publish


def test_a_user_who_may_not_publish_something_cannot_by_way_of_another_node(tmp_path: Path) -> None:
    async def work() -> None:
        rules = {"a": allow("b") + allow("ann", ["publish"], NO_ALARM) + allow("art")}
        users = {"a": ["ann", "art"], "c": ["cleo"]}
        async with Line("a", "b", "c", home=tmp_path, users=users, rules=rules) as line:
            ann, art, cleo = (
                await line.bus("a", "ann"),
                await line.bus("a", "art"),
                await line.bus("c", "cleo"),
            )
            async with cleo.subscribe("n > 0") as events:
                await line.wait_wanted("n > 0", at="a", of="b")
                with pytest.raises(NotAllowed):
                    await ann.publish("alarm.fire", n=1, delivery="reliable")
                await ann.publish("alarm.fire", n=2)
                await ann.publish("noise", n=3)
                assert (await anext(events))["n"] == 3
                await art.publish("alarm.fire", n=4)
                assert (await anext(events)).source == "art@a"

    run(work())


def test_a_user_who_may_publish_at_one_node_does_not_get_past_the_rules_of_the_next(tmp_path: Path) -> None:
    async def work() -> None:
        rules = {"c": allow("b", ["publish"], NO_ALARM) + allow("b", ["subscribe"]) + allow("cleo")}
        users = {"a": ["ann"], "b": ["bob"], "c": ["cleo"]}
        async with Line("a", "b", "c", home=tmp_path, users=users, rules=rules) as line:
            ann, bob, cleo = (
                await line.bus("a", "ann"),
                await line.bus("b", "bob"),
                await line.bus("c", "cleo"),
            )
            async with cleo.subscribe("n > 0") as there, bob.subscribe("n > 0") as between:
                await line.wait_wanted("n > 0", at="b", of="c")
                await line.wait_wanted("n > 0", at="a", of="b")
                for n, delivery in ((1, "transient"), (2, "reliable")):
                    await ann.publish("alarm.fire", n=n, delivery=delivery)
                    await bob.publish("alarm.fire", n=n, delivery=delivery)
                await ann.publish("noise", n=3, delivery="reliable")
                await bob.publish("noise", n=3, delivery="reliable")
                assert {(await anext(there)).type, (await anext(there)).type} == {"noise"}
                assert [(await anext(between))["n"] for _ in range(6)].count(3) == 2
            assert line.count("c", "relays_refused", "not-allowed") == 4

    run(work())


# What a peer may do


def test_a_peer_gets_only_what_it_may_subscribe_to(tmp_path: Path) -> None:
    async def work() -> None:
        rules = {"b": allow("a", ["subscribe"], AIR) + allow("a", ["publish"]) + allow("bob")}
        async with Line("a", "b", home=tmp_path, users={"a": ["ann"], "b": ["bob"]}, rules=rules) as line:
            ann, bob = await line.bus("a", "ann"), await line.bus("b", "bob")
            async with ann.subscribe("n > 0") as events, ann.subscribe("type = 'alarm'"):
                await line.wait_wanted("n > 0", "type = 'alarm'", at="b", of="a")
                for type in ("alarm", "air", "noise", "air"):
                    await bob.publish(type, n=1)
                    await bob.publish(type, n=2, delivery="reliable")
                assert [(await anext(events)).type for _ in range(4)] == ["air"] * 4
            assert line.count("b", "relayed") == 4, "nothing else has left the node"

    run(work())


def test_a_peer_gets_only_last_values_that_it_may_subscribe_to(tmp_path: Path) -> None:
    async def work() -> None:
        rules = {"b": allow("a", ["subscribe"], AIR) + allow("bob") + allow("c")}
        users = {"a": ["ann"], "b": ["bob"], "c": ["cleo"]}
        async with Line("a", "b", "c", home=tmp_path, users=users, rules=rules) as line:
            ann = await line.bus("a", "ann")
            for bus in (await line.bus("b", "bob"), await line.bus("c", "cleo")):
                for type in ("alarm", "air", "noise"):
                    await bus.publish(type, n=1, subject="s", delivery="reliable")
            async with ann.subscribe("n > 0", last=True) as events:
                assert events.missing == []
                found = [await anext(events) for _ in range(2)]
                assert sorted((one.type, one.source) for one in found) == [
                    ("air", "bob@b"),
                    ("air", "cleo@c"),
                ]
                assert events.pending == 0
            async with ann.subscribe("type = 'alarm'", last=True) as events:
                assert events.missing == ["b", "c"], "it was asked for nothing else"
                assert events.pending == 0

    run(work())


def test_a_peer_gets_only_stored_events_that_it_may_subscribe_to(tmp_path: Path) -> None:
    async def work() -> None:
        rules = {"b": allow("a", ["subscribe"], AIR) + allow("bob") + allow("c")}
        users = {"a": ["ann"], "b": ["bob"], "c": ["cleo"]}
        async with Line("a", "b", "c", home=tmp_path, users=users, rules=rules) as line:
            ann, begun = await line.bus("a", "ann"), datetime.now(UTC)
            for bus in (await line.bus("b", "bob"), await line.bus("c", "cleo")):
                for type in ("alarm", "air", "noise"):
                    await bus.publish(type, n=1, delivery="persistent")
            async with ann.subscribe("n > 0", since=begun) as events:
                assert events.missing == []
                found = [await anext(events) for _ in range(2)]
                assert [(one.type, one.source) for one in found] == [("air", "bob@b"), ("air", "cleo@c")]
            async with ann.subscribe("type = 'alarm'", since=begun) as events:
                assert events.missing == ["b", "c"], "it was asked for nothing else"
                assert events.pending == 0

    run(work())


def test_a_peer_may_bring_only_what_it_may_publish(tmp_path: Path) -> None:
    async def work() -> None:
        rules = {"b": allow("a", ["publish"], AIR) + allow("a", ["subscribe"]) + allow("bob")}
        async with Line("a", "b", home=tmp_path, users={"a": ["ann"], "b": ["bob"]}, rules=rules) as line:
            ann, bob = await line.bus("a", "ann"), await line.bus("b", "bob")
            async with bob.subscribe("n > 0") as events:
                await line.wait_wanted("n > 0", at="a", of="b")
                for type in ("noise", "air", "alarm"):
                    await ann.publish(type, n=1)
                    await ann.publish(type, n=2, delivery="reliable")
                await ann.publish("air", n=3, delivery="reliable")
                got = [await anext(events) for _ in range(3)]
                assert [(event.type, event["n"]) for event in got] == [("air", 1), ("air", 2), ("air", 3)]
            assert line.count("b", "relays_refused", "not-allowed") == 4
            async with bob.subscribe("n > 0", last=True) as events:
                assert (await anext(events))["n"] == 3, "of its last values, too"
                assert events.pending == 0
            assert line.count("b", "relays_refused", "not-allowed") == 6

    run(work())


@pytest.mark.parametrize("actions", [["publish"], ["subscribe"], ["get"]])
def test_a_peer_without_a_right_is_linked_and_that_does_not_cross(tmp_path: Path, actions: list[str]) -> None:
    async def work() -> None:
        rules = {"b": allow("a", actions) + allow("bob")}
        async with Line("a", "b", home=tmp_path, users={"a": ["ann"], "b": ["bob"]}, rules=rules) as line:
            ann, bob = await line.bus("a", "ann"), await line.bus("b", "bob")
            async with ann.subscribe("type = 'b'") as here, bob.subscribe("type = 'a'") as there:
                await line.wait_wanted("type = 'b'", at="b", of="a")
                await line.wait_wanted("type = 'a'", at="a", of="b")
                await bob.publish("b", delivery="reliable")
                await ann.publish("a", delivery="reliable")
                if "publish" in actions:
                    assert (await anext(there)).source == "ann@a"
                else:
                    await line.wait_count("b", "relays_refused", "not-allowed", 1)
                if "subscribe" in actions:
                    assert (await anext(here)).source == "bob@b"
                assert line.count("b", "relayed") == ("subscribe" in actions)

    run(work())


def test_changed_rules_of_a_peer_hold_from_then_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with Line("a", "b", home=tmp_path, users={"a": ["ann"], "b": ["bob"]}) as line:
            ann, bob = await line.bus("a", "ann"), await line.bus("b", "bob")
            async with ann.subscribe("n > 0") as here, bob.subscribe("n > 0") as there:
                await line.wait_wanted("n > 0", at="b", of="a")
                await line.wait_wanted("n > 0", at="a", of="b")
                line.places["b"].write_access(allow("a", ["subscribe", "publish"], AIR) + allow("bob"))
                line["b"].reload()
                for type in ("noise", "air"):
                    await bob.publish(type, n=1, delivery="reliable")
                    await ann.publish(type, n=2, delivery="reliable")
                assert [(await anext(here)).type for _ in range(3)] == ["noise", "air", "air"]
                assert [(await anext(there)).type for _ in range(3)] == ["noise", "air", "air"]

    run(work())


# Who may be linked


def test_a_client_that_is_no_node_cannot_greet(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            Line("a", "b", home=tmp_path, users={"b": ["eve"]}) as line,
            stranger(line, "b", "eve") as eve,
        ):
            told = await eve.ask("link.hello", **greeting("forged", "eve"))
            assert told.error is not None
            assert (told.error.code, "is no node" in told.error.text) == ("not-allowed", True)
            for operation, arguments in (
                ("link.table", {"add": [("", False)], "done": True}),
                ("link.topology", {"records": []}),
                ("subscribe", {"number": 1, "credit": 1, "filter": EVERYTHING, "link": True}),
            ):
                told = await eve.ask(operation, **arguments)
                assert told.error is not None, operation
                assert told.error.code == "protocol"
            eve.send(Reverse(b"x"))
            assert (await eve.expect_bye()).code == "protocol"
            assert [one.name for one in line["b"].driver.core.overlay] == ["a"]

    run(work())


def test_a_node_with_the_certificate_of_another_name_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with Line("a", "b", home=tmp_path) as line, stranger(line, "b", "a") as liar:
            told = await liar.ask("link.hello", **greeting("forged", "c"))
            assert told.error is not None
            assert "shows the certificate of 'a'" in told.error.text
            assert line.neighbour("b", "c") is None

    run(work())


def test_a_node_that_claims_the_id_of_another_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with Line("a", "b", "c", home=tmp_path) as line, stranger(line, "b", "a") as liar:
            stolen = line["c"].driver.broker.node
            told = await liar.ask("link.hello", **greeting(stolen, "a"))
            assert told.error is not None
            assert told.error.code == "not-allowed"
            neighbour = line.neighbour("b", "c")
            assert neighbour is not None
            assert neighbour.is_up

    run(work())


# Requests


def test_requests_are_answered_across_nodes_and_only_who_asked_reads_the_answers(tmp_path: Path) -> None:
    async def work() -> None:
        users = {"a": ["ann"], "b": ["eve"], "c": ["cleo", "eve"]}
        async with Line("a", "b", "c", home=tmp_path, users=users) as line:
            ann, cleo = await line.bus("a", "ann"), await line.bus("c", "cleo")
            near, far = await line.bus("b", "eve"), await line.bus("c", "eve")
            with pytest.raises(NotAllowed, match="the inbox of another"):
                await far.subscribe(f"STARTS_WITH(subject, '{INBOX}ann')").__aenter__()
            async with (
                near.subscribe("n >= 0") as between,
                far.subscribe("n >= 0") as beside,
                cleo.listen("type = 'double'", lambda ask: cleo.reply(ask, "doubled", n=2 * ask["n"])),
            ):
                await line.wait_wanted("n >= 0", "type = 'double'", at="a", of="b")
                for n in range(3):
                    answer = await ann.request("double", n=n)
                    assert (answer["n"], answer.source) == (2 * n, "cleo@c")
                await ann.publish("last", n=9, delivery="reliable")
                for events in (between, beside):
                    heard = [(await anext(events)).type for _ in range(4)]
                    assert heard == ["double", "double", "double", "last"]

    run(work())


def test_who_was_not_asked_cannot_answer_through_a_link(tmp_path: Path) -> None:
    async def work() -> None:
        users = {"a": ["ann"], "c": ["cleo", "eve"]}
        async with Line("a", "b", "c", home=tmp_path, users=users) as line:
            ann, eve, cleo = (
                await line.bus("a", "ann"),
                await line.bus("c", "eve"),
                await line.bus("c", "cleo"),
            )
            async with cleo.subscribe("type = 'ask'") as asked:
                await line.wait_wanted("type = 'ask'", at="a", of="b")
                request = asyncio.create_task(ann.request("ask", timeout_s=3.0))
                seen = await anext(asked)
                forged = Event(
                    "forged", subject=seen.reply_to, correlation_id=seen.correlation_id, delivery="reliable"
                )
                with pytest.raises(NotAllowed):
                    await eve.publish(forged)
                with pytest.raises(NoAnswer):
                    await request

    run(work())
