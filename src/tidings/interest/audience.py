"""Audience of one advertisement: the demands that overlap it, and the filters reported to its source.

Up to a limit demands are listed and reported one by one. Past it the source gets one *cover*: at first its
own filter, since it can make nothing else, then a merged filter that is computed step by step. A new demand
widens the cover at once by one merge; one that is withdrawn only makes it *loose*. Far past the limit demands
only counted, so that an audience takes a bounded amount of memory.

The rule kept: a reported filter matches every event that the source may make and a subscription demands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidings.filters import Filter
from tidings.interest.demand import Demand, Weight, merging, weigh

REPORTED_SIZE_MAX = 1 << 20
"""Characters of filters that are reported one by one, and of the merged filter that replaces them."""


class Advertisement:
    """Filter of the events that a source may make.

    `notify` is called with the filters that demand them, at the end of a tick in which these have changed.
    `asked` is the filter that `source` requested, if rules have narrowed `filter`.
    """

    __slots__ = ("asked", "filter", "notify", "number", "origin", "reported", "source")

    def __init__(
        self,
        filter: Filter,
        notify: Callable[[tuple[Filter, ...]], None],
        origin: Any = None,
        asked: Filter | None = None,
        source: str = "",
    ) -> None:
        self.filter = filter
        self.asked = filter if asked is None else asked
        self.source = source
        self.notify = notify
        self.origin = origin
        self.number = 0  # in the order of arrival
        self.reported: tuple[Filter, ...] = ()


class Cover:
    """Filter that matches at least what is demanded, with its weight."""

    __slots__ = ("filter", "is_whole", "weight")

    def __init__(self, filter: Filter, is_whole: bool = False) -> None:
        """`is_whole`: it is the filter of the advertisement, and can't get wider."""
        self.filter = filter
        self.is_whole = is_whole
        self.weight = weigh(filter)


class Audience:
    """Audience of one advertisement: the demands that overlap it, listed, covered or only counted."""

    __slots__ = (
        "_listed_max",
        "_reported_max",
        "_size",
        "advertisement",
        "count",
        "cover",
        "fresh",
        "gone",
        "is_withdrawn",
        "listed",
        "patient_until",
        "stamp",
        "weight",
    )

    def __init__(self, advertisement: Advertisement, reported_max: int) -> None:
        self.advertisement = advertisement
        self.weight: Weight = weigh(advertisement.filter)
        self.listed: dict[Demand, None] | None = None  # None: not known yet, or too many, and only counted
        self.count = 0  # demands, if they are not listed
        self.gone = 0  # demands withdrawn since the cover was made
        self.cover: Cover | None = self.whole  # None while all are reported one by one
        self.fresh: dict[Demand, None] | None = None  # demands added while a new cover is being made
        self.stamp = 0  # time of the last search for demands; earlier changes are known
        self.patient_until = 0  # the tick from which on its source gets a report, though more is to come
        self.is_withdrawn = False
        self._reported_max = reported_max
        self._listed_max = 2 * reported_max  # more, so that around the limit no search is needed again
        self._size = 0

    @property
    def whole(self) -> Cover:
        """Cover that is always right."""
        return Cover(self.advertisement.filter, is_whole=True)

    @property
    def is_crowded(self) -> bool:
        """Whether there are more filters than are reported one by one."""
        return self.listed is None or len(self.listed) > self._reported_max or self._size > REPORTED_SIZE_MAX

    @property
    def is_loose(self) -> bool:
        """Whether it is time to compute the cover anew."""
        if not self.is_crowded:
            return False
        if self.listed is None and self.count <= self._reported_max:
            return True
        size = self.count if self.listed is None else len(self.listed)
        return 2 * self.gone > size

    @property
    def to_report(self) -> tuple[Filter, ...]:
        """Return the filters to report to the source."""
        if self.listed is not None and not self.is_crowded:
            return tuple(dict.fromkeys(demand.asked for demand in self.listed))
        assert self.cover is not None, "a crowded audience has a cover"
        return (self.cover.filter,)

    def join(self, demand: Demand) -> bool:
        """Add a demand that overlaps; return whether a cover is to be computed."""
        if self.fresh is not None:
            self.fresh[demand] = None
        if self.listed is None:
            self.count += 1
            return False
        self.listed[demand] = None
        self._size += demand.size
        return self._settle()

    def leave(self, demand: Demand) -> bool:
        """Remove a demand that overlaps; return whether a cover is to be computed."""
        self.gone += 1
        if self.fresh is not None:
            self.fresh.pop(demand, None)
        if self.listed is None:
            self.count -= 1
        elif demand in self.listed:
            del self.listed[demand]
            self._size -= demand.size
            self._settle()
        return self.is_loose

    def list(self, demands: list[Demand]) -> bool:
        """Set the demands that overlap; return whether a cover is to be computed."""
        self.listed = dict.fromkeys(demands)
        self.gone = 0
        self._size = sum(demand.size for demand in demands)
        return self._settle()

    def _settle(self) -> bool:
        """Make a cover if one is needed, and drop too long a list; return whether the cover is new."""
        assert self.listed is not None, "what is only counted has no list"
        if not self.is_crowded:
            self.cover = None
            return False
        if len(self.listed) > self._listed_max:
            self.count, self.listed = len(self.listed), None
        if self.cover is not None:
            return False
        self.cover, self.gone = self.whole, 0
        return True


def widened(cover: Cover, demand: Demand) -> Cover | None:
    """Return the cover merged with a demand; None if that is too much work, or too long to be reported."""
    if merging(cover.weight, demand.weight) is None:
        return None
    return fitting(cover.filter.merge(demand.asked))


def fitting(filter: Filter) -> Cover | None:
    """Return a cover of this filter, if it is not too long to be reported."""
    return Cover(filter) if len(str(filter)) <= REPORTED_SIZE_MAX else None
