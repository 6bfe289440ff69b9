"""The node put together: store, driver, ports, metrics; started, and stopped in good order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidings.errors import StoreDamaged
from tidings.ids import new_system
from tidings.node import compiled, logs, metrics, pipe
from tidings.node.config import NodeConfig
from tidings.node.driver import Driver
from tidings.node.http import Responder
from tidings.node.ports import Port, listen_tcp, listen_unix, raise_descriptor_limit
from tidings.queues import Volatile
from tidings.queues.types import load_types
from tidings.store.interface import Store
from tidings.store.memory import MemoryStore
from tidings.store.sqlite import SqliteStore

CACHE = "tidings.compiled"
"""The folder of compiled code."""


class Node:
    """A node on the running loop: `start`, then `close`."""

    def __init__(self, config: NodeConfig, queue_types: Sequence[type[Volatile]] = ()) -> None:
        """`queue_types` are the types of queues there are beside those that every node has."""
        self.config = config
        self._queue_types = queue_types
        self.addresses: list[str] = []
        self.metrics_address: str | None = None
        self.driver: Driver
        self._connections_max = config.connections_max
        self._servers: list[asyncio.Server] = []
        self._unix: tuple[Path, int] | None = None  # the socket that was made, and its inode
        self._loader: compiled.Loader | None = None  # where there is compiled code to be loaded
        self._damage: list[StoreDamaged] = []  # as the store finds it
        self._told = 0  # how much of it was logged

    async def start(self) -> None:
        """Open the store, then listen. What fails has been undone when it raises."""
        self.open()
        try:
            await self._prepare_compiled()
            await self._listen()
        except BaseException:
            await self.close()
            raise

    def open(self) -> None:
        """Open the store and begin to work, for clients in this process: `attach` connects them."""
        types = [*self._queue_types, *load_types(self.config.queue_types or "")]
        lasts = self.config.dir is not None
        store: Store = MemoryStore(new_system(os.urandom))
        if self.config.dir is not None:
            store = SqliteStore(Path(self.config.dir))
            self._damage = store.damage
        self._told = 0
        self._tell_damage()
        try:
            self.driver = Driver(store, asyncio.get_running_loop(), lasts, types)
        except BaseException:
            store.close()
            raise
        self.driver.on_full_tick = self._on_full_tick
        self.driver.on_wake = self._on_wake
        if self.config.compiled and compiled.is_installed():
            self._loader = compiled.Loader()

    def _tell_damage(self) -> None:
        """Log what the store has found damaged since the last time."""
        for damage in self._damage[self._told :]:
            self._told += 1
            logs.error("damage in the store", problem=str(damage))

    async def _prepare_compiled(self) -> None:
        if self.config.compiled and compiled.is_installed():
            await asyncio.to_thread(compiled.prepare, cache_place(self.config.dir) / CACHE)

    def _on_full_tick(self) -> None:
        if self._loader is not None:
            self._loader.busy()

    def _on_wake(self) -> None:
        self._tell_damage()
        if self._loader is not None:
            self._loader.filters(self.driver.broker.exchange.subscriptions)
            self._loader.traffic(self.driver.received)

    async def _listen(self) -> None:
        config = self.config
        self._connections_max = raise_descriptor_limit(config.connections_max)
        if self._connections_max < config.connections_max:
            logs.warning("the system allows fewer connections", connections_max=self._connections_max)
        if config.tcp_port is not None:
            self._add(*await listen_tcp(self._make_port, config.host, config.tcp_port))
        if config.unix is not None:
            path = Path(config.unix)
            self._add(*await listen_unix(self._make_port, path))
            self._unix = path, path.stat().st_ino
        if config.http_port is not None:
            await self._serve_metrics(config.http_port)
        for server in self._servers:
            await server.start_serving()

    def _make_port(self) -> Port:
        return Port(self.driver, self._connections_max)

    def _add(self, server: asyncio.Server, address: str) -> None:
        self._servers.append(server)
        self.addresses.append(address)

    async def _serve_metrics(self, port: int) -> None:
        server = await Responder({"/metrics": self._metrics}).serve(self.config.host, port)
        self._servers.append(server)
        number = server.sockets[0].getsockname()[1]
        self.metrics_address = f"http://{self.config.host}:{number}/metrics"

    def attach(self, client: asyncio.Protocol) -> None:
        """Connect a client in this process, on this loop."""
        pipe.connect(self._make_port(), client)

    async def close(self) -> None:
        """Take no more connections, tell those there are, have everything stored, and end."""
        for server in self._servers:
            server.close()
        self._remove_socket()
        await self.driver.close()
        self._tell_damage()  # what was found since the last wake
        if self._loader is not None:
            await asyncio.to_thread(self._loader.wait)

    def _remove_socket(self) -> None:
        """Remove the Unix socket, unless another node has put its own there."""
        if self._unix is not None:
            path, inode = self._unix
            with contextlib.suppress(OSError):
                if path.stat().st_ino == inode:
                    path.unlink()

    async def _metrics(self) -> tuple[str, str]:
        """The page of metrics, for the responder."""
        ages_s = await self.driver.oldest_ages_s()
        return metrics.CONTENT_TYPE, metrics.render(self._collect(ages_s))

    def _collect(self, ages_s: dict[tuple[str, str], float]) -> Iterator[metrics.Metric]:
        driver, broker = self.driver, self.driver.broker
        status = broker.status()
        yield from metrics.counters(broker.tallies)
        yield metrics.gauge("connections", "Connections there are.", driver.connections)
        yield metrics.gauge("subscriptions", "Subscriptions there are.", status["subscriptions"])
        yield metrics.gauge("advertisements", "Advertisements there are.", status["advertisements"])
        yield metrics.gauge("position", "Position of the last stored event.", status["position"])
        yield metrics.gauge("outbox_bytes", "Bytes that wait to be sent.", driver.outbox_size)
        yield metrics.gauge("loop_lag_seconds", "By how much the loop was late lately.", driver.lag_s)
        yield from metrics.durable_gauges(status["durables"], ages_s)
        yield from metrics.queue_gauges(status["queues"])


def cache_place(directory: str | None) -> Path:
    """Where compiled code is kept: the cache of the user, for all nodes, or the directory of one without."""
    base = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(OSError, RuntimeError):  # no home, or none to write to
        place = (Path(base) if base else Path.home() / ".cache") / "tidings"
        place.mkdir(parents=True, exist_ok=True)
        if os.access(place, os.W_OK):
            return place
    return Path(tempfile.mkdtemp(prefix="tidings-") if directory is None else directory)
