"""Numbers that were had: what comes again is recognised, in whatever order numbers come.

    seen = SeenNumbers()
    seen.count_up(7)          # a producer that counts upwards: 1 to 7 were had
    seen.add(10)              # had as well; 8 and 9 are a gap
    seen.reopen(3)            # refused, or lost: it may come again
    8 in seen, seen.gaps      # (False, [Span(3, 3), Span(8, 9)])

Of each producer the highest number is kept, and the gaps below it: these two are to be stored to go on later.
So one that counts upwards costs one comparison, and one whose numbers come in disorder as much as there are
gaps. Gaps have an age, by which they are given up; `Producers` bounds of how many something is remembered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple, TypeVar

GAPS_MAX = 10_000
"""Gaps of one producer; beyond that the lowest are given up: what is in them counts as had."""

Key = TypeVar("Key")
Memory = TypeVar("Memory")


class NumberGap(NamedTuple):
    """Numbers from `first` to `last` that were not had, and since when that is known."""

    first: int
    last: int
    since: float = 0.0


_first, _last, _since = attrgetter("first"), attrgetter("last"), attrgetter("since")


class SeenNumbers:
    """The numbers of one producer that were had: all up to `last`, save those in `gaps`."""

    __slots__ = ("gaps", "last")

    def __init__(self, last: int = 0, gaps: Iterable[NumberGap] = ()) -> None:
        self.last = last
        self.gaps: list[NumberGap] = []  # in ascending order, none next to another
        for gap in gaps:
            self.reopen(*gap)

    def __contains__(self, number: int) -> bool:
        if number > self.last or not self.gaps:
            return number <= self.last
        at = bisect_right(self.gaps, number, key=_first)
        return not at or number > self.gaps[at - 1].last

    def count_up(self, number: int) -> int:
        """Have everything up to this number that is in no gap; how far it was before."""
        before = self.last
        self.last = max(before, number)
        return before

    def add(self, first: int, last: int | None = None, now: float = 0.0) -> int:
        """Have these numbers; what was passed over before them is a gap from now on. How many were new."""
        last = first if last is None else last
        if first == last == self.last + 1:  # as mostly
            self.last = last
            return 1
        behind = self.count_up(last) + 1
        if first > behind:
            self.reopen(behind, first - 1, now)
        return max(0, last + 1 - max(first, behind)) + self._fill(first, last)

    def _fill(self, first: int, last: int) -> int:
        """Take these numbers out of the gaps; how many were in them."""
        begin, end = bisect_left(self.gaps, first, key=_last), bisect_right(self.gaps, last, key=_first)
        met = self.gaps[begin:end]
        left = [NumberGap(one.first, first - 1, one.since) for one in met if one.first < first]
        left += [NumberGap(last + 1, one.last, one.since) for one in met if one.last > last]
        self._replace(begin, end, left)
        return sum(min(last, one.last) - max(first, one.first) + 1 for one in met)

    def reopen(self, first: int, last: int | None = None, now: float = 0.0) -> None:
        """Have these numbers no longer: they may come again. Of gaps that meet, the oldest gives the age."""
        last = first if last is None else last
        self.count_up(last)
        begin = bisect_left(self.gaps, first - 1, key=_last)
        end = bisect_right(self.gaps, last + 1, key=_first)
        met = [NumberGap(first, last, now), *self.gaps[begin:end]]
        self._replace(
            begin, end, [NumberGap(min(map(_first, met)), max(map(_last, met)), min(map(_since, met)))]
        )

    def _replace(self, begin: int, end: int, gaps: list[NumberGap]) -> None:
        self.gaps[begin:end] = gaps
        del self.gaps[:-GAPS_MAX]

    def give_up(self, since: float) -> list[NumberGap]:
        """Close the gaps that are known since that moment or before, and return them."""
        closed = [one for one in self.gaps if one.since <= since]
        self.gaps = [one for one in self.gaps if one.since > since]
        return closed


class Producers(dict[Key, Memory]):
    """Records of producers, such as (system, epoch); the most recent one stands last."""

    def __init__(self, producers_max: int) -> None:
        super().__init__()
        self._producers_max = producers_max

    def heard(self, key: Key, begin: Callable[[], Memory]) -> Memory:
        """The memory of a producer that was just heard of; `begin` makes that of a new one."""
        memory = self.get(key)
        if memory is None:
            memory = begin()
        self.put(key, memory)
        return memory

    def put(self, key: Key, memory: Memory) -> None:
        """Remember this of a producer that was just heard of; the first one goes if there are too many."""
        self.pop(key, None)
        self[key] = memory
        if len(self) > self._producers_max:
            del self[next(iter(self))]
