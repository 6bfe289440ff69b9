"""Piles of boxes, in which those around or within one box are found.

Boxes of the same attributes form a tree, sorted by the attribute that separates the first of them best, with
the extremes of all ends at each node. So a search enters only nodes in which a box can be found. The trees of
some of the attributes of a box, or of more, are found by a bit for each tree and attribute.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from math import comb
from operator import attrgetter, ge, le
from typing import Any

from tidings.overlay.boxes import ABOVE, BELOW, Box, End, Ends

FEW = 24
"""Boxes that are compared one by one."""
NODE_MAX = 25
"""Boxes of a leaf, and children of a node."""
BLOCK = 2_048
"""Trees in a block, in which they are found by their attributes."""
WAYS_MAX = 128
"""Sets of attributes that are looked up one by one."""

_ANY = ""  # no attribute has this name


class _PileNode:
    """Boxes, or nodes, in the order of one end, with the extremes of their ends.

    A box around others must lie around `inner`, and one within others within `outer`: each has the lows and
    the highs.
    """

    __slots__ = ("children", "inner", "is_leaf", "keys", "outer", "parent")

    def __init__(self, is_leaf: bool, keys: list[End], children: list[Any], parent: _PileNode | None) -> None:
        self.is_leaf = is_leaf
        self.keys = keys  # of a leaf: the boxes' ends; else where each child begins
        self.children = children
        self.parent = parent
        if is_leaf:
            outer = inner = [(box.lows, box.highs) for box in children]
        else:
            outer, inner = [child.outer for child in children], [child.inner for child in children]
            for child in children:
                child.parent = self
        self.outer = _extremes(min, outer, 0), _extremes(max, outer, 1)
        self.inner = _extremes(max, inner, 0), _extremes(min, inner, 1)

    def widen(self, lows: Ends, highs: Ends) -> None:
        """Take one more box into account."""
        (low, high), (low_most, high_least) = self.outer, self.inner
        if not (all(map(le, low, lows)) and all(map(ge, high, highs))):
            self.outer = tuple(map(min, low, lows)), tuple(map(max, high, highs))
        if not (all(map(ge, low_most, lows)) and all(map(le, high_least, highs))):
            self.inner = tuple(map(max, low_most, lows)), tuple(map(min, high_least, highs))


def _extremes(extreme: Callable[[Iterable[End]], End], pairs: list[tuple[Ends, Ends]], which: int) -> Ends:
    return tuple(map(extreme, zip(*[pair[which] for pair in pairs], strict=True)))


class _Tree:
    """Boxes of the same attributes; without nodes while they are few."""

    __slots__ = ("_axis", "_few", "_is_by_high", "_leaves", "_root", "names", "number")

    def __init__(self, names: tuple[str, ...], number: int) -> None:
        self.names = names
        self.number = number
        self._few: dict[Box, None] = {}
        self._leaves: dict[Box, _PileNode] = {}
        self._root: _PileNode | None = None
        self._axis = 0
        self._is_by_high = False

    def __bool__(self) -> bool:
        return bool(self._leaves or self._few)

    def _key(self, box: Box) -> End:
        return (box.highs if self._is_by_high else box.lows)[self._axis] if box.names else ()

    def add(self, box: Box) -> None:
        """File a box that is not here yet."""
        if self._root is not None:
            self._add(self._root, box)
            return
        self._few[box] = None
        if len(self._few) > FEW:
            self._axis, self._is_by_high = _best_axis(list(self._few))
            boxes = sorted(self._few, key=self._key)
            self._root = _PileNode(True, [self._key(one) for one in boxes], boxes, None)
            self._leaves = dict.fromkeys(boxes, self._root)
            self._few = {}

    def _add(self, node: _PileNode, box: Box) -> None:
        key = self._key(box)
        while not node.is_leaf:
            node.widen(box.lows, box.highs)
            node = node.children[max(bisect_right(node.keys, key) - 1, 0)]
        node.widen(box.lows, box.highs)
        place = bisect_right(node.keys, key)
        node.keys.insert(place, key)
        node.children.insert(place, box)
        self._leaves[box] = node
        if len(node.keys) > NODE_MAX:
            self._split(node)

    def _split(self, node: _PileNode) -> None:
        """Halve a node that is too large, and those above it that become so."""
        while len(node.keys) > NODE_MAX:
            half = len(node.keys) // 2
            parent = node.parent
            low = _PileNode(node.is_leaf, node.keys[:half], node.children[:half], parent)
            high = _PileNode(node.is_leaf, node.keys[half:], node.children[half:], parent)
            if node.is_leaf:
                self._leaves.update(dict.fromkeys(low.children, low))
                self._leaves.update(dict.fromkeys(high.children, high))
            if parent is None:
                self._root = _PileNode(False, [low.keys[0], high.keys[0]], [low, high], None)
                return
            place = parent.children.index(node)
            parent.children[place : place + 1] = [low, high]
            parent.keys.insert(place + 1, high.keys[0])
            node = parent

    def remove(self, box: Box) -> None:
        """Take out a box that is here, and the nodes that become empty."""
        if self._root is None:
            del self._few[box]
            return
        node: _PileNode | None = self._leaves.pop(box)
        child: Any = box
        while node is not None:
            place = node.children.index(child)
            del node.children[place], node.keys[place]
            if node.children:
                return
            node, child = node.parent, node

    def around(self, lows: Ends, highs: Ends) -> Iterator[Box | None]:
        """Yield the boxes around these ends, and None after each node."""
        return self._search(lows, highs, le, ge, attrgetter("outer"))

    def within(self, lows: Ends, highs: Ends) -> Iterator[Box | None]:
        """Yield the boxes within these ends, and None after each node."""
        return self._search(lows, highs, ge, le, attrgetter("inner"))

    def _search(
        self,
        lows: Ends,
        highs: Ends,
        low_is: Callable[[End, End], bool],
        high_is: Callable[[End, End], bool],
        bounds: Callable[[_PileNode], tuple[Ends, Ends]],
    ) -> Iterator[Box | None]:
        """Yield the boxes whose ends compare so with these, in nodes whose `bounds` do."""

        def is_so(pair: tuple[Ends, Ends]) -> bool:
            return all(map(low_is, pair[0], lows)) and all(map(high_is, pair[1], highs))

        for box in self._few:
            if is_so((box.lows, box.highs)):
                yield box
        stack = [self._root] if self._root is not None else []
        while stack:
            node = stack.pop()
            if node.is_leaf:
                for box in node.children:
                    if is_so((box.lows, box.highs)):
                        yield box
            else:
                stack += [child for child in node.children if is_so(bounds(child))]
            yield None


def _best_axis(boxes: list[Box]) -> tuple[int, bool]:
    """Return the attribute by which the fewest boxes lie around others, and whether its high ends differ."""

    def rank(place: int) -> tuple[int, int]:
        ends = [(box.lows[place], box.highs[place]) for box in boxes[:FEW]]
        around = sum(1 for low, high in ends for other in ends if low <= other[0] and high >= other[1])
        return around, place

    if not boxes[0].names:
        return 0, False
    _, best = min(map(rank, range(len(boxes[0].names))))
    lows, highs = {box.lows[best] for box in boxes}, {box.highs[best] for box in boxes}
    return best, len(highs) > len(lows)


class Pile:
    """Boxes of any attributes: one by one while they are few, then in a grove."""

    __slots__ = ("_few", "_grove", "_size")

    def __init__(self) -> None:
        self._few: dict[Box, None] = {}
        self._grove: _Grove | None = None
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, box: Box) -> None:
        """File a box that is not here yet."""
        self._size += 1
        if self._grove is not None:
            self._grove.add(box)
            return
        self._few[box] = None
        if self._size > FEW:
            self._grove = _Grove()
            for known in self._few:
                self._grove.add(known)
            self._few = {}

    def remove(self, box: Box) -> None:
        """Take out a box that is here."""
        self._size -= 1
        if self._grove is not None:
            self._grove.remove(box)
        else:
            del self._few[box]

    def around(self, box: Box) -> Iterator[Box | None]:
        """Yield the boxes around this one, and None now and then."""
        yield from [other for other in self._few if other.is_around(box)]
        if self._grove is not None:
            yield from self._grove.around(box)

    def within(self, box: Box) -> Iterator[Box | None]:
        """Yield the boxes within this one, and None now and then."""
        yield from [other for other in self._few if box.is_around(other)]
        if self._grove is not None:
            yield from self._grove.within(box)


class _Grove:
    """A tree for each set of attributes; those of fewer or more attributes are found by bits."""

    def __init__(self) -> None:
        self._trees: dict[tuple[str, ...], _Tree] = {}
        self._numbered: list[_Tree | None] = []
        self._free: list[int] = []
        self._sizes: dict[int, int] = {}  # trees by the number of attributes
        self._blocks: list[dict[str, int]] = []  # for BLOCK trees each: by attribute, the trees as bits

    def add(self, box: Box) -> None:
        tree = self._trees.get(box.names)
        if tree is None:
            tree = self._trees[box.names] = self._new_tree(box.names)
        tree.add(box)

    def _new_tree(self, names: tuple[str, ...]) -> _Tree:
        number = self._free.pop() if self._free else len(self._numbered)
        tree = _Tree(names, number)
        if number == len(self._numbered):
            self._numbered.append(tree)
            if number % BLOCK == 0:
                self._blocks.append({})
        self._numbered[number] = tree
        self._sizes[len(names)] = self._sizes.get(len(names), 0) + 1
        block, bit = self._blocks[number // BLOCK], 1 << number % BLOCK
        for name in (*names, _ANY):
            block[name] = block.get(name, 0) | bit
        return tree

    def remove(self, box: Box) -> None:
        tree = self._trees[box.names]
        tree.remove(box)
        if not tree:
            self._fell(tree)

    def _fell(self, tree: _Tree) -> None:
        names, number = tree.names, tree.number
        del self._trees[names]
        self._numbered[number] = None
        self._free.append(number)
        self._sizes[len(names)] -= 1
        if not self._sizes[len(names)]:
            del self._sizes[len(names)]
        block, bit = self._blocks[number // BLOCK], 1 << number % BLOCK
        for name in (*names, _ANY):
            block[name] ^= bit
            if not block[name]:
                del block[name]

    def around(self, box: Box) -> Iterator[Box | None]:
        places: dict[str, int] = {}
        for tree in self._trees_of_less(box.names):
            if tree is None:
                yield None
            elif tree.names == box.names:
                yield from tree.around(box.lows, box.highs)
            else:
                places = places or {name: place for place, name in enumerate(box.names)}
                chosen = [places[name] for name in tree.names]
                lows, highs = ([ends[place] for place in chosen] for ends in (box.lows, box.highs))
                yield from tree.around(tuple(lows), tuple(highs))

    def _trees_of_less(self, names: tuple[str, ...]) -> Iterator[_Tree | None]:
        """Yield the trees of these attributes and of some of them, and None now and then."""
        sizes = [size for size in self._sizes if size <= len(names)]
        if sum(comb(len(names), size) for size in sizes) <= WAYS_MAX:
            for size in sizes:
                yield from filter(None, map(self._trees.get, combinations(names, size)))
            return
        for number, block in enumerate(self._blocks):
            others = 0
            for name, trees in block.items():
                if name not in names and name != _ANY:
                    others |= trees
            alive = block.get(_ANY, 0)
            yield from self._of_bits(number, alive ^ (alive & others))
            yield None

    def _of_bits(self, block: int, bits: int) -> Iterator[_Tree | None]:
        while bits:
            bit = bits & -bits
            bits ^= bit
            yield self._numbered[block * BLOCK + bit.bit_length() - 1]

    def within(self, box: Box) -> Iterator[Box | None]:
        ends: dict[str, tuple[End, End]] = {}
        for tree in self._trees_of_more(box.names):
            if tree is None:
                yield None
            elif tree.names == box.names:
                yield from tree.within(box.lows, box.highs)
            else:
                ends = ends or dict(zip(box.names, zip(box.lows, box.highs, strict=True), strict=True))
                pairs = [ends.get(name, (BELOW, ABOVE)) for name in tree.names]
                yield from tree.within(tuple([low for low, _ in pairs]), tuple([high for _, high in pairs]))

    def _trees_of_more(self, names: tuple[str, ...]) -> Iterator[_Tree | None]:
        """Yield the trees of these attributes, with or without others, and None now and then."""
        if len(names) >= max(self._sizes, default=0):
            if names in self._trees:
                yield self._trees[names]
            return
        for number, block in enumerate(self._blocks):
            bits = block.get(_ANY, 0)
            for name in names:
                bits &= block.get(name, 0)
                if not bits:
                    break
            yield from self._of_bits(number, bits)
            yield None
