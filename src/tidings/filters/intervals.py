"""Sets of ordered values: the algebra under covering, overlapping, merging and the index.

A set is given by its *cuts*: the places on the ordered line where it begins or ends. A cut is a pair
(value, side): side 0 lies just before the value, side 1 just after it. So `[3, 5)` has the cuts (3, 0) and
(5, 0), the single point 4 has (4, 0) and (4, 1), and `inside` says whether the set reaches down without end.
Union, intersection and complement are then one sweep, whatever the mixture of open, closed and endless ends.

The rule kept: the line counts as dense. `(3, 4)` is not empty even if only integers were meant, so a subset
test may say no when unsure and an overlap test may say yes when unsure, never the other way round.
Numbers, strings, times and bytes each have a line of their own; values of two kinds never meet in one set.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from msgspec import Struct

S = TypeVar("S", bound="Algebra")
BEFORE, AFTER = 0, 1
Cut = tuple[Any, int]


class Piece(NamedTuple):
    """One connected part of a set; an end of None is without limit."""

    low: Any
    low_closed: bool
    high: Any
    high_closed: bool

    @property
    def is_point(self) -> bool:
        """Whether the piece is one single value."""
        return self.low_closed and self.high_closed and self.low is not None and bool(self.low == self.high)


class Intervals(Struct, frozen=True, gc=False):
    """A set of values of one kind."""

    inside: bool
    cuts: tuple[Cut, ...] = ()

    def __contains__(self, value: Any) -> bool:
        passed = bisect_left(self.cuts, (value, 0.5))  # cuts that lie below the value
        return self.inside ^ bool(passed & 1)

    @property
    def is_empty(self) -> bool:
        """Whether no value at all is in the set."""
        return not self.inside and not self.cuts

    @property
    def is_all(self) -> bool:
        """Whether every value of the kind is in the set."""
        return self.inside and not self.cuts

    def complement(self) -> Intervals:
        """All values of the kind that are not in this set."""
        return Intervals(not self.inside, self.cuts)

    def intersect(self, other: Intervals) -> Intervals:
        """The values in both sets."""
        if not self.cuts:
            return other if self.inside else self
        if not other.cuts:
            return self if other.inside else other
        return _sweep(self, other, both=True)

    def union(self, other: Intervals) -> Intervals:
        """The values in either set."""
        if not self.cuts:
            return self if self.inside else other
        if not other.cuts:
            return other if other.inside else self
        return _sweep(self, other, both=False)

    def covers(self, other: Intervals) -> bool:
        """Whether every value of the other set is in this one."""
        return all(self._holds(low, high) is True for low, high in other.spans())

    def overlaps(self, other: Intervals) -> bool:
        """Whether the two sets may have a value in common."""
        if self.cuts and other.cuts and (self._lies_below(other) or other._lies_below(self)):
            return False
        few, many = (self, other) if len(self.cuts) < len(other.cuts) else (other, self)
        return any(many._holds(low, high) is not False for low, high in few.spans())

    def _lies_below(self, other: Intervals) -> bool:
        """Whether this set ends before the other, which has cuts too, begins."""
        is_endless = self.inside ^ bool(len(self.cuts) & 1)
        return not is_endless and not other.inside and self.cuts[-1] <= other.cuts[0]

    def _holds(self, low: Cut | None, high: Cut | None) -> bool | None:
        """Whether everything between two cuts is in the set (True), nothing (False), or some of it (None)."""
        start = 0 if low is None else bisect_right(self.cuts, low)
        end = len(self.cuts) if high is None else bisect_left(self.cuts, high)
        return None if start < end else self.inside ^ bool(start & 1)

    def spans(self) -> Iterator[tuple[Cut | None, Cut | None]]:
        """The two cuts of each connected part, None for an end without limit."""
        ends = (None, *self.cuts) if self.inside else self.cuts
        return zip_longest(ends[::2], ends[1::2])

    def hull(self) -> Intervals:
        """The smallest set in one piece that covers this one."""
        endless = self.inside ^ bool(len(self.cuts) & 1)
        if self.inside:
            return Intervals(True, () if endless else self.cuts[-1:])
        return Intervals(False, self.cuts[:1] if endless else (self.cuts[:1] + self.cuts[-1:]))

    def pieces(self) -> Iterator[Piece]:
        """The connected parts, from the lowest to the highest."""
        for low, high in self.spans():
            yield Piece(
                None if low is None else low[0],
                low is not None and low[1] == BEFORE,
                None if high is None else high[0],
                high is not None and high[1] == AFTER,
            )

    def points(self) -> list[Any] | None:
        """The single values the set consists of, or None if it has a piece that is more than a point."""
        if self.inside or len(self.cuts) & 1:
            return None
        lows, highs = self.cuts[::2], self.cuts[1::2]
        is_points = all(low[0] == high[0] for low, high in zip(lows, highs, strict=True))
        return [low[0] for low in lows] if is_points else None


NOTHING = Intervals(False)
EVERYTHING = Intervals(True)


def points(values: Iterable[Any]) -> Intervals:
    """The set of exactly these values, which need not be sorted or distinct."""
    cuts: list[Cut] = []
    for value in sorted(values):
        if not cuts or cuts[-1][0] != value:
            cuts += ((value, BEFORE), (value, AFTER))
    return Intervals(False, tuple(cuts))


def compared(operator: str, value: Any) -> Intervals:
    """The values v for which `v operator value` holds."""
    inside, side = _SHAPES[operator]
    cuts = ((value, BEFORE), (value, AFTER)) if side is None else ((value, side),)
    if side == BEFORE and (value == "" or value == b""):  # nothing lies below these
        return NOTHING if inside else EVERYTHING
    return Intervals(inside, cuts)


_SHAPES: dict[str, tuple[bool, int | None]] = {  # does it reach down without end; its one cut, or both
    "=": (False, None),
    "<>": (True, None),
    "<": (True, BEFORE),
    "<=": (True, AFTER),
    ">": (False, AFTER),
    ">=": (False, BEFORE),
}


def between(low: Any, high: Any) -> Intervals:
    """The values from `low` to `high`, both included; none if they stand the wrong way round."""
    return Intervals(False, ((low, BEFORE), (high, AFTER))) if low <= high else NOTHING


LAST_CODE_POINT = chr(0x10FFFF)


def prefixed(prefix: str) -> Intervals:
    """The strings that start with this prefix."""
    if not prefix:
        return EVERYTHING
    stem = prefix.rstrip(LAST_CODE_POINT)
    if not stem:  # nothing but last code points: no string that is no extension lies above
        return Intervals(False, ((prefix, BEFORE),))
    following = ord(stem[-1]) + 1
    if 0xD800 <= following <= 0xDFFF:  # surrogates are no characters: no event has them
        following = 0xE000
    return Intervals(False, ((prefix, BEFORE), (stem[:-1] + chr(following), BEFORE)))


class Algebra(Protocol):
    """Sets of one kind."""

    def union(self, other: Self, /) -> Self:
        """The values in either set."""

    def intersect(self, other: Self, /) -> Self:
        """The values in both sets."""


def union_of(sets: Sequence[S]) -> S:
    """The union of one or more sets."""
    return _by_halves(sets, lambda one, other: one.union(other))


def intersection_of(sets: Sequence[S]) -> S:
    """The intersection of one or more sets."""
    if len(sets) == 2:  # from a value and up to another: the usual case, taken quickly
        return sets[0].intersect(sets[1])
    return _by_halves(sets, lambda one, other: one.intersect(other))


def _by_halves(sets: Sequence[S], join: Callable[[S, S], S]) -> S:
    """Join sets in pairs, again and again, so that the cost stays near linear."""
    joined = list(sets)
    while len(joined) > 1:
        odd = joined[-1:] if len(joined) & 1 else []
        joined = [join(a, b) for a, b in zip(joined[::2], joined[1::2], strict=False)] + odd
    return joined[0]


def _sweep(a: Intervals, b: Intervals, both: bool) -> Intervals:
    """Walk the cuts of two sets in order; keep those where the combined set changes."""
    left, right = a.cuts, b.cuts
    if both and len(left) == len(right) == 1 and a.inside is not b.inside:  # one end each: the usual case
        low, high = right + left if a.inside else left + right
        return Intervals(False, (low, high)) if low < high else NOTHING
    i = j = 0
    in_a, in_b = a.inside, b.inside
    now = begins = (in_a and in_b) if both else (in_a or in_b)
    cuts: list[Cut] = []
    while i < len(left) or j < len(right):
        take_a = j == len(right) or (i < len(left) and left[i] <= right[j])
        take_b = i == len(left) or (j < len(right) and right[j] <= left[i])
        cut = left[i] if take_a else right[j]
        i, in_a = i + take_a, in_a ^ take_a
        j, in_b = j + take_b, in_b ^ take_b
        then = (in_a and in_b) if both else (in_a or in_b)
        if then != now:
            cuts.append(cut)
            now = then
    return Intervals(begins, tuple(cuts))
