"""Protocols of channels: whom a node asks that joins one, and which nodes take part without members.

The nodes that take part form one tree whatever the protocol, and `trees.py` keeps it. A join asks some
*scopes* one after the other, until a node that takes part is in one of them, and all nodes at last.

| protocol | scopes of a join | take part without members | costs little |
| --- | --- | --- | --- |
| broadcast | all nodes | none | where members seldom change |
| insertion | all nodes within 1, 2, 4… links | none | where a member is near most nodes |
| rendezvous | the ways to the nodes of the channel | its nodes | where few members change often |

The nodes of a rendezvous channel are those for which the hash of the node's id and the channel's is the
highest (Thaler and Ravishankar 1998). So a node that is gone moves its own channels alone, and one that comes
takes just those that are its own from now on. All that take part join them, so each node on the way from a
member to one of them knows the channel, and a join ends at the first of these. A channel without members
outlives a node.

The name of the protocol is a part of the channel's id, as in group addresses that name their rendezvous point
(RFC 3956): with the id alone a node knows whom to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from heapq import nlargest
from math import inf, log2
from typing import Protocol

from msgspec import Struct

from tidings.channels.description import PROTOCOLS, ChannelProtocol, ExpectedGroup, protocol_of
from tidings.errors import Refused
from tidings.overlay.tree import Tree, is_lost, ways_from

REPLICAS = 2
"""Nodes to which a channel is hashed."""


class SearchScope(Struct, frozen=True):
    """Part of the network that is searched: so many links away (0: any), towards some nodes (none: all)."""

    hops_max: int = 0
    towards: tuple[str, ...] = ()


class FindingProtocol(Protocol):
    """What distinguishes the protocols."""

    def scopes(self, channel: str) -> Iterator[SearchScope]:
        """Yield the scopes of a join before all nodes are asked."""

    def homes(self, channel: str) -> tuple[str, ...]:
        """Return the nodes that take part without members, the first before its replicas."""


class RestrictedBroadcast:
    """All nodes are asked."""

    def scopes(self, channel: str) -> Iterator[SearchScope]:  # noqa: ARG002
        """Yield nothing: all nodes are asked at once."""
        return iter(())

    def homes(self, channel: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing."""
        return ()


class NearestInsertion(RestrictedBroadcast):
    """The nodes around are asked, then more of them."""

    def __init__(self, tree: Callable[[], Tree]) -> None:
        self._tree = tree

    def scopes(self, channel: str) -> Iterator[SearchScope]:  # noqa: ARG002
        """Yield rings of which each is twice as wide as the one before."""
        hops = 1
        while hops < len(self._tree()) - 1:
            yield SearchScope(hops)
            hops *= 2


class Rendezvous:
    """The nodes are asked to which the channel is hashed, and those on the ways to them."""

    def __init__(self, tree: Callable[[], Tree], leaves: Callable[[], set[str]]) -> None:
        """`leaves` returns nodes that others do not reach a channel through, as they may be small."""
        self._tree, self._leaves = tree, leaves
        self._known: Tree | None = None  # of which these are
        self._nodes: list[str] = []
        self._homes: dict[str, tuple[str, ...]] = {}

    def scopes(self, channel: str) -> Iterator[SearchScope]:
        """Yield the ways to the nodes of the channel."""
        yield SearchScope(towards=self.homes(channel))

    def homes(self, channel: str) -> tuple[str, ...]:
        """Return the nodes of highest hash, of those that no lost link cuts off."""
        if (tree := self._tree()) is not self._known:
            self._known, self._nodes = tree, _present(tree, self._leaves())
            self._homes.clear()
        found = self._homes.get(channel)
        if found is None:
            found = self._homes[channel] = homes_of(channel, self._nodes)
        return found


def homes_of(channel: str, nodes: list[str], count: int = REPLICAS) -> tuple[str, ...]:
    """Return the nodes to which a channel is hashed, the first before its replicas."""
    return tuple(nlargest(count, nodes, key=lambda node: _hash(node, channel)))


def _hash(node: str, channel: str) -> bytes:
    return blake2b(f"{node} {channel}".encode(), digest_size=8).digest()


def _present(tree: Tree, leaves: set[str]) -> list[str]:
    live = ways_from(tree.own, [edge for edge in tree.edges if not is_lost(edge)])
    return [node for node in live if node not in leaves] or list(live)


class ChannelProtocols:
    """The protocols by the ids of channels."""

    def __init__(self, tree: Callable[[], Tree], leaves: Callable[[], set[str]]) -> None:
        self._tree = tree
        self._protocols: dict[str, FindingProtocol] = {
            "broadcast": RestrictedBroadcast(),
            "insertion": NearestInsertion(tree),
            "rendezvous": Rendezvous(tree, leaves),
        }

    def scopes(self, channel: str) -> Iterator[SearchScope]:
        """Yield the scopes in which a channel is searched before all nodes are asked."""
        return self._protocols[protocol_of(channel)].scopes(channel)

    def homes(self, channel: str) -> tuple[str, ...]:
        """Return the nodes that take part in a channel without members."""
        return self._protocols[protocol_of(channel)].homes(channel)

    def choose(self, expected: ExpectedGroup) -> ChannelProtocol:
        """Return the protocol that costs the fewest messages in this network."""
        return choose(expected, len(self._tree()))


def choose(expected: ExpectedGroup, nodes: int) -> ChannelProtocol:
    """Return the protocol whose joins and events pass the fewest links; Refused if nothing can be so."""
    if expected.size < 1 or not 0 <= expected.fluctuation < inf:
        raise Refused("protocol", f"no channel has {expected.size} nodes or {expected.fluctuation} changes")
    costs = {one: cost(one, expected, nodes) for one in PROTOCOLS}
    return min(PROTOCOLS, key=costs.__getitem__)


def cost(protocol: ChannelProtocol, expected: ExpectedGroup, nodes: int) -> float:
    """Estimate the links that the joins of one event pass, and the event more than between the members.

    A question and its answer pass each link. If s of n nodes have members, about n/s nodes lie around one
    up to the nearest member. Rings grow to twice as many, and all rings together have as many again. A way
    is as long as in a balanced tree.
    """
    around = nodes / min(expected.size, nodes)
    way = min(log2(nodes) + 1, around)
    match protocol:
        case "broadcast":
            return expected.fluctuation * 2 * (nodes - 1)
        case "insertion":
            return expected.fluctuation * 4 * around
        case "rendezvous":
            return expected.fluctuation * 2 * way + REPLICAS * way
