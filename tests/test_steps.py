"""Long work in steps."""

from __future__ import annotations

from tidings.steps import Steps, finish


def count(to: int, seen: list[int]) -> Steps[int]:
    """Count up, a number a step."""
    for number in range(to):
        seen.append(number)
        yield
    return to


def test_finish_runs_all_steps_and_returns_their_result() -> None:
    seen: list[int] = []
    assert finish(count(3, seen)) == 3
    assert seen == [0, 1, 2]


def test_work_without_a_step_returns_its_result() -> None:
    assert finish(count(0, [])) == 0
