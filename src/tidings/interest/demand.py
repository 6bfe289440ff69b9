"""Demanded filters, each once, however many subscriptions have it.

Sources get the filters that subscribers have requested; whether a source can make matching events is decided
by the granted filters, which rules may have narrowed.

A subscription that is added or removed changes the *view* of its filter: whether it is demanded of all
sources, of all except those behind one link, or of none. Demands whose view has changed wait here until the
audiences have it; those of one owner wait behind each other, and owners take turns.

Comparing and merging filters has a *weight*, estimated before it is done; the unit is about one comparison of
two alternatives. Both results may be too wide and never too narrow, so work that would take too long is not
done: two filters count as overlapping, and no merged filter is made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, NamedTuple

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


NOBODY, EVERYBODY = object(), object()
"""Views of a demand; the third kind is a link, whose own sources are left out."""


def reaches(view: Any, origin: Any) -> bool:
    """Whether a demand of this view concerns a source of that origin."""
    return view is EVERYBODY or (view is not NOBODY and view is not origin)


class Demand:
    """Filter that subscriptions have, all with the same requested filter."""

    __slots__ = ("_origins", "_size", "_weight", "asked", "filter", "stamp", "view")

    def __init__(self, filter: Filter, asked: Filter) -> None:
        self.filter = filter
        self.asked = asked
        self.view: Any = NOBODY  # the one being spread to the audiences, or the last
        self.stamp = 0  # when that began
        self._origins: dict[int, tuple[Any, int]] = {}  # by identity, with the number of subscriptions
        self._weight: Weight | None = None
        self._size: int | None = None

    @property
    def wanted_view(self) -> Any:
        """View that follows from the present subscriptions."""
        if len(self._origins) == 1:
            ((sole, _),) = self._origins.values()
            return EVERYBODY if sole is None else sole
        return EVERYBODY if self._origins else NOBODY

    @property
    def weight(self) -> Weight:
        """Weight of the filter, or of the requested one if that is more."""
        if self._weight is None:
            own = weigh(self.filter)
            self._weight = own if self.asked is self.filter else max(own, weigh(self.asked))
        return self._weight

    @property
    def size(self) -> int:
        """Length of the text that is reported to sources."""
        if self._size is None:
            self._size = len(str(self.asked))
        return self._size

    def come(self, origin: Any) -> None:
        """Count one more subscription with the filter."""
        _, times = self._origins.get(id(origin), (origin, 0))
        self._origins[id(origin)] = origin, times + 1

    def go(self, origin: Any) -> None:
        """Count one subscription less; KeyError if there was none."""
        _, times = self._origins.pop(id(origin))
        if times > 1:
            self._origins[id(origin)] = origin, times - 1


class Demands:
    """All demands, and those whose view has changed."""

    def __init__(self) -> None:
        self._by_filter: dict[tuple[Filter, Filter], Demand] = {}  # by filter and requested filter
        # By owner. A plain dictionary passes over all places that were emptied to find its first key.
        self._due: OrderedDict[Hashable, OrderedDict[Demand, None]] = OrderedDict()

    @property
    def is_due(self) -> bool:
        """Whether any view may have changed."""
        return bool(self._due)

    def come(self, filter: Filter, origin: Any, owner: Hashable, asked: Filter) -> None:
        """Add a subscription."""
        demand = self._by_filter.get((filter, asked))
        if demand is None:
            demand = self._by_filter[filter, asked] = Demand(filter, asked)
        demand.come(origin)
        self._change(demand, owner)

    def go(self, filter: Filter, origin: Any, owner: Hashable, asked: Filter) -> None:
        """Remove a subscription; KeyError if it was not there."""
        demand = self._by_filter[filter, asked]
        demand.go(origin)
        if demand.wanted_view is NOBODY:
            del self._by_filter[filter, asked]
        self._change(demand, owner)

    def _change(self, demand: Demand, owner: Hashable) -> None:
        if demand.view is not demand.wanted_view:
            self._due.setdefault(owner, OrderedDict())[demand] = None

    def take(self) -> Demand | None:
        """Take a demand whose view may have changed, of the owner whose turn it is."""
        if not self._due:
            return None
        owner, waiting = self._due.popitem(last=False)
        demand, _ = waiting.popitem(last=False)
        if waiting:
            self._due[owner] = waiting  # behind the others
        return demand
