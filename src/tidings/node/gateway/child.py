"""The gateway as the child of a node: started, watched, started again when it dies, and ended with the node.

It keeps its port: what it was given at the first start it is told at every further one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import structs

from tidings.errors import UserError
from tidings.node import logs
from tidings.node.config import NodeConfig
from tidings.node.gateway.config import FAILED, FIGURES, GatewayConfig
from tidings.node.metrics import Metric
from tidings.transport.link import Backoff

START_S_MAX = 60.0
"""How long a gateway may take until it says where it listens."""
STOP_S_MAX = 10.0
"""How long one that is told to stop may take."""
GOOD_S = 60.0
"""After so long the death of a gateway is an accident, and it is started again at once."""
_LINE = "sensors on "
_LINES = 2  # and one more if there is a port for HTTP


# What is counted from the start on, and what there is.
_COUNTERS = ("readings", "strange", "refused", "repeated", "errors", "dropped")
_GAUGES = ("connections", "networks", "waiting_bytes")


def settings_of(config: NodeConfig, socket: Path, journal: Path) -> GatewayConfig:
    """The settings of the gateway of a node, which comes by this socket."""
    assert config.sensor_port is not None, "only who has a port for sensors has a gateway"
    return GatewayConfig(
        f"tidings+unix://{socket.absolute()}",
        host=config.host,
        port=config.sensor_port,
        http_port=config.sensor_http_port,
        origins=config.sensor_origins,
        security=config.security,
        plain=config.sensor_plain,
        strangers=config.sensor_strangers,
        max_rate=config.sensor_max_rate,
        max_age_s=config.sensor_max_age_s,
        grid=config.sensor_grid,
        journal=str(journal),
        connections_max=config.connections_max,
        is_child=True,
        log_level=config.log_level,
        log_form=config.log_form,
    )


class GatewayProcess:
    """See the module."""

    def __init__(self, config: GatewayConfig) -> None:
        self.addresses: list[str] = []
        self.starts = 0
        self.figures: dict[str, int] = {}
        """What the gateway that runs has counted, as it said last."""
        self._config = config
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start it, and wait until it listens; UserError if it will not."""
        try:
            self.addresses = await self._spawn()
        except BaseException:
            await self._end()
            raise
        ports = [_port_of(address) for address in self.addresses]
        self._config = structs.replace(self._config, port=ports[0], http_port=([*ports, None])[_LINES])
        self._watch = asyncio.get_running_loop().create_task(self._keep(), name="tidings gateway")

    def reload(self) -> None:
        """Have it read again who may do what."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGHUP)

    def metrics(self) -> Iterator[Metric]:
        """What the gateway has counted, for the node's page."""
        help = "See the figures in docs/sensors.md."
        for name, value in self.figures.items():
            if name in _COUNTERS:
                yield Metric(f"tidings_gateway_{name}_total", "counter", help, [({}, float(value))])
            elif name in _GAUGES:
                yield Metric(f"tidings_gateway_{name}", "gauge", help, [({}, float(value))])
        yield Metric("tidings_gateway_starts_total", "counter", help, [({}, float(self.starts))])

    async def close(self) -> None:
        """End it, and wait for that."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self._end()

    async def _spawn(self) -> list[str]:
        self.starts += 1
        # -P: nothing is imported from the folder in which the node happens to be started.
        command = ["-P", "-m", "tidings.node.gateway.main", msgspec.json.encode(self._config).decode()]
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        addresses: list[str] = []
        try:
            async with asyncio.timeout(START_S_MAX):
                while len(addresses) < _LINES + (self._config.http_port is not None):
                    addresses.append(_address(await process.stdout.readline()))
        except TimeoutError:
            raise UserError(f"the gateway did not start within {START_S_MAX:g} s") from None
        return addresses

    async def _keep(self) -> None:
        """Start it again whenever it has died."""
        backoff = Backoff(random.random)
        loop = asyncio.get_running_loop()
        while True:
            assert self._process is not None
            started_at = loop.time()
            await self._hear(self._process)
            code = await self._process.wait()
            if loop.time() - started_at > GOOD_S:
                backoff.reset()
            logs.error("the gateway has died and is started again", code=code)
            await asyncio.sleep(backoff.next_s())
            try:
                await self._spawn()
            except (UserError, OSError) as error:
                logs.error("the gateway could not be started", problem=str(error))
                await self._end()

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        """Note what it counts, until it ends."""
        assert process.stdout is not None
        async for line in process.stdout:
            with contextlib.suppress(msgspec.DecodeError):
                told = line.removeprefix(FIGURES.encode())
                self.figures = msgspec.json.decode(told, type=dict[str, int])

    async def _end(self) -> None:
        """End the process, if there is one: kindly, then not."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _port_of(address: str) -> int:
    return int(address.removesuffix("/sensors").rpartition(":")[2])


def _address(line: bytes) -> str:
    text = line.decode(errors="replace").rstrip("\n")
    if text.startswith(_LINE):
        return text.removeprefix(_LINE)
    raise UserError(text.removeprefix(FAILED) or "the gateway has ended before it listened")
