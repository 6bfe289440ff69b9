"""The peers of a node on its loop: one link to each, for ever, and what comes over it brought to the broker.

All that is decided is decided by the cores (`tidings.peers`). A peer that will have nothing to do with this
node, or is not who it should be, is asked again after REFUSED_S.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from tidings.errors import NotAllowed, TidingsError
from tidings.ids import ClockIds, new_system
from tidings.node import logs, metrics
from tidings.node.driver import Driver
from tidings.node.forwarding import Reach, certified
from tidings.peers.registry import Peer
from tidings.peers.relay import Relay
from tidings.protocol.bystander import Bystander
from tidings.protocol.connection import Connection
from tidings.queues.description import TRANSMISSION
from tidings.transport.credentials import Credentials
from tidings.transport.dial import Dial, Hopeless, dial
from tidings.transport.link import Link

REFUSED_S = 30.0
"""How long to leave a peer alone that has refused this node, or is someone else."""


class PeerLink(Link):
    """The link to a peer, to which nothing is said before it was looked at who it is.

    `look` is called with this when a certificate was shown and when the peer has said who it is, and raises
    NotAllowed; `tell` is called after all that happens.
    """

    def __init__(
        self, core: Connection, look: Callable[[PeerLink], None], tell: Callable[[PeerLink], None]
    ) -> None:
        super().__init__(core, reconnect=True, random=random.random)
        self.certificate: str | None = None
        self.ended = asyncio.Event()
        self._look = look
        self._tell = tell
        self._is_trusted = False  # it has welcomed us, and is who it should be

    @property
    def trouble(self) -> str:
        """What the last attempt failed with."""
        return str(self.core.failure or self._trouble)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to talk, if its certificate is the right one."""
        self.certificate = certified(transport)
        if self._is_right():
            super().connection_made(transport)
        else:
            cast("asyncio.Transport", transport).abort()

    def _is_right(self) -> bool:
        """Whether it is who it should be; if not, there is no use in this link any more."""
        try:
            self._look(self)
        except NotAllowed as error:
            self.core.close(error)
            self.ended.set()
            return False
        return True

    def data_received(self, data: bytes) -> None:
        """Hand it to the core, and tell of it."""
        super().data_received(data)
        self._tell(self)

    def flush(self) -> None:
        """Write what may leave; when it has welcomed us, what has waited for that only if it is trusted."""
        if self.core.is_up and not self._is_trusted:
            self._is_trusted = self.core.failure is None and self._is_right()
        if self._is_trusted or not self.core.is_up:
            super().flush()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell of it."""
        self._is_trusted = False
        super().connection_lost(error)
        self._tell(self)

    def _fail(self, error: TidingsError) -> None:
        super()._fail(error)
        self.ended.set()
        self._tell(self)


class Peering(Bystander):
    """See the module; made before the node listens, `start`ed on its loop, and `close`d before the driver."""

    def __init__(self, driver: Driver, credentials: Credentials) -> None:
        core = driver.core
        self.registry, self.peers, self._queues = core.registry, core.peers, core.queues
        driver.broker.add(self)
        self._driver = driver
        self._credentials = credentials
        self._system = new_system(os.urandom)
        self._tasks: dict[Peer, asyncio.Task[None]] = {}
        self._is_closed = False
        for peer in self.registry:
            self._know(peer)

    def _know(self, peer: Peer) -> None:
        self.peers.relays[peer] = Relay(peer, self._queues.timers, self._driver.time)

    def start(self) -> None:
        """Begin to dial all peers."""
        for peer in self.registry:
            self._begin(peer)

    def _begin(self, peer: Peer) -> None:
        if peer not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._keep(peer), name=f"tidings peer {peer.name}")
            self._tasks[peer] = task

    async def close(self) -> None:
        """Part from all peers."""
        self._is_closed = True
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # What is found on the network

    def found(self, name: str, address: str) -> None:
        """A node says that it is there: it is looked at, and a peer if it is who it says."""
        peer = self.registry.discover(name, address, self._driver.time())
        if peer is not None:
            self._know(peer)
            self._begin(peer)

    def gone(self, name: str) -> None:
        """It is not found any more."""
        peer = self.registry.forget(name)
        if peer is not None:
            self.peers.relays.pop(peer, None)
            task = self._tasks.pop(peer, None)
            if task is not None:
                task.cancel()

    # What forwards to them

    def is_there(self, name: str) -> bool:
        """Whether the peer of this name can be asked now."""
        peer = self.registry.find(name)
        return peer is not None and peer.is_there

    def reach(self, name: str) -> Reach | None:
        """How the peer of this name is reached; None if there is none."""
        peer = self.registry.find(name)
        if peer is None:
            return None
        if not _is_secured(peer):
            return Reach(self._dial(peer))
        return Reach(self._dial(peer), self._credentials.says, peer.name)

    # One peer

    async def _keep(self, peer: Peer) -> None:
        """Have a link to a peer, and another one when that is of no use any more."""
        relay = self.peers.relays[peer]
        while True:
            core = self._connection(peer)
            link = PeerLink(core, partial(self._look, peer), partial(self._changed, peer, relay))
            relay.flush = link.flush_soon
            relay.begin(link.core)
            try:
                link.start(self._telling(peer, self._dial(peer)))
                await link.ended.wait()
            finally:
                await link.close()
            await asyncio.sleep(REFUSED_S)

    def _connection(self, peer: Peer) -> Connection:
        """With TLS the node's certificate, or another credential, says who it is."""
        ids = ClockIds(self._system, self._driver.time())
        if _is_secured(peer):
            return Connection(ids, says=self._credentials.says)
        return Connection(ids, self.registry.name)

    def _dial(self, peer: Peer) -> Dial:
        async def connect(protocol: asyncio.Protocol) -> None:
            # What was found on the network may be at another address by now.
            await dial(peer.address, self._credentials if _is_secured(peer) else None)(protocol)

        return connect

    def _telling(self, peer: Peer, reach: Dial) -> Dial:
        """The same, telling what went wrong."""

        async def connect(protocol: asyncio.Protocol) -> None:
            try:
                await reach(protocol)
            except (OSError, TidingsError, Hopeless) as error:
                self.registry.lose(peer, str(error) or type(error).__name__, self._driver.time())
                raise

        return connect

    def _changed(self, peer: Peer, relay: Relay, link: PeerLink) -> None:
        """Something has come from a peer, or its connection was made or lost."""
        if not link.core.is_up and (peer.is_there or link.trouble != peer.error):
            was_there = peer.is_there
            self.registry.lose(peer, link.trouble, self._driver.time())
            if was_there and not self._is_closed:
                logs.warning("lost a peer", peer=peer.name, problem=link.trouble)
        if not self._driver.is_closed:
            self._driver.time()
            relay.changed()
            self._driver.schedule()

    def _look(self, peer: Peer, link: PeerLink) -> None:
        """See whether a peer is who it should be, as far as it has shown that."""
        core = link.core
        try:
            if not core.is_up:
                self.registry.check(peer, link.certificate)
                return
            self.registry.welcome(peer, core.node, core.node_name, link.certificate, self._driver.time())
        except NotAllowed:
            logs.error("a peer is not who it should be", peer=peer.name, problem=peer.error)
            raise
        logs.info("found a peer", peer=peer.name, node=core.node)

    # What is told

    def status(self) -> dict[str, Any]:
        """How each peer stands."""
        return {"peers": self._standing()}

    def _standing(self) -> list[dict[str, Any]]:
        """How each peer stands, and how many messages wait here for it."""
        waiting: dict[str, int] = {}
        for queue in self._queues:
            if queue.name.startswith(TRANSMISSION):
                name = queue.name.rpartition("@")[2]
                waiting[name] = waiting.get(name, 0) + queue.size
        told = self.registry.status(self._driver.time())
        return [{**one, "waiting": waiting.get(one["name"], 0)} for one in told]

    def metrics(self) -> Iterator[metrics.Metric]:
        """How each peer stands, as gauges."""
        told = self._standing()
        there = [({"peer": one["name"]}, float(one["state"] == "there")) for one in told]
        yield metrics.Metric("tidings_peer_there", "gauge", "Whether a peer is there.", there)
        waiting = [({"peer": one["name"]}, float(one["waiting"])) for one in told]
        yield metrics.Metric("tidings_peer_waiting", "gauge", "Messages that wait here for a peer.", waiting)


def _is_secured(peer: Peer) -> bool:
    return peer.address.startswith("tidings+tls:")
