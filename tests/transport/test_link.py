"""The driver of a connection: pauses between attempts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidings.transport.link import RETRY_S_MAX, RETRY_S_MIN, Backoff


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=50))
def test_pauses_grow_within_their_limits_and_are_spread_by_chance(chances: list[float]) -> None:
    remaining = iter(chances)
    backoff = Backoff(lambda: next(remaining))
    longest_s = RETRY_S_MIN
    for _ in chances:
        assert longest_s / 2 <= backoff.next_s() <= longest_s
        longest_s = min(2 * longest_s, RETRY_S_MAX)


def test_after_a_success_pauses_are_short_again() -> None:
    backoff = Backoff(lambda: 1.0)
    for _ in range(20):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() == RETRY_S_MIN
