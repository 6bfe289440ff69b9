"""Pruning: of what is wanted from a neighbour, what overlaps something that is advertised behind it.

A node announces to each neighbour what may be published at it and at all nodes behind it, in the same way as
what is wanted (`announcing.py`): an *offer*. A filter is announced to a neighbour only if it overlaps one of
its offers; of a merged one (`merging.py`), the pieces that do. By default a node offers everything, as its
clients may publish without advertising; a node that is set to offer what is declared offers the
advertisements of its clients.

Until a neighbour has told its offers nothing is announced to it, and nothing taken back.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from tidings.filters import Filter
from tidings.filters.normal import ALWAYS
from tidings.matching.overlaps import Overlaps
from tidings.overlay.announcing import Announcer
from tidings.overlay.covering import digest_of, number_of_text
from tidings.overlay.merging import taken_apart
from tidings.steps import Steps

OFFERS_MAX = 100_000
"""Offers of one neighbour, which stand for all advertisements behind it."""


class NeighbourWant(NamedTuple):
    """A filter that is wanted from a neighbour."""

    filter: Filter
    passive: bool


class Pruning:
    """Filters wanted from one neighbour, and its offers; `announcer` is given those that overlap.

    An offer may concern all that is wanted, so what it changes is worked out in steps of the announcer.
    """

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._wants: dict[Hashable, NeighbourWant] = {}
        self._wanted: Overlaps[Hashable] = Overlaps()
        self._shown: dict[Hashable, tuple[Hashable, ...]] = {}  # the announcer's keys of what overlaps
        self._offers: dict[str, Filter] = {}
        self._offered: Overlaps[str] = Overlaps()
        self._offers_all = 0  # offers that overlap everything
        self._sum = 0  # of the numbers of all offers

    @property
    def digest(self) -> str:
        """Digest of the offers, equal for equal sets."""
        return f"{digest_of(self._sum):x}"

    @property
    def offers(self) -> dict[str, Filter]:
        """The offers of the neighbour, by their texts; not to be changed."""
        return self._offers

    def is_offered(self, filter: Filter) -> bool:
        """Whether anything that is offered may match."""
        return bool(filter.normal) and (self._offers_all > 0 or self._is_offered(filter))

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
        self._show(key, is_new=True)

    def remove(self, key: Hashable) -> None:
        """Want it no longer."""
        del self._wants[key]
        self._wanted.remove(key)
        for shown in self._shown.pop(key, ()):
            self._announcer.remove(shown)

    def _show(self, key: Hashable, is_new: bool = False) -> None:
        """Announce what overlaps an offer, and nothing else, under a key; all of it, if it is new."""
        want, before = self._wants[key], self._shown.pop(key, ())
        due = self._overlapping(key, want.filter)
        if due:
            self._shown[key] = tuple(due)
        for shown, filter in due.items():
            if is_new or shown not in before:
                self._announcer.add(shown, filter, want.passive)
        for shown in before:
            if shown not in due:
                self._announcer.remove(shown)

    def _overlapping(self, key: Hashable, filter: Filter) -> dict[Hashable, Filter]:
        """Return the filter if all its pieces overlap offers, or those of them that do."""
        if self._offers_all:
            return {key: filter} if filter.normal else {}
        if not self._offers:
            return {}
        pieces = taken_apart(filter)
        due: dict[Hashable, Filter] = {
            (key, place): piece for place, piece in enumerate(pieces) if self._is_offered(piece)
        }
        return {key: filter} if len(due) == len(pieces) else due

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
        self._offers_all += filter.normal == ALWAYS
        self._announcer.prepare(self._showing(filter, is_new=True))
        return True

    def withdraw(self, text: str) -> bool:
        """Drop an offer, and what overlaps no other; whether it was there."""
        filter = self._offers.pop(text, None)
        if filter is None:
            return False
        self._offered.remove(text)
        self._sum -= number_of_text(text, False)
        self._offers_all -= filter.normal == ALWAYS
        self._announcer.prepare(self._showing(filter, is_new=False))
        return True

    def _showing(self, offer: Filter, is_new: bool) -> Steps[None]:
        """Announce what an offer may overlap, as far as it overlaps any by now."""
        if offer.normal == ALWAYS:
            keys = list(self._wants)
        else:
            yield from self._wanted.filing()
            keys = self._wanted.candidates(offer)
        for key in keys:
            if key in self._wants and (key not in self._shown.get(key, ()) if is_new else key in self._shown):
                self._show(key)
                yield

    def clear(self) -> None:
        """Want nothing, and forget the offers."""
        self.__init__(self._announcer)  # type: ignore[misc]  # begin anew
