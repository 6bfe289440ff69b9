"""Groups: one message of each is in flight at a time, in order, whatever becomes of its reader."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from queues.rig import DONE, GIVE_BACK, REJECT, Client, Hand, Rig, job, numbers, pass_time
from tidings.client.put import planned
from tidings.event import Event
from tidings.event.header import Header
from tidings.queues.description import DEAD, GROUP_LENGTH_MAX
from tidings.queues.inflight import RESUME_S


def of(group: str, n: int, delay_s: float | None = None, **fields: Any) -> Event:
    """A job of a group."""
    return planned(job(n, **fields), delay_s, None, group)


def clients(**fields: Any) -> tuple[Client, Client]:
    ann = Client(Rig())
    ann.create("jobs", **{"redelivery_s": None, **fields})
    return ann, Client(ann.rig, "b", "bob")


def put(client: Client, *events: Event) -> None:
    client.put("jobs", *events)
    client.rig.run()


def settle(client: Client, outcome: int, *hands: Hand, **how: Any) -> None:
    client.settle(outcome, *hands, **how)
    client.rig.run()


def test_one_message_of_a_group_is_in_flight_and_groups_are_side_by_side() -> None:
    ann, bob = clients()
    put(ann, of("a", 1), of("a", 2), of("b", 3), of("b", 4), job(5))
    first = ann.get("jobs", 10)
    assert numbers(first) == [1, 3, 5]
    assert bob.get("jobs", 10) == []
    settle(ann, DONE, first[0])
    assert numbers(bob.get("jobs", 10)) == [2]
    settle(ann, DONE, first[1])
    assert numbers(ann.get("jobs", 10)) == [4]


def test_a_message_carries_its_group() -> None:
    ann, _ = clients()
    put(ann, of("a", 1), job(2))
    assert [hand.event.group for hand in ann.get("jobs", 10)] == ["a", None]


def test_a_reader_that_waits_gets_the_next_message_of_a_group() -> None:
    ann, bob = clients()
    put(ann, of("a", 1), of("a", 2))
    (hand,) = ann.get("jobs")
    waiting = bob.wait("jobs")
    ann.rig.run()
    assert bob.got(waiting) is None
    settle(ann, DONE, hand)
    assert numbers(bob.got(waiting) or []) == [2]


@pytest.mark.parametrize("how", ["release", "reject", "lose", "leave", "late"])
def test_the_next_reader_gets_the_group_in_order_when_the_first_gives_up(how: str) -> None:
    ann, bob = clients(redelivery_s=5.0 if how == "late" else None)
    put(ann, of("a", 1), of("a", 2))
    (hand,) = bob.get("jobs")
    assert ann.get("jobs") == []
    match how:
        case "release":
            settle(bob, GIVE_BACK, hand)
        case "reject":
            settle(bob, REJECT, hand)
        case "lose":
            bob.lose()
            pass_time(ann.rig, RESUME_S)
        case "leave":
            bob.leave()
        case "late":
            pass_time(ann.rig, 5.0)
    (hand,) = ann.get("jobs", 10)
    assert hand.n == (2 if how == "reject" else 1)


def test_a_message_that_pauses_keeps_those_behind_it_waiting() -> None:
    ann, _ = clients(retry_s=[5])
    put(ann, of("a", 1), of("a", 2), of("b", 3))
    first, _other = ann.get("jobs", 10)
    settle(ann, GIVE_BACK, first)
    assert ann.get("jobs", 10) == []
    pass_time(ann.rig, 7.0)
    (hand,) = ann.get("jobs", 10)
    assert hand.n == 1
    settle(ann, GIVE_BACK, hand)  # to the dead letters
    assert numbers(ann.read(DEAD)) == [1]
    assert numbers(ann.get("jobs", 10)) == [2]


def test_a_message_that_is_put_with_a_delay_keeps_no_other_of_its_group_waiting() -> None:
    ann, _ = clients()
    put(ann, of("a", 1, delay_s=5.0), of("a", 2), of("a", 3))
    (hand,) = ann.get("jobs", 10)
    assert hand.n == 2
    pass_time(ann.rig, 5.0)
    assert ann.get("jobs", 10) == []
    settle(ann, DONE, hand)
    assert numbers(ann.get("jobs", 10)) == [1]


def test_a_higher_priority_comes_first_within_a_group() -> None:
    ann, _ = clients(priorities=True)
    put(ann, of("a", 1), of("a", 2, priority=9))
    (hand,) = ann.get("jobs", 10)
    assert hand.n == 2
    put(ann, of("a", 3, priority=9))
    settle(ann, DONE, hand)
    assert numbers(ann.get("jobs", 10)) == [3]


def test_no_filter_passes_over_a_message_of_a_group() -> None:
    ann, bob = clients()
    put(ann, of("a", 1), of("a", 2))
    assert ann.get("jobs", where="n = 2") == []
    waiting = bob.wait("jobs", where="n = 2")
    (hand,) = ann.get("jobs")
    settle(ann, DONE, hand)
    assert numbers(bob.got(waiting) or []) == [2]


def test_groups_survive_a_restart_in_their_order() -> None:
    ann, _ = clients()
    put(ann, of("a", 1), of("a", 2), of("b", 3))
    (first, *_) = ann.get("jobs", 10)
    settle(ann, GIVE_BACK, first, delay_s=50.0)
    ann.come(ann.rig.restart())
    assert numbers(ann.get("jobs", 10)) == [3]
    assert ann.describe("jobs")["groups"] == 2
    pass_time(ann.rig, 51.0)
    (hand,) = ann.get("jobs", 10)
    assert hand.n == 1
    settle(ann, DONE, hand)
    assert numbers(ann.get("jobs", 10)) == [2]


def test_a_message_that_pauses_keeps_its_group_waiting_after_a_restart_too() -> None:
    ann, _ = clients()
    put(ann, of("a", 1, delay_s=5.0), of("a", 2), of("a", 3))
    (hand,) = ann.get("jobs", 10)
    settle(ann, GIVE_BACK, hand, delay_s=50.0)
    pass_time(ann.rig, 6.0)
    assert ann.get("jobs", 10) == []
    ann.come(ann.rig.restart(ann.rig.now))
    assert ann.get("jobs", 10) == []
    pass_time(ann.rig, 50.0)
    assert numbers(ann.get("jobs", 10)) == [1]


def test_who_had_a_message_when_the_node_ended_may_still_settle_it() -> None:
    ann, _ = clients()
    put(ann, of("a", 1), of("a", 2))
    (hand,) = ann.get("jobs")
    ann.rig.run()
    ann.come(ann.rig.restart())
    settle(ann, DONE, hand)
    assert ann.refusals == []
    assert numbers(ann.get("jobs", 10)) == [2]


def test_all_messages_are_read_counted_and_purged_whatever_their_turn() -> None:
    ann, _ = clients()
    put(ann, of("a", 1), of("b", 2), of("a", 3), job(4))
    assert numbers(ann.read("jobs")) == [1, 2, 3, 4]
    described = ann.describe("jobs")
    assert (described["messages"], described["groups"]) == (4, 2)
    assert ann.ask("queue.purge", queue="jobs", where="n = 3") == 1
    assert ann.ask("queue.purge", queue="jobs") == 3
    assert "groups" not in ann.describe("jobs")
    assert ann.rig.queues.size == 0


def test_a_page_of_reading_goes_on_behind_the_last_message() -> None:
    ann, _ = clients()
    put(ann, *(of("a", n) for n in range(6)))
    first = ann.ask("get", queue="jobs", count=4, action="read")
    assert [one[0] for one in first["messages"]]
    rest = ann.read("jobs", 10, after=first["next"])
    assert numbers(rest) == [4, 5]


def test_who_takes_all_gets_whole_groups_and_returns_them_in_order() -> None:
    ann, bob = clients()
    put(ann, of("a", 1), of("b", 2), of("a", 3), job(4), of("a", 5))
    hands = ann.get("jobs", 10, together=True)
    assert numbers(hands) == [1, 2, 3, 4, 5]
    settle(ann, GIVE_BACK, hands[2])
    assert bob.get("jobs", 10) == []
    settle(ann, GIVE_BACK, hands[0])
    assert bob.get("jobs", 10) == []
    settle(ann, GIVE_BACK, hands[4])
    assert numbers(bob.get("jobs", 10)) == [1]


def test_who_takes_all_page_by_page_gets_the_rest_of_its_groups() -> None:
    ann, bob = clients()
    put(ann, *(of("a", n) for n in range(5)))
    first = ann.get("jobs", 2, together=True)
    assert numbers(first) == [0, 1]
    assert bob.get("jobs", 10, together=True) == []
    assert numbers(ann.get("jobs", 10, together=True)) == [2, 3, 4]


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_transaction_has_a_group_until_it_ends(ending: str) -> None:
    ann, bob = clients()
    put(ann, of("a", 1), of("a", 2), of("a", 3))
    ann.begin(1)
    assert numbers(ann.get("jobs", transaction=1)) == [1]
    assert numbers(ann.get("jobs", transaction=1)) == [2]
    assert bob.get("jobs", 10) == []
    if ending == "commit":
        ann.commit(1)
    else:
        ann.roll_back(1)
    ann.rig.run()
    assert numbers(bob.get("jobs", 10)) == ([3] if ending == "commit" else [1])


def test_a_transaction_that_waits_gets_what_comes_to_its_groups() -> None:
    ann, bob = clients()
    waiting = bob.wait("jobs")
    ann.begin(1)
    put(ann, of("a", 1), of("a", 2))
    assert numbers(bob.got(waiting) or []) == [1]
    put(ann, of("b", 3))
    assert numbers(ann.get("jobs", transaction=1)) == [3]
    waiting = ann.wait("jobs", transaction=1)
    put(ann, of("a", 4), of("b", 5))
    assert numbers(ann.got(waiting) or []) == [5]
    ann.commit(1)
    ann.rig.run()
    assert (bob.get("jobs", 10), numbers(bob.read("jobs"))) == ([], [2, 4])


def test_who_waits_to_read_sees_a_message_that_is_behind_others() -> None:
    ann, bob = clients()
    put(ann, of("a", 1))
    waiting = bob.wait("jobs", where="n = 2", action="read")
    put(ann, of("a", 2))
    assert numbers(bob.got(waiting) or []) == [2]
    assert numbers(ann.get("jobs", 10)) == [1]


def test_a_commit_that_fails_leaves_the_group_in_order() -> None:
    ann, bob = clients()
    put(ann, of("a", 1), of("a", 2))
    ann.begin(1)
    ann.get("jobs", transaction=1)
    ann.commit(1)
    ann.rig.tick()
    ann.rig.fail()
    ann.rig.run()
    assert numbers(bob.get("jobs", 10)) == [1]


def test_a_message_that_expires_makes_room_for_the_next_of_its_group() -> None:
    ann, _ = clients(expiry=True)
    put(ann, of("a", 1, ttl_s=5), of("a", 2, ttl_s=5), of("a", 3))
    pass_time(ann.rig, 5.0)
    assert numbers(ann.get("jobs", 10)) == [3]


def test_very_many_messages_of_a_group_that_expire_at_once_are_dealt_with() -> None:
    ann, _ = clients(expiry=True)
    put(ann, *(of("a", n, ttl_s=5) for n in range(3_000)), of("a", 3_000))
    ann.rig.now += 5.0
    pass_time(ann.rig, 1.0)
    assert numbers(ann.get("jobs", 10)) == [3_000]


def test_a_deleted_queue_leaves_nothing_of_its_groups() -> None:
    ann, _ = clients()
    put(ann, of("a", 1), of("a", 2))
    ann.get("jobs")
    ann.ask("queue.delete", queue="jobs")
    ann.rig.run()
    assert ann.rig.queues.size == 0
    assert list(ann.rig.store.messages()) == []


def test_a_dead_letter_that_is_replayed_is_in_its_group_again() -> None:
    ann, _ = clients()
    put(ann, of("a", 1), of("a", 2))
    (hand,) = ann.get("jobs")
    settle(ann, REJECT, hand)
    assert ann.ask("queue.replay") == 1
    (hand,) = ann.get("jobs", 10)
    assert hand.n == 2
    settle(ann, DONE, hand)
    assert numbers(ann.get("jobs", 10)) == [1]


def test_a_queue_without_groups_keeps_nothing_of_them() -> None:
    ann, _ = clients()
    put(ann, job(1))
    assert ann.rig.queues.find("jobs").schedule.groups is None


def test_the_name_of_a_group_has_a_limit() -> None:
    ann, _ = clients()
    put(ann, replace(job(1), header=Header(queue_group="x" * (GROUP_LENGTH_MAX + 1))))
    assert [code for _, _, code in ann.refusals] == ["queue"]
