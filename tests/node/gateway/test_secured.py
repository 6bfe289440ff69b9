"""A gateway where users are known: TLS, tokens, and what each user may publish."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from node.gateway.networks import (
    GatewayCommand,
    Object,
    by_udp,
    connected,
    listed,
    register,
    sensing,
    sensor,
    values,
)
from node.peers import ANSWER_S_MAX, run, running
from node.secured import TOKEN, USERS, Secured

import tidings
from tests.gateway.whole import decode_object
from tidings.client import Bus
from tidings.errors import ConfigError
from tidings.node.gateway.config import GatewayConfig, check
from tidings.node.server import Node
from tidings.security.authenticator import FAILURES_MAX
from tidings.transport.tls import client_context

LOGIN: Object = {"login": {"token": TOKEN}}
WHO = "requires a login"
WRONG_TOKEN = TOKEN[:-4] + "AAAA"


@asynccontextmanager
async def gateway_of(secured: Secured, **settings: Any) -> AsyncIterator[tuple[Node, Bus]]:
    """A node with security and a gateway, and a bus of its owner."""
    socket = secured.home / "node.sock"
    async with (
        running(security=str(secured.path), sensor_port=0, unix=str(socket), **settings) as node,
        tidings.connect(f"tidings+unix://{socket}") as bus,
    ):
        yield node, bus


@pytest.fixture
def context(secured: Secured) -> ssl.SSLContext:
    return client_context(secured.ca, None, None)


def test_with_security_connections_are_with_tls_and_a_token_says_whose_a_network_is(
    secured: Secured, context: ssl.SSLContext
) -> None:
    async def scenario() -> None:
        async with gateway_of(secured) as (node, bus), bus.subscribe("type = 'temp'") as events:
            assert node.sensor_addresses[0].startswith("tls ")
            async with connected(node.sensor_addresses[0], context) as network:
                network.say(LOGIN, register("n", sensor("t")))
                assert "subscribe" in await network.hear()
                network.say(sensing("n", 4))
                assert await values(aiter(events), 1) == [4]
                assert (await listed(bus))["n"]["owner"] == "device"

    run(scenario())


def test_a_certificate_says_it_too(secured: Secured) -> None:
    async def scenario() -> None:
        bob = client_context(**secured.client("bob"))
        async with (
            gateway_of(secured) as (node, bus),
            bus.subscribe("type = 'temp'"),
            connected(node.sensor_addresses[0], bob) as network,
        ):
            network.say(register("n", sensor("t")))
            assert "subscribe" in await network.hear()
            assert (await listed(bus))["n"]["owner"] == "bob"

    run(scenario())


def test_a_reading_names_the_user_that_has_sent_it_as_its_source(
    secured: Secured, context: ssl.SSLContext
) -> None:
    async def scenario() -> None:
        async with (
            gateway_of(secured) as (node, bus),
            bus.subscribe("source = 'device'") as events,
            connected(node.sensor_addresses[0], context) as network,
        ):
            network.say(LOGIN, register("bob", sensor("t")), sensing("bob", 1), sensing("bob", 2, seq=1))
            found = [await anext(events) for _ in range(2)]
            assert {(event["value"], event.source) for event in found} == {(1, "device"), (2, "device")}

    run(scenario())


def test_nobody_is_heard_who_does_not_say_who_he_is(secured: Secured, context: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with (
            gateway_of(secured) as (node, bus),
            connected(node.sensor_addresses[0], context) as network,
        ):
            network.say(register("n", sensor("t")))
            error = (await network.hear())["error"]
            assert error["place"] == "$.register.token"
            assert WHO in error["problem"]
            network.say(sensing("n", 4, seq=1))
            assert WHO in (await network.hear())["error"]["problem"]
            assert await listed(bus) == {}

    run(scenario())


def test_without_tls_a_token_comes_with_each_register(secured: Secured) -> None:
    async def scenario() -> None:
        async with gateway_of(secured, sensor_plain=True) as (node, bus), bus.subscribe("type = 'temp'"):
            assert node.sensor_addresses[0].startswith("tcp ")
            async with (
                connected(node.sensor_addresses[0]) as network,
                by_udp(node.sensor_addresses[1]) as datagrams,
            ):
                network.say(register("n", sensor("t"), token=TOKEN))
                assert "subscribe" in await network.hear()
                datagrams.say(register("u", sensor("t"), comment=100 * "x"))
                assert WHO in (await datagrams.hear())["error"]["problem"]
                datagrams.say(register("u", sensor("t"), token=TOKEN))
                assert "subscribe" in await datagrams.hear()
                known = await listed(bus)
                assert {one["owner"] for one in known.values()} == {"device"}
                assert set(known) == {"n", "u"}

    run(scenario())


def test_a_network_belongs_to_its_user_wherever_that_one_speaks_from(
    secured: Secured, context: ssl.SSLContext
) -> None:
    async def scenario() -> None:
        bob = client_context(**secured.client("bob"))
        async with gateway_of(secured) as (node, bus):
            async with connected(node.sensor_addresses[0], context) as network:
                network.say(LOGIN, register("n", sensor("t")), sensing("n", 1, seq=1))
                assert "ack" in await network.hear()
            async with connected(node.sensor_addresses[0], bob) as other:
                other.say(register("n", sensor("t")))
                assert "someone else" in (await other.hear())["error"]["problem"]
            async with connected(node.sensor_addresses[0], context) as network:
                network.say(LOGIN, sensing("n", 2, seq=2))
                assert "ack" in await network.hear()
            assert list(await listed(bus)) == ["n"]

    run(scenario())


def test_what_a_user_may_not_publish_is_left_out_and_told(secured: Secured, context: ssl.SSLContext) -> None:
    secured.write_access("""
[[allow]]
users = ["device"]
actions = ["publish"]
where = "type = 'temp' AND value < 10"
""")

    async def scenario() -> None:
        async with (
            gateway_of(secured) as (node, bus),
            bus.subscribe("type = 'temp'") as events,
            connected(node.sensor_addresses[0], context) as network,
        ):
            network.say(LOGIN, register("n", sensor("t")))
            assert "subscribe" in await network.hear()
            for seq in (None, 7):
                network.say(sensing("n", 1, 20, 3, **({} if seq is None else {"seq": seq})))
                error = (await network.hear())["error"]
                assert "you may not publish 1 of the readings" in error["problem"]
                assert await values(aiter(events), 2) == [1, 3]
            assert await network.hear() == {"ack": {"sensing-id": "n", "seq": 7}}

    run(scenario())


def test_wrong_tokens_end_the_connection_and_are_limited(secured: Secured, context: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with gateway_of(secured) as (node, _):
            problems = []
            for _ in range(FAILURES_MAX + 1):
                async with connected(node.sensor_addresses[0], context) as network:
                    network.say({"login": {"token": WRONG_TOKEN}})
                    (said,) = await network.hear_end()
                    problems.append(said["error"]["problem"])
            assert problems[0] == "user or secret is wrong"
            assert "too many failed attempts" in problems[-1]
            assert TOKEN[:-4] not in str(problems)

    run(scenario())


def test_strangers_are_heard_where_that_is_set(secured: Secured, context: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with (
            gateway_of(secured, sensor_strangers=True) as (node, bus),
            bus.subscribe("type = 'temp'") as events,
            connected(node.sensor_addresses[0], context) as network,
        ):
            network.say(sensing("short", 4))
            assert await values(aiter(events), 1) == [4]

    run(scenario())


def test_whose_token_is_taken_away_has_to_go(secured: Secured, context: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with gateway_of(secured) as (node, bus):
            async with connected(node.sensor_addresses[0], context) as network:
                network.say(LOGIN, register("n", sensor("t")), sensing("n", 1, seq=1))
                assert "ack" in await network.hear()
                secured.write_users("\n".join(line for line in USERS.splitlines() if "token" not in line))
                secured.write_access('[[allow]]\nusers = ["ada"]\nactions = ["publish"]\n')
                node.reload()
                assert await network.hear_end() == []
            assert (await listed(bus))["n"]["state"] == "lost"

    run(scenario())


def test_a_port_that_others_can_reach_needs_security() -> None:
    check(GatewayConfig("tidings://127.0.0.1:1", host="0.0.0.0", security="somewhere"))
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        check(GatewayConfig("tidings://127.0.0.1:1", host="0.0.0.0"))
    with pytest.raises(ConfigError, match="no IP address"):
        check(GatewayConfig("tidings://127.0.0.1:1", host="everywhere"))


def test_a_token_is_in_no_representation() -> None:
    line = b'{"register": {"sensing-id": "n", "sensors": [{"name": "t", "type": "t"}], "token": "secret!"}}'
    (message,) = decode_object(line)
    assert "secret!" not in repr(message)


def test_a_gateway_speaks_to_its_node_with_tls(
    secured: Secured, start_gateway: Callable[..., GatewayCommand]
) -> None:
    async def scenario() -> None:
        token = secured.home / "token"
        token.write_text(TOKEN)
        secured.write_access("""
[[allow]]
users = ["device"]
actions = ["publish", "subscribe"]
""")
        socket = secured.home / "node.sock"
        async with (
            running(security=str(secured.path), unix=str(socket)) as node,
            tidings.connect(f"tidings+unix://{socket}") as bus,
        ):
            flags = ("--node", node.addresses[0], "--ca", str(secured.ca), "--token-file", str(token))
            gateway = start_gateway(*flags, "--sensor-port", "0")
            address = (await asyncio.to_thread(gateway.addresses))[0]
            async with bus.subscribe("type = 'temp'") as events, connected(address) as network:
                network.say(register("n", sensor("t")))
                assert "subscribe" in await network.hear()
                network.say(sensing("n", 4))
                assert await values(aiter(events), 1) == [4]

    run(scenario())


def test_a_gateway_that_its_node_lets_in_no_more_ends_and_says_why(
    secured: Secured, start_gateway: Callable[..., GatewayCommand]
) -> None:
    async def scenario() -> None:
        token = secured.home / "token"
        token.write_text(TOKEN)
        secured.write_access('[[allow]]\nusers = ["device"]\nactions = ["publish", "subscribe"]\n')
        async with running(security=str(secured.path)) as node:
            flags = ("--node", node.addresses[0], "--ca", str(secured.ca), "--token-file", str(token))
            gateway = start_gateway(*flags, "--sensor-port", "0")
            await asyncio.to_thread(gateway.addresses)
            secured.write_users("\n".join(line for line in USERS.splitlines() if "token" not in line))
            secured.write_access('[[allow]]\nusers = ["ada"]\nactions = ["publish"]\n')
            node.reload()
            _, errors = await asyncio.to_thread(gateway.process.communicate, timeout=ANSWER_S_MAX)
            assert gateway.process.returncode == 2
            assert "tidings: " in errors
            assert TOKEN not in errors

    run(scenario())
