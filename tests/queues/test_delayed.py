"""Messages with a delay: nobody has one before its moment, and then it is in its old place."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from queues.rig import DONE, GIVE_BACK, REJECT, Client, Rig, job, numbers, pass_time
from tidings.client.put import planned
from tidings.event import Event
from tidings.event.header import Header
from tidings.event.values import time_from_us
from tidings.queues.description import DELAY_S_MAX
from tidings.queues.queue import MessageQueue


def later(n: int, delay_s: float, **fields: Any) -> Event:
    """A job that is due after a delay."""
    return planned(job(n, **fields), delay_s, None)


def at(n: int, moment: float) -> Event:
    """A job that is due at a moment of the wall clock."""
    return planned(job(n), None, time_from_us(int(moment * 1e6)))


def client(**fields: Any) -> Client:
    ann = Client(Rig())
    ann.create("jobs", **fields)
    return ann


def jobs(rig: Rig) -> MessageQueue:
    return rig.queues.find("jobs")


def test_a_delayed_message_is_not_handed_out_before_it_is_due() -> None:
    ann = client()
    ann.put("jobs", later(1, 5.0), job(2))
    ann.rig.run()
    assert numbers(ann.get("jobs", 5)) == [2]
    ann.rig.now += 4.9
    assert ann.get("jobs", 5) == []
    assert ann.read("jobs") == []
    ann.rig.now += 0.2
    assert numbers(ann.get("jobs", 5)) == [1]


def test_a_message_that_is_due_takes_the_place_that_its_arrival_gives_it() -> None:
    ann = client()
    ann.put("jobs", job(1), later(2, 1.0), job(3))
    ann.rig.run()
    pass_time(ann.rig, 2.0)
    assert numbers(ann.get("jobs", 5)) == [1, 2, 3]


def test_a_reader_that_waits_gets_a_message_when_it_is_due() -> None:
    ann = client()
    waiting = ann.wait("jobs")
    ann.put("jobs", later(1, 5.0))
    ann.rig.run()
    assert ann.got(waiting) is None
    assert ann.rig.broker.wake_at == pytest.approx(ann.rig.now + 5.0)
    pass_time(ann.rig, 5.0)
    assert numbers(ann.got(waiting) or []) == [1]


def test_a_moment_that_has_passed_is_no_delay() -> None:
    ann = client()
    ann.put("jobs", at(1, ann.rig.now - 5), at(2, ann.rig.now + 5), later(3, 0.0))
    ann.rig.run()
    assert numbers(ann.get("jobs", 5)) == [1, 3]
    pass_time(ann.rig, 5.0)
    assert numbers(ann.get("jobs", 5)) == [2]


def test_a_delay_survives_a_restart() -> None:
    ann = client(redelivery_s=None)
    ann.put("jobs", later(1, 50.0), at(2, ann.rig.now + 70), job(3))
    ann.rig.run()
    ann.come(ann.rig.restart())
    assert ann.describe("jobs")["delayed"] == 2
    assert numbers(ann.get("jobs", 5)) == [3]
    pass_time(ann.rig, 51.0)
    assert numbers(ann.get("jobs", 5)) == [1]
    pass_time(ann.rig, 20.0)
    assert numbers(ann.get("jobs", 5)) == [2]


def test_a_wall_clock_that_is_set_back_makes_no_delay_longer() -> None:
    ann = client()
    ann.put("jobs", later(1, 50.0))
    ann.rig.run()
    ann.rig.broker.shift = -7_200.0
    pass_time(ann.rig, 51.0)
    assert numbers(ann.get("jobs")) == [1]


def test_delayed_messages_are_counted_and_take_room() -> None:
    ann = client(max_messages=2)
    ann.put("jobs", later(1, 5.0), job(2), job(3))
    ann.rig.run()
    described = ann.describe("jobs")
    assert (described["messages"], described["delayed"]) == (1, 1)
    assert [code for _, _, code in ann.refusals] == ["queue-full"]


def test_the_time_to_live_counts_from_the_put() -> None:
    ann = client(expiry=True)
    ann.put("jobs", later(1, 5.0, ttl_s=3), later(2, 5.0, ttl_s=30))
    ann.rig.run()
    pass_time(ann.rig, 3.0)
    assert ann.describe("jobs")["delayed"] == 1
    pass_time(ann.rig, 2.0)
    assert numbers(ann.get("jobs", 5)) == [2]
    assert len(list(ann.rig.store.messages())) == 1


def test_a_message_whose_hands_it_leaves_is_not_delayed_again() -> None:
    ann = client()
    ann.put("jobs", later(1, 5.0))
    ann.rig.run()
    pass_time(ann.rig, 5.0)
    (hand,) = ann.get("jobs")
    ann.settle(GIVE_BACK, hand)
    ann.rig.run()
    (hand,) = ann.get("jobs")
    ann.settle(DONE, hand)
    ann.rig.run()
    assert list(ann.rig.store.messages()) == []


def test_a_purge_and_a_deletion_take_delayed_messages_too() -> None:
    ann = client()
    ann.put("jobs", later(1, 5.0), later(2, 5.0), job(3))
    ann.rig.run()
    assert ann.ask("queue.purge", queue="jobs", where="n > 1") == 2
    ann.ask("queue.delete", queue="jobs")
    pass_time(ann.rig, 6.0)
    assert list(ann.rig.store.messages()) == []
    assert ann.rig.queues.size == 0


def test_a_transaction_delays_from_its_commit_on() -> None:
    ann = client()
    ann.begin(1)
    ann.put("jobs", later(1, 5.0), job(2), transaction=1)
    ann.rig.run()
    assert numbers(ann.get("jobs", 5, transaction=1)) == [2]
    pass_time(ann.rig, 4.0)
    ann.commit(1)
    ann.rig.run()
    pass_time(ann.rig, 4.0)
    assert ann.get("jobs") == []
    pass_time(ann.rig, 1.0)
    assert numbers(ann.get("jobs")) == [1]


def test_a_put_that_can_not_be_stored_leaves_no_delayed_message() -> None:
    ann = client()
    ann.put("jobs", later(1, 5.0))
    ann.rig.tick()
    ann.rig.fail()
    assert jobs(ann.rig).size == 0
    assert ann.rig.queues.size == 0


def test_many_delayed_messages_are_one_timer_of_the_node() -> None:
    ann = client()
    before = len(ann.rig.broker.timers)
    for n in range(300):
        ann.put("jobs", later(n, 1_000.0 + n))
    ann.rig.run()
    assert len(ann.rig.broker.timers) <= before + 1
    ann.rig.now += 10.0
    ann.rig.run()
    assert ann.get("jobs") == []
    pass_time(ann.rig, 1_290.0)
    assert numbers(ann.get("jobs", 1_000)) == list(range(300))


def test_a_dead_letter_that_is_put_back_does_not_wait_again() -> None:
    ann = client()
    ann.put("jobs", later(1, 5.0))
    ann.rig.run()
    pass_time(ann.rig, 5.0)
    (hand,) = ann.get("jobs")
    ann.settle(REJECT, hand)
    ann.rig.run()
    assert ann.ask("queue.replay") == 1
    assert numbers(ann.get("jobs")) == [1]


def test_a_queue_of_an_earlier_node_opens_and_has_no_delayed_messages() -> None:
    ann = client()
    ann.put("jobs", job(1))
    ann.rig.run()
    stored = next(one for one in ann.rig.state.queues if one.name == "jobs")
    assert b"delayed" not in stored.description
    ann.come(ann.rig.restart())
    assert "delayed" not in ann.describe("jobs")


def test_the_node_refuses_a_delay_that_is_too_long() -> None:
    ann = client()
    ann.put("jobs", replace(job(1), header=Header(queue_delay_s=2 * DELAY_S_MAX)), job(2))
    ann.put("jobs", at(3, ann.rig.now + 2 * DELAY_S_MAX))
    ann.rig.run()
    assert [code for _, _, code in ann.refusals] == ["queue", "queue"]
    assert jobs(ann.rig).size == 0


def test_the_node_refuses_a_delay_that_is_too_long_in_a_transaction_before_its_commit() -> None:
    ann = client()
    ann.begin(1)
    ann.put("jobs", replace(job(1), header=Header(queue_delay_s=2 * DELAY_S_MAX)), transaction=1)
    ann.rig.run()
    assert [code for _, _, code in ann.refusals] == ["queue"]
