"""A node's core: the broker and all its services, put together from a store and settings, without I/O.

The asyncio driver, the simulator and the rigs of tests build a node here and nowhere else, so what a storm
runs is what a node runs. It lies beside the daemon because it is the first module that may import all
systems; it imports nothing else of `node`.

The broker notifies services of sessions and commits in the order in which they are added here. The node's own
service (`NodeService`) is added by who runs the core as a process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tidings.agents.locations import LocationService
from tidings.agents.service import AgentService
from tidings.channels.service import ChannelService
from tidings.errors import NotAllowed, Refused
from tidings.ids import new_system
from tidings.log.arguments import Nothing
from tidings.log.history import LogHistory, SealedLog
from tidings.log.retention import RetentionTerms
from tidings.log.service import LogService
from tidings.log.sinks import open_sinks
from tidings.overlay.handover import Handover
from tidings.overlay.service import Overlay
from tidings.overlay.settings import OverlaySettings
from tidings.patterns.service import PatternService
from tidings.peers.backend import Peers
from tidings.peers.dialling import Dialling
from tidings.peers.forwarded import Forwarded
from tidings.peers.forwarding import Forwarding
from tidings.peers.peering import Peering
from tidings.peers.registry import Neighbours, PeerRegistry, Upstream
from tidings.peers.transmission import Transmission
from tidings.placing.service import Placing
from tidings.protocol.access import Authenticator, PeerInfo, Principal
from tidings.protocol.broker import Broker
from tidings.protocol.memory import Budgets
from tidings.protocol.service import IncomingRequest, Service
from tidings.protocol.taxonomy import TaxonomyService
from tidings.queues import Volatile
from tidings.store.interface import Store
from tidings.transport.credentials import Credentials
from tidings.turns import Turns, Worker

if TYPE_CHECKING:
    from tidings.adhoc.service import AdhocService
    from tidings.adhoc.settings import AdhocSettings


class Archiving(Struct, frozen=True):
    """A node's settings for its log."""

    sealed: SealedLog | None = None  # the files that parts of it are sealed into
    where: str | None = None
    retention: RetentionTerms = RetentionTerms()
    seal_s: float | None = None  # after which it is to be sealed; None: nobody seals


class CoreSettings(OverlaySettings, frozen=True, kw_only=True):
    """A node's settings beside its store."""

    name: str = ""  # what people call it
    lasts: bool = True  # what is stored is there after a restart
    queue_types: Sequence[type[Volatile]] = ()  # beside those that every node has
    archive: Archiving = Archiving()
    budgets: Budgets | None = None
    authenticator: Authenticator | None = None  # who is let in; None: everybody
    peers: Neighbours = Neighbours({}, Credentials())  # other nodes, and who this one is there
    upstream: Upstream | None = None  # the node to which goes on what is published
    group_deputies: Sequence[str] = ()  # nodes that keep the groups of agents opened here
    taxonomy: bytes = b""  # that clients use in filters, as JSON
    adhoc: AdhocSettings | None = None  # how hosts are met by chance; None: they are not


class NodeCore:
    """Core of a node: the broker with its services. `now` is steady time, `entropy` returns random bytes.

    Without `turns` every request is carried out at once. Peers are dialled from `start` on.
    """

    def __init__(
        self,
        store: Store,
        settings: CoreSettings,
        now: float,
        entropy: Callable[[int], bytes],
        turns: Turns[Worker] | None = None,
    ) -> None:
        self._settings = settings
        self._entropy = entropy
        self.broker = broker = Broker(store.state, now, settings.name, turns, settings.budgets)
        broker.last_pages.lasts = settings.lasts
        self.patterns = PatternService(broker)
        broker.add(self.patterns)  # before those that deliver what it publishes
        self.queues = open_sinks(broker, store, settings.lasts, settings.queue_types)
        archive = settings.archive
        self.history = LogHistory(store, archive.sealed)
        rules = archive.where, archive.retention, archive.seal_s
        self.log = LogService(broker, self.history, settings.lasts, *rules)
        broker.add(self.log)
        broker.add(TaxonomyService(settings.taxonomy))
        self._meet_peers(settings.peers)
        if settings.authenticator is not None:
            broker.authenticator = settings.authenticator
            broker.review()

    def _meet_peers(self, known: Neighbours) -> None:
        """Have queues of other nodes beside the node's own."""
        broker = self.broker
        self.transmission = Transmission(self.queues)
        broker.add(self.transmission)
        self.registry = PeerRegistry(broker.name, broker.node, known.addresses, broker.now)
        self.peers = Peers(self.registry, self.transmission)
        self.queues.backends.append(self.peers)
        self.forwarded = Forwarded(self.queues)
        broker.add(self.forwarded)
        self.dialling = Dialling(broker.timers, lambda: broker.now, self._chance)
        self.peering = Peering(self.queues, self.peers, self.dialling, known, new_system(self._entropy))
        broker.add(self.peering)
        above = "" if self._settings.upstream is None else new_system(self._entropy)
        self.forwarding = Forwarding(self.transmission, self.dialling, self.peering.way, above)
        self.transmission.is_there = self.peering.is_there
        self.overlay = Overlay(broker, self.peering, new_system(self._entropy), self._settings)
        broker.add(self.overlay)
        self.handover = Handover(broker, self.overlay, self._entropy)
        broker.add(self.handover)
        self.channels = ChannelService(broker, self.overlay, self.history, self._entropy)
        broker.add(self.channels)
        self.placing = Placing(broker, self.overlay, self.patterns, self._entropy)
        broker.add(self.placing)
        deputies = self._settings.group_deputies
        self.agents = AgentService(broker, self.peers, self._chance, deputies)
        broker.add(self.agents)
        broker.add(LocationService(broker, self.peers))
        self.adhoc = None if self._settings.adhoc is None else self._meet_hosts(self._settings.adhoc)

    def _meet_hosts(self, settings: AdhocSettings) -> AdhocService:
        """Exchange messages with hosts that are met by chance."""
        from tidings.adhoc.service import AdhocService  # a node that meets none does not load it

        around = self.queues, self.peers, self.peering, self.overlay
        service = AdhocService(self.broker, *around, settings, self._entropy)
        self.broker.add(service)
        return service

    def _chance(self) -> float:
        """A number from 0 to 1."""
        return int.from_bytes(self._entropy(4), "big") / 2**32

    def start(self) -> None:
        """Begin to dial other nodes."""
        self.forwarding.go_upstream(self._settings.upstream)
        self.peering.start()

    def hang_up(self) -> None:
        """Part from other nodes, and dial no more."""
        self.overlay.hand_over_lead()
        self.forwarding.close()
        self.peering.close()


class NodeService(Service):
    """Adds to the status of a node what only its process knows, and lets its managers stop it.

    `about` returns the process's part of the status. `on_stop` begins to stop it; None where a node runs in a
    program, with which it ends.
    """

    def __init__(self, about: Callable[[], dict[str, Any]]) -> None:
        self.on_stop: Callable[[], None] | None = None
        self._about = about
        self.operations = {"node.stop": (Nothing, self._stop)}

    def status(self) -> dict[str, Any]:
        """Return the process's part of the node's status."""
        return self._about()

    def _stop(self, asked: IncomingRequest, _nothing: Nothing) -> None:
        """Begin to stop the node; the reply leaves before the connection is closed."""
        check_stop(asked.session.principal, asked.session.caller)
        if self.on_stop is None:
            raise Refused("unsupported", "this node runs in a program, and ends with it")
        self.on_stop()


def check_stop(principal: Principal, caller: PeerInfo) -> None:
    """Raise NotAllowed for one who may not stop the node.

    That takes the right to manage everything. Where there are no users, every program of the machine may
    connect to the port, and only the node's owner to its Unix socket.
    """
    if principal.rules is None and caller.host is not None:
        raise NotAllowed("a node without security is stopped over its Unix socket, or by a signal")
    principal.check_manage_all("stop this node")
