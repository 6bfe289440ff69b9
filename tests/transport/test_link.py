"""The driver of a connection: pauses between attempts, and who waits for what."""

from __future__ import annotations

import asyncio

from effort import ANSWER_S
from hypothesis import given
from hypothesis import strategies as st

import tidings
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


def test_who_waits_for_an_earlier_counter_does_not_wait_for_later_ones() -> None:
    async def work() -> None:
        async with tidings.open() as bus, asyncio.timeout(ANSWER_S):
            link, last = bus._link, bus._core.publications.last
            later = asyncio.create_task(link.wait_accepted(last + 2, None))
            await asyncio.sleep(0)
            await bus.publish("air", delivery="persistent")
            assert not later.done()
            await bus.publish("air", delivery="persistent")
            await later

    asyncio.run(work())
