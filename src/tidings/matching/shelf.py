"""The shelf: many stored events, of which one filter wants the first.

The events stand in an order of their own (a queue's: highest priority, then longest wait). A search tries the
first few one by one, because the head of a queue mostly fits; then it asks an index of the attributes that
the filter constrains. An index is built by the first search that needs it, and from then on kept up; searches
that find what they want at the head, and shelves of a few events, never build one.

What a search costs, n events being stored and √n standing for a block and the number of blocks (256 + n/256):
- one constraint on one attribute (equality, IN, ranges, prefixes, presence): O(√n), even where it admits half
  of the shelf and all of that half stands at the end;
- several constraints, or conditions that have no index: the most selective constraint names the candidates,
  and these are tried in order until one matches: O(√n + candidates up to the first match), at 1 to 2 µs each.
  A stretch of the order in which another constraint admits nothing is leapt over. So the worst case are two
  constraints that each admit half of the shelf, in turns, and nothing together: n/2 tries;
- no constraint at all, only conditions that have no index: each event up to the first match is tried.
Many alternatives (OR, long IN lists) cost a look-up each. To add and to remove is O(√n) for the order and for
each index. To build an index is O(n log n), about as much as to try every event once.

In memory an event takes about 175 bytes here, beside itself, its key and its order, and 27 for each index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import datetime
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from tidings.event import HEADER_READERS, Event
from tidings.filters.constraint import FALSE, TRUE, Constraint
from tidings.filters.intervals import Piece
from tidings.matching.sorted_run import SortedRun, Span

if TYPE_CHECKING:
    from tidings.filters import Filter
    from tidings.filters.normal import Conjunction

INDEXES_MAX = 8
"""Attributes that have an index at one time; the one searched by longest ago makes room for another."""

TRIED_FIRST = 16
"""Events at the head that are tried before an index is asked, and candidates too few to look for fewer."""

LEAP_AFTER = 64
"""Candidates that are tried before the other constraints are asked where in the order they go on."""

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Entry = tuple[Any, int, Any, Any]
"""(order, number, key, item): the number is unique, so entries sort by order and then as they came."""


class Shelf(Generic[Key, Item]):
    """Events under unique keys, in order, searched by filters.

    What is stored need not be an event: `read` makes the event of an item when a search has to look at it.
    With `distinct` no two orders are the same, and an entry is smaller by the number that tells them apart.
    """

    def __init__(self, read: Callable[[Item], Event] | None = None, distinct: bool = False) -> None:
        self._read: Callable[[Any], Event] = read or _itself
        self._distinct = distinct
        self._entries: dict[Key, Entry] = {}
        self._order = SortedRun(one_value=True)
        self._indexes: dict[str, AttributeIndex] = {}  # the one used last stands last
        self._added = 0
        self._changes = 0

    def add(self, key: Key, item: Item, order: Any) -> None:
        """Store an item; lower orders come first, and equal ones in the order in which they are added.

        All orders on one shelf must sort among each other; integers are quicker than tuples.
        """
        if key in self._entries:
            raise ValueError(f"{key!r} is on the shelf already")
        entry: Entry = (order, self._added, key, item)
        self._order.add(0, entry)
        self._entries[key] = entry
        for index in self._indexes.values():
            index.add(entry)
        if not self._distinct:
            self._added += 1
        self._changes += 1

    def remove(self, key: Key) -> Item:
        """Take the item of this key off the shelf; KeyError if there is none."""
        entry = self._entries.pop(key)
        self._order.remove(0, entry)
        for index in self._indexes.values():
            index.remove(entry)
        self._changes += 1
        return entry[3]  # type: ignore[no-any-return]  # entries are not generic: runs sort them as they are

    def first(self, filter: Filter | None = None) -> Key | None:
        """The key of the first event in order that matches, or None."""
        found = self._order if filter is None else self._search(filter)
        for _, _, key, _ in found:
            return key  # type: ignore[no-any-return]
        return None

    def find(self, filter: Filter, after: Any = None) -> Iterator[Key]:
        """The keys of the events that match, in order, each found when it is asked for.

        With `after`, only those of higher orders. RuntimeError if the shelf is changed in between.
        """
        return self._keys(self._search(filter, after))

    def count(self, filter: Filter) -> int:
        """How many events match; O(√n) where the filter is one constraint."""
        if len(self) > TRIED_FIRST and len(filter.normal) == 1 and _says_all(filter.normal[0]):
            plan = self._plan(filter.normal, None)
            return len(self) if plan is None else sum(map(len, plan.parts[0].admitted[0]))
        return sum(1 for _ in self._search(filter))

    @property
    def indexed(self) -> tuple[str, ...]:
        """The names that have an index, from the one searched by longest ago to the latest."""
        return tuple(self._indexes)

    def __getitem__(self, key: Key) -> Item:
        return self._entries[key][3]  # type: ignore[no-any-return]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        """The keys in order; RuntimeError if the shelf is changed in between."""
        return self._keys(self._order)

    def _keys(self, entries: Iterable[Entry]) -> Iterator[Key]:
        changes = self._changes
        for _, _, key, _ in entries:
            yield key
            if self._changes != changes:
                raise RuntimeError("the shelf was changed while it was searched")

    def _search(self, filter: Filter, after: Any = None) -> Iterator[Entry]:
        matches, read = filter.matches, self._read
        order = iter(self._order) if after is None else self._behind(after)
        for entry in islice(order, TRIED_FIRST):
            if matches(read(entry[3])):
                yield entry
        untried = next(order, None)
        if untried is None:
            return
        plan = self._plan(filter.normal, untried)
        exact = plan is not None and plan.exact
        for entry in chain((untried,), order) if plan is None else plan.candidates():
            if exact or matches(read(entry[3])):
                yield entry

    def _behind(self, order: Any) -> Iterator[Entry]:
        """The entries of higher orders."""
        span = self._order.span(WHOLE)
        return iter(()) if span is None else span.ascending((order, math.inf))

    def _plan(self, normal: tuple[Conjunction, ...], floor: Entry | None) -> Plan | None:
        """Where the matches from the floor on are; None if they may be anywhere on the shelf."""
        parts: list[Part] = []
        used: set[str] = set()
        for conjunction in normal:
            admitted = self._admitted(conjunction, used)
            if not admitted:
                return None
            parts.append(Part(admitted, floor))
        return Plan(parts, exact=all(map(_says_all, normal)))

    def _admitted(self, conjunction: Conjunction, used: set[str]) -> list[list[Span]]:
        """What the constraints admit, the most selective one first; those that admit everything are left out.

        `used` are the names this search has used, no more than there may be indexes: otherwise they would
        push each other out, search after search. Indexes that exist are asked first, as they may do.
        """
        admitted: list[tuple[int, list[Span]]] = []
        for name in sorted(conjunction.constraints, key=lambda name: name not in self._indexes):
            if name not in used and len(used) >= INDEXES_MAX:
                continue
            used.add(name)
            spans = self._index(name).spans(conjunction.constraints[name])
            size = sum(map(len, spans))
            if size < len(self):
                admitted.append((size, spans))
            if size <= TRIED_FIRST:
                break
        return [spans for _, spans in sorted(admitted, key=itemgetter(0))]

    def _index(self, name: str) -> AttributeIndex:
        index = self._indexes.pop(name, None)
        if index is None:
            index = AttributeIndex(name, self._order, self._read)
            if len(self._indexes) >= INDEXES_MAX:
                del self._indexes[next(iter(self._indexes))]
        self._indexes[name] = index
        return index


class Plan(Struct, frozen=True):
    """Where the matches of a filter are: one part for each alternative."""

    parts: list[Part]
    exact: bool
    """Whether everything there matches."""

    def candidates(self) -> Iterator[Entry]:
        """All entries there in order, each once."""
        if len(self.parts) == 1:
            return self.parts[0].candidates()
        return _without_repeats(merge(*(part.candidates() for part in self.parts)))


class Part(Struct, frozen=True):
    """What each of several constraints admits, the most selective one first; matches are in all of them."""

    admitted: list[list[Span]]
    floor: Entry | None
    """Entries below this one are not wanted."""

    def candidates(self) -> Iterator[Entry]:
        """The entries of the most selective constraint in order, less those the others are known to lack."""
        if len(self.admitted) == 1:
            return _ascending(self.admitted[0], self.floor)
        return self._leaping()

    def _leaping(self) -> Iterator[Entry]:
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

    def _leap(self, entry: Entry) -> Entry | None:
        """An entry below which, from this one on, some other constraint admits nothing; None if for good."""
        for spans in self.admitted[1:]:
            following = next(_ascending(spans, entry), None)
            if following is None:
                return None
            entry = following
        return entry


class AttributeIndex:
    """The stored events by their value of one attribute or header field.

    Each ordered kind of value has a run of its own, as in a Constraint. So have FALSE, TRUE, NaN and the lack
    of a value: the events there are told apart by their place only.
    """

    __slots__ = ("_event", "_read", "_runs")

    def __init__(self, name: str, entries: Iterable[Entry], event: Callable[[Any], Event]) -> None:
        """Index these entries, which must come in order; `event` makes the event of an item."""
        self._event = event
        self._read: Callable[[Event], Any] = HEADER_READERS.get(name) or _attribute_reader(name)
        pairs: list[list[tuple[Any, Entry]]] = [[] for _ in range(RUNS)]
        for entry in entries:
            value = self._read(event(entry[3]))
            run = _run_of(value)
            pairs[run].append((value if run < ORDERED else 0, entry))
        self._runs = [SortedRun(of_run, one_value=run >= ORDERED) for run, of_run in enumerate(pairs)]

    def add(self, entry: Entry) -> None:
        """Put in an entry that was added to the shelf."""
        value = self._read(self._event(entry[3]))
        run = _run_of(value)
        self._runs[run].add(value if run < ORDERED else 0, entry)

    def remove(self, entry: Entry) -> None:
        """Take out an entry that was removed from the shelf."""
        value = self._read(self._event(entry[3]))
        run = _run_of(value)
        self._runs[run].remove(value if run < ORDERED else 0, entry)

    def spans(self, constraint: Constraint) -> list[Span]:
        """Where the entries are that the constraint admits; no entry is in two of them."""
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


NUMBERS, STRINGS, TIMES, BLOBS, FALSES, TRUES, NANS, MISSING = range(8)
ORDERED, RUNS = 4, 8
"""The first runs are those of the ordered kinds, as in Constraint.lines."""
WHOLE = Piece(None, False, None, False)


def _run_of(value: Any) -> int:
    """The run in which a value belongs; None stands for no value."""
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


def _itself(item: Any) -> Any:
    return item


def _attribute_reader(name: str) -> Callable[[Event], Any]:
    return lambda event: event.values.get(name)


def _ascending(spans: list[Span], floor: Entry | None) -> Iterator[Entry]:
    """The entries of several spans in order, none below the floor."""
    streams = [span.ascending(floor) for span in spans]
    return streams[0] if len(streams) == 1 else merge(*streams)


def _says_all(conjunction: Conjunction) -> bool:
    """Whether the index of one attribute answers the conjunction by itself."""
    return len(conjunction.constraints) <= 1 and not conjunction.residues


def _without_repeats(entries: Iterator[Entry]) -> Iterator[Entry]:
    previous = None
    for entry in entries:
        if entry is not previous:
            yield entry
        previous = entry
