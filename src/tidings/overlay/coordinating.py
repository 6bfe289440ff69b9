"""Coordinators: of the nodes of one local network, the one through which the others are reached.

The nodes of a subnet have the same label in their records. The smallest of those that are connected is their
*coordinator*, and the others are its leaves: one link of each is in the tree, that to the coordinator. So a
local network is a hierarchy, and the tree is chosen between coordinators and nodes without a subnet.

    label in the records ──► coordinator of each connected part ──► leaves ──► spanning tree

The rules kept: who coordinates is a function of the records alone, so nodes that have the same records have
the same tree, and when a coordinator dies the next one follows from the records that say so, with no vote.
And no leaf separates: a member through whose links alone others are reached, also such as are lost, carries
events as any other node, until its coordinator has links in place of them, which it makes if it can.

A label is a setting, or is found: nodes that find each other on the local network take the smallest label
among them, which is the id of one of them at first. What is found counts only for nodes with a link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from math import inf

from tidings.overlay.known_records import KnownRecords
from tidings.overlay.records import NodeRecord
from tidings.overlay.tree import Edge, is_lost

FOUND = "@"
"""First character of a label that was found; no setting begins with it."""
LOOK_S = 1.0
"""How long after a change of records a node looks whether its subnet needs a link."""
AGAIN_S = 30.0
"""How long a node that was approached for the subnet may take, before it is approached again."""
APPROACHED_MAX = 100
"""Nodes that are approached at a time."""


class _Parts:
    """Parts of a graph that edges connect, each known by one of its nodes."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def of(self, node: str) -> str:
        """Return the node that stands for the part of a node."""
        above = self._above
        while node in above:
            further = above[node]
            if further in above:
                above[node] = above[further]
            node = further
        return node

    def join(self, one: str, other: str) -> bool:
        """Join the parts of two nodes; return whether there were two."""
        one, other = self.of(one), self.of(other)
        if one != other:
            self._above[one] = other
        return one != other


class Subnets:
    """Coordinators and leaves, by records and the edges that they make."""

    def __init__(self, records: Iterable[NodeRecord], edges: Collection[Edge]) -> None:
        self.leaves: dict[str, str] = {}
        """All leaves, each with its coordinator; "" for one that uses its first link."""
        self.coordinators: dict[str, str] = {}
        """Coordinator of each node of a subnet, its own of a coordinator itself."""
        self.relays: set[str] = set()
        """Members that would be leaves, if others were not reached through them alone."""
        self.members: Counter[str] = Counter()
        """Number of members of each coordinator, itself left out."""
        subnets: dict[str, list[str]] = {}
        for record in records:
            if record.leaf:
                self.leaves[record.node] = ""
            if record.subnet:
                subnets.setdefault(record.subnet, []).append(record.node)
        if any(len(members) > 1 for members in subnets.values()):
            self._coordinate(subnets, edges)

    def _coordinate(self, subnets: dict[str, list[str]], edges: Collection[Edge]) -> None:
        alone = set(self.leaves)  # by their settings
        live = {edge[1:] for edge in edges if not is_lost(edge)}
        parts = _Parts()
        for one, other in live:
            if one not in alone and other not in alone:
                parts.join(one, other)
        for members in subnets.values():
            first: dict[str, str] = {}  # of each part
            for node in sorted(set(members) - alone):
                self.coordinators[node] = first.setdefault(parts.of(node), node)
            for node in alone.intersection(members):
                linked = [one for one in first.values() if _pair(one, node) in live]
                if linked:
                    self.leaves[node] = self.coordinators[node] = min(linked)
        self.members.update(one for node, one in self.coordinators.items() if node != one)
        homes = {node: one for node, one in self.coordinators.items() if node != one and node not in alone}
        homes = {node: one for node, one in homes.items() if _pair(node, one) in live}
        self.relays = _needed(edges, homes, alone)
        self.leaves |= {node: one for node, one in homes.items() if node not in self.relays}


def _needed(edges: Collection[Edge], homes: Mapping[str, str], alone: Collection[str]) -> set[str]:
    """Return the members that connect what is not connected without them.

    Each member counts as one with its coordinator. Then edges are taken that join two parts: those between
    others first, then those of members, as the ids decide and not the weights, which change; then those that
    are lost, as in the tree. Last come leaves by their settings, each of which needs one that is none.
    """
    parts, needed = _Parts(), set[str]()
    for node, home in homes.items():
        parts.join(node, home)

    def place(edge: Edge) -> tuple[int, int, str, str]:
        lost, count = is_lost(edge), (edge[1] in homes) + (edge[2] in homes)
        return edge[0] if lost else -1, 0 if lost else count, *edge[1:]

    between = (edge for edge in edges if edge[1] not in alone and edge[2] not in alone)
    for _, one, other in sorted(between, key=place):
        if parts.join(one, other):
            needed.update(end for end in (one, other) if end in homes)
    beside: dict[str, list[str]] = {}
    for _, one, other in sorted(edges):
        for leaf, end in ((one, other), (other, one)):
            if leaf in alone and end not in alone:
                beside.setdefault(leaf, []).append(end)
    for _, ends in sorted(beside.items()):
        if all(end in homes and end not in needed for end in ends):
            needed.add(ends[0])
    return needed


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


class Coordinating:
    """What one node does for its subnet: its label, and the links that it makes.

    `subnet` is the label that the settings give; "" if it is found, where `finds`, or there is none.
    """

    def __init__(self, node: str, subnet: str = "", finds: bool = False) -> None:
        self.wake_at = inf
        """When to look; `note` sets it."""
        self._node = node
        self._is_found = finds and not subnet
        self.label = FOUND + node if self._is_found else subnet
        self._near: dict[str, str] = {}  # ids of nodes that were found, by their names
        self._again_at: dict[str, float] = {}  # when nodes that were approached may be so again

    def note(self, now: float) -> None:
        """Have it looked at after a while: a record has changed."""
        if self.label:
            self.wake_at = min(self.wake_at, now + LOOK_S)

    def near(self, name: str, node: str, now: float) -> None:
        """Note that a node of this name was found on the local network; with no id: it is no longer.

        The caller limits the number of names.
        """
        if node:
            self._near[name] = node
        else:
            self._near.pop(name, None)
        self.note(now)

    def look(
        self, known: KnownRecords, edges: Collection[Edge], connected: Collection[str], now: float
    ) -> list[NodeRecord]:
        """Take over the smallest label nearby, and return the nodes to make links to."""
        self.wake_at = inf
        self._relabel(known, connected)
        wanted = self._wanted(known, edges) if self.label else {}
        due = [node for node in wanted if self._again_at.get(node, now) <= now][:APPROACHED_MAX]
        self._again_at = {node: at for node, at in self._again_at.items() if node in wanted}
        self._again_at |= dict.fromkeys(due, now + AGAIN_S)
        self.wake_at = min(self._again_at.values(), default=inf)
        return [wanted[node] for node in due]

    def _relabel(self, known: KnownRecords, connected: Collection[str]) -> None:
        if self._is_found:
            records = [known.get(node) for node in set(self._near.values()).intersection(connected)]
            labels = [one.subnet for one in records if one is not None and one.subnet.startswith(FOUND)]
            self.label = min([self.label, *labels])

    def _wanted(self, known: KnownRecords, edges: Collection[Edge]) -> dict[str, NodeRecord]:
        """Return the nodes to which this one lacks a link that its subnet needs."""
        subnets = Subnets(known, edges)
        coordinator = subnets.coordinators.get(self._node, self._node)
        ends = {coordinator} if coordinator != self._node else self._beyond(subnets, edges)
        linked = {end for edge in edges if self._node in edge[1:] and not is_lost(edge) for end in edge[1:]}
        records = [known.get(node) for node in sorted(ends - linked - {self._node})]
        return {one.node: one for one in records if one is not None and one.address and not one.leaf}

    def _beyond(self, subnets: Subnets, edges: Collection[Edge]) -> set[str]:
        """Return the nodes outside of the subnet of this coordinator that are reached through members."""
        coordinators, own = subnets.coordinators, self._node
        relays = {node for node in subnets.relays if coordinators.get(node) == own}
        found = set()
        for edge in edges:
            for member, end in (edge[1:], edge[:0:-1]):
                if member in relays and coordinators.get(end) != own and not is_lost(edge):
                    found.add(coordinators.get(end, end))
        return found
