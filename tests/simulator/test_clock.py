"""Virtual time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidings.simulator.world import Clock


@given(st.lists(st.floats(0, 10)))
def test_things_happen_in_the_order_of_their_times_and_then_as_they_were_asked(delays_s: list[float]) -> None:
    clock, done = Clock(), []
    for number, delay_s in enumerate(delays_s):
        clock.after(delay_s, lambda number=number: done.append((clock.now, number)))  # type: ignore[misc]
    clock.run(10)
    assert done == sorted((delay_s, number) for number, delay_s in enumerate(delays_s))


def test_what_is_not_due_waits_and_time_goes_on_to_where_it_was_told() -> None:
    clock, done = Clock(), []
    clock.after(5, lambda: done.append(clock.now))
    clock.run(4)
    assert (done, clock.now) == ([], 4)
    clock.run(6)
    assert (done, clock.now) == ([5], 6)


def test_what_happens_may_ask_for_more() -> None:
    clock, done = Clock(), []

    def again() -> None:
        done.append(clock.now)
        if len(done) < 3:
            clock.after(1, again)

    clock.after(0, again)
    clock.run(10)
    assert (done, clock.steps) == ([0, 1, 2], 3)
