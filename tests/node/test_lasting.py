"""Trouble that lasts is logged once, and when it has passed."""

from __future__ import annotations

import pytest

from tidings.node.lasting import PROBLEMS_MAX, QUIET_S, Lasting


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records]


def test_a_problem_that_stays_is_logged_once_and_when_it_has_passed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    trouble = Lasting("the store failed", "the store works again")
    for now in range(1_000):
        trouble.fail("disk is full", float(now))
        trouble.succeed()  # what is small still fits
        trouble.look(now + 0.5)
    assert lines(caplog) == ["the store failed"]
    trouble.look(999 + QUIET_S)
    trouble.look(999 + 2 * QUIET_S)
    assert lines(caplog) == ["the store failed", "the store works again"]
    trouble.fail("disk is full", 2_000.0)
    assert lines(caplog)[2:] == ["the store failed"]
    trouble.look(3_000.0)  # nothing was tried since: it may be full still
    assert len(lines(caplog)) == 3


def test_different_problems_are_logged_each_and_not_without_end(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Lasting("the store failed", "the store works again")
    for number in range(1_000):
        trouble.fail(f"problem {number}", 0.0)
    assert len(lines(caplog)) == PROBLEMS_MAX
