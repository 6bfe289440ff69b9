"""The index of overlaps: whatever overlaps is found, and of what does not, little."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.filters.conditions import filters
from tidings import Filter
from tidings.matching import overlaps
from tidings.matching.overlaps import Overlaps


@given(st.lists(filters, max_size=20), filters)
def test_all_that_overlap_are_found_in_the_order_in_which_they_were_added(
    stored: list[Filter], asked: Filter
) -> None:
    index: Overlaps[int] = Overlaps()
    for number, filter in enumerate(stored):
        index.add(number, filter)
    found = index.candidates(asked)
    assert {number for number, filter in enumerate(stored) if filter.overlaps(asked)} <= set(found)
    assert found == sorted(set(found))


class Filing(RuleBasedStateMachine):
    """Filters come and go, and what is left behind is what was never there."""

    def __init__(self) -> None:
        super().__init__()
        self.index: Overlaps[int] = Overlaps()
        self.stored: dict[int, Filter] = {}
        self.number = 0

    @rule(filter=filters)
    def add(self, filter: Filter) -> None:
        self.number += 1
        self.index.add(self.number, filter)
        self.stored[self.number] = filter

    @rule(which=st.integers(0))
    def remove(self, which: int) -> None:
        if self.stored:
            key = list(self.stored)[which % len(self.stored)]
            self.index.remove(key)
            del self.stored[key]

    @rule(asked=filters)
    def ask(self, asked: Filter) -> None:
        found = set(self.index.candidates(asked))
        assert {key for key, filter in self.stored.items() if filter.overlaps(asked)} <= found
        assert found <= self.stored.keys()

    @invariant()
    def nothing_is_left_of_those_that_are_gone(self) -> None:
        assert len(self.index) == len(self.stored)
        if not self.stored:
            assert self.index.candidates(Filter()) == []
            assert not self.index._groups


TestFiling = Filing.TestCase


def filed(*texts: str) -> Overlaps[str]:
    index: Overlaps[str] = Overlaps()
    for text in texts:
        index.add(text, Filter(text))
    return index


def test_a_type_among_many_leads_to_those_of_that_type() -> None:
    index = filed(*(f"type = 't{number}' AND value > {number}" for number in range(100)), "subject = 'park'")
    asked = Filter("type = 't7' AND value < 100")
    assert index.candidates(asked) == ["type = 't7' AND value > 7", "subject = 'park'"]


def test_those_of_one_type_are_told_apart_by_another_attribute() -> None:
    index = filed(*(f"type = 't' AND room = 'r{number}'" for number in range(100)))
    assert index.candidates(Filter("room = 'r5'")) == ["type = 't' AND room = 'r5'"]
    assert index.candidates(Filter("type = 't' AND room = 'r5'")) == ["type = 't' AND room = 'r5'"]


def test_ranges_that_lie_apart_are_not_found() -> None:
    index = filed(*(f"v >= {number} AND v < {number + 1}" for number in range(100)))
    asked = Filter("v BETWEEN 7 AND 8.5")
    assert index.candidates(asked) == ["v >= 7 AND v < 8", "v >= 8 AND v < 9"]


def test_a_filter_of_very_many_values_is_filed_as_one_range() -> None:
    listed = ", ".join(map(str, range(overlaps.POINTS_MAX + 1)))
    index = filed(f"n IN ({listed})", *(f"n = {-number}" for number in range(1, 20)))
    assert index.candidates(Filter("n = 1.5")) == [f"n IN ({listed})"]
    assert index.candidates(Filter("n > 1000")) == []


def test_a_filter_of_very_many_alternatives_may_overlap_anything() -> None:
    text = " OR ".join(f"(a = {n} AND b{n} > 0)" for n in range(overlaps.ALTERNATIVES_MAX + 1))
    index = filed(text)
    assert index.candidates(Filter("a = 99")) == [text]
    index.remove(text)
    assert index.candidates(Filter("a = 99")) == []


def test_a_filter_that_matches_nothing_overlaps_nothing() -> None:
    index = filed("FALSE", "n = 1")
    assert index.candidates(Filter()) == ["n = 1"]
    assert index.candidates(Filter("FALSE")) == []
    assert "FALSE" in index
