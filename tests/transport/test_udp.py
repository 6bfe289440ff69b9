"""Connections over UDP, by real sockets of this machine, some of whose datagrams are lost."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from client.nodes import run
from node.authority import HOSTS, Authority
from overlay.real import Line
from ports import free_port

from tidings import Event
from tidings.errors import Disconnected
from tidings.node.ports import listen_udp
from tidings.transport.credentials import Credentials
from tidings.transport.datagrams import DatagramPort
from tidings.transport.dial import Hopeless, dial
from tidings.transport.udp import UdpServer


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def __init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)


class Caller(asyncio.Protocol):
    """Gathers what it gets, and may hold back what is too much."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.got = bytearray()
        self.lost = loop.create_future()
        self.pauses = 0
        self._changed = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        self._changed.set()

    def pause_writing(self) -> None:
        self.pauses += 1

    def resume_writing(self) -> None:
        pass

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)

    async def wait(self, size: int) -> bytes:
        """Wait for so many bytes."""
        while len(self.got) < size:
            self._changed.clear()
            await self._changed.wait()
        return bytes(self.got)


@asynccontextmanager
async def listening(port: int) -> AsyncIterator[tuple[UdpServer, list[Echo]]]:
    echoes: list[Echo] = []

    def make() -> Echo:
        echoes.append(Echo())
        return echoes[-1]

    server = await listen_udp(make, "127.0.0.1", port)
    await server.start_serving()
    try:
        yield server, echoes
    finally:
        server.close()
        for echo in echoes:
            await echo.lost


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose some of all datagrams, and send some twice."""
    random, send = Random(7), DatagramPort._send

    def sent(self: Any, place: Any, data: bytes) -> None:
        for _ in range(random.choices((0, 1, 2), (1, 38, 1))[0]):
            send(self, place, data)

    monkeypatch.setattr(DatagramPort, "_send", sent)


@pytest.mark.usefixtures("lossy")
def test_what_is_written_comes_back_whole_though_datagrams_are_lost() -> None:
    async def work() -> None:
        port = free_port()
        async with listening(port) as (_, echoes):
            caller = Caller()
            await dial(f"tidings+udp://localhost:{port}")(caller)
            data = Random(1).randbytes(300_000)
            caller.transport.write(data)
            assert await caller.wait(len(data)) == data
            assert caller.pauses  # what is not acknowledged counts as buffered
            assert caller.transport.get_extra_info("peername")[1] == port
            caller.transport.close()
            await caller.lost
            await echoes[0].lost

    run(work())


def test_a_port_that_nobody_listens_at_refuses_at_once() -> None:
    async def work() -> None:
        with pytest.raises(ConnectionRefusedError, match="nobody listens"):
            await dial(f"tidings+udp://127.0.0.1:{free_port()}")(Caller())
        with pytest.raises(Disconnected, match="unknown host"):
            await dial("tidings+udp://no.such.host.invalid:7300")(Caller())

    run(work())


def test_an_end_that_is_aborted_ends_the_other() -> None:
    async def work() -> None:
        port = free_port()
        async with listening(port) as (server, echoes):
            caller = Caller()
            await dial(f"tidings+udp://127.0.0.1:{port}")(caller)
            caller.transport.write(b"hello")
            await caller.wait(5)
            caller.transport.abort()
            assert isinstance(await echoes[0].lost, ConnectionResetError)
            assert not server._listener.streams

    run(work())


def test_strangers_take_no_memory_of_a_port() -> None:
    async def work() -> None:
        port = free_port()
        async with listening(port) as (server, _):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.setblocking(False)
                for number in range(100):
                    stranger.sendto(bytes([0x11]) + number.to_bytes(8) + bytes(19), ("127.0.0.1", port))
                loop = asyncio.get_running_loop()
                answers = [await loop.sock_recv(stranger, 100) for _ in range(100)]
            assert {len(answer) for answer in answers} == {28}
            assert not server._made

    run(work())


@pytest.mark.usefixtures("lossy")
@pytest.mark.parametrize("is_secured", [False, True])
def test_nodes_are_linked_over_udp_with_tls_and_without(tmp_path: Any, is_secured: bool) -> None:
    class UdpLine(Line):
        def address(self, name: str) -> str:
            return self.nodes[name].addresses[1]

    async def work() -> None:
        settings = {name: {"udp": True} for name in "ab"}
        users = {"a": ["ann"], "b": ["bob"]}
        home = tmp_path if is_secured else None
        async with UdpLine("a", "b", home=home, users=users, settings=settings) as line:
            assert line.address("a").startswith("tidings+udp+tls:" if is_secured else "tidings+udp:")
            ann, bob = await line.bus("a", "ann"), await line.bus("b", "bob")
            async with bob.subscribe("n >= 0") as events:
                await line.wait_wanted("n >= 0", at="a", of="b")
                await ann.publish_all([Event("t", {"n": n}, delivery="reliable") for n in range(200)])
                assert [(await anext(events))["n"] for _ in range(200)] == list(range(200))
            link = line.neighbour("a", "b")
            assert link is not None
            assert link.link is not None
            callers = [session.caller for session in line["b"].driver.broker.sessions]
            assert ("a" in [caller.certificate for caller in callers]) is is_secured

    run(work())


def test_certificates_of_another_authority_are_refused_over_udp(tmp_path: Any) -> None:
    async def work() -> None:
        async with Line("a", home=tmp_path, users={"a": ["ann"]}, settings={"a": {"udp": True}}) as line:
            stranger = Authority("another")
            stranger.issue(tmp_path / "ann.pem", "ann", HOSTS)
            files = line.places["a"].client("ann") | {"cert": tmp_path / "ann.pem"}
            caller = Caller()
            with contextlib.suppress(Hopeless, OSError):
                await dial(line["a"].addresses[1], Credentials(**files))(caller)
                await caller.lost  # in TLS 1.3 it is refused when it believes to be let in
            assert not caller.got
            assert not line["a"].driver.broker.sessions

    run(work())
