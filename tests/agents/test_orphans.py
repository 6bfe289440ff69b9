"""Who is an orphan, and who is not: exact times, lost notices, partitions and quick restarts."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.agents.orphans import AliveTimes, AliveWatch, LeaseHolder, NoticeSender, costs, orphan_s_max
from tidings.errors import UserError

TIMES = AliveTimes(notice_s=10, check_s=25, delay_s=2, losses=1)


def test_one_lost_notice_ends_nobody() -> None:
    watch: AliveWatch[str] = AliveWatch(TIMES)
    watch.heard("a", 0)  # that of 10 is lost, that of 20 arrives 2 late
    assert list(watch.judged(22)) == []
    watch.heard("a", 22)
    assert list(watch.judged(46.9)) == []


def test_two_lost_notices_make_an_orphan_at_25() -> None:
    watch: AliveWatch[str] = AliveWatch(TIMES)
    watch.heard("a", 0)
    assert list(watch.judged(24.999)) == []
    assert watch.wake_at == 25
    assert list(watch.judged(25)) == ["a"]
    assert list(watch.judged(100)) == []


def test_settings_that_do_not_tolerate_what_they_promise_are_refused() -> None:
    AliveTimes(10, 22, 2, 1).check()
    with pytest.raises(UserError, match=r"check 21 s is too short.*\(1 \+ 1\) × 10 \+ 2 = 22 s"):
        AliveTimes(10, 21, 2, 1).check()
    with pytest.raises(UserError):
        AliveTimes(0, 21, 2, 1).check()
    with pytest.raises(UserError):
        AliveTimes(10, inf, 2, 1).check()


def test_who_speaks_anyway_sends_no_notices() -> None:
    sender = NoticeSender(TIMES.notice_s, 0)
    assert not sender.wake(9)
    sender.said(9)
    assert not sender.wake(10)
    assert sender.wake_at == 19
    assert sender.wake(19)
    assert not sender.wake(19)


def test_a_notice_says_where_one_is() -> None:
    watch: AliveWatch[str] = AliveWatch(TIMES)
    watch.heard("a", 0, "node-a")
    watch.heard("a", 5, "node-b")
    watch.heard("a", 6)
    assert watch.where("a") == "node-b"
    watch.forget("a")
    assert "a" not in watch


@given(
    notice_s=st.integers(1, 50),
    delay_s=st.integers(0, 20),
    losses=st.integers(0, 3),
    slack_s=st.integers(0, 30),
    lost=st.lists(st.booleans(), max_size=40),
    late=st.lists(st.floats(0, 1), min_size=41, max_size=41),
)
def test_within_the_tolerance_nobody_useful_is_judged(
    notice_s: int, delay_s: int, losses: int, slack_s: int, lost: list[bool], late: list[float]
) -> None:
    """Whichever notices are lost, at most `losses` in a row, and however late the others are."""
    times = AliveTimes(notice_s, (losses + 1) * notice_s + delay_s + slack_s, delay_s, losses)
    watch: AliveWatch[str] = AliveWatch(times)
    watch.heard("a", 0)
    row, arrivals = 0, []
    for number, is_lost in enumerate(lost, 1):
        row = row + 1 if is_lost else 0
        if row > losses:
            row = 0
        elif is_lost:
            continue
        arrivals.append(number * notice_s + late[number] * delay_s)
    for moment in sorted(arrivals):
        if moment < inf:
            # At the very moment both may happen: the notice is taken first.
            assert list(watch.judged(moment - 1e-6)) == []
            watch.heard("a", moment)


def test_a_lease_is_asked_for_at_random_moments_before_its_end() -> None:
    moments = {chance: LeaseHolder(30, lambda chance=chance: chance, 0).ask_at for chance in (0.0, 0.5, 1.0)}
    assert moments == {0.0: 10, 0.5: pytest.approx(15), 1.0: 20}


def test_yes_renews_no_ends_and_nobody_to_ask_uses_the_lease_up() -> None:
    holder = LeaseHolder(30, lambda: 0.0, 0)
    assert holder.asks(10)
    assert holder.answered("yes", 12)
    assert holder.ends_at == 40  # from when it was asked for
    assert holder.asks(20)
    assert holder.answered("can't ask", 21)
    assert holder.ends_at == 40
    assert holder.asks(25)  # once more
    assert not holder.is_over(39.9)
    assert holder.is_over(40)
    assert not holder.answered("can't ask", 40)
    again = LeaseHolder(30, lambda: 0.0, 0)
    assert again.asks(10)
    assert not again.answered("no", 11)


def test_one_that_was_released_needs_nobody() -> None:
    holder = LeaseHolder(30, lambda: 0.5, 0)
    holder.release()
    assert holder.wake_at == inf
    assert not holder.is_over(1e9)
    assert holder.answered("can't ask", 1e9)


@given(st.lists(st.sampled_from(["yes", "can't ask"]), max_size=30), st.floats(0, 1))
def test_an_orphan_never_outlives_its_bound(answers: list[str], chance: float) -> None:
    """After the last yes, the lease is over within its length, whatever else is asked."""
    holder, last_yes = LeaseHolder(30, lambda: chance, 0), 0.0
    for answer in answers:
        now = holder.wake_at
        if holder.is_over(now):
            break
        assert holder.asks(now)
        if answer == "yes":
            last_yes = now
        holder.answered(answer, now)  # type: ignore[arg-type]
    while not holder.is_over(holder.wake_at):
        holder.asks(holder.wake_at)
    assert holder.wake_at <= last_yes + 30 + 1e-9
    assert orphan_s_max(30, 5) == 35


@pytest.mark.parametrize("lease_s", [0, -1, float("nan"), inf])
def test_a_lease_has_a_sensible_length(lease_s: float) -> None:
    with pytest.raises(UserError):
        LeaseHolder(lease_s, lambda: 0.5, 0)


def test_costs_by_the_formulas() -> None:
    """10 agents, of which 8 survive; an event costs 9 (the tree), a message 3."""
    names = ("active worst", "active best", "basic", "direct", "channel")
    assert [costs(name, 10, 8, 9, 3) for name in names] == [90, 0, 180, 114, 18]  # type: ignore[arg-type]
