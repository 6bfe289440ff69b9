"""A constraint on one attribute: a set over all kinds of value, and over its absence.

Every simple condition of the filter language is such a set, and so is its opposite: `x < 5` is the numbers
below 5, and NOT (x < 5) the numbers from 5 on, neither of them the strings, for which both are unknown.
The sets are exact, with one line of intervals for each ordered kind of value.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidings.filters.intervals import EVERYTHING, NOTHING, Intervals

FALSE, TRUE = 1, 2
"""The two bits of `booleans`."""


class Constraint(Struct, frozen=True, gc=False):
    """Set of values that one attribute may have."""

    numbers: Intervals = NOTHING
    strings: Intervals = NOTHING
    times: Intervals = NOTHING
    blobs: Intervals = NOTHING
    booleans: int = 0
    nan: bool = False
    missing: bool = False

    def admits(self, value: Any) -> bool:
        """Whether an attribute of this value is in the set; None stands for no such attribute."""
        match value:
            case None:
                return self.missing
            case bool():
                return bool(self.booleans & (TRUE if value else FALSE))
            case int():
                return value in self.numbers
            case float():
                return self.nan if math.isnan(value) else value in self.numbers
            case str():
                return value in self.strings
            case datetime():
                return value in self.times
        return value in self.blobs

    @property
    def is_empty(self) -> bool:
        """Whether no value is admitted, and absence neither."""
        return self == IMPOSSIBLE

    @property
    def is_anything(self) -> bool:
        """Whether every value is admitted, and absence too."""
        return self == ANYTHING

    @property
    def lines(self) -> tuple[Intervals, Intervals, Intervals, Intervals]:
        """Return the sets of the ordered kinds: numbers, strings, times, bytes."""
        return self.numbers, self.strings, self.times, self.blobs

    def intersect(self, other: Constraint) -> Constraint:
        """Return the values that both admit."""
        return Constraint(
            self.numbers.intersect(other.numbers),
            self.strings if self.strings is other.strings else self.strings.intersect(other.strings),
            self.times if self.times is other.times else self.times.intersect(other.times),
            self.blobs if self.blobs is other.blobs else self.blobs.intersect(other.blobs),
            self.booleans & other.booleans,
            self.nan and other.nan,
            self.missing and other.missing,
        )

    def union(self, other: Constraint) -> Constraint:
        """Return the values that either admits."""
        return Constraint(
            self.numbers.union(other.numbers),
            self.strings.union(other.strings),
            self.times.union(other.times),
            self.blobs.union(other.blobs),
            self.booleans | other.booleans,
            self.nan or other.nan,
            self.missing or other.missing,
        )

    def covers(self, other: Constraint) -> bool:
        """Whether everything the other admits is admitted here."""
        return (
            self.booleans & other.booleans == other.booleans
            and self.nan >= other.nan
            and self.missing >= other.missing
            and all(mine.covers(theirs) for mine, theirs in zip(self.lines, other.lines, strict=True))
        )

    def overlaps(self, other: Constraint) -> bool:
        """Whether some value may be admitted by both."""
        return bool(
            self.booleans & other.booleans
            or (self.nan and other.nan)
            or (self.missing and other.missing)
            or any(mine.overlaps(theirs) for mine, theirs in zip(self.lines, other.lines, strict=True))
        )


IMPOSSIBLE = Constraint()
PRESENT = Constraint(EVERYTHING, EVERYTHING, EVERYTHING, EVERYTHING, TRUE | FALSE, nan=True)
ANYTHING = Constraint(EVERYTHING, EVERYTHING, EVERYTHING, EVERYTHING, TRUE | FALSE, nan=True, missing=True)
MISSING = Constraint(missing=True)
ANY_NUMBER = Constraint(numbers=EVERYTHING)
ANY_STRING = Constraint(strings=EVERYTHING)
