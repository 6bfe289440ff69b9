"""The gateway as the child of a node.

It keeps its port: the node passes the port of the first start to every further one.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import structs

from tidings.errors import UserError
from tidings.node.child import ChildProcess
from tidings.node.config import NodeConfig
from tidings.node.gateway.config import FAILED, FIGURES, GatewayConfig
from tidings.node.metrics import Metric

_LINE = "sensors on "
_LINES = 2  # and one more with a port for HTTP


# Counters since the start, and gauges.
_COUNTERS = ("readings", "strange", "refused", "repeated", "errors", "dropped")
_GAUGES = ("connections", "networks", "waiting_bytes")


def settings_of(config: NodeConfig, socket: Path, journal: Path) -> GatewayConfig:
    """Return the settings of the gateway of a node, which connects by this socket."""
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


class GatewayProcess(ChildProcess[GatewayConfig]):
    """Child process of a node that runs the gateway."""

    def __init__(self, config: GatewayConfig) -> None:
        super().__init__("gateway", "tidings.node.gateway.main", config)
        self.addresses: list[str] = []
        self.figures: dict[str, int] = {}
        """Figures that the running gateway has last reported."""

    async def _greet(self, process: asyncio.subprocess.Process) -> None:
        """Read the addresses at which it listens; further starts get the same ones."""
        assert process.stdout is not None
        addresses: list[str] = []
        while len(addresses) < _LINES + (self._settings.http_port is not None):
            addresses.append(_address(await process.stdout.readline()))
        self.addresses = self.addresses or addresses
        ports = [_port_of(address) for address in self.addresses]
        self._settings = structs.replace(self._settings, port=ports[0], http_port=([*ports, None])[_LINES])

    def _hear(self, line: bytes) -> None:
        """Note the figures that it reports."""
        with contextlib.suppress(msgspec.DecodeError):
            figures = line.removeprefix(FIGURES.encode())
            self.figures = msgspec.json.decode(figures, type=dict[str, int])

    def reload(self) -> None:
        """Let it read users and rules again."""
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(signal.SIGHUP)

    def metrics(self) -> Iterator[Metric]:
        """Yield the gateway's metrics for the node's page."""
        help = "See the figures in docs/sensors.md."
        for name, value in self.figures.items():
            if name in _COUNTERS:
                yield Metric(f"tidings_gateway_{name}_total", "counter", help, [({}, float(value))])
            elif name in _GAUGES:
                yield Metric(f"tidings_gateway_{name}", "gauge", help, [({}, float(value))])
        yield Metric("tidings_gateway_starts_total", "counter", help, [({}, float(self.starts))])


def _port_of(address: str) -> int:
    return int(address.removesuffix("/sensors").rpartition(":")[2])


def _address(line: bytes) -> str:
    text = line.decode(errors="replace").rstrip("\n")
    if text.startswith(_LINE):
        return text.removeprefix(_LINE)
    raise UserError(text.removeprefix(FAILED) or "the gateway has ended before it listened")
