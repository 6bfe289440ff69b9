"""The rate of a queue: all of its readers together get so many messages a second."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.rig import Client, Rig, numbers, pass_time
from tidings.queues.schedule import BURST_S, TokenBucket


def clients(rate: float, count: int, **fields: Any) -> tuple[Client, Client]:
    ann = Client(Rig())
    ann.create("jobs", rate=rate, redelivery_s=None, **fields)
    if count:
        ann.put("jobs", *range(count))
    ann.rig.run()
    return ann, Client(ann.rig, "b", "bob")


def test_readers_that_come_too_soon_get_nothing_yet() -> None:
    ann, bob = clients(2.0, 5)
    assert numbers(ann.get("jobs", 5)) == [0]
    assert bob.get("jobs", 5) == []
    ann.rig.now += 0.5
    assert numbers(bob.get("jobs", 5)) == [1]
    assert ann.get("jobs", 5) == []


def test_readers_that_wait_get_a_message_at_each_beat_who_came_first_first() -> None:
    ann, bob = clients(2.0, 5)
    requests = [(one, one.wait("jobs")) for one in (ann, bob, ann, bob)]
    ann.rig.run()
    for beat in range(4):
        got = [one.got(number) for one, number in requests]
        assert [numbers(hands) for hands in got if hands is not None] == [[n] for n in range(beat + 1)]
        assert ann.rig.broker.wake_at <= ann.rig.now + 0.5 or beat == 3
        pass_time(ann.rig, 0.5)


def test_what_is_put_while_readers_wait_is_held_back_too() -> None:
    ann, bob = clients(2.0, 0)
    first, second = ann.wait("jobs"), bob.wait("jobs", where="n >= 2")
    ann.put("jobs", 0, 1, 2)
    ann.rig.run()
    assert numbers(ann.got(first) or []) == [0]
    assert bob.got(second) is None
    pass_time(ann.rig, 0.5)
    assert numbers(bob.got(second) or []) == [2]


def test_readers_that_only_read_do_not_count() -> None:
    ann, bob = clients(2.0, 3)
    assert numbers(ann.get("jobs")) == [0]
    assert numbers(bob.read("jobs")) == [1, 2]


def test_a_high_rate_hands_out_some_at_a_time() -> None:
    ann, _ = clients(1_000.0, 500)
    assert len(ann.get("jobs", 500)) == 1_000 * BURST_S
    ann.rig.now += 0.05
    assert len(ann.get("jobs", 500)) == 50


def test_the_rate_is_kept_with_the_queue() -> None:
    ann, _ = clients(2.0, 3)
    ann.come(ann.rig.restart())
    assert ann.describe("jobs")["rate"] == 2.0
    assert numbers(ann.get("jobs", 5)) == [0]


@pytest.mark.parametrize("rate", [0, -1, 1e9])
def test_a_rate_that_can_not_be_is_refused(rate: float) -> None:
    assert Client(Rig()).fails("queue.create", name="jobs", rate=rate)


@given(
    st.floats(0.01, 1_000),
    st.lists(st.tuples(st.floats(0, 10), st.integers(1, 50)), max_size=30),
)
def test_no_more_is_handed_out_than_the_rate_allows(rate: float, steps: list[tuple[float, int]]) -> None:
    now, taken = 1_000.0, 0
    bucket = TokenBucket(rate, now)
    for wait_s, wanted in steps:
        now += wait_s
        for _ in range(min(wanted, bucket.available(now))):
            bucket.take()
            taken += 1
        assert taken <= (now - 1_000.0) * rate + max(1.0, rate * BURST_S) + 1e-3
        assert bucket.available(now) or bucket.available(bucket.wake_at)
