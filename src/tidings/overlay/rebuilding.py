"""Rebuilding: when the tree that nodes use gives way to a better one.

Nodes measure their links all the time, and the tree does not follow every change. What was measured counts
for the tree from the next *run* on, and runs are begun by one node, the smallest of those that are connected.
It does so if a link that stands by is lighter, by more than a threshold, than one in the tree that it could
replace, and if that has lasted for a while. The number of the last run is in its record, so a run costs the
flooding of one record, and all nodes that have it have the same tree. Numbers only grow: a late record of an
old run changes nothing. A node that becomes the smallest takes the number over, so it outlives the record of
the one that began the run. Where two nodes take themselves for the smallest, the larger number counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from tidings.ids import NUMBER_MAX
from tidings.overlay.known_records import KnownRecords
from tidings.overlay.tree import WEIGHTED, Edge, Tree, edges_of, is_lost, spanning_tree, ways_from

_KEPT = -WEIGHTED - 1  # before all others: it is not replaced as long as its weight is not known


class Rebuilding:
    """Decision of one node when to begin a run. `wait_s` is how long a better tree must be there.

    `threshold` is the part of its weight that must be saved before a link of the tree is replaced.
    """

    def __init__(self, node: str, threshold: float = 0.0, wait_s: float = 0.0) -> None:
        self.wake_at = inf
        """When to decide; `note` sets it."""
        self._node = node
        self._threshold = threshold
        self._wait_s = wait_s
        self._is_better = False  # when it was looked last

    def note(self, now: float) -> None:
        """Have it decided after a while: a record has changed."""
        self.wake_at = min(self.wake_at, now + self._wait_s)

    def decide(self, known: KnownRecords, tree: Tree, leaves: Mapping[str, str], now: float) -> int:
        """Return the run to be named in the own record, also one that another node has begun."""
        self.wake_at = inf
        was_better, self._is_better = self._is_better, False
        own_run = known[self._node].run
        edges = edges_of(known, known.run + 1)
        reached = ways_from(self._node, [edge for edge in edges if not is_lost(edge)])
        if self._node > min(reached) or known.run == NUMBER_MAX:
            return own_run
        if not is_better(edges, tree, leaves, self._threshold):
            return known.run
        if was_better:
            return known.run + 1
        self._is_better = True
        self.wake_at = now + self._wait_s
        return known.run


def is_better(edges: list[Edge], tree: Tree, leaves: Mapping[str, str], threshold: float) -> bool:
    """Whether these edges make a better tree: it saves more than the threshold of some link it replaces.

    Kruskal's algorithm answers this if the weights of the links in the tree are lowered by the threshold.
    """
    used = {edge[1:] for edge in tree.edges}
    favoured = [(_favoured(edge, threshold), *edge[1:]) if edge[1:] in used else edge for edge in edges]
    best = spanning_tree(favoured, leaves)
    return {edge[1:] for edge in best if edge[1] in tree} != used


def _favoured(edge: Edge, threshold: float) -> int:
    """Return the place of a link that is in the tree: before all that do not save enough."""
    if is_lost(edge):
        return edge[0]
    return int((edge[0] + WEIGHTED) * (1 - threshold)) - WEIGHTED - 1 if edge[0] < 0 else _KEPT
