from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.security.authenticator import FAILURE_S, FAILURES_MAX, HOSTS_MAX, Attempts, network_of


def test_after_some_failures_a_host_has_to_wait_and_others_have_not() -> None:
    attempts = Attempts()
    for _ in range(FAILURES_MAX):
        assert attempts.wait_s("a", 100.0) == 0
        attempts.fail("a", 100.0)
    assert attempts.wait_s("a", 100.0) == 2
    assert attempts.wait_s("a", 101.5) == 1
    assert attempts.wait_s("a", 102.0) == 0
    assert attempts.wait_s("b", 100.0) == 0


def test_what_is_forgiven_does_not_count() -> None:
    attempts = Attempts()
    for _ in range(100):
        assert attempts.wait_s("a", 0.0) == 0
        attempts.fail("a", 0.0)
        attempts.forgive("a", 0.0)


@given(st.lists(st.floats(0, 10), max_size=200))
def test_in_any_time_no_more_fail_than_at_once_and_one_for_each_interval(steps: list[float]) -> None:
    attempts, now, failed = Attempts(), 1e9, 0
    for step in steps:
        now += step
        if attempts.wait_s("a", now) == 0:
            attempts.fail("a", now)
            failed += 1
    assert failed <= FAILURES_MAX + (now - 1e9) / FAILURE_S + 1e-3


def test_who_waits_as_told_may_fail_again() -> None:
    attempts, now = Attempts(), 7.3
    for _ in range(50):
        now += attempts.wait_s("a", now)
        assert attempts.wait_s("a", now) == 0
        attempts.fail("a", now)


def test_a_clock_that_goes_back_does_not_let_anyone_off() -> None:
    attempts = Attempts()
    for _ in range(FAILURES_MAX):
        attempts.fail("a", 1000.0)
    assert attempts.wait_s("a", 10.0) == 2


def test_a_bounded_number_of_hosts_is_remembered() -> None:
    attempts = Attempts()
    for number in range(HOSTS_MAX + 500):
        for _ in range(FAILURES_MAX):
            attempts.fail(str(number), 0.0)
    assert len(attempts._levels) == HOSTS_MAX
    assert attempts.wait_s("499", 0.0) == 0
    assert attempts.wait_s("500", 0.0) == 2


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("no address", "no address"),
    ],
)
def test_a_host_counts_by_its_network(host: str, network: str) -> None:
    assert network_of(host) == network
