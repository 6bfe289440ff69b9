"""Box of one alternative of a filter: its outer bounds, by which most alternatives are compared.

A box has a low and a high end for each attribute that the alternative constrains. One alternative covers
another only if its box lies around the other's: on each attribute of its own it begins no later and ends no
earlier. An end is a tuple that can be compared with any other: the kind of value, the value, and the side of
it. A constraint that admits several kinds of value, or absence, has ends beyond all others.
"""

from __future__ import annotations

from operator import ge, le
from typing import Any

from tidings.filters.constraint import Constraint
from tidings.filters.intervals import NOTHING, Intervals, points
from tidings.filters.normal import Conjunction
from tidings.filters.relations import TRIED_MAX

LIST_MAX = TRIED_MAX
"""Values of an attribute that are filed one by one."""

Point = tuple[str, int, Any]
"""Attribute, kind of value, value."""
End = tuple[Any, ...]
Ends = tuple[End, ...]
BOOLEAN_KIND = 4
LOWEST: End = (-1,)
HIGHEST: End = (9,)
"""Ends of a constraint on more than one kind of value."""
BELOW: End = (-2,)
ABOVE: End = (10,)
"""Ends that any other lies within."""


class Box:
    """Bounds of an alternative; `is_exact` if it admits all that lies within them, and nothing is left."""

    __slots__ = ("highs", "is_exact", "lists", "lows", "names", "owner", "points")

    def __init__(self, alternative: Conjunction, owner: Any) -> None:
        self.owner = owner
        constraints = alternative.constraints
        self.names = tuple(sorted(constraints))
        lows: list[End] = []
        highs: list[End] = []
        self.points: list[Point] = []  # attributes that must have one value
        self.lists: list[list[Point]] = []  # attributes that must have one of a few
        self.is_exact = not alternative.residues
        for name in self.names:
            kind, line = only_line(constraints[name])
            if line is None:
                lows.append(LOWEST)
                highs.append(HIGHEST)
                self.is_exact = False
                continue
            inside, cuts = line.inside, line.cuts
            lows.append((kind,) if inside else (kind, *cuts[0]))
            highs.append((kind + 0.5,) if inside ^ bool(len(cuts) & 1) else (kind, *cuts[-1]))
            if inside or len(cuts) == 1:
                self.is_exact = self.is_exact and len(cuts) <= 1
            elif len(cuts) == 2:
                if cuts[0][0] == cuts[1][0]:
                    self.points.append((name, kind, cuts[0][0]))
            else:
                self.is_exact = False
                if len(cuts) <= 2 * LIST_MAX and (values := line.points()) is not None:
                    self.lists.append([(name, kind, value) for value in values])
        self.lows: Ends = tuple(lows)
        self.highs: Ends = tuple(highs)

    def is_around(self, other: Box) -> bool:
        """Whether the other lies within this one."""
        if self.names == other.names:
            return all(map(le, self.lows, other.lows)) and all(map(ge, self.highs, other.highs))
        places = {name: place for place, name in enumerate(other.names)}
        for name, low, high in zip(self.names, self.lows, self.highs, strict=True):
            place = places.get(name)
            if place is None or low > other.lows[place] or high < other.highs[place]:
                return False
        return True

    def ends(self, name: str) -> tuple[End, End]:
        """Return both ends of an attribute."""
        if name not in self.names:
            return BELOW, ABOVE
        place = self.names.index(name)
        return self.lows[place], self.highs[place]


_BOOLEANS = (None, points([1]), points([2]), None)  # by the bits of a constraint


def only_line(constraint: Constraint) -> tuple[int, Intervals | None]:
    """Return the one kind of value that a constraint admits, and which; None if it admits several kinds."""
    if (
        constraint.strings is constraint.times is constraint.blobs is NOTHING is not constraint.numbers
        and not (constraint.booleans or constraint.nan or constraint.missing)
    ):
        return 0, constraint.numbers  # the usual case, taken quickly
    found: tuple[int, Intervals | None] | None = None
    for kind, line in enumerate(constraint.lines):
        if line.cuts or line.inside:
            if found is not None:
                return -1, None
            found = kind, line
    if constraint.nan or constraint.missing or (constraint.booleans and found is not None):
        return -1, None
    return found or (BOOLEAN_KIND, _BOOLEANS[constraint.booleans])
