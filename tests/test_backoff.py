"""Delays after failures: against a plain list of what they may be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidings.timers import RETRY_S_MAX, RETRY_S_MIN, Backoff

CHANCES = st.floats(0, 1, exclude_max=True)
SUCCESS = st.none()


@given(st.lists(CHANCES | SUCCESS, min_size=1, max_size=50), st.floats(0.001, 10.0), st.floats(1.0, 1_000.0))
def test_each_delay_is_in_the_upper_half_of_what_the_failures_in_a_row_allow(
    attempts: list[float | None], first_s: float, most_to_first: float
) -> None:
    failed = iter([one for one in attempts if one is not None])
    backoff = Backoff(lambda: next(failed), first_s, most_s := first_s * most_to_first)
    failures = 0
    for chance in attempts:
        if chance is None:
            backoff.reset()
            failures = 0
        else:
            longest_s = min(first_s * 2**failures, most_s)
            assert longest_s / 2 <= backoff.next_s() <= longest_s
            failures += 1


@given(st.integers(0, 30))
def test_without_chance_delays_are_exact(failures: int) -> None:
    backoff = Backoff(None)
    for _ in range(failures):
        backoff.next_s()
    assert backoff.next_s() == min(RETRY_S_MIN * 2**failures, RETRY_S_MAX)


@given(CHANCES, CHANCES)
def test_the_delay_grows_with_the_chance(low: float, high: float) -> None:
    delays = [Backoff(lambda chance=chance: chance).next_s() for chance in sorted((low, high))]  # type: ignore[misc]
    assert delays == sorted(delays)
