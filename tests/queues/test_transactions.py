"""Transactions: what is done in one is seen by others all at once, or never."""

from __future__ import annotations

import pytest

from queues.rig import DONE, Client, Rig, job, numbers, pass_time
from tidings.queues.transactions import TRANSACTION_S


def two(**fields: object) -> tuple[Client, Client]:
    """Two clients of a queue; the first has begun transaction 1."""
    rig = Rig()
    ann, bob = Client(rig, "a", "ann"), Client(rig, "b", "bob")
    ann.create("jobs", **fields)
    ann.begin(1)
    return ann, bob


# What is put


def test_what_was_put_is_seen_by_the_transaction_at_once_and_by_others_at_the_commit() -> None:
    ann, bob = two()
    ann.put("jobs", 1, transaction=1)
    assert numbers(ann.read("jobs", transaction=1)) == [1]
    assert bob.read("jobs") == []
    assert ann.read("jobs") == []
    ann.commit(1)
    assert numbers(bob.read("jobs")) == [1]


def test_what_was_put_is_never_seen_after_a_rollback() -> None:
    ann, bob = two()
    ann.put("jobs", 1, transaction=1)
    ann.roll_back(1)
    assert bob.read("jobs") == []
    assert list(ann.rig.store.messages()) == []


def test_a_transaction_may_take_what_it_has_put() -> None:
    ann, bob = two()
    ann.put("jobs", 1, 2, transaction=1)
    assert numbers(ann.get("jobs", transaction=1)) == [1]
    assert numbers(ann.read("jobs", transaction=1)) == [2]
    ann.commit(1)
    assert numbers(bob.read("jobs")) == [2]


def test_a_transaction_sees_its_own_messages_in_their_place_among_the_others() -> None:
    ann, bob = two(priorities=True, priority=8)
    bob.put("jobs", job(1, priority=6), job(2, priority=3))
    ann.put("jobs", job(3), job(4, priority=9), transaction=1)
    assert numbers(ann.read("jobs", transaction=1)) == [4, 3, 1, 2]
    assert numbers(ann.get("jobs", 4, transaction=1)) == [4, 3, 1, 2]


def test_a_transaction_finds_its_own_messages_by_a_filter() -> None:
    ann, bob = two()
    bob.put("jobs", 1, 2)
    ann.put("jobs", 3, 4, transaction=1)
    assert numbers(ann.read("jobs", where="n >= 2 AND n <> 3", transaction=1)) == [2, 4]


def test_messages_of_one_commit_come_in_the_order_in_which_they_were_put() -> None:
    ann, bob = two()
    ann.put("jobs", 1, transaction=1)
    bob.put("jobs", 2)
    ann.put("jobs", 3, transaction=1)
    ann.commit(1)
    assert numbers(bob.read("jobs")) == [2, 1, 3]


def test_who_waits_is_served_at_the_commit() -> None:
    ann, bob = two()
    waiting = bob.wait("jobs")
    ann.put("jobs", 1, transaction=1)
    ann.rig.run()
    assert bob.got(waiting) is None
    ann.commit(1)
    ann.rig.run()
    assert numbers(bob.got(waiting) or []) == [1]


def test_watchers_are_told_once_and_at_the_commit() -> None:
    ann, bob = two()
    bob.subscribe(queue="jobs")
    ann.put("jobs", 1, 2, transaction=1)
    ann.rig.run()
    assert bob.told == []
    ann.commit(1)
    ann.rig.run()
    assert bob.told == [1, 2]


def test_watchers_are_not_told_of_what_was_rolled_back_nor_of_what_came_back() -> None:
    ann, bob = two()
    bob.put("jobs", 9)
    bob.subscribe(queue="jobs")
    ann.put("jobs", 1, transaction=1)
    ann.get("jobs", transaction=1)
    ann.roll_back(1)
    assert bob.told == []


@pytest.mark.parametrize("action", ["take", "read"])
def test_who_waits_in_the_transaction_gets_what_it_puts_at_once(action: str) -> None:
    ann, bob = two()
    waiting = ann.wait("jobs", transaction=1, action=action, where="n = 2")
    ann.put("jobs", 1, 2, transaction=1)
    ann.rig.run()
    assert numbers(ann.got(waiting) or []) == [2]
    ann.commit(1)
    ann.rig.run()
    assert numbers(bob.read("jobs")) == ([1] if action == "take" else [1, 2])


# What is taken


def test_what_was_taken_is_gone_for_others_and_for_itself() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    assert numbers(ann.get("jobs", transaction=1)) == [1]
    assert bob.read("jobs") == []
    assert ann.get("jobs", transaction=1) == []


def test_what_was_taken_is_in_its_old_place_after_a_rollback() -> None:
    ann, bob = two()
    bob.put("jobs", 1, 2, 3)
    assert numbers(ann.get("jobs", where="n = 2", transaction=1)) == [2]
    ann.roll_back(1)
    assert numbers(bob.get("jobs", 3)) == [1, 2, 3]


def test_what_was_taken_is_gone_after_the_commit() -> None:
    ann, bob = two()
    bob.put("jobs", 1, 2)
    ann.get("jobs", transaction=1)
    ann.commit(1)
    ann.rig.run()
    assert numbers(bob.read("jobs")) == [2]
    assert numbers(Client(ann.rig.restart(), "c").read("jobs")) == [2]


def test_what_was_taken_is_not_settled_by_hand() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    counter = ann.settle(DONE, *ann.get("jobs", transaction=1))
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "not-yours")]
    ann.roll_back(1)
    assert numbers(bob.read("jobs")) == [1]


def test_what_was_taken_is_held_for_as_long_as_the_transaction_is_open() -> None:
    ann, bob = two(redelivery_s=1.0)
    bob.put("jobs", 1)
    ann.get("jobs", transaction=1)
    pass_time(ann.rig, 10.0)
    assert bob.get("jobs") == []


def test_what_was_taken_goes_to_who_waits_when_it_comes_back() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    ann.get("jobs", transaction=1)
    waiting = bob.wait("jobs")
    ann.roll_back(1)
    (hand,) = bob.got(waiting) or []
    assert (hand.n, hand.redelivered) == (1, True)


def test_what_comes_back_often_enough_is_a_dead_letter() -> None:
    ann, bob = two(deliveries_max=2)
    bob.put("jobs", 1)
    ann.get("jobs", transaction=1)
    ann.roll_back(1)
    ann.begin(2)
    ann.get("jobs", transaction=2)
    ann.roll_back(2)
    assert bob.read("jobs") == []
    assert numbers(bob.read("tidings.dead")) == [1]


def test_a_get_that_is_cancelled_in_a_transaction_gives_its_message_back() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    number = ann.request("get", queue="jobs", transaction=1)
    ann.rig.run()
    ann.ask("get.cancel", number=number)
    ann.commit(1)
    ann.rig.run()
    assert numbers(bob.read("jobs")) == [1]


def test_a_purge_and_a_full_queue_count_what_a_transaction_holds() -> None:
    ann, bob = two(max_messages=1)
    bob.put("jobs", 1)
    ann.get("jobs", transaction=1)
    assert bob.ask("queue.purge", queue="jobs") == 0
    counter = bob.put("jobs", 2)
    ann.rig.run()
    assert bob.refusals == [(counter, counter, "queue-full")]


def test_a_get_that_is_cancelled_gives_back_what_the_transaction_has_put_itself() -> None:
    ann, bob = two()
    ann.put("jobs", 1, transaction=1)
    number = ann.request("get", queue="jobs", transaction=1)
    ann.rig.run()
    ann.ask("get.cancel", number=number)
    ann.commit(1)
    ann.rig.run()
    assert numbers(bob.read("jobs")) == [1]


# What is read


def test_what_was_read_others_may_read_but_not_take() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    assert numbers(ann.read("jobs", transaction=1)) == [1]
    assert numbers(bob.read("jobs")) == [1]
    assert bob.get("jobs") == []
    ann.commit(1)
    assert numbers(bob.get("jobs")) == [1]


def test_what_was_read_the_transaction_itself_may_take() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    ann.read("jobs", transaction=1)
    assert numbers(ann.get("jobs", transaction=1)) == [1]
    ann.commit(1)
    assert bob.read("jobs") == []


def test_what_two_transactions_have_read_neither_may_take() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    bob.begin(1)
    ann.read("jobs", transaction=1)
    bob.read("jobs", transaction=1)
    assert ann.get("jobs", transaction=1) == []
    bob.roll_back(1)
    assert numbers(ann.get("jobs", transaction=1)) == [1]


def test_who_waits_to_take_what_was_read_is_served_when_the_transaction_ends() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    ann.read("jobs", transaction=1)
    waiting = bob.wait("jobs")
    ann.rig.run()
    assert bob.got(waiting) is None
    ann.roll_back(1)
    assert numbers(bob.got(waiting) or []) == [1]


def test_what_is_read_when_it_comes_others_may_not_take_either() -> None:
    ann, bob = two()
    reads = ann.wait("jobs", action="read", transaction=1)
    takes = bob.wait("jobs")
    bob.put("jobs", 1)
    ann.rig.run()
    assert numbers(ann.got(reads) or []) == [1]
    assert bob.got(takes) is None
    ann.commit(1)
    ann.rig.run()
    assert numbers(bob.got(takes) or []) == [1]


def test_what_was_read_is_not_purged() -> None:
    ann, bob = two()
    bob.put("jobs", 1, 2)
    ann.read("jobs", where="n = 1", transaction=1)
    assert bob.ask("queue.purge", queue="jobs") == 1
    assert numbers(bob.read("jobs")) == [1]


# If it exists


def test_if_nothing_exists_nobody_waits() -> None:
    _, bob = two()
    assert bob.get("jobs", wait_s=None, if_exists=True) == []


@pytest.mark.parametrize("ending", ["commit", "rollback", "timeout", "lost"])
@pytest.mark.parametrize("action", ["take", "read"])
def test_if_it_may_come_back_it_is_waited_for_until_that_is_decided(action: str, ending: str) -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    ann.get("jobs", transaction=1)
    waiting = bob.wait("jobs", if_exists=True, action=action)
    ann.rig.run()
    assert bob.got(waiting) is None
    match ending:
        case "commit":
            ann.commit(1)
            ann.rig.run()
        case "rollback":
            ann.roll_back(1)
        case "timeout":
            pass_time(ann.rig, TRANSACTION_S + 1)
        case "lost":
            ann.lose()
    found = bob.got(waiting)
    assert found is not None
    assert numbers(found) == ([] if ending == "commit" else [1])


def test_what_a_transaction_has_read_may_come_free_for_who_wants_to_take_it() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    ann.read("jobs", transaction=1)
    waiting = bob.wait("jobs", if_exists=True)
    ann.rig.run()
    assert bob.got(waiting) is None
    ann.commit(1)
    ann.rig.run()
    assert numbers(bob.got(waiting) or []) == [1]


def test_a_transaction_does_not_wait_for_what_it_has_taken_itself() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    ann.get("jobs", transaction=1)
    assert ann.get("jobs", transaction=1, if_exists=True, wait_s=None) == []


def test_what_others_hold_outside_of_transactions_is_not_waited_for() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    bob.get("jobs")
    assert ann.get("jobs", if_exists=True, wait_s=None) == []


def test_only_what_matches_is_waited_for() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    ann.get("jobs", transaction=1)
    assert bob.get("jobs", where="n = 2", if_exists=True, wait_s=None) == []
