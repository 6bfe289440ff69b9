"""Whose turn it is."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tidings.turns import ROUND_S, SLICE_S, TURN_S, Share, Turns, adapted

STEP_S = 0.001


class World:
    """Workers that each have so many steps to do, and a clock that only work moves."""

    def __init__(self, **steps: int) -> None:
        self.now = 0.0
        self.left = dict(steps)
        self.done: list[str] = []
        self.shares = {name: Share() for name in steps}
        self.turns: Turns[str] = Turns(lambda: self.now, self._work)

    def _work(self, name: str, until: float) -> bool:
        while self.left[name]:
            self.left[name] -= 1
            self.done.append(name)
            self.now += STEP_S
            if self.now >= until:
                break
        return self.left[name] > 0

    def add(self, *names: str) -> None:
        """Put these in line."""
        for name in names:
            self.turns.add(name, self.shares[name])

    def run(self, most_s: float = inf) -> None:
        """Let turns pass for so long, or until nobody is in line."""
        until = self.now + most_s
        while len(self.turns) and self.now < until:
            self.turns.run()


def test_two_who_want_everything_take_turns() -> None:
    world = World(a=1_000, b=1_000)
    world.add("a", "b")
    world.run(0.1)
    assert abs(world.done.count("a") - world.done.count("b")) <= SLICE_S / STEP_S


def test_who_comes_with_little_is_next_however_much_others_have_piled_up() -> None:
    world = World(a=10_000, b=10_000, light=1)
    world.add("a", "b")
    world.run(1.0)
    world.add("light")
    before = len(world.done)
    world.turns.run()
    assert "light" in world.done[before:]


def test_who_comes_with_little_is_next_however_many_others_are_busy() -> None:
    many = {f"w{number}": 10_000 for number in range(100)}
    world = World(**many, light=1)
    world.add(*many)
    for _ in range(50):
        world.run(0.2)
        world.left["light"] = 1
        world.add("light")
        before = len(world.done)
        world.turns.run()
        assert "light" in world.done[before:]


def test_where_many_wait_all_of_them_have_a_short_slice_soon() -> None:
    many = {f"w{number}": 10_000 for number in range(50)}
    world = World(**many)
    world.add(*many)
    world.run(2 * ROUND_S)
    assert len(set(world.done)) == 50


def test_who_is_idle_now_and_then_gets_no_more_than_its_share() -> None:
    world = World(a=10_000, b=10_000, c=10_000, sly=0)
    world.add("a", "b", "c")
    for _ in range(400):
        world.left["sly"] = 4
        world.add("sly")
        world.turns.run()
    assert abs(world.done.count("sly") / len(world.done) - 1 / 4) < 0.02


def test_who_was_idle_has_saved_hardly_anything_up() -> None:
    world = World(a=10_000, late=10_000)
    world.add("a")
    world.run(5.0)
    world.add("late")
    before = len(world.done)
    world.run(0.1)
    assert world.done[before:].count("a") >= 40


def test_workers_of_one_share_get_one_share_together() -> None:
    world = World(a=1_000, b=1_000, c=1_000, other=1_000)
    world.shares["b"] = world.shares["c"] = world.shares["a"]
    world.add("a", "b", "c", "other")
    world.run(0.4)
    assert abs(world.done.count("other") - 200) <= 2 * SLICE_S / STEP_S


def test_who_comes_while_nobody_waits_works_at_once() -> None:
    world = World(a=3)
    world.turns.offer("a", world.shares["a"])
    assert world.done == ["a"] * 3
    assert not len(world.turns)


def test_who_comes_while_others_wait_or_when_the_turn_is_over_gets_in_line() -> None:
    world = World(a=4, b=4, c=4, d=4, heavy=100)
    for name in "abc":
        world.turns.offer(name, world.shares[name])
    assert world.done == ["a"] * 4 + ["b"] * 4 + ["c"] * 4  # which is more than a turn
    world.turns.offer("d", world.shares["d"])
    assert "d" in world.turns
    world.turns.run()
    assert world.done.count("d") == 4
    world.turns.offer("heavy", world.shares["heavy"])
    assert world.done.count("heavy") == 5
    world.left["a"] = 1
    world.turns.offer("a", world.shares["a"])
    assert "a" in world.turns


def test_one_who_has_left_does_not_work() -> None:
    world = World(a=10, b=10)
    world.add("a", "b")
    world.turns.discard("a")
    world.run()
    assert world.done == ["b"] * 10
    assert not len(world.turns)


def test_a_clock_that_stands_runs_everything_to_its_end() -> None:
    done: list[int] = []

    def work(number: int, until: float) -> bool:
        assert until > 0
        done.append(number)
        return False

    turns: Turns[int] = Turns(lambda: 0.0, work)
    for number in range(5):
        turns.add(number, Share())
    turns.run()
    assert done == list(range(5))


@given(st.lists(st.integers(1, 200), min_size=1, max_size=8), st.integers(0, 400))
def test_all_work_is_done_once_and_nobody_gets_more_than_a_slice_ahead(steps: list[int], cut: int) -> None:
    world = World(**{f"w{number}": count for number, count in enumerate(steps)})
    world.add(*world.left)
    world.run(cut * STEP_S)
    busy = [world.done.count(name) for name, left in world.left.items() if left]
    if busy:
        assert max(busy) - min(busy) <= 2 * SLICE_S / STEP_S
    world.run()
    assert sorted(world.done) == sorted(
        f"w{number}" for number, count in enumerate(steps) for _ in range(count)
    )


def test_very_many_workers_of_one_share_cost_one_place_in_line() -> None:
    done: list[int] = []

    def work(number: int, _until: float) -> bool:
        done.append(number)
        return done.count(number) < 2

    turns: Turns[int] = Turns(lambda: 0.0, work)
    share, other = Share(), Share()
    for number in range(100):
        turns.add(number, share)
    turns.add(1_000, other)
    assert len(turns._line) == 2
    turns.run()
    assert done.index(1_000) <= 1
    assert [number for number in done if number < 1_000] == [*range(100), *range(100)]


def test_workers_of_one_share_have_a_slice_together_while_nobody_else_waits() -> None:
    world = World(a=1, b=2, c=1)
    world.shares["b"] = world.shares["c"] = world.shares["a"]
    ends: list[float] = []

    def work(name: str, until: float) -> bool:
        ends.append(until)
        return world._work(name, until)

    world.turns = Turns(lambda: world.now, work)
    world.add("a", "b", "c")
    world.turns.run()
    assert world.done == list("abbc")
    assert ends == [SLICE_S] * 3
    assert world.shares["a"].used_s == world.now


def test_a_slice_ends_with_the_turn() -> None:
    world = World(a=3, b=1_000)
    world.add("a", "b")
    world.turns.run()
    assert world.now <= TURN_S + STEP_S, "a has handled all that has come, and the loop must read more for it"


def test_a_step_is_twice_as_large_after_a_quick_one_and_half_after_a_slow_one() -> None:
    assert [adapted(8, took_s, 0.1, 0.4, 100) for took_s in (0.05, 0.1, 0.4, 0.5)] == [16, 8, 8, 4]
    assert (adapted(80, 0.0, 0.1, 0.4, 100), adapted(1, 1.0, 0.1, 0.4, 100)) == (100, 1)
