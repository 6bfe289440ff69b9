"""The node put together: store, driver, ports, metrics; started, and stopped in good order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

import tidings
from tidings.errors import ConfigError, MissingExtra, StoreDamaged
from tidings.ids import new_system
from tidings.log.retention import RetentionTerms
from tidings.log.segment_folder import Folder
from tidings.log.segments import SealedFiles
from tidings.node import compiled, logs
from tidings.node.assembly import Archiving, CoreSettings, NodeService
from tidings.node.concepts import load_taxonomy
from tidings.node.config import AUTO, NodeConfig
from tidings.node.config_checks import check_host, parse_place
from tidings.node.driver import Driver, SteadyClock
from tidings.node.http import Responder
from tidings.node.memory import GivingBack, budgets_of
from tidings.node.pages import NodePages
from tidings.node.ports import (
    Port,
    close_server,
    connect_pipe,
    listen_tcp,
    listen_udp,
    place_of,
    raise_descriptor_limit,
)
from tidings.node.threads import SharedDatabase
from tidings.node.unix import SOCKET, Temporary, UnixServer, sweep
from tidings.peers.registry import Neighbours, Upstream, parse_peers
from tidings.queues import Volatile
from tidings.queues.types import load_types
from tidings.security.directory import SecurityDirectory
from tidings.security.inviting import Inviting, Listening
from tidings.store.interface import Store
from tidings.store.memory import MemoryStore
from tidings.store.sqlite import SqliteStore
from tidings.transport.credentials import Credentials

if TYPE_CHECKING:
    from ssl import SSLContext

    from tidings.adhoc.settings import AdhocSettings
    from tidings.node.finding import Finding
    from tidings.node.gateway.main import GatewayProcess
    from tidings.node.guard import Guard
    from tidings.node.location import LocationProcess
    from tidings.node.sealing import SealingProcess
    from tidings.security.signing import CertificateProofs
    from tidings.transport.udp import UdpServer

Phase = Literal["starting", "serving", "stopping"]
"""What a node does; a node in a program's own process has no ports, and stays with the first."""
EVERYWHERE = ("0.0.0.0", "::")
"""Hosts with which a node listens on all addresses of its machine: it can't tell which others should use."""
JOURNAL = "gateway.journal"
"""The file in which a gateway finds what the one before it had handed on."""


class Node:
    """A node on the running loop: `start`, then `close`."""

    def __init__(
        self,
        config: NodeConfig,
        queue_types: Sequence[type[Volatile]] = (),
        upstream: Upstream | None = None,
        peers: Neighbours | None = None,
        clock: SteadyClock | None = None,
    ) -> None:
        """`queue_types` are the types of queues there are beside those that every node has.

        `upstream` is the node to which goes on what is published here; `peers` are other nodes, if these are
        not said by the settings. `clock` is read instead of the system's.
        """
        self.config = config
        self._queue_types = queue_types
        self._upstream = upstream
        self._peers = peers
        self._clock = clock
        self.addresses: list[str] = []
        self.metrics_address: str | None = None
        self.driver: Driver
        self.service: NodeService
        self._connections_max = config.connections_max
        self._servers: list[asyncio.Server | UdpServer] = []
        self._http: asyncio.Server | None = None  # where metrics and health are asked for
        self.phase: Phase = "starting"
        self.guard: Guard | None = None  # where there is security
        self._database: SharedDatabase | None = None  # where nodes share queues
        self.finding: Finding | None = None  # where others are looked for, or met by chance
        self._proofs: CertificateProofs | None = None  # where these are strangers
        self.gateway: GatewayProcess | None = None  # where sensor networks may speak
        self._sealing: SealingProcess | None = None  # where the log is sealed
        self._locating: LocationProcess | None = None  # where agents may run
        self._seals = False  # whether it is to be
        self._tls_port: int | None = None  # where others can join
        self._private: Temporary | None = None  # of the children's socket
        self._sockets: list[UnixServer] = []  # the node's own, and that of its children
        self._loader: compiled.Loader | None = None  # where there is compiled code to be loaded
        self._damage: list[StoreDamaged] = []  # as the store finds it
        self._logged = 0  # how much of it was logged
        self._giving_back = GivingBack()
        self._started = time.time()

    async def start(self) -> None:
        """Open the store, then listen. If it raises, everything is closed again."""
        self._seals = self.config.dir is not None and self.config.log_seal_s > 0
        self._connections_max = raise_descriptor_limit(self.config.connections_max)
        self.open()
        try:
            if self.config.postgres is not None:  # its queues beside the node's own
                self._database = SharedDatabase(self.config.postgres, self.driver)
            if self._loader is not None:
                self._loader.compile(self.config.dir)
            await self._listen()
            self.phase = "serving"
        except BaseException:
            await self.close()
            raise

    @property
    def name(self) -> str:
        """The name of the node: with security, that of its certificate."""
        config = self.config
        if self.guard is None or not self.guard.name:
            return config.node_name
        if config.name not in (None, self.guard.name):
            problem = f"{config.name!r} is not the name in its certificate, {self.guard.name!r}"
            raise ConfigError(str(config.security), "name", problem)
        return self.guard.name

    def open(self) -> None:
        """Open the store and begin to work, for clients in this process: `attach` connects them."""
        self.guard = _guard(self.config.security)
        store: Store = MemoryStore(new_system(os.urandom))
        if self.config.dir is not None:
            store = SqliteStore(Path(self.config.dir))
            self._damage = store.damage
        self._logged = 0
        try:
            settings = CoreSettings(
                name=self.name,
                lasts=self.config.dir is not None,
                queue_types=[*self._queue_types, *load_types(self.config.queue_types or "")],
                archive=self._archiving(store),
                budgets=budgets_of(self.config),
                authenticator=None if self.guard is None else self.guard.authenticator,
                peers=self._peers or _peers(self.config, self.name),
                upstream=self._upstream,
                group_deputies=[*filter(None, map(str.strip, (self.config.group_deputies or "").split(",")))],
                taxonomy=load_taxonomy(self.config.concepts),
                leaf=bool(self.config.leaf),
                subnet=self.config.subnet_label,
                finds=self.config.subnet == AUTO,
                offers_all=self.config.offers != "declared",
                tolerate=self.config.tolerate,
                reroute_s=self.config.reroute_s,
                ping_s=self.config.ping_s,
                weigh_s=self.config.weigh_s,
                weight_delay=self.config.weight_delay,
                weight_capacity=self.config.weight_capacity,
                rebuild_threshold=self.config.rebuild_threshold,
                merge_waste=self.config.merge_waste,
                suspect_s=self.config.suspect_s,
                away_s=self.config.away_s,
                away_bytes=self.config.away_bytes,
                adhoc=self._adhoc() if self.config.adhoc else None,
            )
            self.driver = Driver(store, asyncio.get_running_loop(), settings, self._clock)
        except BaseException:
            store.close()
            raise
        self.service = NodeService(self.about)
        self.driver.broker.add(self.service)
        self.driver.broker.add(self._inviting())
        self._log_damage()
        self.driver.on_wake = self._on_wake
        if self.config.compiled and compiled.is_installed():
            self._loader = compiled.Loader()
            self.driver.on_full_tick = self._loader.busy
        self.driver.core.start()

    def _adhoc(self) -> AdhocSettings:
        """Return how hosts are met: with security they sign, and strangers of the same authority carry."""
        from tidings.adhoc.settings import AdhocSettings

        config = self.config
        if self.guard is not None and config.security is not None:
            from tidings.security.signing import CertificateProofs

            self._proofs = CertificateProofs(SecurityDirectory(config.security), time.time)
            self.guard.authenticator.meets_strangers = True
        return AdhocSettings(
            strategy=config.adhoc_strategy,
            buffer_bytes=config.adhoc_buffer,
            meeting_bytes=config.adhoc_meeting,
            origin_bytes=config.adhoc_origin,
            rate=config.adhoc_rate,
            beacon_s=config.adhoc_beacon_s,
            lease_s=config.adhoc_lease_s,
            datagrams=config.adhoc_datagrams,
            place=parse_place(config.adhoc_place),
            proofs=self._proofs,
        )

    def _inviting(self) -> Inviting:
        """Return the service by which other nodes join this one."""
        config = self.config
        home = None if config.security is None else SecurityDirectory(config.security)

        def listening() -> Listening | None:
            return None if self._tls_port is None else Listening(config.host, self._tls_port)

        return Inviting(self.driver.broker, home, listening, self.reload, self._joined)

    def _joined(self, name: str, address: str | None) -> None:
        """A node has joined: have it as a peer, if it can be dialled."""
        logs.info("a node has joined", name=name, address=address or "none: it can't be dialled")
        if address is not None:
            self.driver.do(address, self.driver.core.peering.learn, name, address)

    def about(self) -> dict[str, Any]:
        """Return what this process adds to the status of the node."""
        return {
            "name": self.driver.broker.name,
            "version": tidings.__version__,
            "pid": os.getpid(),
            "started": self._started,
            "dir": self.config.dir,
            "addresses": self.addresses,
            "metrics": self.metrics_address,
            "compiled": "off" if self._loader is None else self._loader.state,
        }

    def _archiving(self, store: Store) -> Archiving:
        """Return the status of the log, and its files, if it is sealed or was."""
        config = self.config
        rules = Archiving(None, config.log_where, retention_of(config))
        if not (self._seals or store.discarded):
            return rules
        assert config.sealing_folder is not None, "what was discarded lay in a directory"
        try:
            folder = Folder(config.sealing_folder)
        except MissingExtra as error:
            self._seals = False
            logs.warning("the log is not sealed", problem=str(error))
            return rules
        sealed = SealedFiles(folder, store.state.node, self._damage)
        return replace(rules, sealed=sealed, seal_s=config.log_seal_s if self._seals else None)

    def _log_damage(self) -> None:
        """Log what the store has found damaged since the last time."""
        for damage in self._damage[self._logged :]:
            self._logged += 1
            logs.error("damage in the store", problem=str(damage))

    def _on_wake(self) -> None:
        self._log_damage()
        self._giving_back.look(self.driver.broker.memory.node.used)
        if self.guard is not None:
            self._take(self.guard.look(time.time()))
        for unix in self._sockets:
            unix.look()
        if self._sealing is not None:
            self._sealing.look()
        if self._loader is not None:
            self._loader.filters(self.driver.broker.exchange.subscriptions)
            self._loader.traffic(self.driver.received + self.driver.core.log.searched)

    def reload(self) -> None:
        """Read again who may do what, if the node has security."""
        if self.guard is not None:
            self._take(self.guard.reload(time.time()))
        if self.gateway is not None:
            self.gateway.reload()

    def _take(self, is_good: bool | None) -> None:
        """Go by what was read of security, if anything was."""
        if is_good is not None:
            if is_good and self._proofs is not None:
                self._proofs.reload()
            self.driver.broker.count("reloads", reason="done" if is_good else "failed")
            self.driver.review()

    async def _listen(self) -> None:
        config = self.config
        check_host(config.host, config.security)  # again: settings may also be made by hand
        if self._connections_max < config.connections_max:
            logs.warning("the system allows fewer connections", connections_max=self._connections_max)
        if config.tcp_port is not None:
            await self._listen_tcp(config.tcp_port)
        if config.unix is not None:
            self.addresses.append(await self._listen_unix(Path(config.unix)))
        if config.http_port is not None:
            await self._serve_metrics(config.http_port)
        for server in self._servers:
            await server.start_serving()
        if config.mdns or config.search_hops or config.adhoc:
            await self._find()
        if config.sensor_port is not None or self._seals or config.agents is not None:
            home = await self._make_way_in()
            if config.sensor_port is not None:
                await self._start_gateway(home)
            if self._seals:
                self._start_sealing(home)
            if config.agents is not None:
                await self._start_location(home, config.agents)

    async def _listen_tcp(self, port: int) -> None:
        """Take connections of clients and other nodes, once `start_serving` is called."""
        host, context = self.config.host, self._context()
        make = partial(Port, self.driver, self._connections_max)
        server, place = await listen_tcp(make, host, port, context)
        self._servers.append(server)
        self._tls_port = None if context is None else int(place.rpartition(":")[2])
        secured = "" if context is None else "+tls"
        self.addresses.append(f"tidings{secured}://{place}")
        if self.config.udp:
            self._servers.append(await listen_udp(make, host, int(place.rpartition(":")[2]), context))
            self.addresses.append(f"tidings+udp{secured}://{place}")
        if host not in EVERYWHERE:
            overlay = self.driver.core.overlay
            self.driver.do(self.addresses[0], overlay.listens_at, self.addresses[0])

    async def listen_to_hosts(self) -> None:
        """Meet hosts with a node that is in a program: it has its TCP port for that, and its beacons."""
        config = self.config
        check_host(config.host, config.security)
        assert config.tcp_port is not None, "the settings were checked"
        await self._listen_tcp(config.tcp_port)
        for server in self._servers:
            await server.start_serving()
        await self._find()

    async def _find(self) -> None:
        """Look for other nodes, in the ways that the settings say."""
        from tidings.node.finding import Finding

        port = int(self.addresses[0].rpartition(":")[2])
        self.finding = Finding(self.driver, self.config, port, self.guard is not None)
        await self.finding.start()

    async def _start_gateway(self, home: Path) -> None:
        """Run the gateway as a child."""
        from tidings.node.gateway.main import GatewayProcess, settings_of

        config = self.config
        journal = (home if config.dir is None else Path(config.dir)) / JOURNAL
        self.gateway = GatewayProcess(settings_of(config, self._own_socket(home), journal))
        await self.gateway.start()

    def _start_sealing(self, home: Path) -> None:
        """Have the log sealed by a child, whenever there is something to seal."""
        from tidings.node.sealing import SealingProcess, settings_of

        config = self.config
        assert config.sealing_folder is not None, "only who keeps something seals it"
        settings = settings_of(config, config.sealing_folder, self._own_socket(home))
        self._sealing = SealingProcess(settings, self.driver.core.log.custody)
        self._sealing.watch()

    async def _start_location(self, home: Path, classes: str) -> None:
        """Have a child run the agents that rest here."""
        from tidings.node.location import LocationConfig, LocationProcess

        config = self.config
        address = f"tidings+unix://{self._own_socket(home).absolute()}"
        settings = LocationConfig(address, classes, config.log_level, config.log_form)
        self._locating = LocationProcess(settings)
        await self._locating.start()

    async def _make_way_in(self) -> Path:
        """A place for children, who come by the node's own socket, or by one made for them there."""
        gone = await asyncio.to_thread(sweep)
        if gone:
            logs.info("removed what nodes that were killed had left", folders=len(gone))
        self._private = Temporary()
        home = self._private.path
        if self.config.unix is None:
            await self._listen_unix(self._own_socket(home))
        return home

    async def _listen_unix(self, path: Path) -> str:
        """Take connections of the node's owner at a Unix socket; its address."""
        server = UnixServer(self._make_own_port, path)
        await server.listen()
        self._sockets.append(server)
        return server.address

    def _own_socket(self, home: Path) -> Path:
        return home / SOCKET if self.config.unix is None else Path(self.config.unix)

    @property
    def sensor_addresses(self) -> list[str]:
        """The addresses for sensor networks, each with its transport."""
        return [] if self.gateway is None else self.gateway.addresses

    def _make_own_port(self) -> Port:
        """Make a port for a connection that only the owner of the node can open."""
        return Port(self.driver, self._connections_max, is_own=True)

    def _context(self) -> SSLContext | None:
        """TLS context of the TCP port; None without TLS."""
        if self.guard is None:
            return None

        def room() -> int:
            return self._connections_max - self.driver.connections

        def fail() -> None:
            self.driver.broker.count("turned_away", reason="tls")

        return self.guard.open(room, fail)

    async def _serve_metrics(self, port: int) -> None:
        host = self.config.loopback
        self._http = await Responder(NodePages(self).by_path).serve(host, port)
        self.metrics_address = f"http://{place_of(self._http, host)}/metrics"

    def attach(self, client: asyncio.Protocol) -> None:
        """Connect a client in this process, on this loop."""
        connect_pipe(self._make_own_port(), client)

    async def close(self) -> None:
        """Accept no more connections, end the open ones, have everything stored, and end."""
        self.phase = "stopping"
        for child in (self._locating, self.gateway, self._sealing):
            if child is not None:
                await child.close()
        for server in self._servers:
            await close_server(server)
        for unix in self._sockets:
            await unix.close()
        if self._private is not None:
            self._private.close()
        if self.finding is not None:
            await self.finding.close()
        if self._database is not None:
            await self._database.close()
        await self.driver.close()
        self._log_damage()  # what was found since the last wake
        if self._loader is not None:
            await self._loader.close()
        if self._http is not None:
            await close_server(self._http)


def retention_of(config: NodeConfig) -> RetentionTerms:
    """Retention of the log."""
    age_s_max = None if config.log_days is None else config.log_days * 86_400
    return RetentionTerms(age_s_max, config.log_size)


def _guard(directory: str | None) -> Guard | None:
    if directory is None:
        return None
    from tidings.node.guard import Guard

    return Guard(Path(directory), time.time())


def _peers(config: NodeConfig, own: str) -> Neighbours:
    """The peers of the settings, and who the node is there: by its certificate, if it has security."""
    credentials = Credentials()
    if config.security is not None:
        home = Path(config.security)
        # A peer is known by the name in its certificate, wherever it is found.
        ca, cert, key = (home / name for name in ("ca.pem", "node.pem", "node.key"))
        credentials = Credentials(ca=ca, cert=cert, key=key, checks_host=False)
    return Neighbours(parse_peers(config.peers or "", own=own), credentials)
