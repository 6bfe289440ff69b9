"""Readers that wait: who has waited longest for a message gets it, and all are told in the end."""

from __future__ import annotations

import pytest

from queues.rig import DONE, GIVE_BACK, Client, Rig, numbers, pass_time
from tidings.queues import waiting as waiting_module


def clients(count: int = 3) -> list[Client]:
    """Clients of one queue."""
    rig = Rig()
    found = [Client(rig, f"c{n}") for n in range(count)]
    found[0].create("jobs")
    return found


def test_a_reader_is_told_when_a_message_comes() -> None:
    ann, bob, _ = clients()
    waiting = ann.wait("jobs")
    ann.rig.run()
    assert ann.got(waiting) is None
    bob.put("jobs", 1)
    ann.rig.run()
    assert numbers(ann.got(waiting) or []) == [1]


def test_who_has_waited_longest_is_served_first() -> None:
    ann, bob, cat = clients()
    first, second = ann.wait("jobs"), bob.wait("jobs")
    cat.put("jobs", 1)
    cat.put("jobs", 2)
    ann.rig.run()
    assert numbers(ann.got(first) or []) == [1]
    assert numbers(bob.got(second) or []) == [2]


def test_a_message_goes_past_those_who_do_not_want_it() -> None:
    ann, bob, cat = clients()
    choosy, any_ = ann.wait("jobs", where="n = 7"), bob.wait("jobs")
    cat.put("jobs", 1, 7)
    ann.rig.run()
    assert numbers(ann.got(choosy) or []) == [7]
    assert numbers(bob.got(any_) or []) == [1]


def test_a_choosy_reader_that_came_first_is_served_before_one_that_takes_anything() -> None:
    ann, bob, cat = clients()
    choosy, any_ = ann.wait("jobs", where="n = 1"), bob.wait("jobs")
    cat.put("jobs", 1)
    ann.rig.run()
    assert numbers(ann.got(choosy) or []) == [1]
    assert bob.got(any_) is None


@pytest.mark.parametrize("where", ["", "n > 0"])
@pytest.mark.parametrize("later", ["n = 1", "n > -1", ""])
def test_a_reader_that_came_first_is_served_before_one_that_wants_other_things(
    where: str, later: str
) -> None:
    ann, bob, cat = clients()
    first, second = bob.wait("jobs", where=where), ann.wait("jobs", where=later)
    cat.put("jobs", 1)
    ann.rig.run()
    assert numbers(bob.got(first) or []) == [1]
    assert ann.got(second) is None


def test_a_reader_gets_all_that_has_come_until_the_tick_ends_up_to_its_count() -> None:
    ann, bob, _ = clients()
    waiting = ann.wait("jobs", count=2)
    bob.put("jobs", 1)
    bob.put("jobs", 2, 3)
    ann.rig.run()
    assert numbers(ann.got(waiting) or []) == [1, 2]
    assert numbers(bob.get("jobs", 5)) == [3]


def test_a_reader_whose_time_is_over_is_told_that_nothing_came() -> None:
    ann, *_ = clients()
    waiting = ann.wait("jobs", 5.0)
    pass_time(ann.rig, 4.9)
    assert ann.got(waiting) is None
    pass_time(ann.rig, 0.2)
    assert ann.got(waiting) == []
    ann.put("jobs", 1)
    assert numbers(ann.get("jobs")) == [1]


def test_the_node_is_woken_for_the_first_reader_whose_time_is_over() -> None:
    ann, bob, _ = clients()
    ann.wait("jobs", 50.0)
    bob.wait("jobs", 5.0)
    assert ann.rig.broker.wake_at == pytest.approx(1_005.0)


def test_a_reader_that_waits_is_served_with_what_another_gives_back() -> None:
    ann, bob, _ = clients()
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    waiting = bob.wait("jobs")
    ann.settle(GIVE_BACK, hand)
    ann.rig.run()
    (again,) = bob.got(waiting) or []
    assert (again.n, again.delivery) == (1, 2)


def test_those_who_wait_when_a_queue_is_deleted_are_told() -> None:
    ann, bob, _ = clients()
    waiting = [ann.wait("jobs"), ann.wait("jobs", where="n = 1")]
    bob.ask("queue.delete", queue="jobs")
    for number in waiting:
        reply = ann.reply(number)
        assert reply is not None
        assert reply.error is not None
        assert reply.error.code == "queue-not-found"


def test_a_reader_that_was_served_in_the_tick_in_which_its_queue_is_deleted_is_answered() -> None:
    ann, bob, _ = clients()
    waiting = ann.wait("jobs")
    bob.put("jobs", 1)
    bob.request("queue.delete", queue="jobs")
    ann.rig.run()
    assert ann.reply(waiting) is not None


def test_thousands_may_wait_and_each_gets_what_it_waits_for() -> None:
    ann, bob, _ = clients()
    waiting = {n: ann.wait("jobs", where=f"n = {n}") for n in range(2_000)}
    bob.put("jobs", *reversed(range(2_000)))
    ann.rig.run()
    assert all(numbers(ann.got(number) or []) == [n] for n, number in waiting.items())


def test_no_more_readers_may_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "WAITING_MAX", 2)
    ann, *_ = clients()
    ann.wait("jobs")
    ann.wait("jobs")
    failure = ann.fails("get", queue="jobs", wait_s=1.0)
    assert (failure.code, failure.details["queue"]) == ("queue", "jobs")


def test_waiting_readers_are_counted_until_they_are_served() -> None:
    ann, bob, _ = clients()
    ann.wait("jobs")
    assert bob.describe("jobs")["waiting"] == 1
    bob.put("jobs", 1)
    ann.rig.run()
    assert bob.describe("jobs").get("waiting", 0) == 0


def test_a_reader_whose_contradiction_can_not_be_told_gets_nothing_and_its_time_passes() -> None:
    ann, bob, _ = clients()
    waiting = ann.wait("jobs", 5.0, where="n + 1 = n")
    bob.put("jobs", 1, 2)
    ann.rig.run()
    assert ann.got(waiting) is None
    pass_time(ann.rig, 6.0)
    assert ann.got(waiting) == []


def test_one_that_reads_does_not_take_the_message_from_one_that_takes() -> None:
    ann, bob, cat = clients()
    reads = ann.wait("jobs", action="read")
    takes = bob.wait("jobs")
    cat.put("jobs", 1)
    ann.rig.run()
    assert numbers(ann.got(reads) or []) == [1]
    assert numbers(bob.got(takes) or []) == [1]


def test_what_is_settled_in_the_same_breath_as_the_next_is_asked_for_works() -> None:
    ann, bob, _ = clients()
    bob.put("jobs", *range(10))
    taken: list[int] = []
    for _ in range(10):
        (hand,) = ann.get("jobs")
        taken.append(hand.n)
        ann.settle(DONE, hand)
    ann.rig.run()
    assert taken == list(range(10))
    assert ann.rig.queues.find("jobs").size == 0


def test_a_number_can_not_be_used_by_two_gets_that_wait() -> None:
    ann, bob, _ = clients()
    number = ann.wait("jobs", where="n = 1")
    ann.request_again(number, "get", queue="jobs", wait_s=None)
    ann.rig.run()
    reply = ann.reply(number)
    assert reply is not None
    assert reply.error is not None
    assert reply.error.code == "exists"
    ann.lose()
    bob.put("jobs", 1)
    assert numbers(bob.get("jobs")) == [1]


@pytest.mark.parametrize("where", ["n > 3 AND n < 2", "n = 1 AND n = 2", "FALSE", "n IN (1, 2) AND n > 5"])
@pytest.mark.parametrize("action", ["take", "read"])
def test_a_condition_that_contradicts_itself_is_refused(where: str, action: str) -> None:
    ann, *_ = clients()
    for wait_s in (0.0, None):
        failure = ann.fails("get", queue="jobs", where=where, action=action, wait_s=wait_s)
        assert (failure.code, failure.text) == ("filter", "no message can match this condition")
    watching = {"number": 1, "filter": where, "credit": 10, "queue": "jobs"}
    assert ann.fails("subscribe", **watching).code == "filter"
    assert ann.describe("jobs").get("waiting", 0) == 0
