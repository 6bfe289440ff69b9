"""Pruning: of what is wanted from a neighbour, what overlaps something that is advertised behind it.

A node announces to each neighbour what may be published at it and at all nodes behind it, in the same way as
what is wanted (`announcing.py`): an *offer*. A filter is announced to a neighbour only if it overlaps one of
its offers. By default a node offers everything, as its clients may publish without advertising; a node that
is set to offer what is declared offers the advertisements of its clients.

Until a neighbour has told its offers nothing is announced to it, and nothing taken back.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from tidings.filters import Filter
from tidings.matching.overlaps import Overlaps
from tidings.overlay.announcing import Announcer
from tidings.overlay.covering import digest_of, number_of_text

OFFERS_MAX = 100_000
"""Offers of one neighbour, which stand for all advertisements behind it."""


class NeighbourWant(NamedTuple):
    """A filter that is wanted from a neighbour."""

    filter: Filter
    passive: bool


class Pruning:
    """Filters wanted from one neighbour, and its offers; `announcer` is given those that overlap."""

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._wants: dict[Hashable, NeighbourWant] = {}
        self._wanted: Overlaps[Hashable] = Overlaps()
        self._announced: dict[Hashable, None] = {}
        self._offers: dict[str, Filter] = {}
        self._offered: Overlaps[str] = Overlaps()
        self._sum = 0  # of the numbers of all offers

    @property
    def digest(self) -> str:
        """Digest of the offers, equal for equal sets."""
        return f"{digest_of(self._sum):x}"

    @property
    def offers(self) -> dict[str, Filter]:
        """The offers of the neighbour, by their texts; not to be changed."""
        return self._offers

    # What is wanted

    def __contains__(self, key: Hashable) -> bool:
        """Whether anything is wanted under this key."""
        return key in self._wants

    def add(self, key: Hashable, filter: Filter, passive: bool) -> None:
        """Want what matches, under this key, instead of what was wanted under it before."""
        if key in self._wants:
            self._wanted.remove(key)
        self._wants[key] = NeighbourWant(filter, passive)
        self._wanted.add(key, filter)
        if self._is_offered(filter):
            self._announced[key] = None
            self._announcer.add(key, filter, passive)
        else:
            self._conceal(key)

    def remove(self, key: Hashable) -> None:
        """Want it no longer."""
        del self._wants[key]
        self._wanted.remove(key)
        self._conceal(key)

    def _conceal(self, key: Hashable) -> None:
        if key in self._announced:
            del self._announced[key]
            self._announcer.remove(key)

    def _is_offered(self, filter: Filter) -> bool:
        return any(self._offers[text].overlaps(filter) for text in self._offered.candidates(filter))

    # What is offered

    def offer(self, text: str) -> bool:
        """Take an offer, and announce what overlaps it; whether it is new. FilterError for no filter."""
        if text in self._offers:
            return False
        filter = Filter(text)
        self._offers[text] = filter
        self._offered.add(text, filter)
        self._sum += number_of_text(text, False)
        for key in self._wanted.candidates(filter):
            want = self._wants[key]
            if key not in self._announced and filter.overlaps(want.filter):
                self._announced[key] = None
                self._announcer.add(key, want.filter, want.passive)
        return True

    def withdraw(self, text: str) -> bool:
        """Drop an offer, and what overlaps no other; whether it was there."""
        filter = self._offers.pop(text, None)
        if filter is None:
            return False
        self._offered.remove(text)
        self._sum -= number_of_text(text, False)
        for key in self._wanted.candidates(filter):
            if key in self._announced and not self._is_offered(self._wants[key].filter):
                self._conceal(key)
        return True

    def clear(self) -> None:
        """Want nothing, and forget the offers."""
        self.__init__(self._announcer)  # type: ignore[misc]  # begin anew
