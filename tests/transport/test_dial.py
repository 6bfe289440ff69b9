"""Addresses, and the ways to a node."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import cast

import pytest
from client.nodes import run
from ports import free_port

from tidings.errors import AddressError, Disconnected
from tidings.node.ports import listen_tcp, listen_udp
from tidings.transport.credentials import Credentials
from tidings.transport.dial import Hopeless, dial
from tidings.transport.udp import UdpServer


class Noted(asyncio.Protocol):
    """Notes that it was connected, and that it no longer is."""

    def __init__(self) -> None:
        self.made: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.made.set_result(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set_result(None)

    async def end(self) -> None:
        (await self.made).abort()
        await self.gone


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_tcp_connection_sends_small_frames_at_once(host: str) -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            protocol = Noted()
            await dial(f"tidings://{host}:{server.getsockname()[1]}")(protocol)
            connected = (await protocol.made).get_extra_info("socket")
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            await protocol.end()

    run(work())


def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    async def work() -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "a b"))
            server.listen()
            protocol = Noted()
            await dial(f"tidings+unix://{tmp_path}/a%20b")(protocol)
            await protocol.end()

    run(work())


def test_an_error_names_the_address() -> None:
    with pytest.raises(AddressError, match="'mqtt://h' is no address"):
        dial("mqtt://h")


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64 + ".example"])
def test_a_host_that_is_not_known_is_reported_as_such(host: str) -> None:
    async def work() -> None:
        with pytest.raises(Disconnected, match=rf"^unknown host: {host} \(.+\); check its name"):
            await dial(f"{host}:7300")(asyncio.Protocol())

    run(work())


def test_host_and_port_with_credentials_are_by_tls(tmp_path: Path) -> None:
    async def work() -> None:
        (tmp_path / "ca.pem").write_text("")
        with pytest.raises(Hopeless, match=r"ca\.pem"):
            await dial("127.0.0.1:7300", Credentials(ca=tmp_path / "ca.pem"))(asyncio.Protocol())

    run(work())


class Echo(asyncio.Protocol):
    """Sends back what it gets, and ends with the other end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Noting(Noted):
    """Notes what it gets, too."""

    def __init__(self) -> None:
        super().__init__()
        self.got = bytearray()

    def data_received(self, data: bytes) -> None:
        self.got += data


@pytest.mark.parametrize("kind", ["tcp", "unix", "udp"])
def test_every_kind_of_connection_has_one_interface(kind: str, tmp_path: Path) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        server: asyncio.Server | UdpServer
        if kind == "unix":
            server, address = (
                await loop.create_unix_server(Echo, tmp_path / "s"),
                f"tidings+unix://{tmp_path}/s",
            )
        elif kind == "udp":
            port = free_port()
            server, address = await listen_udp(Echo, "127.0.0.1", port), f"tidings+udp://127.0.0.1:{port}"
        else:
            server, place = await listen_tcp(Echo, "127.0.0.1", 0)
            address = f"tidings://{place}"
        await server.start_serving()
        protocol = Noting()
        await dial(address)(protocol)
        transport = await protocol.made
        transport.write(b"hello")
        while protocol.got != b"hello":
            await asyncio.sleep(0)
        transport.pause_reading()
        transport.write(b"again")
        for _ in range(100):
            await asyncio.sleep(0)
        assert protocol.got == b"hello"
        transport.resume_reading()
        while protocol.got != b"helloagain":
            await asyncio.sleep(0)
        transport.close()
        assert transport.is_closing()
        await protocol.gone
        server.close()

    run(work())
