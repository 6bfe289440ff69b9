"""Moves: which nodes are reached over other links than before, when the tree has changed.

A node that was behind one neighbour and is behind another now has *moved*. What is still kept for it here is
kept for its former neighbour, so the other one *inherits* that: it gets the stored stream again, from where
the former one had confirmed that all nodes behind it have it.

A node is found by one number for each first node to have had an event or not, so it must not be sent a part
of a stream first, and the rest of it later. What came here from a neighbour while the moved node was behind
that one, now or before an earlier move, is such a part: this node was not on the way between the two. It is
left out, and asked for *again* from the neighbours over which it comes now: each goes back to what all nodes
behind this one have confirmed. That is asked for and not only expected, since the nodes see records in
different orders, so one may have seen a move that no other has. Events that come again are marked so on all
hops, also by nodes where they are new. A node that has had one hands it on, but only over links whose sides
have changed, and not to its clients. So it reaches those that lack it, once and in the order of its first
node.

Both ends of a link whose *sides* have changed, the sets of nodes at either end of it, begin their streams
anew, and events flow when both have the same sides. An heir gets stored events when it has announced
everything that is wanted behind it by the new tree: then it is *whole* (`wholeness.py`). An heir whose link
is lost can't announce anything, so it is taken to want what its former neighbours did. Until all heirs are
whole, a neighbour whose link is not in the tree any more stays as a *ghost*: what it wants is announced, and
stored for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import NamedTuple

from tidings.overlay.tree import Tree

Sides = tuple[int, int]
"""A number for the nodes at this end of a link, and one for those at the other end."""

_NUMBERS = 1 << 62


class Moves(NamedTuple):
    """By the neighbour behind which nodes are now, those behind which they were; and who has lost any."""

    gained: dict[str, set[str]]
    lost: set[str]


class Places:
    """The neighbour behind which each node was seen last."""

    def __init__(self, tree: Tree) -> None:
        self._places: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._sides: dict[str, Sides] = {}
        self.follow(tree, ())

    def follow(self, tree: Tree, ghosts: Collection[str]) -> Moves:
        """Note where nodes are by a new tree; one that is new may come from any of the ghosts."""
        gained: dict[str, set[str]] = {}
        places, total, far = self._places, self._number(tree.own), dict.fromkeys(tree.neighbours, 0)
        for node in tree.nodes:
            way = tree.way(node)
            if way is None:
                continue
            number = self._number(node)
            total += number
            far[way] += number
            before = places.get(node)
            if before is None:
                if ghosts:
                    gained.setdefault(way, set()).update(one for one in ghosts if one != way)
            elif before != way:
                gained.setdefault(way, set()).add(before)
            places[node] = way
        self._sides = {way: ((total - sum_) % _NUMBERS, sum_ % _NUMBERS) for way, sum_ in far.items()}
        gained = {way: before for way, before in gained.items() if before}
        return Moves(gained, {one for before in gained.values() for one in before})

    def forget(self, neighbour: str) -> None:
        """Forget who was behind a neighbour for which nothing is kept any more."""
        self._places = {node: way for node, way in self._places.items() if way != neighbour}

    def absent(self, tree: Tree) -> set[str]:
        """Return the nodes that were seen before, and to which no link leads any more."""
        return {node for node in self._places if node not in tree}

    def drop(self, nodes: Collection[str]) -> None:
        """Forget where some nodes were."""
        for node in nodes:
            self._places.pop(node, None)

    def are_gone(self, neighbour: str, tree: Tree) -> bool:
        """Whether all nodes that were behind a neighbour are behind others now."""
        return not any(way == neighbour and node not in tree for node, way in self._places.items())

    def sides(self, neighbour: str) -> Sides | None:
        """Return the sides of the link to a neighbour, as the tree is now; None if it is not in the tree."""
        return self._sides.get(neighbour)

    def _number(self, node: str) -> int:
        number = self._numbers.get(node)
        if number is None:
            number = int.from_bytes(blake2b(node.encode(), digest_size=7).digest(), "big")
            self._numbers[node] = number
        return number


def mirrored(sides: Iterable[int] | None) -> Sides | None:
    """Return the sides of a link as its other end has them."""
    if sides is None:
        return None
    near, far = sides
    return far, near
