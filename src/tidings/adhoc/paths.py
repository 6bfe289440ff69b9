"""Whether a path to another host exists: asked before a message is carried, answered by peers and overlay."""

from __future__ import annotations

from tidings.overlay.topology import Topology
from tidings.peers.registry import PeerRegistry


class NodePaths:
    """Paths of a node: the peers that are there, and the tree of its network.

    A host that is met only is no path: it may be gone any moment, and what waits for it would wait alone.
    """

    def __init__(self, registry: PeerRegistry, topology: Topology) -> None:
        self._registry = registry
        self._topology = topology

    def has_path(self, host: str) -> bool:
        """Whether a peer of this name is connected, for more than a meeting."""
        peer = self._registry.find(host)
        return peer is not None and peer.is_there and not peer.is_met

    def is_linked(self, host: str) -> bool:
        """Whether a node of this name is in the tree."""
        return any(self._topology.name_of(node) == host for node in self._topology.tree.nodes)
