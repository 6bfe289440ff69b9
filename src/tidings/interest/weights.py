"""Cost of comparing and merging filters, estimated before it is done.

The unit is about one comparison of two alternatives. Both results may be too wide and never too narrow, so
work that would take too long is not done: two filters count as overlapping, and no merged filter is made.
"""

from __future__ import annotations

from typing import NamedTuple

from tidings.filters import Filter

COMPARED_MAX = 512
"""Units for comparing two filters; past this they count as overlapping."""
MERGED_ALTERNATIVES_MAX = 24
"""Alternatives of two filters together that are merged."""
MERGED_CUTS_MAX = 1_000
"""Ends of intervals, in all attributes of two filters together, that are merged."""


class Weight(NamedTuple):
    """Size of a filter's normal form."""

    alternatives: int
    cuts: int


def weigh(filter: Filter) -> Weight:
    """Return the weight of a filter."""
    constraints = [one for alternative in filter.normal for one in alternative.constraints.values()]
    cuts = sum(len(line.cuts) for constraint in constraints for line in constraint.lines)
    return Weight(len(filter.normal), cuts)


def comparing(one: Weight, other: Weight) -> int:
    """Return the units that it takes at most to compare two filters."""
    cuts = min(one.alternatives * other.cuts, other.alternatives * one.cuts)
    return 1 + one.alternatives * other.alternatives + cuts // 8


def merging(one: Weight, other: Weight) -> int | None:
    """Return the units that it takes at most to merge two filters, None if these are too many."""
    alternatives, cuts = one.alternatives + other.alternatives, one.cuts + other.cuts
    if alternatives > MERGED_ALTERNATIVES_MAX or cuts > MERGED_CUTS_MAX:
        return None
    return 20 + 2 * alternatives**2 + cuts // 4
