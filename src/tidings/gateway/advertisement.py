"""Advertisements to the node of the readings that the networks of a gateway can deliver, one per type.

They only ever grow: a sensor that is covered costs nothing, one that is not widens the advertisement of its
type, and a sensor that goes leaves it as it is. So networks may come and go as they like. An advertisement is
withdrawn when no sensor at all has been left behind it for a while.

In one advertisement the conditions on one key are alternatives, written as one range over all of them;
different keys are all required, and an unknown place is no contradiction.
"""

from __future__ import annotations

from msgspec import Struct

from tidings.filters import Filter
from tidings.gateway.areas import EVERYWHERE, AreaBox
from tidings.gateway.effects import AdvertiseFilter, GatewayEffect, Widen, Withdraw
from tidings.gateway.ranges import WHOLE, RangeSpan
from tidings.timers import Timers

WITHDRAW_AFTER_S = 300.0
"""How long an advertisement without sensors stays."""
OFFERS_MAX = 1_000
"""Types with an advertisement of their own; those that come later share one that offers anything."""
WIDENED_MAX = 8
"""Number of times an advertisement grows bit by bit; the next time it loses its range and its area."""


class NetworkAdvertisement(Struct, eq=False):
    """Advertisement: the sensors behind it, by type, and its range and area."""

    number: int
    type: str | None  # None: any
    span: RangeSpan
    box: AreaBox
    counts: dict[str, int] = {}
    widened: int = 0

    def covers(self, span: RangeSpan, box: AreaBox) -> bool:
        """Whether sensors of this range and place are covered."""
        return self.span.covers(span) and self.box.covers(box)

    def widen(self, span: RangeSpan, box: AreaBox) -> None:
        """Extend it to this range and area."""
        self.widened += 1
        is_enough = self.widened > WIDENED_MAX
        self.span = WHOLE if is_enough else self.span.hull(span)
        self.box = EVERYWHERE if is_enough else self.box.hull(box)

    @property
    def filter(self) -> str:
        """Return the advertisement as the text of a filter."""
        if self.type is None:
            return ""
        x_low, y_low, x_high, y_high = self.box
        whole = Filter("type = :type", type=self.type)
        if self.span != WHOLE:
            whole &= _between("value", *self.span.ends)
        if self.box != EVERYWHERE:
            for name, low, high in (("posx", x_low, x_high), ("posy", y_low, y_high)):
                whole &= Filter(f"{name} IS NULL") | _between(name, low, high)
        return str(whole)


def _between(name: str, low: float | None, high: float | None) -> Filter:
    if low is None:
        return Filter(f"{name} <= :high", high=high)
    if high is None:
        return Filter(f"{name} >= :low", low=low)
    return Filter(f"{name} BETWEEN :low AND :high", low=low, high=high)


class NetworkAdvertisements:
    """All advertisements of a gateway."""

    def __init__(self) -> None:
        self._offers: dict[int, NetworkAdvertisement] = {}
        self._by_type: dict[str, NetworkAdvertisement] = {}
        self._rest: NetworkAdvertisement | None = None  # the one that offers anything
        self._idle: Timers[int] = Timers()  # those without sensors, by when they are withdrawn
        self._numbers = 0

    def __contains__(self, number: int) -> bool:
        return number in self._offers

    def add(self, type: str, span: RangeSpan | None, box: AreaBox | None) -> list[GatewayEffect]:
        """Add a sensor, or a reading of one that never registered; no range or area is any."""
        its_span, its_box = span or WHOLE, box or EVERYWHERE
        offer = self._by_type.get(type)
        if offer is None:
            offer, effects = self._for_new(type, its_span, its_box)
            self._by_type[type] = offer
        else:
            effects = self.widen(type, span, box)
        offer.counts[type] = offer.counts.get(type, 0) + 1
        self._idle.cancel(offer.number)
        return effects

    def widen(self, type: str, span: RangeSpan | None, box: AreaBox | None) -> list[GatewayEffect]:
        """Extend the advertisement for a sensor that was counted to this range and area."""
        offer, its_span, its_box = self._by_type[type], span or WHOLE, box or EVERYWHERE
        if offer.covers(its_span, its_box):
            return []
        offer.widen(its_span, its_box)
        return [Widen(offer.number, offer.filter)]

    def remove(self, type: str, now: float) -> None:
        """Remove a sensor of a type."""
        offer = self._by_type[type]
        offer.counts[type] -= 1
        if not offer.counts[type]:
            del offer.counts[type]
            if offer is self._rest:
                del self._by_type[type]
        if not offer.counts:
            self._idle.at(now + WITHDRAW_AFTER_S, offer.number)

    def wake(self, now: float) -> list[GatewayEffect]:
        """Withdraw those that have been without sensors for long enough."""
        effects: list[GatewayEffect] = []
        for number in self._idle.due(now):
            offer = self._offers.pop(number)
            if offer is self._rest:
                self._rest = None
            else:
                assert offer.type is not None, "only the rest is of any type"
                del self._by_type[offer.type]
            effects.append(Withdraw(offer.number))
        return effects

    @property
    def wake_at(self) -> float:
        """Return when there is something to withdraw."""
        return self._idle.wake_at

    def _for_new(
        self, type: str, span: RangeSpan, box: AreaBox
    ) -> tuple[NetworkAdvertisement, list[GatewayEffect]]:
        """Return the advertisement for a type that has none."""
        is_full = len(self._offers) - (self._rest is not None) >= OFFERS_MAX
        if is_full and self._rest is not None:
            return self._rest, []
        self._numbers += 1
        offer = NetworkAdvertisement(
            self._numbers, *((None, WHOLE, EVERYWHERE) if is_full else (type, span, box))
        )
        self._offers[offer.number] = offer
        if is_full:
            self._rest = offer
        return offer, [AdvertiseFilter(offer.number, offer.filter)]
