"""Sensor networks that speak WebSocket, and those that show a token, over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from typing import Any

import pytest
from node.gateway.networks import register, sensing, sensor, values
from node.gateway.webs import Rig, web_rig
from node.peers import ANSWER_S_MAX, Run, run
from node.secured import TOKEN, Secured
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

import tidings
from tests.gateway.world import is_known
from tidings.gateway.gateway import ERRORS_MAX
from tidings.node.gateway import websocket
from tidings.node.gateway.websocket import is_whole
from tidings.node.http import BODY_SIZE_MAX
from tidings.steps import finish


def socket(rig: Rig, **options: Any) -> connect:
    return connect(rig.address.replace("http", "ws", 1), **options)


async def say(network: ClientConnection, *messages: Any) -> None:
    await network.send("\n".join(json.dumps(one) for one in messages))


async def hear(network: ClientConnection) -> Any:
    return json.loads(await asyncio.wait_for(network.recv(), ANSWER_S_MAX))


async def closed(network: ClientConnection) -> tuple[int, list[Any]]:
    """With which code a connection is ended, and what came before that."""
    said = []
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(ANSWER_S_MAX):
            while True:
                said.append(json.loads(await network.recv()))
    assert network.close_code is not None
    return network.close_code, said


def test_what_subscribers_want_is_asked_over_a_websocket_and_arrives(on_loop: Run) -> None:
    async def scenario() -> None:
        async with web_rig() as rig, tidings.connect(rig.node) as bus, socket(rig) as network:
            await say(network, register("n", sensor("t")), register("m", sensor("u", "other")))
            async with bus.subscribe("type = 'temp'") as events:
                asked = await hear(network)
                assert asked == {"subscribe": {"sensing-id": "n", "sensors": [{"name": "t"}]}}
                await say(network, sensing("n", 1), sensing("n", 2, seq=5))
                assert await hear(network) == {"ack": {"sensing-id": "n", "seq": 5}}
                assert await values(aiter(events), 2) == [1, 2]
                async with bus.subscribe("type = 'other'"):
                    assert (await hear(network))["subscribe"]["sensing-id"] == "m"
                assert (await hear(network))["unsubscribe"]["sensing-id"] == "m"
            assert (await hear(network))["unsubscribe"]["sensing-id"] == "n"

    on_loop(scenario())


def test_a_message_in_fragments_is_one_message() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, socket(rig) as network:
            text = json.dumps(sensing("n", 1, seq=1))
            await network.send([text[:10], text[10:20], "", text[20:]])
            assert "ack" in await hear(network)

    run(scenario())


def test_a_network_that_asks_whether_the_gateway_is_there_is_answered() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, socket(rig) as network:
            await asyncio.wait_for(await network.ping(), ANSWER_S_MAX)

    run(scenario())


def test_a_mistake_is_told_by_its_place_and_the_connection_stays() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, socket(rig) as network:
            await network.send('{"hello": {}}')
            assert (await hear(network))["error"]["place"] == "$.hello"
            await say(network, sensing("n", 1, seq=1))
            assert "ack" in await hear(network)

    run(scenario())


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\x00", 1003),
        ('{"sensing": {"sensing-id": "n"', 1007),
        ("x" * (BODY_SIZE_MAX + 1), 1009),
        ("\n".join(['{"what": {}}'] * ERRORS_MAX), 1008),
    ],
)
def test_what_can_not_go_on_is_ended_with_a_code_that_says_why(message: str | bytes, code: int) -> None:
    async def scenario() -> None:
        async with web_rig() as rig, socket(rig) as network, socket(rig) as other:
            await network.send(message)
            ended, said = await closed(network)
            assert ended == code
            assert all("error" in one for one in said)
            await say(other, sensing("n", 1, seq=1))
            assert "ack" in await hear(other)

    run(scenario())


def test_a_text_that_is_not_utf_8_ends_the_connection() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, socket(rig) as network:
            await network.send(b'{"\xff": 1}', text=True)
            assert (await closed(network))[0] == 1007

    run(scenario())


def test_a_gateway_that_stops_says_so() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, socket(rig) as network:
            await say(network, sensing("n", 1, seq=1))
            await hear(network)
            rig.web.close()
            assert (await closed(network))[0] == 1001

    run(scenario())


def test_a_network_that_goes_may_come_back_for_a_while() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, tidings.connect(rig.node) as bus, bus.subscribe("type = 'temp'"):
            for _ in range(2):
                async with socket(rig) as network:
                    await say(network, register("n", sensor("t")))
                    assert "subscribe" in await hear(network)
            assert is_known(rig.server.hub.gateway, "n", "t")

    run(scenario())


def test_a_network_that_is_silent_is_asked_and_one_that_does_not_answer_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "PING_S", 0.02)

    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as deaf:
            deaf.ask(
                "GET",
                "/sensors",
                upgrade="websocket",
                connection="Upgrade",
                sec_websocket_key="AAAAAAAAAAAAAAAAAAAAAA==",
                sec_websocket_version="13",
            )
            assert (await deaf.answer()).status == 101
            heard = b""
            with contextlib.suppress(ConnectionResetError):
                heard = await deaf.end()
            assert heard in (b"", b"\x89\x00"), "it is asked once"
            assert len(rig.server.hub) == 0

    run(scenario())


def test_a_page_of_another_site_gets_no_websocket() -> None:
    async def scenario() -> None:
        async with web_rig(frozenset({"https://map.example"})) as rig:
            foreign = {"Sec-Fetch-Site": "cross-site"}
            for options in ({"origin": "http://evil.example"}, {"additional_headers": foreign}):
                with pytest.raises(InvalidStatus, match="403"):
                    await socket(rig, **options)
            for origin in ("https://map.example", f"http://{rig.host}"):
                async with socket(rig, origin=origin) as network:
                    await say(network, sensing("n", 1, seq=1))
                    assert "ack" in await hear(network)

    run(scenario())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"sec_websocket_key": "short", "sec_websocket_version": "13"},
        {"sec_websocket_key": "AAAAAAAAAAAAAAAAAAAAAA==", "sec_websocket_version": "8"},
        {"content_length": "5"},
        {"transfer_encoding": "chunked"},
    ],
)
def test_an_upgrade_that_is_not_as_it_should_be_is_refused(fields: dict[str, str]) -> None:
    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as client:
            answered = await client.request(
                "GET", "/sensors", upgrade="websocket", connection="Upgrade", **fields
            )
            assert answered.status == 400
            assert len(rig.server.hub) == 0

    run(scenario())


def test_it_is_known_whether_objects_are_whole() -> None:
    assert finish(is_whole(b'{"a": 1}'))
    assert finish(is_whole(b'{"a": 1}{"b": 2}\n{"c": "}"}'))
    assert finish(is_whole(b'{"a": {broken}}'))
    assert not finish(is_whole(b'{"a": {'))
    assert not finish(is_whole(b'{"a": 1}{"b": '))


# With security


def trusting(secured: Secured) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(secured.ca))


def test_with_security_there_is_tls_and_a_token_says_whose_a_network_is(secured: Secured) -> None:
    async def scenario() -> None:
        context = trusting(secured)
        async with (
            web_rig(security=str(secured.path)) as rig,
            tidings.connect(rig.node) as bus,
            bus.subscribe("type = 'temp'") as events,
            rig.client(context) as phone,
        ):
            assert rig.address.startswith("https://")
            message = register("n", sensor("t"))
            stranger = await phone.post(message)
            assert "requires a login" in stranger.said[0]["error"]["problem"]
            assert "sensing-token" not in stranger.fields
            known = await phone.post(message, authorization=f"Bearer {TOKEN}")
            assert known.status == 200
            assert "Secure" in known.fields["set-cookie"]
            token = known.fields["sensing-token"]
            await phone.post(sensing("n", 1), sensing_token=token)
            assert await values(aiter(events), 1) == [1]
            wrong = await phone.post(message, authorization=f"Bearer {TOKEN[:-4]}AAAA")
            assert wrong.status == 401
            assert TOKEN[:10].encode() not in wrong.body

    run(scenario())


@pytest.mark.parametrize("by_line", [False, True])
def test_with_security_a_websocket_is_let_in_by_a_token(secured: Secured, by_line: bool) -> None:
    async def scenario() -> None:
        context = trusting(secured)
        fields = {} if by_line else {"Authorization": f"Bearer {TOKEN}"}
        async with web_rig(security=str(secured.path)) as rig:
            async with socket(rig, ssl=context, additional_headers=fields) as network:
                if by_line:
                    await say(network, {"login": {"token": TOKEN}})
                await say(network, register("n", sensor("t")), sensing("n", 1, seq=1))
                assert "ack" in await hear(network)
            wrong = {"Authorization": "Bearer nonsense"}
            async with socket(rig, ssl=context, additional_headers=wrong) as network:
                code, said = await closed(network)
                assert code == 1008
                assert "error" in said[0]

    run(scenario())
