"""One search of a shelf, in steps: the shelf may be changed in between, and the search keeps its place.

The place is that of the last entry that was visited. Entries have distinct places that never change, so
however the shelf was changed, entries behind the place were not visited yet. A search therefore finds each
event that matches and stays on the shelf from its beginning to its end, in order. An event added meanwhile
is found if it stands behind the place, and a removed one if the search was there before.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from tidings.matching.sorted_run import RunSpan

if TYPE_CHECKING:
    from tidings.filters import Filter
    from tidings.filters.normal import Conjunction
    from tidings.matching.shelf import Shelf

LEAP_AFTER = 64
"""Candidates that are tried before the other constraints are searched for their next entries."""
TRIES_MAX = 64
"""Entries that are visited in one step, at 1 to 3 µs each."""
TRIED_FIRST = 16
"""Events at the head that are tried before an index is used, and candidates too few to look for fewer."""

Key = TypeVar("Key")
ShelfEntry = tuple[Any, int, Any, Any]
"""(order, number, key, item): the number is unique, so entries sort by order and then as they came."""
Floor = tuple[Any, ...]
"""An entry, or the beginning of one: entries below it are not wanted."""


def behind(entry: ShelfEntry) -> Floor:
    """Return the place just behind an entry."""
    return entry[0], entry[1] + 1


class SearchPlan(Struct, frozen=True):
    """Places of a filter's matches, as far as indexes show them: one part for each alternative.

    It is valid until the shelf is changed.
    """

    parts: list[SearchPart]
    exact: bool
    """Whether everything there matches."""

    def candidates(self) -> Iterator[ShelfEntry]:
        """Yield all entries there in order, each once."""
        if len(self.parts) == 1:
            return self.parts[0].candidates()
        return _without_repeats(merge(*(part.candidates() for part in self.parts)))


class SearchPart(Struct, frozen=True):
    """Spans admitted by each of several constraints, the most selective first; matches are in all of them."""

    admitted: list[list[RunSpan]]
    floor: Floor | None
    """Entries below this one are skipped."""

    def candidates(self) -> Iterator[ShelfEntry]:
        """Yield the entries of the most selective constraint in order, less those the others surely lack."""
        if len(self.admitted) == 1:
            return _ascending(self.admitted[0], self.floor)
        return self._leaping()

    def _leaping(self) -> Iterator[ShelfEntry]:
        entries = _ascending(self.admitted[0], self.floor)
        size = LEAP_AFTER
        while True:
            last = None
            for last in islice(entries, size):
                yield last
            landing = None if last is None else self._leap(last)
            if landing is None:
                return
            if landing is not last:
                entries = _ascending(self.admitted[0], landing)
            size *= 2  # a leap may cost hundreds of tries, so leaps must become rare where they gain nothing

    def _leap(self, entry: ShelfEntry) -> ShelfEntry | None:
        """Return an entry below which another constraint admits nothing from this one on; None for all."""
        for spans in self.admitted[1:]:
            following = next(_ascending(spans, entry), None)
            if following is None:
                return None
            entry = following
        return entry


def _ascending(spans: list[RunSpan], floor: Floor | None) -> Iterator[ShelfEntry]:
    """Yield the entries of several spans in order, none below the floor."""
    streams = [span.ascending(floor) for span in spans]
    return streams[0] if len(streams) == 1 else merge(*streams)


def says_all(conjunction: Conjunction) -> bool:
    """Whether the index of one attribute decides the conjunction alone."""
    return len(conjunction.constraints) <= 1 and not conjunction.residues


def _without_repeats(entries: Iterator[ShelfEntry]) -> Iterator[ShelfEntry]:
    previous = None
    for entry in entries:
        if entry is not previous:
            yield entry
        previous = entry


class Search(Generic[Key]):
    """Search of a shelf in steps; iterated once, it yields keys, and None at the end of each step.

    Without a filter everything is found. With `after`, only entries of higher orders are found. One that
    `is_bounded` ends at the entry that is last when it begins, however quickly others are added.
    """

    __slots__ = ("_ceiling", "_filter", "_floor", "_last", "_shelf")

    def __init__(
        self, shelf: Shelf[Any, Any], filter: Filter | None, after: Any = None, is_bounded: bool = False
    ) -> None:
        self._shelf = shelf
        self._filter = filter
        self._floor: Floor | None = None if after is None else (after, math.inf)
        last = shelf.last_entry if is_bounded else None
        self._ceiling: Floor | None = None if last is None else behind(last)
        self._last: ShelfEntry | None = None

    def has_passed(self, order: Any) -> bool:
        """Whether an entry of this order, added now, will not be found any more."""
        return self._last is not None and bool(order <= self._last[0])

    def __iter__(self) -> Iterator[Key | None]:
        shelf, ceiling = self._shelf, self._ceiling
        matches, read = (lambda _: True) if self._filter is None else self._filter.matches, shelf.read
        changes, entries = shelf.changes, shelf.entries_from(self._floor)
        is_exact = self._filter is None
        untried = -1 if is_exact else TRIED_FIRST  # at the head; below 0 when a plan was made
        tries = 0
        while True:
            for entry in entries:
                if not untried or (ceiling is not None and entry >= ceiling):
                    break
                self._last = entry
                untried -= 1
                tries += 1
                if is_exact or matches(read(entry[3])):
                    yield entry[2]
                if tries >= TRIES_MAX:
                    tries = 0
                    yield None
                if shelf.changes != changes:
                    break
            else:
                return
            if ceiling is not None and entry >= ceiling:
                return
            plan: SearchPlan | str | None = None
            if self._filter is not None and not untried:
                untried = -1
                plan = yield from self._prepare(self._filter)
            elif self._filter is not None and untried < 0:
                plan = shelf.plan(self._filter, self._place)
            changes = shelf.changes
            if isinstance(plan, SearchPlan):
                entries, is_exact = plan.candidates(), plan.exact
            else:
                entries, is_exact = shelf.entries_from(self._place), self._filter is None

    def _prepare(self, filter: Filter) -> Generator[None, None, SearchPlan | None]:
        """Build the useful indexes; only once, so that a search ends though others evict them."""
        tried: list[str] = []
        while isinstance(plan := self._shelf.plan(filter, self._place, tried), str):
            tried.append(plan)
            yield from self._shelf.build(plan)
        return plan

    @property
    def _place(self) -> Floor | None:
        """Place below which all entries were visited."""
        return self._floor if self._last is None else behind(self._last)
