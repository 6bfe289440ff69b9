"""Spanning tree of the overlay, and the ways over it.

The tree is Kruskal's: edges are taken in their order, and each that would close a cycle is left out and
*stands by*. An edge is a link that the records of both its ends name, whether it is up or cut. First come
those whose weight is known, the lightest before the rest; of equal ones the ids of their ends decide. So the
tree is the unique minimum spanning tree. The weight is the mean of what both ends have measured, and what
was measured counts from the next *run* on (`rebuilding.py`): a new measurement alone changes no tree. Then
come links that are not weighed yet, the oldest first, so that a new link changes an established tree only
where it joins two parts of it. A link that was cut for long is *lost*, and comes after all that are not: the
tree goes round it where there is another way, and events wait for it where there is none. Of the links to a
node that is gone they wait for the one that was lost last, as the neighbour there knows best what that node
has had. The rule kept: the tree is a function of the records and the run alone, so nodes that have the same
records have the same tree.

A leaf has one edge in the tree, so nothing passes through it: that to its coordinator (`coordinating.py`), or
its first to a node that is no leaf.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from tidings.overlay.records import SINCE_MAX, WEIGHT_MAX, LinkRecord, NodeRecord

WEIGHTED = 2 * WEIGHT_MAX + 1
"""Links with weights come before all others: their place is the sum of what both ends say, less this."""
NO_LEAVES: Mapping[str, str] = {}
LOST = 2 * SINCE_MAX + 1
"""Links that are lost come after all others, the one that was lost last before the rest of them."""
Edge = tuple[int, str, str]
"""Place of a link, and its ends, the smaller id first: edges are taken in this order.

The place is by the weight, or the moment since when the link is there, or that at which it was lost.
"""


def edges_of(records: Iterable[NodeRecord], run: int | None = None) -> list[Edge]:
    """Return the links that the records of both ends name, with their places in a run.

    Without `run` it is the last one that the records know. Of two moments the later counts: an end that has
    just started, with a clock that is behind, may not know how old the other links are. What one of them
    calls lost comes after all others.
    """
    known = list(records)
    if run is None:
        run = max((record.run for record in known), default=0)
    said: dict[tuple[str, str], LinkRecord] = {}  # by the end that was met first, and the other
    edges: list[Edge] = []
    for record in known:
        node = record.node
        for link in record.links:
            neighbour = link.neighbour
            other = said.pop((neighbour, node), None)
            if other is None:
                said[node, neighbour] = link
            else:
                ends = (node, neighbour) if node < neighbour else (neighbour, node)
                edges.append((_place(link, other, run), *ends))
    return edges


def _place(one: LinkRecord, other: LinkRecord, run: int) -> int:
    """Return the place of a link in the order of edges, by what its ends say of it."""
    if one.lost or other.lost:
        return LOST - min(moment for moment in (one.lost, other.lost) if moment)
    here, there = one.weight_in(run), other.weight_in(run)
    return here + there - WEIGHTED if here and there else max(one.since, other.since)


def is_lost(edge: Edge) -> bool:
    """Whether one end of a link calls it lost."""
    return edge[0] > SINCE_MAX


def weight_of(edge: Edge) -> float | None:
    """Return what a link weighs, the mean of what its ends have measured; None if that is not known."""
    return (edge[0] + WEIGHTED) / 2 if edge[0] < 0 else None


def spanning_tree(edges: Iterable[Edge], leaves: Mapping[str, str] = NO_LEAVES) -> list[Edge]:
    """Return the edges of the tree, or of one tree for each connected part, in their order.

    `leaves` has the coordinator of each leaf, "" for one that uses its first edge.
    """
    parent: dict[str, str] = {}  # of each node another of its part, up to the one that stands for the part
    tree: list[Edge] = []
    aside: list[Edge] = []
    for edge in sorted(edges):
        _, one, other = edge
        if leaves and (one in leaves or other in leaves):
            aside.append(edge)
            continue
        while one in parent:  # each step shortens the way for the next search
            above = parent[one]
            if above in parent:
                parent[one] = parent[above]
            one = above
        while other in parent:
            above = parent[other]
            if above in parent:
                parent[other] = parent[above]
            other = above
        if one != other:
            parent[one] = other
            tree.append(edge)
    return sorted([*tree, *_of_leaves(aside, leaves)]) if aside else tree


def _of_leaves(edges: Iterable[Edge], leaves: Mapping[str, str]) -> Iterator[Edge]:
    """Yield the edge of each leaf to its coordinator, or its first to a node that is no leaf."""
    joined: set[str] = set()
    for edge in edges:
        _, one, other = edge
        leaf, end = (one, other) if one in leaves else (other, one)
        if leaf not in joined and end not in leaves and leaves[leaf] in ("", end):
            joined.add(leaf)
            yield edge


def ways_from(start: str, edges: Iterable[Edge]) -> dict[str, str]:
    """Return the nodes that edges connect with a node, each with the first node on the way to it."""
    beside: dict[str, list[str]] = {start: []}
    for _, one, other in edges:
        beside.setdefault(one, []).append(other)
        beside.setdefault(other, []).append(one)
    ways = {start: start} | {one: one for one in beside[start]}
    reached = beside[start]
    while reached:
        further = []
        for node in reached:
            way = ways[node]
            for other in beside[node]:
                if other not in ways:
                    ways[other] = way
                    further.append(other)
        reached = further
    return ways


class Tree:
    """Spanning tree of the nodes that one node is connected with, seen from that node."""

    def __init__(self, own: str, forest: Iterable[Edge] = ()) -> None:
        """`forest` has the edges of all trees that the records make; those of other trees are left out."""
        forest = list(forest)
        self.own = own
        self._ways = ways_from(own, forest)
        self.edges = frozenset(edge for edge in forest if edge[1] in self._ways)
        self._behind: dict[str, frozenset[str]] = {}

    def __len__(self) -> int:
        """How many nodes are in it."""
        return len(self._ways)

    def __contains__(self, node: str) -> bool:
        return node in self._ways

    @property
    def nodes(self) -> Collection[str]:
        """All nodes in it, this one too."""
        return self._ways.keys()

    @property
    def neighbours(self) -> list[str]:
        """The nodes at the other ends of this node's edges in the tree, in order."""
        return sorted(node for node, way in self._ways.items() if node == way != self.own)

    def way(self, node: str) -> str | None:
        """Return the neighbour through which a node is reached; None if it is not, or is this one."""
        way = self._ways.get(node)
        return None if way == self.own else way

    def behind(self, neighbour: str) -> frozenset[str]:
        """Return the nodes that are reached through a neighbour, itself too; none if its link stands by."""
        if not self._behind:
            found: dict[str, list[str]] = {}
            for node, way in self._ways.items():
                found.setdefault(way, []).append(node)
            found.pop(self.own)
            self._behind = {way: frozenset(nodes) for way, nodes in found.items()}
        return self._behind.get(neighbour, frozenset())
