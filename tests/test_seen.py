"""Which numbers were had."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidings import seen as seen_module
from tidings.seen import NumberGap, Producers, SeenNumbers

NUMBERS = st.integers(1, 40)
LENGTHS = st.integers(0, 6)


class Against(RuleBasedStateMachine):
    """What is had, against a plain set of all numbers that were."""

    @initialize()
    def begin(self) -> None:
        self.seen = SeenNumbers()
        self.had: set[int] = set()
        self.last = 0
        self.now = 0.0

    @rule(number=NUMBERS)
    def count_up(self, number: int) -> None:
        assert self.seen.count_up(number) == self.last
        self.had.update(range(self.last + 1, number + 1))
        self.last = max(self.last, number)

    @rule(first=NUMBERS, length=LENGTHS)
    def add(self, first: int, length: int) -> None:
        self.now += 1
        numbers = range(first, first + length + 1)
        assert self.seen.add(first, numbers[-1], self.now) == len(set(numbers) - self.had)
        self.had.update(numbers)
        self.last = max(self.last, numbers[-1])

    @rule(first=NUMBERS, length=LENGTHS)
    def reopen(self, first: int, length: int) -> None:
        numbers = range(first, first + length + 1)
        self.seen.reopen(first, numbers[-1])
        self.had.update(range(self.last + 1, numbers[-1] + 1))
        self.had.difference_update(numbers)
        self.last = max(self.last, numbers[-1])

    @rule(age=st.integers(0, 10))
    def give_up(self, age: int) -> None:
        for first, last, since in self.seen.give_up(self.now - age):
            assert since <= self.now - age
            self.had.update(range(first, last + 1))

    @rule()
    def store_and_restore(self) -> None:
        self.seen = SeenNumbers(self.seen.last, list(self.seen.gaps))

    @invariant()
    def it_has_the_same(self) -> None:
        assert self.seen.last == self.last
        assert {number for number in range(-2, 60) if number in self.seen} == self.had | {-2, -1, 0}
        missing = [number for gap in self.seen.gaps for number in range(gap.first, gap.last + 1)]
        assert missing == sorted(set(range(1, self.last + 1)) - self.had)
        assert all(before.last + 1 < after.first for before, after in pairwise(self.seen.gaps))


TestAgainst = Against.TestCase


@given(st.permutations(range(1, 30)))
def test_what_comes_in_disorder_is_had_once_and_leaves_nothing(numbers: list[int]) -> None:
    seen = SeenNumbers()
    assert [seen.add(number) for number in numbers + numbers] == [1] * 29 + [0] * 29
    assert (seen.last, seen.gaps) == (29, [])


def test_gaps_that_meet_are_as_old_as_the_oldest_of_them() -> None:
    seen = SeenNumbers(20, [NumberGap(3, 4, 7.0), NumberGap(8, 9, 5.0)])
    seen.reopen(5, 7, 9.0)
    assert seen.gaps == [NumberGap(3, 9, 5.0)]
    seen.add(6)
    assert seen.gaps == [NumberGap(3, 5, 5.0), NumberGap(7, 9, 5.0)]
    assert seen.give_up(4.0) == []
    assert seen.give_up(5.0) == [NumberGap(3, 5, 5.0), NumberGap(7, 9, 5.0)]
    assert 3 in seen


def test_past_so_many_gaps_the_lowest_counts_as_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "GAPS_MAX", 2)
    seen = SeenNumbers(1)
    for number in (3, 5, 7):
        seen.add(number)
    assert (2 in seen, 4 in seen, 6 in seen) == (True, False, False)
    seen.reopen(1)
    assert seen.gaps == [NumberGap(4, 4), NumberGap(6, 6)]
    seen.reopen(8, 10)
    seen.add(9)
    assert seen.gaps == [NumberGap(8, 8), NumberGap(10, 10)]


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 4))
def test_the_producers_heard_of_last_are_remembered(heard: list[int], most: int) -> None:
    producers: Producers[int, list[int]] = Producers(most)
    order: list[int] = []
    for key in heard:
        is_known = key in order
        memory = producers.heard(key, list)
        assert memory == ([key] if is_known else [])
        memory[:] = [key]
        order = [*(one for one in order if one != key), key][-most:]
        assert list(producers) == order
