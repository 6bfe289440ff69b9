from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from node.authority import HOSTS, Authority
from sensors.gateways import TestGateway, run, wait_until

from tidings.errors import AddressError, ConfigError, UserError
from tidings.gateway.messages import Ack, Sensor, encode
from tidings.sensors import speaker
from tidings.sensors.link import GatewayLink, GatewayPlace, host_and_port, place_of
from tidings.sensors.network import Heard
from tidings.sensors.speaker import Speaker


class Listener:
    """A party that only listens."""

    def __init__(self) -> None:
        self.messages: list[Heard] = []
        self.states: list[str] = []

    def connected(self) -> None:
        self.states.append("connected")

    def disconnected(self) -> None:
        self.states.append("disconnected")

    def heard(self, message: Heard) -> None:
        self.messages.append(message)


# -- where a gateway is


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("host", ("host", 4242)),
        ("10.0.0.7:99", ("10.0.0.7", 99)),
        ("[::1]:99", ("::1", 99)),
        ("[::1]", ("::1", 4242)),
    ],
)
def test_a_gateway_is_named_by_host_and_port(text: str, parts: tuple[str, int]) -> None:
    assert host_and_port(text, 4242) == parts


@pytest.mark.parametrize("text", ["", ":", ":99", "host:", "host:x", "host:0", "host:65536", "host:²"])
def test_what_is_no_host_and_port_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match=r"is no HOST:PORT"):
        host_and_port(text, 4242)


def test_a_token_is_only_told_inside_tls(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("tdg_secret")
    for options in ({"token": token}, {"token": token, "udp": True}, {"udp": True, "tls": True}):
        with pytest.raises(UserError) as caught:
            place_of("host", **options)  # type: ignore[arg-type]
        assert "secret" not in str(caught.value)
    assert "secret" not in repr(place_of("host", tls=True, token=token))


def test_files_that_are_no_good_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the token can't be read"):
        place_of("host", tls=True, token=tmp_path / "none")
    with pytest.raises(ConfigError, match="can't be read"):
        place_of("host", ca=tmp_path / "none")


# -- the connection


def test_inside_tls_the_first_line_says_who_it_is(tmp_path: Path) -> None:
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(tmp_path / "node.crt", "node", HOSTS))
    (tmp_path / "token").write_text("tdg_secret\n")
    ca = authority.write_ca(tmp_path / "ca.crt")
    first: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first.put_nowait(await reader.readline())
        writer.write(encode(Ack("n", 1)))
        await reader.read()
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        listener = Listener()
        place = place_of(f"127.0.0.1:{port}", ca=ca, token=tmp_path / "token")
        task = asyncio.ensure_future(GatewayLink(place, listener).run())
        assert json.loads(await first.get()) == {"login": {"token": "tdg_secret"}}
        await wait_until(lambda: listener.messages == [Ack("n", 1)])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.close()
        await server.wait_closed()

    run(test())


def test_a_link_that_is_cut_is_made_again() -> None:
    async def test() -> None:
        async with TestGateway().listening() as gateway:
            listener = Listener()
            link = GatewayLink(gateway.place(), listener)
            task = asyncio.ensure_future(link.run())
            await wait_until(lambda: link.is_connected)
            link.cut()
            await wait_until(lambda: gateway.connections == 2 and link.is_connected)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await wait_until(lambda: listener.states == ["connected", "disconnected"] * 2)

    run(test())


def test_who_speaks_something_else_is_told_and_left() -> None:
    told: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        place = GatewayPlace("127.0.0.1", server.sockets[0].getsockname()[1])
        task = asyncio.ensure_future(GatewayLink(place, Listener(), told.append).run())
        await wait_until(lambda: bool(told))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.close()
        await server.wait_closed()

    run(test())
    assert "speaks no sensor protocol" in told[0]


# -- many networks


def test_more_networks_than_fit_on_a_connection_share_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaker, "NETWORKS_PER_LINK", 10)

    async def test() -> None:
        arrived: list[Any] = []
        async with (
            TestGateway().listening() as gateway,
            Speaker(gateway.place(), on_arrived=arrived.append) as voice,
        ):
            for number in range(25):
                reading = {"name": "a", "type": "x", "value": number}
                voice.offer(f"n{number}", [Sensor("a", "x")], [reading], number)
            await voice.wait_arrived(30)
            assert sorted(arrived) == list(range(25))
            assert gateway.connections == 3
            assert len(voice.networks) == 25

    run(test())


def test_what_the_gateway_finds_wrong_is_told() -> None:
    told: list[str] = []

    async def test() -> None:
        async with (
            TestGateway().listening() as gateway,
            Speaker(gateway.place(), on_problem=told.append) as voice,
        ):
            voice.offer("n", [Sensor("a", "no type")], [], None)
            await wait_until(lambda: bool(told))

    run(test())
    assert "network 'n': $.register.sensors[0].type" in told[0]
