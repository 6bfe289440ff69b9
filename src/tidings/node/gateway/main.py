"""`tidings gateway`, once its settings are known: the loop, the signals, the lines it prints.

As the child of a node it ends when its standard input does, which is when the node is gone. The node reads
its lines: addresses, the error of a start that failed, and figures. It keeps its port: the node passes the
port of the first start to every further one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from tidings.errors import TidingsError, UserError
from tidings.node import logs
from tidings.node.child import ChildProcess, done_before, watch_parent
from tidings.node.gateway.config import GatewayConfig
from tidings.node.metrics import Metric
from tidings.processes import StartedProcess

if TYPE_CHECKING:
    from tidings.node.config import NodeConfig
    from tidings.node.gateway.driver import Server

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LISTENING = "sensors on "
"""Prefix of each address, in the lines that a gateway prints when it has started."""
FAILED = "failed: "
"""Prefix of the error of a node's child that can't start."""
FIGURES = "figures: "
"""Prefix of its figures, as JSON, in each report."""

_LINES = 2  # and one more with a port for HTTP
# Counters since the start, and gauges.
_COUNTERS = ("readings", "strange", "refused", "repeated", "errors", "dropped")
_GAUGES = ("connections", "networks", "waiting_bytes")


def run(config: GatewayConfig, json: bool = False) -> None:
    """Run a gateway until a signal stops it; raise errors that keep it from starting.

    It prints its addresses, with `json` as one object.
    """
    from tidings.node.main import GARBAGE, loop_factory

    logs.show(config.log_level, config.log_form)
    gc.set_threshold(GARBAGE)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(config, json))


async def _run(config: GatewayConfig, json: bool) -> None:
    from tidings.node.gateway.driver import Server  # not before: a node knows this module too

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    server = Server(config)
    server.on_failure = stopped.set
    if config.is_child:
        watch_parent(partial(_orphan, server, stopped))
    if not await done_before(stopped, server.start()):
        return
    for number in SIGNALS[: 1 if config.is_child else 2]:
        loop.add_signal_handler(number, stopped.set)
    if config.security is not None:
        loop.add_signal_handler(signal.SIGHUP, server.reload)
    for line in [describe_json(server)] if json else describe(server):
        print(line, flush=True)  # noqa: T201  # what the command prints
    if config.is_child:
        server.on_figures = _print_figures  # not before, as the node waits for the lines above
        _print_figures(server.figures())
    logs.info("the gateway has started", node=server.uplink.core.node)
    await stopped.wait()
    failure = server.failure
    logs.info("the gateway stops", connections=len(server.hub))
    await server.close()
    if failure is not None:
        raise failure


def describe(server: Server) -> list[str]:
    """Return the lines that a gateway prints when it has started: its addresses for sensor networks."""
    return [f"{LISTENING}{address}" for address in server.addresses]


def describe_json(server: Server) -> str:
    """Return the same as one object."""
    return msgspec.json.encode({"sensors": server.addresses}).decode()


def _print_figures(figures: dict[str, int]) -> None:
    """Report the figures to the node."""
    print(f"{FIGURES}{msgspec.json.encode(figures).decode()}", flush=True)  # noqa: T201  # read by the node


def _orphan(server: Server, stopped: asyncio.Event) -> None:
    """Stop, as the node is gone."""
    server.is_orphan = True
    stopped.set()


# The same as the child of a node


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

    async def _greet(self, process: StartedProcess) -> None:
        """Read the addresses at which it listens; further starts get the same ones."""
        addresses: list[str] = []
        while len(addresses) < _LINES + (self._settings.http_port is not None):
            addresses.append(_address(await process.readline()))
        self.addresses = self.addresses or addresses
        ports = [int(one.removesuffix("/sensors").rpartition(":")[2]) for one in self.addresses]
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


def _address(line: bytes) -> str:
    text = line.decode(errors="replace").rstrip("\n")
    if text.startswith(LISTENING):
        return text.removeprefix(LISTENING)
    raise UserError(text.removeprefix(FAILED) or "the gateway has ended before it listened")


def main() -> None:
    """Run the child of a node, whose settings are its only argument; report errors of the start."""
    try:
        run(msgspec.json.decode(sys.argv[1], type=GatewayConfig))
    except TidingsError as error:
        print(f"{FAILED}{error}", flush=True)  # noqa: T201  # read by the node
        sys.exit(2)


if __name__ == "__main__":
    main()
