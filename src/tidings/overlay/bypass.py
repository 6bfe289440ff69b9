"""Bypass: which node to make a link to, when one between is gone.

A node whose link is lost looks which neighbours of the other end it can't reach any more. All who miss the
same node choose the same one of its neighbours, that with the smallest id, and make links to it; so the parts
meet there, whether the node between has died or only links to it are cut. If that one does not answer, the
next is tried. Then follow the neighbours of those, and so on ring by ring, as far as the records tell:
several nodes side by side may be gone.
"""

from __future__ import annotations

from collections.abc import Collection

from tidings.overlay.known_records import KnownRecords
from tidings.overlay.records import NodeRecord

APPROACHED_MAX = 100
"""Nodes that are approached in turns for one link that is lost."""


class Bypass:
    """Choice of nodes to approach, for one node."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._tries: dict[str, int] = {}  # by the neighbour whose link is lost

    @property
    def is_wanted(self) -> bool:
        """Whether nodes were missed when it was asked last."""
        return any(self._tries.values())

    def choose(self, known: KnownRecords, reached: Collection[str]) -> list[NodeRecord]:
        """Return the nodes to approach now, each time others if they do not come within reach."""
        own = known[self._node]
        lost = [link.neighbour for link in own.links if link.lost or _loses(known, link.neighbour, own.node)]
        self._tries = {one: self._tries.get(one, 0) for one in lost}
        chosen: dict[str, NodeRecord] = {}
        for neighbour in lost:
            record = self._next(neighbour, own, known, reached)
            if record is not None:
                chosen[record.node] = record
        return list(chosen.values())

    def _next(
        self, neighbour: str, own: NodeRecord, known: KnownRecords, reached: Collection[str]
    ) -> NodeRecord | None:
        """Return the node to approach as the link to a neighbour is lost; None if there is none for now."""
        missed = self._missed(neighbour, known, reached)
        if not missed:
            self._tries[neighbour] = 0
            return None
        tried = self._tries[neighbour]
        self._tries[neighbour] = tried + 1
        is_smallest = not own.leaf and self._node < missed[0].node
        if is_smallest and tried == 0:
            return None  # the others come here
        return missed[(tried - is_smallest) % len(missed)]

    def _missed(self, neighbour: str, known: KnownRecords, reached: Collection[str]) -> list[NodeRecord]:
        """Return the nodes out of reach that can be approached: ring by ring round a neighbour."""
        found: list[NodeRecord] = []
        seen, ring = {self._node, neighbour}, [neighbour]
        while ring and len(found) < APPROACHED_MAX:
            beyond = {link.neighbour for node in ring for link in known.links_of(node)}
            ring = sorted(beyond.difference(seen, reached))
            seen.update(ring)
            records = [record for node in ring if (record := known.get(node)) is not None]
            found += [one for one in records if one.address and not one.leaf]
        return found[:APPROACHED_MAX]


def _loses(known: KnownRecords, node: str, neighbour: str) -> bool:
    """Whether a node calls its link to a neighbour lost, as one does that is to stop."""
    record = known.get(node)
    return record is not None and record.loses(neighbour)
