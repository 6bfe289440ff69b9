"""Where on a shelf the matches of a filter are, as far as indexes tell: spans of runs, and what is there.

A plan is good until the shelf is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tidings.matching.sorted_run import Span

if TYPE_CHECKING:
    from tidings.filters.normal import Conjunction

LEAP_AFTER = 64
"""Candidates that are tried before the other constraints are asked where in the order they go on."""

Entry = tuple[Any, int, Any, Any]
"""(order, number, key, item): the number is unique, so entries sort by order and then as they came."""
Floor = tuple[Any, ...]
"""An entry, or the beginning of one: entries below it are not wanted."""


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
    floor: Floor | None
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


def _ascending(spans: list[Span], floor: Floor | None) -> Iterator[Entry]:
    """The entries of several spans in order, none below the floor."""
    streams = [span.ascending(floor) for span in spans]
    return streams[0] if len(streams) == 1 else merge(*streams)


def says_all(conjunction: Conjunction) -> bool:
    """Whether the index of one attribute answers the conjunction by itself."""
    return len(conjunction.constraints) <= 1 and not conjunction.residues


def _without_repeats(entries: Iterator[Entry]) -> Iterator[Entry]:
    previous = None
    for entry in entries:
        if entry is not previous:
            yield entry
        previous = entry
