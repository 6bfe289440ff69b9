"""All interest of a node: demands on one side, advertisements with their audiences on the other.

A subscription that is added or removed is noted at once, at next to no cost. With the tick, the demands
that changed are *spread*: each is compared with the advertisements that an index of overlaps finds for it,
and joins or leaves their audiences. Then covers that have become loose are computed anew, and at last changes
are reported to the sources. All three have an allowance for each tick, past which they go on with the next
one, so neither a crowd of advertisements nor a crowd of subscriptions holds a node up.

Spreading and searching may be under way at the same time. Each demand and each audience has a *stamp* for
that: an audience that was searched for after a demand began to spread has found it already.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Any

from tidings.filters import Filter
from tidings.interest.audience import Advertisement, Audience, Cover, fitting, widened
from tidings.interest.demand import (
    COMPARED_MAX,
    NOBODY,
    Demand,
    Demands,
    Weight,
    comparing,
    merging,
    reaches,
    weigh,
)
from tidings.matching.overlaps import Overlaps
from tidings.steps import Steps

SPREAD_UNITS = 300
"""Units of work (`weights`), of about 5 µs, for spreading in one tick."""
SPREAD_UNITS_MIN = 20
"""Least units for spreading one demand."""
FILING_UNITS = 5
"""Units for filing one demand, which an advertisement is compared with if they overlap."""
COVER_UNITS = 300
"""Units for computing covers in one tick."""
COVER_UNITS_BUSY = 30
"""The same while demands are still spreading: a cover made now may soon be of no use."""
COVERED_MAX = 500
"""Demands that are merged into a cover; the cover of more is all that is advertised."""
ANSWER_UNITS = 1_000
"""Units that are done at once for a new advertisement; if they don't suffice, it gets a wide cover first."""
PATIENT_TICKS = 50
"""Ticks for which a report to a source may wait while it may soon change again."""
SOUGHT_MAX = 4_096
"""Advertisements among which those that overlap a filter are searched at once."""
NOTICES_AT_A_TIME = 50
"""Sources that get a report in one tick."""


class Interests:
    """Demands and advertisements of a node."""

    def __init__(self, reported_max: int) -> None:
        """`reported_max`: filters that are reported to a source one by one."""
        self._reported_max = reported_max
        self._demands = Demands()
        self._demanded: Overlaps[Demand] = Overlaps()
        self._audiences: dict[Advertisement, Audience] = {}
        self._offered: Overlaps[Audience] = Overlaps()
        self._changed: dict[Audience, None] = {}  # whose sources may need a report
        self._loose: dict[Audience, None] = {}  # whose covers are to be computed
        self._spreading: Iterator[None] | None = None
        self._covering: Iterator[None] | None = None
        self._made: tuple[list[Demand], Cover | None] = [], None  # the cover made last, and its demands
        self._clock = self._ticks = 0
        self._offers_made = 0
        self._spent = 0
        self.has_changes = False
        """Whether there may be something left for the next tick."""

    def __len__(self) -> int:
        """Number of advertisements."""
        return len(self._audiences)

    # Additions and removals

    def demand(
        self, filter: Filter, origin: Any = None, owner: Hashable = None, asked: Filter | None = None
    ) -> None:
        """Add a subscription, which `asked` for what it gets or more. Owners take turns."""
        self._demands.come(filter, origin, owner, filter if asked is None else asked)
        self.has_changes = True

    def release(
        self, filter: Filter, origin: Any = None, owner: Hashable = None, asked: Filter | None = None
    ) -> None:
        """Remove a subscription; KeyError if it was not there."""
        self._demands.go(filter, origin, owner, filter if asked is None else asked)
        self.has_changes = True

    def offer(self, advertisement: Advertisement) -> tuple[Filter, ...]:
        """Add an advertisement; return the filters that demand it, or a cover of them."""
        assert advertisement not in self._audiences, "an advertisement is made once"
        self._spread_some(ANSWER_UNITS)
        self._offers_made += 1
        advertisement.number = self._offers_made
        audience = self._audiences[advertisement] = Audience(advertisement, self._reported_max)
        self._offered.add(audience, advertisement.filter)
        steps = self._work_out(audience)
        if not self._run(steps, ANSWER_UNITS):
            steps.close()
            self._loose[audience] = None
        advertisement.reported = audience.to_report
        self.has_changes = self._is_due
        return advertisement.reported

    def withdraw(self, advertisement: Advertisement) -> None:
        """Remove an advertisement; KeyError if it was not there."""
        audience = self._audiences.pop(advertisement)
        audience.is_withdrawn = True
        self._offered.remove(audience)
        self._changed.pop(audience, None)
        self._loose.pop(audience, None)
        self.has_changes = self._is_due

    def offers(self, filter: Filter) -> Iterator[tuple[Advertisement, Weight]]:
        """Yield the advertisements that may overlap a filter, with their weights, in order.

        Among very many that is all of them: to search would take long at once.
        """
        is_sought = len(self._audiences) <= SOUGHT_MAX
        found = self._offered.candidates(filter) if is_sought else list(self._audiences.values())
        for one in found:
            if not one.is_withdrawn:  # since the search
                yield one.advertisement, one.weight

    # Ticks

    @property
    def _is_due(self) -> bool:
        if self._changed or self._loose or self._demands.is_due:
            return True
        return self._spreading is not None or self._covering is not None

    def finish_tick(self) -> None:
        """Do a tick's part of the pending work, and report changes to sources."""
        if not self.has_changes:
            return
        self._spread_some(SPREAD_UNITS)
        if self._loose or self._covering is not None:
            self._covering = self._covering or self._work_out_all()
            units = COVER_UNITS if self._spreading is None else COVER_UNITS_BUSY
            if self._run(self._covering, units):
                self._covering = None
        self._ticks += 1
        for audience in list(islice(self._changed, NOTICES_AT_A_TIME)):
            if audience in self._changed:  # a notified source may withdraw others
                del self._changed[audience]
                if self._is_patient(audience):
                    self._changed[audience] = None  # behind the others
                else:
                    self._notify(audience.advertisement, audience.to_report)
        self.has_changes = self._is_due

    def _is_patient(self, audience: Audience) -> bool:
        """Whether to delay a report: more changes may come, or a better cover than the widest."""
        if self._ticks >= audience.patient_until:
            return False
        is_wide = audience.cover is not None and audience.cover.is_whole
        is_coming = audience in self._loose or audience.fresh is not None
        return self._spreading is not None or (is_wide and is_coming)

    def _note(self, audience: Audience) -> None:
        """Schedule a report to a source."""
        if audience not in self._changed:
            audience.patient_until = self._ticks + PATIENT_TICKS
            self._changed[audience] = None

    def _spread_some(self, units: int) -> None:
        if self._demands.is_due or self._spreading is not None:
            self._spreading = self._spreading or self._spread_all()
            if self._run(self._spreading, units):
                self._spreading = None

    def _run(self, steps: Iterator[None], units: int) -> bool:
        """Run steps until so many units are spent; return whether all were run."""
        self._spent = 0
        return all(self._spent < units for _ in steps)

    def _notify(self, advertisement: Advertisement, filters: tuple[Filter, ...]) -> None:
        if filters != advertisement.reported:
            advertisement.reported = filters
            advertisement.notify(filters)

    # Spreading

    def _spread_all(self) -> Iterator[None]:
        while (demand := self._demands.take()) is not None:
            if demand.view is not demand.wanted_view:
                yield from self._spread(demand)

    def _spread(self, demand: Demand) -> Iterator[None]:
        """Spread the changed view of a demand to all audiences."""
        before, after = demand.view, demand.wanted_view
        self._clock += 1
        demand.view, demand.stamp = after, self._clock
        if before is NOBODY:
            self._demanded.add(demand, demand.filter)
        if after is NOBODY:
            self._demanded.remove(demand)
        if not self._audiences:
            self._spent += 1
            yield  # the tick may be over
            return
        found = self._offered.candidates(demand.filter)
        self._spent += SPREAD_UNITS_MIN + demand.weight.alternatives + len(found) // 8
        covers: dict[Cover, Cover | None] = {}  # new covers by old: many audiences may have the same
        for audience in found:
            yield
            origin = audience.advertisement.origin
            is_in = reaches(after, origin)
            if is_in is not reaches(before, origin) and not audience.is_withdrawn:
                if is_in:
                    self._join(audience, demand, covers)
                else:
                    self._leave(audience, demand)

    def _join(self, audience: Audience, demand: Demand, covers: dict[Cover, Cover | None]) -> None:
        if demand.stamp < audience.stamp or not self._meet(audience, demand):
            return
        cover = audience.cover
        if audience.join(demand):
            self._loose[audience] = None
        elif cover is not None and not cover.is_whole:
            if cover not in covers:
                self._spent += merging(cover.weight, demand.weight) or 0
                covers[cover] = widened(cover, demand)
            audience.cover = covers[cover] or audience.whole
        self._note(audience)

    def _leave(self, audience: Audience, demand: Demand) -> None:
        if audience.listed is None:
            is_here = demand.stamp > audience.stamp and self._meet(audience, demand)
        else:
            is_here = demand in audience.listed
            self._spent += 1
        if is_here:
            if audience.leave(demand) and audience.fresh is None:
                self._loose[audience] = None
            self._note(audience)

    def _meet(self, audience: Audience, demand: Demand) -> bool:
        """Whether a demand overlaps an advertisement; assumed if that is much work to decide."""
        units = comparing(audience.weight, demand.weight)
        self._spent += min(units, COMPARED_MAX)
        return units > COMPARED_MAX or audience.advertisement.filter.overlaps(demand.filter)

    # Covers

    def _work_out_all(self) -> Iterator[None]:
        while self._loose:
            audience = next(iter(self._loose))
            del self._loose[audience]
            steps = self._work_out(audience) if audience.is_crowded else ()
            for _ in steps:
                yield
                if audience.is_withdrawn:
                    break

    def _work_out(self, audience: Audience) -> Steps[None]:
        """Compute anew the filters for the source of a crowded audience."""
        audience.fresh, audience.gone = {}, 0
        try:
            found = [] if audience.listed is not None else (yield from self._search(audience))
            if audience.is_crowded:
                yield from self._cover(audience, found)
        finally:
            audience.fresh = None
        if not audience.is_withdrawn:
            self._note(audience)
            if audience.is_loose:
                self._loose[audience] = None

    def _search(self, audience: Audience) -> Steps[list[Demand]]:
        """Find the demands that overlap, and list them unless they are too many."""
        for _ in self._demanded.filing():
            self._spent += FILING_UNITS
            yield
        self._clock += 1
        audience.stamp, audience.count = self._clock, 0
        origin = audience.advertisement.origin
        candidates = self._demanded.candidates(audience.advertisement.filter)
        self._spent += 1 + len(candidates) // 8
        found: list[Demand] = []
        for demand in [one for one in candidates if reaches(one.view, origin)]:  # of now: see the module
            if self._meet(audience, demand):
                found.append(demand)
            yield
        assert audience.fresh is not None, "it is being worked out"
        if len(found) + len(audience.fresh) > 2 * self._reported_max:
            audience.count += len(found)
            return found
        audience.list([one for one in (*found, *audience.fresh) if reaches(one.view, origin)])
        return found

    def _cover(self, audience: Audience, found: list[Demand]) -> Iterator[None]:
        """Give an audience a cover of these and of all demands added meanwhile."""
        assert audience.fresh is not None, "it is being worked out"
        found = [*found, *audience.fresh] if audience.listed is None else list(audience.listed)
        audience.fresh.clear()
        demands, cover = self._made
        if demands != found:
            cover = yield from self._merge(found)
            self._made = found, cover
        while cover is not None and audience.fresh:
            demand = next(iter(audience.fresh))
            del audience.fresh[demand]
            self._spent += merging(cover.weight, demand.weight) or 0
            cover = widened(cover, demand)
            yield
        if audience.is_crowded:
            audience.cover = cover or audience.whole

    def _merge(self, demands: list[Demand]) -> Steps[Cover | None]:
        """Merge filters by halves, which keeps most of them small; None if that is too much work."""
        if len(demands) > COVERED_MAX:
            return None
        filters = [demand.asked for demand in demands]
        while len(filters) > 1:
            merged: list[Filter] = []
            for place in range(0, len(filters) - 1, 2):
                one, other = filters[place : place + 2]
                units = merging(weigh(one), weigh(other))
                if units is None:
                    return None
                self._spent += units
                merged.append(one.merge(other))
                yield
            filters = merged + filters[len(merged) * 2 :]
        return fitting(filters[0]) if filters else None
