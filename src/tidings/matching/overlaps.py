"""Index of many filters that returns those which one filter may overlap.

Each alternative of a filter is filed under its most *selective* constraints, such as `type = 'air.pm10'` or a
range of numbers: those that admit values of one kind only, and not all of them. Alternatives that are filed
under the same attributes form a *group*. Two alternatives overlap unless an attribute that both constrain
separates them, so a group is searched by the attribute it shares with the given filter that leaves the
fewest, and a group that shares none is taken whole.

A filter is filed when the index is searched next, since most indexes of many filters are searched seldom.
Where that would take too long at once, `filing` does it in steps beforehand.

The rule kept: the result includes all filters that overlap, and may include more.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Generic, TypeVar

from tidings.filters import Filter
from tidings.filters.constraint import Constraint
from tidings.filters.intervals import Cut, Intervals
from tidings.filters.normal import Conjunction
from tidings.steps import Steps, finish

NAMES_MAX = 3
"""Attributes an alternative is filed under."""
POINTS_MAX = 64
"""Single values of an attribute that are filed one by one; more are filed as one range."""
ALTERNATIVES_MAX = 16
"""Alternatives of a filter that are filed one by one; a filter that has more may overlap anything."""
LOOKUPS_MAX = 4_096
"""Groups that are searched for one filter, once for each of its alternatives; past this all are taken."""
FEW = 8
"""Candidates that are few enough not to search by another attribute."""

K = TypeVar("K", bound=Hashable)
Selective = dict[str, tuple[int, Intervals]]
"""Attributes with the one kind of value that each must have, as a number, and the values."""


class Overlaps(Generic[K]):
    """Filters by their selective constraints, each under a key."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], _Group[K]] = {}
        self._unfiled: dict[K, Filter] = {}
        self._filed: dict[K, list[Selective]] = {}
        self._orders: dict[K, int] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._orders)

    def __contains__(self, key: K) -> bool:
        return key in self._orders

    def add(self, key: K, filter: Filter) -> None:
        """Note a filter under a key that is not there yet."""
        assert key not in self._orders, "a key has one filter"
        self._order += 1
        self._orders[key] = self._order
        self._unfiled[key] = filter

    def filing(self) -> Steps[None]:
        """File what was added, one filter in a step."""
        while self._unfiled:
            self._file(*self._unfiled.popitem())
            yield

    def _file(self, key: K, filter: Filter) -> None:
        filed, order = self._filed.setdefault(key, _all_selective(filter)), self._orders[key]
        for selective in filed:
            names = tuple(selective)
            if names not in self._groups:
                self._groups[names] = _Group(names)
            self._groups[names].add(key, order, selective)

    def remove(self, key: K) -> None:
        """Forget a key; KeyError if it is not there."""
        order = self._orders.pop(key)
        if self._unfiled.pop(key, None) is not None:
            return
        for selective in self._filed.pop(key):
            group = self._groups[tuple(selective)]
            group.remove(key, order, selective)
            if not group.keys:
                del self._groups[tuple(selective)]

    def candidates(self, filter: Filter) -> list[K]:
        """Return the keys of all filters that overlap this one, and maybe of others, in the order added."""
        finish(self.filing())
        if len(filter.normal) * len(self._groups) > LOOKUPS_MAX:
            return list(self._orders)
        found: set[K] = set()
        for alternative in filter.normal:
            for group in self._groups.values():
                found.update(group.meeting(alternative.constraints))
        return sorted(found, key=self._orders.__getitem__)


class _Group(Generic[K]):
    """The alternatives that are filed under the same attributes."""

    def __init__(self, names: Iterable[str]) -> None:
        self.keys: dict[K, int] = {}  # with the number of alternatives of each
        self._places: dict[str, _FilterPlace[K]] = {name: _FilterPlace() for name in names}

    def add(self, key: K, order: int, selective: Selective) -> None:
        _count(self.keys, key)
        for name, (kind, line) in selective.items():
            self._places[name].add(key, order, kind, line)

    def remove(self, key: K, order: int, selective: Selective) -> None:
        _discount(self.keys, key)
        for name, (kind, line) in selective.items():
            self._places[name].remove(key, order, kind, line)

    def meeting(self, constraints: Mapping[str, Constraint]) -> Iterable[K]:
        """Return the keys of those that no attribute separates from these constraints."""
        fewest: Iterable[K] = self.keys
        count = len(self.keys)
        for name, place in self._places.items():
            if count > FEW and name in constraints:
                found = place.meeting(constraints[name])
                if len(found) < count:
                    fewest, count = found, len(found)
        return fewest


class _FilterPlace(Generic[K]):
    """The demands of a group's alternatives on one attribute."""

    def __init__(self) -> None:
        self._points: dict[tuple[int, Any], dict[K, int]] = {}  # by kind and value
        # by kind: low cut, () for none; order; high cut, () for none; key
        self._spans: dict[int, list[tuple[Cut | tuple[()], int, Cut | tuple[()], K]]] = {}

    def add(self, key: K, order: int, kind: int, line: Intervals) -> None:
        points = _few_points(line)
        for point in points or ():
            _count(self._points.setdefault((kind, point), {}), key)
        if points is None:
            low, high = _ends(line)
            insort(self._spans.setdefault(kind, []), (low, order, high, key), key=_before_key)

    def remove(self, key: K, order: int, kind: int, line: Intervals) -> None:
        points = _few_points(line)
        for point in points or ():
            bucket = self._points[kind, point]
            _discount(bucket, key)
            if not bucket:
                del self._points[kind, point]
        if points is None:
            low, high = _ends(line)
            spans = self._spans[kind]
            del spans[bisect_left(spans, (low, order, high), key=_before_key)]

    def meeting(self, constraint: Constraint) -> set[K]:
        found: set[K] = set()
        for kind, line in enumerate(constraint.lines):
            if not line.is_empty:
                self._meet_points(kind, line, found)
                self._meet_spans(kind, line, found)
        return found

    def _meet_points(self, kind: int, line: Intervals, found: set[K]) -> None:
        points = None if len(line.cuts) > len(self._points) * 2 else line.points()
        if points is None:
            for (other, value), bucket in self._points.items():
                if other == kind and value in line:
                    found.update(bucket)
            return
        for point in points:
            found.update(self._points.get((kind, point), ()))

    def _meet_spans(self, kind: int, line: Intervals, found: set[K]) -> None:
        spans = self._spans.get(kind)
        if spans is None:
            return
        low, high = _ends(line)
        end = bisect_left(spans, high, key=itemgetter(0)) if high else len(spans)
        found.update(key for _, _, its_high, key in spans[:end] if not its_high or its_high > low)


def _all_selective(filter: Filter) -> list[Selective]:
    """Return the keys under which each alternative of a filter is filed."""
    if len(filter.normal) > ALTERNATIVES_MAX:
        return [{}]
    return [_selective(alternative) for alternative in filter.normal]


def _selective(alternative: Conjunction) -> Selective:
    """Return the most selective constraints: of the type, then those of few values, then the others."""
    ranked: list[tuple[bool, bool, str, tuple[int, Intervals]]] = []
    for name, constraint in alternative.constraints.items():
        only = _only_line(constraint)
        if only is not None:
            ranked.append((name != "type", _few_points(only[1]) is None, name, only))
    ranked.sort(key=lambda one: one[:3])
    return {name: only for _, _, name, only in ranked[:NAMES_MAX]}


def _only_line(constraint: Constraint) -> tuple[int, Intervals] | None:
    """Return the one kind of value that a constraint admits, and which, unless these are all of the kind."""
    if constraint.booleans or constraint.nan or constraint.missing:
        return None
    lines = [(kind, line) for kind, line in enumerate(constraint.lines) if not line.is_empty]
    return lines[0] if len(lines) == 1 and not lines[0][1].is_all else None


def _few_points(line: Intervals) -> list[Any] | None:
    return line.points() if len(line.cuts) <= 2 * POINTS_MAX else None


def _ends(line: Intervals) -> tuple[Cut | tuple[()], Cut | tuple[()]]:
    """Return the lowest and the highest cut around a set that is not empty; () for an end without limit."""
    is_endless = line.inside ^ bool(len(line.cuts) & 1)
    return () if line.inside else line.cuts[0], () if is_endless else line.cuts[-1]


def _before_key(span: tuple[Any, ...]) -> tuple[Any, ...]:
    return span[:3]


def _count(counts: dict[K, int], key: K) -> None:
    counts[key] = counts.get(key, 0) + 1


def _discount(counts: dict[K, int], key: K) -> None:
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1
