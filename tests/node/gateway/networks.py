"""For tests: sensor networks that speak to a real gateway over real sockets, as plainly as can be."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from effort import ANSWER_S
from node.peers import ANSWER_S_MAX, SOURCE, Process

from tidings.client import Bus
from tidings.sensors.simulation import CityTally, Simulation

LOOK_S = 0.01

Object = dict[str, Any]


def register(sensing_id: str, *sensors: Object, **members: Any) -> Object:
    return {"register": {"sensing-id": sensing_id, "sensors": list(sensors), **members}}


def sensor(name: str, type: str = "temp", **members: Any) -> Object:
    return {"name": name, "type": type, **{key.replace("_", "-"): value for key, value in members.items()}}


def sensing(sensing_id: str, *values: Any, type: str = "temp", **members: Any) -> Object:
    readings = [{"name": "t", "type": type, "value": value} for value in values]
    return {"sensing": {"sensing-id": sensing_id, "sensors": readings, **members}}


class Network:
    """A network at the end of a TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, *messages: Object | bytes) -> None:
        for one in messages:
            self.writer.write(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n")

    async def hear(self) -> Object:
        """The next message of the gateway."""
        line = await asyncio.wait_for(self.reader.readline(), ANSWER_S_MAX)
        assert line, "the gateway has closed the connection"
        heard: Object = json.loads(line)
        return heard

    async def hear_end(self) -> list[Object]:
        """All that the gateway says until it closes the connection."""
        data = await asyncio.wait_for(self.reader.read(), ANSWER_S_MAX)
        return [json.loads(line) for line in data.splitlines()]


@contextlib.asynccontextmanager
async def connected(address: str, context: ssl.SSLContext | None = None) -> AsyncIterator[Network]:
    """A connection to a gateway at `tcp HOST:PORT`, or `tls` with a context."""
    host, _, port = address.split()[-1].rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    try:
        yield Network(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


class UdpNetwork(asyncio.DatagramProtocol):
    """A network that speaks in datagrams."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[Object] = asyncio.Queue()
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, _address: object) -> None:
        self._heard.put_nowait(json.loads(data))

    def say(self, message: Object | bytes) -> None:
        self._transport.sendto(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def hear(self) -> Object:
        return await asyncio.wait_for(self._heard.get(), ANSWER_S_MAX)


@contextlib.asynccontextmanager
async def by_udp(address: str) -> AsyncIterator[UdpNetwork]:
    host, _, port = address.split()[-1].rpartition(":")
    loop = asyncio.get_running_loop()
    transport, network = await loop.create_datagram_endpoint(UdpNetwork, remote_addr=(host, int(port)))
    try:
        yield network
    finally:
        transport.close()


async def values(events: Any, count: int) -> list[Any]:
    """The values of the next so many events."""
    async with asyncio.timeout(ANSWER_S_MAX):
        return [(await anext(events))["value"] for _ in range(count)]


async def wait_until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(ANSWER_S_MAX):
        while not is_so():
            await asyncio.sleep(LOOK_S)


async def run_until(simulation: Simulation, is_enough: Callable[[CityTally], bool]) -> CityTally:
    """Let a city send for as long as that takes on this machine, and say farewell."""
    task = asyncio.ensure_future(simulation.run())
    await wait_until(lambda: is_enough(simulation.tally) or task.done())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return simulation.tally


async def listed(bus: Bus) -> dict[str, Object]:
    """What the gateway knows of its networks, by their ids."""
    answer = await bus.request("tidings.gateway.list", timeout_s=ANSWER_S_MAX)
    return {one["sensing-id"]: one for one in json.loads(answer.body or b"")}


class GatewayCommand:
    """`tidings gateway` as a process of its own."""

    def __init__(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from tidings.cli import main; main()", "gateway", *flags],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def addresses(self) -> list[str]:
        """Where it says that it listens, in its first lines."""
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().rstrip("\n") for _ in range(2)]
        if not all(line.startswith("sensors on ") for line in lines):
            raise AssertionError(self.process.communicate(timeout=ANSWER_S))
        return [line.removeprefix("sensors on ") for line in lines]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=ANSWER_S_MAX)
        return self.process.returncode, errors


def starting_gateways() -> Iterator[Callable[..., GatewayCommand]]:
    """Starts gateways, and ends those that are left; the body of a fixture."""
    started: list[GatewayCommand] = []

    def start(*flags: str) -> GatewayCommand:
        started.append(GatewayCommand(*flags))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def child_of(process: Process) -> int:
    """The gateway of a node that is a process."""
    pid = process.process.pid
    (child,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return child
