"""Requested value ranges, as a tree in which each range lies below one that covers it.

1..10 is the root; 5..7 goes below it; 37 is covered by no range, so a root 1..37 is *made* above both, which
is not requested itself and goes when it is no longer needed. The tree shows at once whether a new range
requests anything that was not requested already, and which part of a sensor's own range is wanted.

The rule kept: of the ranges directly below one node none covers another, so in the order of their low ends
their high ends ascend too, and the neighbours of a range are found by bisection. Only the root can be made.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable
from math import inf
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from tidings.filters.intervals import AFTER, BEFORE, Cut, Intervals

K = TypeVar("K", bound=Hashable)


class RangeSpan(NamedTuple):
    """Range of numbers, given by its two cuts; without an end the cut lies at infinity."""

    low: Cut
    high: Cut

    def covers(self, other: RangeSpan) -> bool:
        """Whether all of the other lies in this one."""
        return self.low <= other.low and other.high <= self.high

    def overlaps(self, other: RangeSpan) -> bool:
        """Whether they have anything in common."""
        return self.low < other.high and other.low < self.high

    def hull(self, other: RangeSpan | None) -> RangeSpan:
        """Return the smallest range over both."""
        return self if other is None else RangeSpan(min(self.low, other.low), max(self.high, other.high))

    def clip(self, other: RangeSpan) -> RangeSpan | None:
        """Return the common part, or None."""
        return (
            RangeSpan(max(self.low, other.low), min(self.high, other.high)) if self.overlaps(other) else None
        )

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Return the lowest and the highest value, None for an end without limit."""
        low, high = self.low[0], self.high[0]
        return None if low == -inf else low, None if high == inf else high

    @property
    def line(self) -> Intervals:
        """Return the range as a set of numbers."""
        endless = self.low[0] == -inf
        cuts = () if endless else (self.low,)
        return Intervals(endless, cuts if self.high[0] == inf else (*cuts, self.high))


WHOLE = RangeSpan((-inf, BEFORE), (inf, AFTER))
"""All numbers."""


def span_of(low: float | None, high: float | None) -> RangeSpan:
    """Return the range from `low` to `high`, both included; None is an end without limit."""
    return RangeSpan(
        WHOLE.low if low is None else (low, BEFORE), WHOLE.high if high is None else (high, AFTER)
    )


def spans_of(numbers: Intervals) -> tuple[RangeSpan, ...]:
    """Return the connected parts of a set of numbers as ranges."""
    return tuple(RangeSpan(low or WHOLE.low, high or WHOLE.high) for low, high in numbers.spans())


class RangeNode(Struct, Generic[K], eq=False):
    """Range, the keys of its requests, and the ranges it covers, in the order of their low ends."""

    span: RangeSpan
    keys: set[K] = set()
    above: RangeNode[K] | None = None
    below: list[RangeNode[K]] = []

    @property
    def is_made(self) -> bool:
        """Whether exactly this range is not requested."""
        return not self.keys


class Ranges(Generic[K]):
    """Ranges requested under one key of the filters, each by the key of its request."""

    def __init__(self) -> None:
        self.root: RangeNode[K] | None = None
        self._nodes: dict[K, RangeNode[K]] = {}

    def add(self, key: K, span: RangeSpan) -> bool:
        """Add a request for a range; return whether more is requested than before."""
        assert key not in self._nodes, "a key asks for one range"
        node = self._place(RangeNode(span))
        is_more = node.is_made and (node.above is None or node.above.is_made)
        node.keys.add(key)
        self._nodes[key] = node
        return is_more

    def remove(self, key: K) -> bool:
        """Remove a request; return whether less is requested now. KeyError if there was none."""
        node = self._nodes.pop(key)
        node.keys.discard(key)
        if not node.is_made:
            return False
        above = node.above
        if above is not None:
            above.below.remove(node)
            for child in node.below:
                _put(above, child, self._nodes)
        is_less = above is None or above.is_made
        self._tighten()
        return is_less

    def clip(self, span: RangeSpan) -> RangeSpan | None:
        """Return the smallest range over everything requested within a range; None if nothing is."""
        tops = self._tops()
        first = bisect_right(tops, span.low, key=_high_of)
        last = bisect_left(tops, span.high, key=_low_of) - 1
        if first > last:
            return None
        return tops[first].span.hull(tops[last].span).clip(span)

    def _tops(self) -> list[RangeNode[K]]:
        if self.root is None:
            return []
        return self.root.below if self.root.is_made else [self.root]

    def _place(self, node: RangeNode[K]) -> RangeNode[K]:
        """Return the node of the same range in the tree: this one, or an existing one."""
        root = self.root
        if root is None:
            self.root = node
            return node
        if root.span == node.span:
            return root
        if not root.span.covers(node.span):
            self._rise(root, node)
        return node if self.root is node else _put(self.root or root, node, self._nodes)

    def _rise(self, root: RangeNode[K], node: RangeNode[K]) -> None:
        """Make the root wide enough for a node that it does not cover; the node itself may be that root."""
        above = node if node.span.covers(root.span) else RangeNode[K](root.span.hull(node.span))
        for child in root.below if root.is_made else [root]:
            child.above = above
            above.below.append(child)
        self.root = above

    def _tighten(self) -> None:
        """Narrow a root that is not requested to what lies below it, or remove it."""
        root = self.root
        if root is None or not root.is_made:
            return
        if len(root.below) > 1:
            root.span = RangeSpan(root.below[0].span.low, root.below[-1].span.high)
        else:
            self.root = root.below[0] if root.below else None
            if self.root is not None:
                self.root.above = None


def _put(above: RangeNode[K], node: RangeNode[K], nodes: dict[K, RangeNode[K]]) -> RangeNode[K]:
    """Hang a node, with its subtree, under one that covers it, as deep as it goes."""
    while True:
        at = bisect_right(above.below, node.span.low, key=_low_of)
        nearest = above.below[at - 1] if at else None  # of those that begin no later it reaches furthest
        if nearest is None or not nearest.span.covers(node.span):
            break
        if nearest.span == node.span:
            return _merge(nearest, node, nodes)
        above = nearest
    start = bisect_left(above.below, node.span.low, key=_low_of)
    end = bisect_right(above.below, node.span.high, key=_high_of)
    covered = above.below[start:end]
    above.below[start : max(start, end)] = [node]
    node.above = above
    for child in covered:
        _put(node, child, nodes)
    return node


def _merge(kept: RangeNode[K], node: RangeNode[K], nodes: dict[K, RangeNode[K]]) -> RangeNode[K]:
    """Replace one node by another of the same range."""
    kept.keys |= node.keys
    nodes.update(dict.fromkeys(node.keys, kept))
    for child in node.below:
        _put(kept, child, nodes)
    return kept


def _low_of(node: RangeNode[K]) -> Cut:
    return node.span.low


def _high_of(node: RangeNode[K]) -> Cut:
    return node.span.high
