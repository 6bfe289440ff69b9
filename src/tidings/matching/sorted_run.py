"""Items sorted by a value, where the items of any range can be read in an order of their own.

A shelf searches events by value and returns them by place, so one sorted list is not enough: the events
with `value > 40` lie side by side, but the first of them in place may be anywhere among them. A run therefore
keeps its (value, item) pairs in sorted blocks, and the items of each block ranked among each other as well.
The smallest item of a range is then the first rank of a block inside it, or is in one of the two cut blocks
at its ends.

The rule kept: no operation costs more than two blocks and a look at each block, whatever came before it.
Items are unique and sort among each other; values sort among each other. Equal values are sorted by item.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from heapq import heapify, heappop, heapreplace
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

from msgspec import Struct

from tidings.filters.intervals import Piece

BLOCK_MAX = 256
"""Pairs in a block: larger blocks make it slower to add and remove, smaller ones to search a wide range."""

Position = tuple[int, int]
"""The number of a block, and a place in it; the end of the run is (number of blocks, 0)."""

Head = tuple[Any, int, int]
"""The next item of a block, the number of the block, and the rank of the item in it."""


class SortedRun:
    """A sorted list of (value, item) pairs, in blocks that rank their items."""

    __slots__ = ("_highs", "_items", "_lasts", "_leasts", "_one_value", "_ranks", "_values")

    def __init__(self, pairs: Iterable[tuple[Any, Any]] = (), one_value: bool = False) -> None:
        """Take these pairs, which must come sorted by item.

        `one_value` promises that all pairs ever here have the same value: their items are ranked as they are.
        """
        self._one_value = one_value
        self._values: list[list[Any]] = []
        self._items: list[list[Any]] = []
        self._ranks: list[list[Any]] = self._items if one_value else []
        self._highs: list[Any] = []
        self._lasts: list[Any] = []
        self._leasts: list[Any] = []
        ordered = sorted(pairs, key=itemgetter(0))  # stable, and much cheaper than to compare whole pairs
        size = BLOCK_MAX * 3 // 4
        for start in range(0, len(ordered), size):
            values, items = zip(*ordered[start : start + size], strict=True)
            self._insert_block(len(self._items), list(values), list(items))

    def __len__(self) -> int:
        return sum(map(len, self._items))

    def __iter__(self) -> Iterator[Any]:
        """Yield the items, sorted by value and then among each other."""
        return chain.from_iterable(self._items)

    @property
    def last(self) -> Any:
        """Return the last item in that order, None if there is none."""
        return self._lasts[-1] if self._lasts else None

    def add(self, value: Any, item: Any) -> None:
        """Add a pair; its item must not be in the run yet."""
        if not self._items:
            self._insert_block(0, [value], [item])
            return
        if self._one_value and item > self._lasts[-1]:
            self._append(value, item)
            return
        block = min(self._block_of(value, item), len(self._items) - 1)
        values, items = self._values[block], self._items[block]
        at = _place(values, items, value, item)
        values.insert(at, value)
        items.insert(at, item)
        if not self._one_value:
            insort(self._ranks[block], item)
        if at == len(items) - 1:
            self._highs[block], self._lasts[block] = value, item
        self._leasts[block] = self._ranks[block][0]
        if len(items) > BLOCK_MAX:
            self._split(block, at)

    def add_last(self, value: Any, item: Any) -> None:
        """Add a pair whose item is above all others here: several times as quick as to find its rank."""
        if self._one_value or not self._items:
            self.add(value, item)
            return
        highs = self._highs
        block = min(bisect_right(highs, value), len(highs) - 1)
        values, items = self._values[block], self._items[block]
        at = bisect_right(values, value)
        values.insert(at, value)
        items.insert(at, item)
        self._ranks[block].append(item)
        if at == len(items) - 1:
            highs[block], self._lasts[block] = value, item
        if len(items) > BLOCK_MAX:
            self._split(block, at)

    def _append(self, value: Any, item: Any) -> None:
        """Add an item behind all others: the most frequent case in a queue."""
        items = self._items[-1]
        self._values[-1].append(value)
        items.append(item)
        self._highs[-1], self._lasts[-1] = value, item
        if len(items) > BLOCK_MAX:
            self._split(len(self._items) - 1, len(items) - 1)

    def remove(self, value: Any, item: Any) -> None:
        """Remove a pair that is in the run."""
        if self._items[0][0] is item:  # the most frequent case in a queue
            block, at = 0, 0
            values, items, ranks = self._values[0], self._items[0], self._ranks[0]
        else:
            block = self._block_of(value, item)
            values, items, ranks = self._values[block], self._items[block], self._ranks[block]
            at = _place(values, items, value, item)
        assert items[at] == item
        del values[at], items[at]
        if not self._one_value:
            del ranks[bisect_left(ranks, item)]
        if not items:
            self._delete_block(block)
            return
        if at == len(items):
            self._highs[block], self._lasts[block] = values[-1], items[-1]
        self._leasts[block] = ranks[0]
        if len(items) < BLOCK_MAX // 4:
            self._join(max(block - 1, 0))

    def span(self, piece: Piece) -> RunSpan | None:
        """Return the pairs whose value lies in this piece of an interval set; None if there are none."""
        start = (0, 0)
        stop = (len(self._items), 0)
        if piece.low is not None:
            start = self._position(bisect_left if piece.low_closed else bisect_right, piece.low)
        if piece.high is not None:
            stop = self._position(bisect_right if piece.high_closed else bisect_left, piece.high)
        if start == stop:
            return None
        return RunSpan(self._items, self._ranks, self._leasts, start, stop, self._one_value or piece.is_point)

    def _position(self, bisect: Callable[[list[Any], Any], int], value: Any) -> Position:
        block = bisect(self._highs, value)
        return block, (bisect(self._values[block], value) if block < len(self._items) else 0)

    def _block_of(self, value: Any, item: Any) -> int:
        """Return the first block whose last pair is not smaller than this one."""
        low = bisect_left(self._highs, value)
        return bisect_left(self._lasts, item, low, bisect_right(self._highs, value, low))

    def _split(self, block: int, at: int) -> None:
        """Split a block that is too long, in the middle; at the end of a growing run, keep full blocks."""
        values, items = self._values[block], self._items[block]
        at_end = block == len(self._items) - 1 and at == len(items) - 1
        middle = at if at_end else len(items) // 2
        self._delete_block(block)
        self._insert_block(block, values[middle:], items[middle:])
        self._insert_block(block, values[:middle], items[:middle])

    def _join(self, block: int) -> None:
        """Join a block with the next one if there is room, so that blocks can't be many and small."""
        if block + 1 < len(self._items) and sum(map(len, self._items[block : block + 2])) <= BLOCK_MAX:
            values = list(chain.from_iterable(self._values[block : block + 2]))
            items = list(chain.from_iterable(self._items[block : block + 2]))
            self._delete_block(block)
            self._delete_block(block)
            self._insert_block(block, values, items)

    def _insert_block(self, block: int, values: list[Any], items: list[Any]) -> None:
        ranks = items if self._one_value else sorted(items)
        self._values.insert(block, values)
        self._items.insert(block, items)
        if not self._one_value:
            self._ranks.insert(block, ranks)
        self._highs.insert(block, values[-1])
        self._lasts.insert(block, items[-1])
        self._leasts.insert(block, ranks[0])

    def _delete_block(self, block: int) -> None:
        for column in (self._values, self._items, self._highs, self._lasts, self._leasts):
            del column[block]
        if not self._one_value:
            del self._ranks[block]


class RunSpan(Struct, frozen=True):
    """Stretch of a run with at least one pair; valid until the run is changed."""

    items: list[list[Any]]
    ranks: list[list[Any]]
    leasts: list[Any]
    start: Position
    stop: Position
    one_value: bool
    """Whether all pairs have one value, so that the items are in order as they stand."""

    def __len__(self) -> int:
        (first, skipped), (last, taken) = self.start, self.stop
        return sum(map(len, self.items[first:last])) - skipped + taken

    def ascending(self, floor: Any = None) -> Iterator[Any]:
        """Yield the items from the smallest to the largest, each found on demand; none below the floor.

        The first costs a look at each block and at the items of the two cut ones, the others O(log n) each.
        With a floor, a look at a block may be a binary search in it.
        """
        return self._in_order(floor) if self.one_value else self._merged(floor)

    def _in_order(self, floor: Any) -> Iterator[Any]:
        (first, _), (last, taken) = self.start, self.stop
        if floor is not None:  # blocks before the last one end within the span, so their ends are in order
            first = bisect_left(range(last), floor, first, key=lambda block: self.items[block][-1])
        for block in range(first, last + (taken > 0)):
            items = self._in_block(block)
            yield from items if floor is None else items[bisect_left(items, floor) :]

    def _merged(self, floor: Any) -> Iterator[Any]:
        cut = {block for block, offset in (self.start, self.stop) if offset}
        ranks = cache(lambda block: sorted(self._in_block(block)) if block in cut else self.ranks[block])
        heap = self._heads(cut)
        least = min(heap)
        if floor is not None and least[0] < floor:
            raised = [
                head if head[0] >= floor else _head(ranks, head[1], bisect_left(ranks(head[1]), floor))
                for head in heap
            ]
            heap = [head for head in raised if head is not None]
            if not heap:
                return
            least = min(heap)
        yield least[0]  # often no more is needed, and the rest of the work is saved
        heapify(heap)
        while heap:
            _, block, rank = heap[0]
            following = _head(ranks, block, rank + 1)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, following)
            if heap:
                yield heap[0][0]

    def _in_block(self, block: int) -> list[Any]:
        """Return the items of one block that belong to the span, in their present order."""
        skipped = self.start[1] if block == self.start[0] else 0
        return self.items[block][skipped : self.stop[1] if block == self.stop[0] else None]

    def _heads(self, cut: set[int]) -> list[Head]:
        """Return the smallest item of each block within the span."""
        whole = range(self.start[0] + (self.start[0] in cut), self.stop[0])
        heads = [(min(self._in_block(block)), block, 0) for block in cut]
        heads += zip(self.leasts[whole.start : whole.stop], whole, repeat(0))
        return heads


def _head(ranks: Callable[[int], list[Any]], block: int, rank: int) -> Head | None:
    ranked = ranks(block)
    return (ranked[rank], block, rank) if rank < len(ranked) else None


def _place(values: list[Any], items: list[Any], value: Any, item: Any) -> int:
    """Return the place of the pair in a block, or where it would be."""
    low = bisect_left(values, value)
    return bisect_left(items, item, low, bisect_right(values, value, low))
