"""Timers against an oracle that sorts all of them each time."""

from __future__ import annotations

import weakref
from math import inf

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidings import timers
from tidings.steps import finish
from tidings.timers import Alarms, Timers

KEYS = st.integers(0, 9)
DELAYS = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 1.0, 7.0, inf])


class AgainstSorting(RuleBasedStateMachine):
    """The oracle is a dict of moments, with the number of each setting."""

    @initialize()
    def begin(self) -> None:
        self.timers: Timers[int] = Timers()
        self.moments: dict[int, tuple[float, int]] = {}
        self.now, self.settings = 0.0, 0

    def set(self, key: int, moment: float) -> None:
        self.settings += 1
        self.moments.pop(key, None)
        if moment < inf:
            self.moments[key] = moment, self.settings

    @rule(key=KEYS, delay_s=DELAYS)
    def at(self, key: int, delay_s: float) -> None:
        assert self.timers.at(self.now + delay_s, key) == key
        self.set(key, self.now + delay_s)

    @rule(key=KEYS, delay_s=DELAYS)
    def by(self, key: int, delay_s: float) -> None:
        self.timers.by(self.now + delay_s, key)
        if self.now + delay_s < self.moments.get(key, (inf, 0))[0]:
            self.set(key, self.now + delay_s)

    @rule(key=KEYS | st.none())
    def cancel(self, key: int | None) -> None:
        self.timers.cancel(key)
        if key is not None:
            self.moments.pop(key, None)

    @rule(elapsed_s=st.sampled_from([0.0, 0.5, 3.0, 30.0]))
    def take_all(self, elapsed_s: float) -> None:
        self.now += elapsed_s
        wanted = sorted(
            (one for one in self.moments if self.moments[one][0] <= self.now), key=self.moments.__getitem__
        )
        assert list(self.timers.due(self.now)) == wanted
        for key in wanted:
            del self.moments[key]

    @rule(most=st.integers(0, 3))
    def take_some(self, most: int) -> None:
        """So many entries are looked at, cancelled ones among them."""
        taken = list(self.timers.due(self.now, most))
        wanted = sorted(self.moments, key=self.moments.__getitem__)
        assert len(taken) <= most
        assert taken == wanted[: len(taken)]
        for key in taken:
            assert self.moments.pop(key)[0] <= self.now

    @rule()
    @precondition(lambda self: len(self.moments) > 1)
    def cancel_while_taking(self) -> None:
        first, second = sorted(self.moments, key=self.moments.__getitem__)[:2]
        seen = []
        for key in self.timers.due(inf):
            seen.append(key)
            self.timers.cancel(second)
        assert seen == [one for one in sorted(self.moments, key=self.moments.__getitem__) if one != second]
        assert seen[0] == first
        self.moments.clear()

    @invariant()
    def nothing_is_woken_late(self) -> None:
        first = min((moment for moment, _ in self.moments.values()), default=inf)
        assert self.timers.wake_at <= first
        assert len(self.timers) == len(self.moments)
        assert {key: self.timers.moment(key) for key in range(10)} == {
            key: self.moments.get(key, (inf, 0))[0] for key in range(10)
        }
        assert all((key in self.timers) == (key in self.moments) for key in range(10))
        assert set(self.timers) == set(self.moments)


TestAgainstSorting = AgainstSorting.TestCase
TestAgainstSorting.settings = settings(max_examples=often(100), stateful_step_count=40, deadline=None)


@given(st.lists(st.tuples(KEYS, st.integers(0, 50)), max_size=200), st.integers(0, 5))
def test_entries_that_were_moved_are_swept_out(moved: list[tuple[int, int]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timers, "TIDY_AFTER", most)
        some: Timers[int] = Timers()
        for key, moment in moved:
            some.at(moment, key)
            assert len(some._heap) <= 2 * len(some) + most
    last = dict(moved)
    assert [last[key] for key in some.due(100)] == sorted(last.values())


def test_a_sweep_while_some_are_taken_loses_and_repeats_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "TIDY_AFTER", 0)
    some, taken = Timers[int](), []
    for key in range(6):
        some.at(float(key), key)
    for key in some.due(10.0):
        taken.append(key)
        for moment in range(20 if key == 0 else 0):
            some.at(20.0 + moment, 5)
    assert taken == [0, 1, 2, 3, 4]
    assert list(some.due(39.0)) == [5]


def test_one_that_is_due_by_a_moment_keeps_its_place_among_those_of_that_moment() -> None:
    some: Timers[str] = Timers()
    some.at(1.0, "first")
    some.at(1.0, "second")
    some.by(1.0, "first")
    assert list(some.due(1.0)) == ["first", "second"]


def test_what_was_cancelled_is_let_go_of_at_once() -> None:
    class Thing:
        pass

    thing, some = Thing(), Timers[Thing]()
    some.at(5.0, thing)
    some.at(9.0, thing)
    some.cancel(thing)
    there = weakref.ref(thing)
    del thing
    assert there() is None


def test_passing_many_that_were_cancelled_is_bounded() -> None:
    some: Timers[int] = Timers()
    for key in range(500):
        some.at(1.0, key)
    for key in range(500):
        some.cancel(key)
    some.at(2.0, -1)
    assert some.wake_at == 1.0  # not all were passed yet
    assert list(some.due(1.5, timers.AT_ONCE)) == []
    while some.wake_at < 2.0:
        pass
    assert list(some.due(2.0)) == [-1]


def test_alarms_are_called_in_steps_and_those_set_for_now_too() -> None:
    alarms, called = Alarms(), []

    def ring(number: int) -> None:
        def act(now: float) -> None:
            called.append((number, now))
            if number == 0:
                alarms.at(now, ring_last)

        alarms.at(1.0, act)

    def ring_last(_now: float) -> None:
        called.append((-1, _now))

    for number in range(timers.CALLED_AT_ONCE + 1):
        ring(number)
    steps = alarms.wake(3.0)
    next(steps)
    assert called == [(number, 3.0) for number in range(timers.CALLED_AT_ONCE)]
    finish(steps)
    assert called[timers.CALLED_AT_ONCE :] == [(timers.CALLED_AT_ONCE, 3.0), (-1, 3.0)]
    assert alarms.wake_at == inf
