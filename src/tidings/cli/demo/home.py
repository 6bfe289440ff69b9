"""Node of the demo: on the usual ports, or on free ones if those are in use."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec import Struct

from tidings.node.config import PORT, NodeConfig

if TYPE_CHECKING:
    from tidings.node.server import Node

HOST = "127.0.0.1"
SENSOR_PORT, HTTP_PORT = 4242, 7380


class Home(Struct, frozen=True):
    """Addresses and folder of the demo's node, and the usual ports that are in use."""

    address: str
    gateway: str
    metrics: str
    folder: Path
    busy: list[int]


@asynccontextmanager
async def home(ports: Ports | None = None) -> AsyncIterator[Home]:
    """Run a node with a gateway and metrics in a temporary folder."""
    from tidings.node.server import Node

    ports = choose() if ports is None else ports
    with TemporaryDirectory(prefix="tidings-demo-", ignore_cleanup_errors=True) as folder:
        config = NodeConfig(
            dir=f"{folder}/node",
            name="demo",
            host=HOST,
            port=ports.node,
            sensor_port=ports.sensors,
            http_port=ports.http,
            compiled=False,  # compiling takes longer than it saves here
            log_level="error",
        )
        node = Node(config)
        await node.start()
        try:
            yield _home(node, Path(folder), ports.busy)
        finally:
            await node.close()


def _home(node: Node, folder: Path, busy: list[int]) -> Home:
    return Home(node.addresses[0], node.sensor_addresses[0], node.metrics_address or "", folder, busy)


class Ports(Struct, frozen=True):
    """Ports of the node, its gateway and its metrics, 0 for a free one; and the usual ports in use."""

    node: int
    sensors: int
    http: int
    busy: list[int]


def choose(node: int = PORT, sensors: int = SENSOR_PORT, http: int = HTTP_PORT) -> Ports:
    """Return the given ports, each replaced by 0 if it is in use."""
    kinds = {node: [socket.SOCK_STREAM], sensors: [socket.SOCK_STREAM, socket.SOCK_DGRAM]}
    kinds[http] = [socket.SOCK_STREAM]
    busy = [port for port, ways in kinds.items() if not all(_is_free(port, way) for way in ways)]
    node, sensors, http = (0 if port in busy else port for port in (node, sensors, http))
    return Ports(node, sensors, http, busy)


def _is_free(port: int, way: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_INET, way) as channel, suppress(OSError):
        if way == socket.SOCK_STREAM:  # as servers do, which don't wait for old connections to time out
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        channel.bind((HOST, port))
        return True
    return False
