"""Addresses, and the ways to a node."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from client.nodes import run

from tidings.errors import AddressError
from tidings.transport.dial import dial


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
    with pytest.raises(AddressError, match="'mqtt://h' is neither"):
        dial("mqtt://h")
