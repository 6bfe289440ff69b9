"""Index of stored events by their value of one attribute or header field, built in slices.

While it is built, an index knows the entries below a place in the order. Entries that are added or removed
below that place are added to it or removed from it; later ones follow when the building comes there.
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
"""Number of the runs of ordered kinds, which come first as in Constraint.lines; number of all runs."""
WHOLE = Piece(None, False, None, False)


class AttributeIndex:
    """Index of stored events by their value of one attribute or header field.

    Each ordered kind of value has a run of its own, as in a Constraint. So have FALSE, TRUE, NaN and the lack
    of a value: the events there differ by their place only.
    """

    __slots__ = ("_event", "_read", "_runs", "floor", "name")

    def __init__(self, name: str, event: Callable[[Any], Event]) -> None:
        """`event` makes the event of an item."""
        self.name = name
        self.floor: Floor | None = ()  # while it is built: it is complete below this place, at first nowhere
        self._event = event
        self._read: Callable[[Event], Any] = HEADER_READERS.get(name) or _attribute_reader(name)
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


def _attribute_reader(name: str) -> Callable[[Event], Any]:
    return lambda event: event.values.get(name)
