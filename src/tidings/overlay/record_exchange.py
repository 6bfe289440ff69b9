"""Exchange of records: what a node knows of all nodes is sent to its neighbours, stored, and acted on.

What follows from a change is said by the core (`topology.py`) as effects, which are carried out here in their
order: a record is stored before it is sent to other nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import msgspec
from msgspec import Struct

from tidings.errors import ConfigError, TidingsError
from tidings.overlay.neighbours import KnownNeighbours, Neighbour
from tidings.overlay.numbers import Numbers
from tidings.overlay.records import Digest, NodeRecord, Stamp, Stamps
from tidings.overlay.topology import Topology
from tidings.overlay.topology_effects import (
    Approach,
    Attach,
    Effect,
    IdentityClash,
    NodesExceeded,
    SendDigest,
    SendOwn,
    SendRecords,
    SendStamps,
    StoreAdjacency,
    TakeEpoch,
    TreeChanged,
)
from tidings.peers.peering import Peering
from tidings.peers.registry import check_peers
from tidings.protocol.broker import Broker
from tidings.store.interface import RecordKind
from tidings.transport.address import parse

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class TopologyNews(Struct, frozen=True):
    """The arguments of `link.topology`: what the caller knows of nodes; one of the four."""

    own: Stamp | None = None
    digest: Digest | None = None
    stamps: Stamps | None = None
    records: tuple[NodeRecord, ...] = ()


class StoredNode(Struct, frozen=True):
    """What is stored of a node and its links."""

    record: NodeRecord
    newest: int = 0  # with this node's own: the age of the youngest link that was known


NODES: RecordKind[tuple[str], StoredNode] = RecordKind("overlay-node", StoredNode)
"""All nodes that are known, by their ids: a node that starts again has the tree that it had."""


def stored_nodes(broker: Broker) -> tuple[list[NodeRecord], int]:
    """Return the records that were stored in the last life, and the age of the youngest link known then."""
    stored = NODES.known(broker.state).values()
    return [one.record for one in stored], max((one.newest for one in stored), default=0)


class RecordExchange:
    """Carries out what the topology of a node says; `on_tree` is called when its tree has changed."""

    def __init__(
        self,
        broker: Broker,
        topology: Topology,
        neighbours: KnownNeighbours,
        peering: Peering,
        numbers: Numbers,
    ) -> None:
        self.on_tree: Callable[[], None] = lambda: None
        self.tell: Callable[[str, TopologyNews], None] = self.send
        """Called with all that a neighbour is to know; a simulation may leave it out."""
        self._broker = broker
        self._topology = topology
        self._neighbours = neighbours
        self._peering = peering
        self._numbers = numbers
        self._log = peering.dialling.log
        self._stored = {node: stored for (node,), stored in NODES.known(broker.state).items()}

    def hear(self, node: str, news: TopologyNews) -> None:
        """Take what a neighbour knows of nodes."""
        topology, now = self._topology, self._broker.now
        if news.own is not None:
            self.carry_out(topology.comparing.hear_own(node, news.own, now))
        elif news.digest is not None:
            self.carry_out(topology.comparing.hear_digest(node, news.digest, now))
        elif news.stamps is not None:
            self.carry_out(topology.comparing.hear_stamps(node, news.stamps))
        else:
            self.carry_out(topology.hear(node, news.records, now))

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what follows from a change, and wake the topology when it is due."""
        for effect in effects:
            match effect:
                case SendOwn(node, stamp):
                    self.tell(node, TopologyNews(own=stamp))
                case SendDigest(node, digest):
                    self.tell(node, TopologyNews(digest=digest))
                case SendStamps(node, stamps):
                    self.tell(node, TopologyNews(stamps=stamps))
                case SendRecords(node, records):
                    self.tell(node, TopologyNews(records=records))
                case StoreAdjacency(record):
                    self._store(StoredNode(record, self._topology.newest))
                case TakeEpoch(epoch):
                    self._numbers.begin(epoch)
                case Approach(record):
                    self._approach(record)
                case Attach(record):
                    self._attach(record)
                case IdentityClash(node, _):
                    self._log("error", "another node has this node's id: a copied directory", heard_from=node)
                case NodesExceeded(node, _):
                    self._log("error", "too many nodes or links: records are refused", heard_from=node)
                case TreeChanged():
                    self.on_tree()
                    self._store_nodes()
        if self._topology.wake_at < inf:
            self._broker.timers.at(self._topology.wake_at, self._wake)

    def _approach(self, record: NodeRecord) -> None:
        """Dial a node that the lost links led to."""
        if self._can_dial(record):
            self._broker.count("bypassed")
            self._log("warning", "making a link round a node", to=record.name, address=record.address)
            self._peering.learn(record.name, record.address)

    def _attach(self, record: NodeRecord) -> None:
        """Dial the coordinator, or a node that the subnet is to be linked with."""
        if self._can_dial(record):
            self._broker.count("attached")
            self._log("info", "making a link for the subnet", to=record.name, address=record.address)
            self._peering.learn(record.name, record.address)

    def _can_dial(self, record: NodeRecord) -> bool:
        """Whether a node can be dialled at the address that its record has."""
        try:
            check_peers({record.name: record.address}, own=self._broker.name)
        except ConfigError as error:
            self._log("warning", "no link to a node", node=record.node, problem=str(error))
            return False
        return self.is_of_use(record.address)

    def is_of_use(self, address: str) -> bool:
        """Whether an address that another node shows can be used where this node is."""
        return _is_near(address) is _is_near(self._topology.own.address)

    def _store(self, node: StoredNode) -> None:
        self._stored[node.record.node] = node
        self._broker.store(NODES.set((node.record.node,), node))

    def _store_nodes(self) -> None:
        """Store the nodes whose links have changed, so that the tree is known at the next start.

        A node that knew only some links would let those be active that stand by.
        """
        newest, known = self._topology.newest, {record.node: record for record in self._topology.records}
        for record in known.values():
            node = StoredNode(record, newest if record.node == self._broker.node else 0)
            stored = self._stored.get(record.node)
            if stored is None or _shape(stored) != _shape(node):
                self._store(node)
        for gone in self._stored.keys() - known.keys():
            del self._stored[gone]
            self._broker.store(NODES.drop((gone,)))

    def _wake(self, now: float) -> None:
        self.carry_out(self._topology.wake(now))

    def send(self, node: str, news: TopologyNews) -> None:
        """Send a neighbour what it is to know, if its link is there."""
        neighbour = self._neighbours.get(node)
        if neighbour is None or neighbour.link is None:
            return
        arguments = {name: value for name, value in msgspec.structs.asdict(news).items() if value}
        call = neighbour.link.connection.request("link.topology", msgspec.to_builtins(arguments), "forget")
        call.then(lambda _told: None, partial(self._untold, neighbour))
        neighbour.link.flush()

    def _untold(self, neighbour: Neighbour, error: TidingsError) -> None:
        if neighbour.is_up:
            self._log("warning", "a neighbour takes no records", node=neighbour.node, problem=str(error))


def _is_near(address: str) -> bool:
    """Whether an address is of use on its own machine only."""
    return bool(address) and parse(address).host in LOOPBACK


def _shape(node: StoredNode) -> tuple[Any, ...]:
    """Return what of a stored node matters for the tree."""
    return node.newest, node.record.shape
