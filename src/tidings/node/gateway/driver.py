"""The whole gateway: its link to the node, the hub, the ports; started, and stopped in good order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tidings.errors import TidingsError
from tidings.gateway.gateway import Gateway
from tidings.gateway.hub import Clocks, Hub
from tidings.gateway.peer import Entrance
from tidings.gateway.uplink import Uplink
from tidings.ids import StoredIds, new_system
from tidings.node import logs
from tidings.node.gateway.config import GatewayConfig, check, policy_of
from tidings.node.gateway.journal import Journal, Life
from tidings.node.gateway.ports import GatewayPorts, listen
from tidings.node.ports import raise_descriptor_limit
from tidings.protocol.connection import Connection
from tidings.protocol.messages import VERSION, Hello
from tidings.timers import Backoff
from tidings.transport.address import parse
from tidings.transport.credentials import Credentials
from tidings.transport.dial import ConnectTo, Hopeless, dial
from tidings.transport.link import Link
from tidings.transport.ping import Pinger

if TYPE_CHECKING:
    from ssl import SSLContext

    from tidings.node.gateway.web import Web
    from tidings.node.guard import Guard


SYSTEM_BUFFER = 2 << 20
"""Bytes that the system holds for the node, if it allows so many: the node reads them meanwhile."""
NAME = "gateway"
"""Name of the gateway at its node."""
WAKE_S = 1.0
FIGURES_S = 10.0
"""Time between two publications of the gateway's figures."""
PROBE_S_MAX = 10.0
"""Longest wait for the node's counter of an earlier gateway."""
SECRET_SIZE = 32
WAIT_LOGGED_S = 2.0
"""After so long without its node, a gateway that starts logs what it waits for."""
DRAIN_S_MAX = 5.0
"""How long a gateway that stops waits for the node to accept the rest."""


class UplinkLink(Link):
    """Connection of a gateway to its node: the socket of its uplink."""

    def __init__(self, uplink: Uplink, random: Callable[[], float]) -> None:
        super().__init__(uplink.core, True, random)
        self._uplink = uplink
        uplink.flush, uplink.flush_soon = self.flush, self.flush_soon

    async def close(self) -> None:
        """Disconnect cleanly."""
        self._uplink.is_closing = True
        await super().close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        channel: Any = transport.get_extra_info("socket")
        if channel is not None and channel.family == socket.AF_UNIX:  # other kinds grow by themselves
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SYSTEM_BUFFER)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._uplink.on_progress()


class Server:
    """A gateway on the running loop: `start`, then `close`."""

    def __init__(self, config: GatewayConfig) -> None:
        check(config)
        self.config = config
        self.is_orphan = False
        """Whether the node is gone for good, so that it accepts nothing any more."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called when the node refuses this gateway for good; `failure` says why."""
        self.on_figures: Callable[[dict[str, int]], None] = lambda _figures: None
        """Called with the figures, every FIGURES_S."""
        self.hub: Hub
        self.uplink: Uplink
        self.ports: GatewayPorts | None = None
        self._guard: Guard | None = None
        self._journal = None if config.journal is None else Journal(Path(config.journal))
        self._loop = asyncio.get_running_loop()
        self._link: UplinkLink | None = None
        self._web: Web | None = None
        self._web_address: str | None = None
        self._report_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def addresses(self) -> list[str]:
        """Addresses for sensor networks, each with its transport."""
        assert self.ports is not None
        stream = "tls" if self._guard is not None and not self.config.plain else "tcp"
        addresses = [f"{stream} {self.ports.address}", f"udp {self.ports.address}"]
        return addresses if self._web_address is None else [*addresses, self._web_address]

    @property
    def failure(self) -> TidingsError | None:
        """Error that makes going on pointless, or None."""
        return self.uplink.core.failure

    async def start(self) -> None:
        """Connect to the node, wait for it if it is away, and then listen.

        On an error everything has been undone when it raises.
        """
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> None:
        config = self.config
        entrance = None
        if config.security is not None:
            from tidings.node.guard import Guard

            self._guard = Guard(Path(config.security), time.time())
            entrance = Entrance(self._guard.authenticator, time.monotonic, time.time, config.strangers)
        credentials = _credentials(config)
        reach = dial(config.node, credentials)
        policy = policy_of(config, entrance is None or config.strangers)
        gateway = Gateway(os.urandom(SECRET_SIZE), policy)
        life = await self._begin(reach, credentials, gateway)
        core = Connection(
            StoredIds(life.system, life.epoch), name_at(config.node, credentials), credentials.says
        )
        self.uplink = Uplink(core, logs.log, self._journal)
        clocks = Clocks(self._loop.time, time.time, time.perf_counter)
        self.hub = Hub(gateway, self.uplink, self._loop.call_soon, clocks, logs.log, entrance)
        self._link = UplinkLink(self.uplink, random.random)
        self._link.start(reach)
        await self._wait_node(self._link)
        self.uplink.answer(gateway.overview_steps, self.figures, self.hub.answer)
        if (filter := gateway.replica_filter) is not None:
            self.uplink.listen(filter, self.hub.hear_replicas, self.hub.answer)
        await self._listen()
        self._timer = self._loop.call_later(0, self._wake)

    async def _wait_node(self, link: UplinkLink) -> None:
        """Wait for the node; if that takes longer than WAIT_LOGGED_S, the reason is logged."""

        def log_waiting() -> None:
            logs.warning("the gateway waits for its node", node=self.config.node, problem=link.trouble)

        late = self._loop.call_later(WAIT_LOGGED_S, log_waiting)
        try:
            await link.wait_connected(None)
        finally:
            late.cancel()

    async def _begin(self, reach: ConnectTo, credentials: Credentials, gateway: Gateway) -> Life:
        """Return the name and epoch under which this gateway numbers its events.

        Events of an earlier one that were stored are recalled, waiting for a node that is away.
        """
        epoch = int(time.time() * 1e6)
        before = None if self._journal is None else self._journal.previous
        life = Life(new_system(os.urandom) if before is None else before.system, epoch)
        if self._journal is None:
            return life
        if before is not None and before.epoch >= epoch:  # the clock was set back
            life = structs.replace(life, epoch=before.epoch + 1)
        name = name_at(self.config.node, credentials)
        counter = 0 if before is None else await _wait_counter(reach, name, credentials, before)
        for sensing_id, seq in self._journal.begin(life, counter):
            gateway.recall(sensing_id, seq)
        return life

    async def _listen(self) -> None:
        config = self.config
        connections_max = raise_descriptor_limit(config.connections_max)
        context = None
        if self._guard is not None and not config.plain:
            context = self._guard.open(lambda: connections_max - len(self.hub), lambda: None)
        self.ports = await listen(self.hub, config.host, config.port, connections_max, context)
        if config.http_port is not None:
            await self._serve_web(config.http_port, connections_max, context)
        await self.ports.server.start_serving()

    async def _serve_web(self, port: int, connections_max: int, context: SSLContext | None) -> None:
        """Serve networks that speak HTTP and WebSocket, too."""
        from tidings.node.gateway.web import Web

        origins = (origin.strip() for origin in (self.config.origins or "").split(","))
        self._web = Web(self.hub, frozenset(filter(None, origins)), connections_max)
        self._web_address = await self._web.serve(self.config.host, port, context)

    def figures(self) -> dict[str, int]:
        """Return the counters and gauges."""
        counted: dict[str, int] = structs.asdict(self.hub.gateway.figures)
        return {
            **counted,
            "connections": len(self.hub),
            "networks": self.hub.gateway.networks,
            "dropped": self.hub.dropped,
            "waiting_bytes": self.uplink.core.publications.size,
        }

    def reload(self) -> None:
        """Read users and rules again, if there are any."""
        if self._guard is not None and self._guard.reload(time.time()):
            self.hub.review()

    def _wake(self) -> None:
        if self.failure is not None:
            self.on_failure()
            return
        self.hub.wake()
        if self._guard is not None and self._guard.look(time.time()):
            self.hub.review()
        if self._loop.time() >= self._report_at:
            self._report_at = self._loop.time() + FIGURES_S
            figures = self.figures()
            self.uplink.report(figures)
            self.on_figures(figures)
        self._timer = self._loop.call_later(WAKE_S, self._wake)

    async def close(self) -> None:
        """Accept nothing more, let the node accept the rest, and end."""
        if self._timer is not None:
            self._timer.cancel()
        if self.ports is not None and self._link is not None:
            self.ports.server.close()
            if self._web is not None:
                self._web.close()
            self.hub.tick()
            wait_s = 0.0 if self.is_orphan else DRAIN_S_MAX
            with contextlib.suppress(TidingsError):  # the node is away, or refuses it
                await self._link.wait_accepted(self.uplink.core.publications.last, wait_s)
            self.hub.close()
            await self.ports.close()
        if self._link is not None:
            await self._link.close()
        if self._journal is not None:
            self._journal.close()


def _credentials(config: GatewayConfig) -> Credentials:
    """Return the gateway's credentials at its node."""
    files = (config.password_file, config.token_file)
    password, token = (None if one is None else Path(one) for one in files)
    user = config.user or parse(config.node).user or None
    return Credentials(user, password, token, config.ca, config.cert, config.key)


def name_at(node: str, credentials: Credentials) -> str:
    """Return the gateway's name at its node: where users are known, that of its user."""
    return "" if parse(node, not credentials.is_empty).kind == "tls" else NAME


async def _wait_counter(reach: ConnectTo, name: str, credentials: Credentials, life: Life) -> int:
    """Return the node's counter of an earlier gateway, waiting for a node that is away."""

    def hello() -> Hello:
        user, secret = credentials.says()
        return Hello([VERSION], life.system, life.epoch, name, None, 0, user, secret)

    backoff = Backoff(random.random)
    while True:
        pinger = Pinger(hello)
        try:
            async with asyncio.timeout(PROBE_S_MAX):
                await reach(pinger)
                await pinger.answer
        except Hopeless as hopeless:
            raise hopeless.error from None
        except (OSError, TimeoutError, TidingsError):
            await asyncio.sleep(backoff.next_s())
        finally:
            await pinger.close()
        if pinger.welcome is not None:
            return pinger.welcome.counter
