"""The shelf: many stored events, of which a filter selects the first.

The events stand in an order of their own (a queue's: highest priority, then longest wait). A search tries the
first few one by one, because the head of a queue mostly fits; then it uses an index of an attribute that
the filter constrains. An index is built by the first search that needs it, and from then on kept up; searches
that succeed at the head, and shelves of a few events, never build one. Both can be done in steps (`search`),
and searches that need the same index build it together.

Cost of a search, with n stored events and √n for a block and the number of blocks (256 + n/256):
- one constraint on one attribute (equality, IN, ranges, prefixes, presence): O(√n), even where it admits half
  of the shelf and all of that half stands at the end;
- several constraints, or conditions that have no index: the most selective constraint names the candidates,
  and these are tried in order until one matches: O(√n + candidates up to the first match), at 1 to 2 µs each.
  A stretch of the order in which another constraint admits nothing is leapt over. So the worst case are two
  constraints that each admit half of the shelf, in turns, and nothing together: n/2 tries;
- no constraint at all, only conditions that have no index: each event up to the first match is tried.
Many alternatives (OR, long IN lists) cost a look-up each. To add and to remove is O(√n) for the order and for
each index. To build an index is O(n log n), about as much as to try every event twice.

In memory an event takes about 175 bytes here, beside itself, its key and its order, and 27 for each index.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidings.event import HEADER_READERS, Event
from tidings.filters.constraint import FALSE, TRUE, Constraint
from tidings.filters.intervals import Piece
from tidings.matching.search import (
    TRIED_FIRST,
    Floor,
    Search,
    SearchPart,
    SearchPlan,
    ShelfEntry,
    behind,
    says_all,
)
from tidings.matching.sorted_run import RunSpan, SortedRun

if TYPE_CHECKING:
    from tidings.filters import Filter
    from tidings.filters.constraint import Constraint
    from tidings.filters.normal import Conjunction


INDEXES_MAX = 8
"""Attributes that have an index at one time; the one used longest ago makes room for another."""
BUILDS_MAX = 8
"""Indexes that are being built at one time."""
INDEXED_AT_ONCE = 128
"""Events that are added to an index in one step, at 3 to 4 µs each."""
SPANS_MAX = 1_000
"""Stretches of indexes that one search reads; a constraint with more of them uses no index."""

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class Shelf(Generic[Key, Item]):
    """Events under unique keys, in order, searched by filters.

    An item need not be an event: `read` makes its event when a search has to evaluate it. With `distinct` no
    two orders are the same, and an entry is smaller by the number that distinguishes them.
    """

    def __init__(self, read: Callable[[Item], Event] | None = None, distinct: bool = False) -> None:
        self.read: Callable[[Any], Event] = read or (lambda item: item)
        self.changes = 0
        self._distinct = distinct
        self._entries: dict[Key, ShelfEntry] = {}
        self._order = SortedRun(one_value=True)
        self._indexes: dict[str, AttributeIndex] = {}  # the one used last stands last
        self._building: dict[str, AttributeIndex] = {}
        self._builders: dict[str, int] = {}  # number of searches that wait for each of these
        self._added = 0

    def add(self, key: Key, item: Item, order: Any) -> None:
        """Store an item; lower orders come first, and equal ones in the order in which they are added.

        All orders on one shelf must sort among each other; integers are quicker than tuples.
        """
        if key in self._entries:
            raise ValueError(f"{key!r} is on the shelf already")
        entry: ShelfEntry = (order, self._added, key, item)
        self._order.add(0, entry)
        self._entries[key] = entry
        for index in self._indexes.values():
            index.add(entry)
        if self._building:
            for index in self._building.values():
                if index.is_below(entry):
                    index.add(entry)
        if not self._distinct:
            self._added += 1
        self.changes += 1

    def remove(self, key: Key) -> Item:
        """Remove and return the item of this key; KeyError if there is none."""
        entry = self._entries.pop(key)
        self._order.remove(0, entry)
        for index in self._indexes.values():
            index.remove(entry)
        if self._building:
            for index in self._building.values():
                if index.is_below(entry):
                    index.remove(entry)
        self.changes += 1
        return entry[3]  # type: ignore[no-any-return]  # entries are not generic: runs sort them as they are

    def clear(self) -> Iterator[Item]:
        """Remove everything at once; yield the items in no order, to be freed bit by bit."""
        entries, self._entries = self._entries, {}
        self._order = SortedRun(one_value=True)
        self._indexes.clear()
        for name in self._building:
            self._building[name] = AttributeIndex(name, self.read)
        self.changes += 1
        return (entries.popitem()[1][3] for _ in range(len(entries)))

    def first(self, filter: Filter | None = None) -> Key | None:
        """Return the key of the first event in order that matches, or None."""
        if filter is None:
            for _, _, key, _ in self._order:
                return key  # type: ignore[no-any-return]
            return None
        return next(self.find(filter), None)

    def find(self, filter: Filter, after: Any = None) -> Iterator[Key]:
        """Yield the keys of the events that match, in order, each found on demand.

        With `after`, only those of higher orders. RuntimeError if the shelf is changed in between.
        """
        return self._keys(key for key in self.search(filter, after) if key is not None)

    def search(self, filter: Filter | None, after: Any = None, is_bounded: bool = False) -> Search[Key]:
        """Return a search in steps, between which the shelf may be changed."""
        return Search(self, filter, after, is_bounded)

    def count(self, filter: Filter) -> int:
        """Count the events that match; O(√n) if the filter is one constraint."""
        if len(self) > TRIED_FIRST and len(filter.normal) == 1 and says_all(filter.normal[0]):
            plan = self.plan(filter, None, ())
            if isinstance(plan, str):
                deque(self.build(plan), 0)
                plan = self.plan(filter, None)
            if isinstance(plan, SearchPlan):
                return sum(map(len, plan.parts[0].admitted[0]))
        return sum(1 for _ in self.find(filter))

    @property
    def indexed(self) -> tuple[str, ...]:
        """Names that have an index, from the one used longest ago to the latest."""
        return tuple(self._indexes)

    def __getitem__(self, key: Key) -> Item:
        return self._entries[key][3]  # type: ignore[no-any-return]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys in order; RuntimeError if the shelf is changed in between."""
        return self._keys(key for _, _, key, _ in self._order)

    def _keys(self, keys: Iterable[Key]) -> Iterator[Key]:
        changes = self.changes
        for key in keys:
            yield key
            if self.changes != changes:
                raise RuntimeError("the shelf was changed while it was searched")

    # For searches

    @property
    def last_entry(self) -> ShelfEntry | None:
        """Last entry in the order."""
        last: ShelfEntry | None = self._order.last
        return last

    def entries_from(self, floor: Floor | None) -> Iterator[ShelfEntry]:
        """Yield the entries in order, none below the floor; valid until the shelf is changed."""
        if not floor:
            return iter(self._order)
        span = self._order.span(WHOLE)
        return iter(()) if span is None else span.ascending(floor)

    def plan(
        self, filter: Filter, floor: Floor | None, tried: Collection[str] | None = None
    ) -> SearchPlan | str | None:
        """Return the places of the matches from the floor on; None if they may be anywhere on the shelf.

        With `tried`, return instead the name of an index to be built first that is not among these.
        """
        parts: list[SearchPart] = []
        used: set[str] = set()
        for conjunction in filter.normal:
            admitted = self._admitted(conjunction, used, tried)
            if isinstance(admitted, str):
                return admitted
            if not admitted:
                return None
            parts.append(SearchPart(admitted, floor))
        if sum(len(spans) for part in parts for spans in part.admitted) > SPANS_MAX:
            return None
        return SearchPlan(parts, exact=all(map(says_all, filter.normal)))

    def _admitted(
        self, conjunction: Conjunction, used: set[str], tried: Collection[str] | None
    ) -> list[list[RunSpan]] | str:
        """Return the spans that the constraints admit, the most selective first, without those of no effect.

        `used` are the names that this search has used, no more than there may be indexes: otherwise they
        would evict each other, search after search. Indexes that exist are used first.
        """
        admitted: list[tuple[int, list[RunSpan]]] = []
        indexes, constraints = self._indexes, conjunction.constraints
        for name in sorted(constraints, key=lambda name: name not in indexes):
            if (name not in used and len(used) >= INDEXES_MAX) or _pieces(constraints[name]) > SPANS_MAX:
                continue
            used.add(name)
            index = indexes.pop(name, None)
            if index is None:
                if tried is None or name in tried:
                    continue
                return name
            indexes[name] = index
            spans = index.spans(constraints[name])
            size = sum(map(len, spans))
            if size < len(self):
                admitted.append((size, spans))
            if size <= TRIED_FIRST:
                break
        return [spans for _, spans in sorted(admitted, key=itemgetter(0))]

    def build(self, name: str) -> Iterator[None]:
        """Build an index, together with other searches; yield None after each step. There may be no room."""
        if not self._begin(name):
            return
        try:
            for _ in range(2 * len(self) // INDEXED_AT_ONCE + 1):  # others may add events as quickly
                if not self._build(name):
                    return
                yield None
        finally:
            self._builders[name] -= 1
            if not self._builders[name] and name not in self._building:
                del self._builders[name]

    def _begin(self, name: str) -> bool:
        """Begin to build an index, or join others in that; return False if there is no room for one more."""
        if name not in self._building:
            if len(self._building) >= BUILDS_MAX:
                left = next((one for one in self._building if not self._builders[one]), None)
                if left is None:
                    return False
                del self._building[left], self._builders[left]
            self._building[name] = AttributeIndex(name, self.read)
        self._builders[name] = self._builders.get(name, 0) + 1
        return True

    def _build(self, name: str) -> bool:
        """Build a part of an index; return whether more of it is left."""
        index = self._building.get(name)
        if index is None:
            return False  # another search has finished it
        following = list(islice(self.entries_from(index.floor), INDEXED_AT_ONCE))
        index.build(following)
        if len(following) == INDEXED_AT_ONCE:
            return True
        index.floor = None
        del self._building[name]
        if len(self._indexes) >= INDEXES_MAX:
            del self._indexes[next(iter(self._indexes))]
        self._indexes[name] = index
        return False


def _pieces(constraint: Constraint) -> int:
    """Estimate the number of stretches of an index that a constraint admits."""
    return sum(len(line.cuts) for line in constraint.lines) // 2


# Indexes


NUMBERS, STRINGS, TIMES, BLOBS, FALSES, TRUES, NANS, MISSING = range(8)
ORDERED, RUNS = 4, 8
"""Number of the runs of ordered kinds, which come first as in Constraint.lines; number of all runs."""
WHOLE = Piece(None, False, None, False)


class AttributeIndex:
    """Index of stored events by their value of one attribute or header field.

    Each ordered kind of value has a run of its own, as in a Constraint. So have FALSE, TRUE, NaN and the lack
    of a value: the events there differ by their place only.

    It is built in slices. Meanwhile it knows the entries below a place in the order: those that are added or
    removed below that place are added to it or removed from it, and later ones follow when the building
    comes there.
    """

    __slots__ = ("_event", "_read", "_runs", "floor", "name")

    def __init__(self, name: str, event: Callable[[Any], Event]) -> None:
        """`event` makes the event of an item."""
        self.name = name
        self.floor: Floor | None = ()  # while it is built: it is complete below this place, at first nowhere
        self._event = event
        self._read: Callable[[Event], Any] = HEADER_READERS.get(name) or (lambda one: one.values.get(name))
        self._runs = [SortedRun(one_value=run >= ORDERED) for run in range(RUNS)]

    def build(self, entries: Iterable[ShelfEntry]) -> None:
        """Add the entries that follow in the order on those already here."""
        read, event, runs = self._read, self._event, self._runs
        entry = None
        for entry in entries:
            value = read(event(entry[3]))
            run = _run_of(value)
            runs[run].add_last(value if run < ORDERED else 0, entry)
        if entry is not None:
            self.floor = behind(entry)

    def is_below(self, entry: ShelfEntry) -> bool:
        """Whether an entry belongs to those added so far."""
        return self.floor is None or entry < self.floor

    def add(self, entry: ShelfEntry) -> None:
        """Add an entry that was added to the shelf."""
        value = self._read(self._event(entry[3]))
        run = _run_of(value)
        self._runs[run].add(value if run < ORDERED else 0, entry)

    def remove(self, entry: ShelfEntry) -> None:
        """Remove an entry that was removed from the shelf."""
        value = self._read(self._event(entry[3]))
        run = _run_of(value)
        self._runs[run].remove(value if run < ORDERED else 0, entry)

    def spans(self, constraint: Constraint) -> list[RunSpan]:
        """Return the spans of entries that the constraint admits; no entry is in two of them."""
        runs = self._runs
        spans = [
            run.span(piece)
            for run, line in zip(runs, constraint.lines, strict=False)
            for piece in line.pieces()
        ]
        booleans = constraint.booleans
        others = (booleans & FALSE, booleans & TRUE, constraint.nan, constraint.missing)
        spans += [run.span(WHOLE) for run, admitted in zip(runs[ORDERED:], others, strict=True) if admitted]
        return [span for span in spans if span is not None]


def _run_of(value: Any) -> int:
    """Return the run of a value; None stands for no value."""
    match value:
        case None:
            return MISSING
        case bool():
            return TRUES if value else FALSES
        case int():
            return NUMBERS
        case float():
            return NANS if math.isnan(value) else NUMBERS
        case str():
            return STRINGS
        case datetime():
            return TIMES
    return BLOBS
