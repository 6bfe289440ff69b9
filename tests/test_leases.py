"""Leases against an oracle that looks at all of them each time."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidings.timers import Leases, deadline, granted_s, renewal_s

KEYS = st.integers(0, 5)
LEASES = st.sampled_from([0.5, 1.0, 5.0, inf])
TIMES = st.floats(-1e9, 1e9)


class AgainstLooking(RuleBasedStateMachine):
    """The oracle keeps when each was renewed, and how long its lease is."""

    @initialize()
    def begin(self) -> None:
        self.renewed: dict[int, tuple[float, float]] = {}
        self.watched: set[int] = set()
        self.now = 100.0
        self.leases: Leases[int] = Leases(self.ends_at)

    def ends_at(self, key: int) -> float:
        return sum(self.renewed[key])

    @rule(key=KEYS, lease_s=LEASES)
    def grant(self, key: int, lease_s: float) -> None:
        """A lease that is shorter than before has to be watched anew, as any new one."""
        self.renewed[key] = self.now, lease_s
        self.watched.add(key)
        self.leases.watch(key)

    @rule(key=KEYS)
    def renew(self, key: int) -> None:
        """Without a word to the leases."""
        if key in self.renewed:
            self.renewed[key] = self.now, self.renewed[key][1]

    @rule(key=KEYS)
    def drop(self, key: int) -> None:
        self.leases.cancel(key)
        self.watched.discard(key)

    @rule(elapsed_s=st.sampled_from([0.0, 0.5, 2.0, 10.0]))
    def look(self, elapsed_s: float) -> None:
        self.now += elapsed_s
        over = {key for key in self.watched if self.ends_at(key) <= self.now}
        assert set(self.leases.ended(self.now)) == over
        self.watched -= over

    @invariant()
    def nothing_is_woken_late(self) -> None:
        assert self.leases.wake_at <= min((self.ends_at(key) for key in self.watched), default=inf)


TestAgainstLooking = AgainstLooking.TestCase


def test_a_renewed_lease_is_looked_at_once_for_each_end_that_it_had() -> None:
    """However often it was renewed: a renewal costs nothing."""
    looked: list[float] = []
    heard_at = 0.0

    def ends_at(_key: str) -> float:
        looked.append(heard_at + 10.0)
        return looked[-1]

    leases = Leases(ends_at)
    leases.watch("network")
    for tenth in range(1_000):
        heard_at = tenth / 10
        assert list(leases.ended(heard_at)) == []
    assert len(looked) <= 1 + 100 / 10 + 1
    assert list(leases.ended(heard_at + 10.0)) == ["network"]


def test_one_that_has_ended_is_watched_no_more() -> None:
    leases = Leases[str](lambda _: 5.0)
    leases.watch("network")
    assert list(leases.ended(5.0)) == ["network"]
    assert list(leases.ended(50.0)) == []
    assert leases.wake_at == inf


@given(TIMES, TIMES, TIMES, st.floats(0, 1e9))
def test_a_stored_moment_is_as_far_away_as_the_wall_clock_says_within_the_limit(
    moment: float, wall: float, now: float, limit_s: float
) -> None:
    left_s = deadline(moment, wall, now, limit_s) - now
    assert left_s <= limit_s + 1e-6
    assert abs(left_s - min(moment - wall, limit_s)) <= 1e-6


@given(st.none() | st.floats(0, 1e9), st.none() | st.floats(0, 1e9))
def test_what_was_asked_is_granted_as_far_as_it_is_allowed(asked: float | None, most: float | None) -> None:
    wanted = min(inf if asked is None else asked, inf if most is None else most)
    assert granted_s(asked, most) == (None if wanted == inf else wanted)


@given(st.floats(0.1, 1e6))
def test_two_renewals_may_be_lost(lease_s: float) -> None:
    assert 2 * renewal_s(lease_s) < lease_s
