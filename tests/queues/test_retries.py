"""Pauses before a message is delivered again, and where it ends after the last one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.rig import DONE, GIVE_BACK, UNOPENED, Client, Rig, job, numbers, pass_time
from tidings.protocol.messages import Bye
from tidings.queues.description import DEAD, DELAY_S_MAX, DELIVERIES_MAX
from tidings.queues.inflight import RESUME_S
from tidings.queues.schedule import JITTER, pause_s

LONGEST = 1 + JITTER


def client(**fields: Any) -> Client:
    """A client of a queue with a message in it."""
    ann = Client(Rig())
    ann.create("jobs", **fields)
    ann.put("jobs", 1)
    ann.rig.run()
    return ann


def release(ann: Client, **how: Any) -> None:
    """Get the message, and give it back."""
    (hand,) = ann.get("jobs")
    ann.settle(GIVE_BACK, hand, **how)
    ann.rig.run()


def test_a_message_that_is_released_with_a_delay_comes_again_after_that() -> None:
    ann = client()
    release(ann, delay_s=5.0)
    assert ann.describe("jobs")["delayed"] == 1
    pass_time(ann.rig, 4.9)
    assert ann.get("jobs") == []
    pass_time(ann.rig, 0.2)
    (hand,) = ann.get("jobs")
    assert (hand.n, hand.delivery, hand.redelivered) == (1, 2, True)


def test_a_release_without_a_delay_is_as_it_was() -> None:
    ann = client()
    release(ann)
    assert numbers(ann.get("jobs")) == [1]


def test_the_delay_of_a_release_survives_a_restart() -> None:
    ann = client()
    release(ann, delay_s=50.0)
    ann.come(ann.rig.restart())
    assert ann.get("jobs") == []
    pass_time(ann.rig, 51.0)
    (hand,) = ann.get("jobs")
    assert hand.delivery == 2
    ann.settle(DONE, hand)
    ann.rig.run()
    assert ann.rig.queues.size == 0


def test_a_pause_is_no_longer_though_the_clock_is_set_back_before_a_restart() -> None:
    ann = client()
    release(ann, delay_s=5.0)
    ann.come(ann.rig.restart(ann.rig.now - 900.0))
    assert ann.get("jobs") == []
    pass_time(ann.rig, 5.1)
    assert numbers(ann.get("jobs")) == [1]


def test_a_message_is_tried_after_each_pause_and_then_is_a_dead_letter() -> None:
    ann = client(retry_s=[1, 5, 30])
    for pause in (1.0, 5.0, 30.0):
        release(ann)
        pass_time(ann.rig, 0.99 * pause)
        assert ann.get("jobs") == []
        pass_time(ann.rig, (LONGEST - 0.98) * pause)
    release(ann)
    (letter,) = ann.read(DEAD)
    assert letter.event.values["dead.deliveries"] == 4
    assert ann.describe("jobs").get("messages", 0) == 0


def test_an_explicit_delay_takes_the_place_of_the_pause() -> None:
    ann = client(retry_s=[100])
    release(ann, delay_s=0.0)
    assert numbers(ann.get("jobs")) == [1]


def test_who_loses_its_connection_or_its_time_pauses_the_message() -> None:
    ann = client(retry_s=[50, 50], redelivery_s=2.0)
    bob = Client(ann.rig, "b")
    assert numbers(bob.get("jobs")) == [1]
    bob.lose()
    pass_time(ann.rig, RESUME_S)
    assert ann.describe("jobs")["delayed"] == 1
    pass_time(ann.rig, 50 * LONGEST)
    assert numbers(ann.get("jobs")) == [1]
    pass_time(ann.rig, 2.0)
    assert ann.describe("jobs")["delayed"] == 1


def test_what_nobody_has_looked_at_does_not_wait() -> None:
    ann = client(retry_s=[50])
    (hand,) = ann.get("jobs")
    ann.settle(UNOPENED, hand)
    ann.rig.run()
    assert numbers(ann.get("jobs")) == [1]


def test_a_transaction_that_is_rolled_back_pauses_its_messages() -> None:
    ann = client(retry_s=[50])
    ann.begin(1)
    ann.get("jobs", transaction=1)
    ann.roll_back(1)
    assert ann.describe("jobs")["delayed"] == 1


def test_an_outage_costs_as_many_attempts_as_there_are_pauses() -> None:
    ann = client(retry_s=[1, 5, 30])
    attempts = 0
    for _ in range(50):
        for hand in ann.get("jobs"):
            attempts += 1
            ann.settle(GIVE_BACK, hand)
        ann.rig.run()
        pass_time(ann.rig, 0.3 / 50)
    assert attempts == 1


def test_messages_that_come_back_together_do_not_come_again_together() -> None:
    pauses = {pause_s((10.0,), number, 1) for number in range(1_000)}
    assert len(pauses) > 990
    assert 10.0 <= min(pauses) < 10.2
    assert 12.3 < max(pauses) <= 10.0 * LONGEST


@given(st.lists(st.floats(0, 100), min_size=1, max_size=5), st.integers(-(2**40), 2**62), st.integers(1, 100))
def test_a_pause_is_one_of_those_listed_or_longer(pauses: list[float], number: int, delivery: int) -> None:
    listed = pauses[min(delivery, len(pauses)) - 1]
    assert listed <= pause_s(pauses, number, delivery) <= listed * LONGEST


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({}, DELIVERIES_MAX),
        ({"retry_s": [1.0, 2.0]}, 3),
        ({"retry_s": [1.0, 2.0], "deliveries_max": 5}, 5),
        ({"retry_s": [1.0, 2.0], "deliveries_max": None}, None),
    ],
)
def test_the_pauses_say_how_often_a_message_is_delivered_unless_more_is_asked_for(
    fields: dict[str, Any], most: int | None
) -> None:
    ann = client(**fields)
    assert ann.describe("jobs").get("deliveries_max", DELIVERIES_MAX) == most
    ann.create("jobs", **fields)
    ann.come(ann.rig.restart())
    assert ann.describe("jobs").get("retry_s", []) == fields.get("retry_s", [])


@pytest.mark.parametrize(
    "fields", [{"retry_s": [-1]}, {"retry_s": [2 * DELAY_S_MAX]}, {"retry_s": [1, 2], "deliveries_max": 2}]
)
def test_pauses_that_can_not_be_are_refused(fields: dict[str, Any]) -> None:
    ann = Client(Rig())
    assert ann.fails("queue.create", name="jobs", **fields).code in ("queue", "protocol")


@pytest.mark.parametrize("delay_s", [-1.0, float("nan"), 2 * DELAY_S_MAX])
def test_a_client_that_releases_with_a_delay_that_can_not_be_is_sent_away(delay_s: float) -> None:
    ann = client()
    release(ann, delay_s=delay_s)
    assert ann.peer.got(Bye)


def test_a_message_that_expires_while_it_waits_is_gone() -> None:
    ann = client(expiry=True)
    ann.put("jobs", job(2, ttl_s=3))
    ann.rig.run()
    first, second = ann.get("jobs", 2)
    ann.settle(GIVE_BACK, first, second, delay_s=5.0)
    ann.rig.run()
    pass_time(ann.rig, 6.0)
    assert numbers(ann.get("jobs", 5)) == [1]
