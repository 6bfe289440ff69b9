from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidings.sensors.wheel import Wheel

TICK_S = 1 / 128  # exact in binary, as are the times in the middle of a tick
TIMES = st.integers(0, 5_000).map(lambda tick: (tick + 0.5) * TICK_S)


@given(st.lists(TIMES), st.lists(TIMES))
def test_things_come_out_when_they_are_due_and_in_that_order(dues: list[float], looks: list[float]) -> None:
    wheel: Wheel[int] = Wheel(0.0, TICK_S, slots=16)
    for number, due in enumerate(dues):
        wheel.add(due, number)
    seen: list[int] = []
    for now in [*sorted(looks), 60.0]:
        seen += wheel.due(now + TICK_S / 2)
        assert sorted(seen) == [n for n, due in enumerate(dues) if due < now + TICK_S / 2]
    assert [dues[number] for number in seen] == sorted(dues)
    assert len(wheel) == 0


def test_what_is_late_comes_with_the_next_tick() -> None:
    wheel: Wheel[str] = Wheel(100.0, 0.01)
    assert wheel.due(101.0) == []
    wheel.add(50.0, "late")
    assert wheel.due(101.0) == []
    assert wheel.due(101.02) == ["late"]


def test_it_tells_how_long_until_the_next_tick() -> None:
    wheel: Wheel[str] = Wheel(0.0, 0.5)
    assert wheel.wait_s(0.2) == 0.3
    assert wheel.wait_s(7.0) == 0.0
