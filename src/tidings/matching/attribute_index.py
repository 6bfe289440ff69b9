"""The stored events by their value of one attribute or header field, built in slices.

While it is built an index knows the entries below a place in the order. What is added and removed below that
place is taken in and out; what is at or behind it will be met when the building comes there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from tidings.event import HEADER_READERS, Event
from tidings.filters.constraint import FALSE, TRUE, Constraint
from tidings.filters.intervals import Piece
from tidings.matching.search import Floor, ShelfEntry, behind
from tidings.matching.sorted_run import RunSpan, SortedRun

NUMBERS, STRINGS, TIMES, BLOBS, FALSES, TRUES, NANS, MISSING = range(8)
ORDERED, RUNS = 4, 8
"""The first runs are those of the ordered kinds, as in Constraint.lines."""
WHOLE = Piece(None, False, None, False)


class AttributeIndex:
    """Index of stored events by their value of one attribute or header field.

    Each ordered kind of value has a run of its own, as in a Constraint. So have FALSE, TRUE, NaN and the lack
    of a value: the events there are told apart by their place only.
    """

    __slots__ = ("_event", "_read", "_runs", "floor", "name")

    def __init__(self, name: str, event: Callable[[Any], Event]) -> None:
        """`event` makes the event of an item."""
        self.name = name
        self.floor: Floor | None = ()  # while it is built, the place below which all are here: at first none
        self._event = event
        self._read: Callable[[Event], Any] = HEADER_READERS.get(name) or _attribute_reader(name)
        self._runs = [SortedRun(one_value=run >= ORDERED) for run in range(RUNS)]

    def build(self, entries: Iterable[ShelfEntry]) -> None:
        """Put in the entries that follow in the order on those that are here."""
        read, event, runs = self._read, self._event, self._runs
        entry = None
        for entry in entries:
            value = read(event(entry[3]))
            run = _run_of(value)
            runs[run].add_last(value if run < ORDERED else 0, entry)
        if entry is not None:
            self.floor = behind(entry)

    def is_below(self, entry: ShelfEntry) -> bool:
        """Whether an entry belongs to those that were put in so far."""
        return self.floor is None or entry < self.floor

    def add(self, entry: ShelfEntry) -> None:
        """Put in an entry that was added to the shelf."""
        value = self._read(self._event(entry[3]))
        run = _run_of(value)
        self._runs[run].add(value if run < ORDERED else 0, entry)

    def remove(self, entry: ShelfEntry) -> None:
        """Take out an entry that was removed from the shelf."""
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


def _attribute_reader(name: str) -> Callable[[Event], Any]:
    return lambda event: event.values.get(name)
