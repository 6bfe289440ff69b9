"""A gateway for tests: the real core behind plain sockets, and a list where the node would be."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from effort import ANSWER_S

from tests.gateway.whole import feed, read_datagram
from tidings.gateway.effects import AdvertiseFilter, Close, GatewayEffect, SendMessage, Widen, Withdraw
from tidings.gateway.gateway import Gateway
from tidings.gateway.intake import NetworkReader
from tidings.gateway.messages import Deregister, Error, Reading, Register, Sensing, encode
from tidings.gateway.networks import DatagramAddress, Key, NetworkCaller
from tidings.sensors.link import GatewayPlace
from tidings.steps import finish

PATIENCE_S = ANSWER_S
"""After this a test that waits for something is taken to wait for ever."""
LOOK_S = 0.01

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; one that hangs fails."""
    return asyncio.run(asyncio.wait_for(work, 2 * PATIENCE_S))


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(LOOK_S)


class TestGateway:
    """Takes what networks send and demands what the test says; `readings` are all that were taken."""

    __test__ = False

    def __init__(self, acknowledges: bool = True) -> None:
        self.core = Gateway(b"secret")
        self.readings: list[tuple[str, Reading]] = []
        self.errors: list[Error] = []
        self.acknowledges = acknowledges
        self.port = 0
        self.connections = 0
        self._filters: tuple[str, ...] = ()
        self._advertised: dict[int, None] = {}
        self._writers: dict[Key, asyncio.StreamWriter] = {}
        self._datagrams: asyncio.DatagramTransport | None = None
        self._unacknowledged: list[tuple[str, int]] = []
        self._keys: dict[str, Key] = {}

    def place(self, udp: bool = False) -> GatewayPlace:
        return GatewayPlace("127.0.0.1", self.port, udp)

    def demand(self, *filters: str) -> None:
        """Somebody subscribes with these filters, and with no others."""
        self._filters = filters
        for number in list(self._advertised):
            self._do(self.core.demanded(number, filters))

    def cut(self) -> None:
        """Break all connections."""
        for writer in list(self._writers.values()):
            writer.transport.abort()

    def acknowledge(self) -> None:
        """Acknowledge what is not yet, and everything from now on."""
        self.acknowledges = True
        for sensing_id, seq in self._unacknowledged:
            self._do(self.core.accepted(sensing_id, seq, self._keys[sensing_id]))
        self._unacknowledged.clear()

    def values(self, sensing_id: str) -> list[Any]:
        return [reading.value for owner, reading in self.readings if owner == sensing_id]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called for each connection."""
        self.connections += 1
        key = ("connection", self.connections)
        self._writers[key] = writer
        self.core.connected(key, NetworkCaller("127.0.0.1"))
        intake = NetworkReader()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                self._take(key, feed(intake, data))
        del self._writers[key]
        self.core.lost(key, time.monotonic())
        writer.close()

    def datagram(self, data: bytes, address: DatagramAddress) -> None:
        self._do(self.core.heard(address, len(data)))
        self._take(address, read_datagram(data))

    def _take(self, key: Key, said: list[Any]) -> None:
        now = time.monotonic()
        for message in said:
            match message:
                case Register():
                    finish(self.core.registering(key, message, now))
                    self._do(self.core.said())
                case Deregister():
                    finish(self.core.deregistering(key, message, now))
                    self._do(self.core.said())
                case Sensing():
                    self._sense(key, message, now)
                case Error():
                    self.errors.append(message)
                    self._do(self.core.failed(key, message))

    def _sense(self, key: Key, message: Sensing, now: float) -> None:
        self._keys[message.sensing_id] = key
        taken = self.core.sensing(key, message, now)
        self.readings += [(message.sensing_id, reading) for reading in taken]
        self._do(self.core.said())
        if taken and message.seq is not None:
            self._unacknowledged.append((message.sensing_id, message.seq))
            if self.acknowledges:
                self.acknowledge()

    def _do(self, effects: list[GatewayEffect]) -> None:
        for effect in effects:
            match effect:
                case SendMessage():
                    self._say(effect.key, encode(effect.message))
                    self.errors += [effect.message] if isinstance(effect.message, Error) else []
                case AdvertiseFilter() | Widen():
                    self._advertised[effect.number] = None
                    self._do(self.core.demanded(effect.number, self._filters))
                case Close():
                    self._writers[effect.key].close()
                case Withdraw():
                    del self._advertised[effect.number]

    def _say(self, key: Key, line: bytes) -> None:
        if isinstance(key, DatagramAddress) and self._datagrams is not None:
            self._datagrams.sendto(line, key)
        elif key in self._writers and not self._writers[key].is_closing():
            self._writers[key].write(line)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[TestGateway]:
        """Listen, on one port, for connections and for datagrams."""
        server, self._datagrams = await self._bind()
        try:
            yield self
        finally:
            self._datagrams.close()
            server.close()
            self.cut()
            await wait_until(lambda: not self._writers)
            await server.wait_closed()

    async def _bind(self) -> tuple[asyncio.Server, asyncio.DatagramTransport]:
        """Both sockets; a port that is free for connections may be in use for datagrams."""
        loop, wanted = asyncio.get_running_loop(), self.port
        while True:
            server = await asyncio.start_server(self.serve, "127.0.0.1", wanted)
            self.port = server.sockets[0].getsockname()[1]
            try:
                place = ("127.0.0.1", self.port)
                datagrams, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), place)
            except OSError:
                server.close()
                await server.wait_closed()
                if wanted:
                    raise
            else:
                return server, datagrams


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, gateway: TestGateway) -> None:
        self._gateway = gateway

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self._gateway.datagram(data, DatagramAddress(*address[:2]))
