"""How long messages live: one that has outlived its time is never handed out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.rig import GIVE_BACK, Client, Rig, job, numbers, pass_time


def client(**fields: object) -> Client:
    """A client of a queue that uses expiry."""
    ann = Client(Rig())
    ann.create("jobs", expiry=True, **fields)
    return ann


def test_a_message_that_has_expired_is_not_handed_out() -> None:
    ann = client()
    ann.put("jobs", job(1, ttl_s=5), job(2))
    ann.rig.now += 5.1
    assert numbers(ann.get("jobs", 2)) == [2]


def test_a_message_that_has_not_expired_yet_is_handed_out() -> None:
    ann = client()
    ann.put("jobs", job(1, ttl_s=5))
    ann.rig.now += 4.9
    assert numbers(ann.get("jobs")) == [1]


@pytest.mark.parametrize("operation", ["read", "describe", "purge"])
def test_a_message_that_has_expired_is_not_seen_in_any_way(operation: str) -> None:
    ann = client()
    ann.put("jobs", job(1, ttl_s=5))
    ann.rig.run()
    ann.rig.now += 6.0
    match operation:
        case "read":
            assert ann.read("jobs") == []
        case "describe":
            assert ann.describe("jobs").get("messages", 0) == 0
        case "purge":
            assert ann.ask("queue.purge", queue="jobs") == 0


def test_expired_messages_are_swept_out_of_memory_and_store_without_being_asked_for() -> None:
    ann = client()
    ann.put("jobs", job(1, ttl_s=5), job(2, ttl_s=50))
    ann.rig.run()
    pass_time(ann.rig, 6.0)
    assert ann.rig.queues.find("jobs").size == 1
    assert len(list(ann.rig.store.messages())) == 1


def test_the_node_is_woken_when_the_next_message_expires() -> None:
    ann = client()
    ann.put("jobs", job(1, ttl_s=50), job(2, ttl_s=5))
    ann.rig.run()
    assert ann.rig.broker.wake_at == pytest.approx(1_005.0)
    pass_time(ann.rig, 6.0)
    assert ann.rig.broker.wake_at == pytest.approx(1_050.0)


def test_the_node_is_not_woken_for_what_was_in_a_queue_that_is_deleted() -> None:
    ann = Client(Rig())
    ann.create("jobs", expiry=True)
    before = ann.rig.broker.wake_at
    ann.put("jobs", job(1, ttl_s=5.0))
    ann.rig.run()
    assert ann.rig.broker.wake_at < before
    ann.ask("queue.delete", queue="jobs")
    assert ann.rig.broker.wake_at == before


def test_a_queue_that_does_not_use_expiry_ignores_the_ttl() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", job(1, ttl_s=5))
    pass_time(ann.rig, 100.0)
    assert numbers(ann.get("jobs")) == [1]


def test_messages_without_a_ttl_have_that_of_the_queue() -> None:
    ann = client(ttl_s=5.0)
    ann.put("jobs", job(1), job(2, ttl_s=50))
    ann.rig.now += 10.0
    assert numbers(ann.get("jobs", 2)) == [2]


def test_a_queue_shortens_a_ttl_that_is_longer_than_it_grants() -> None:
    ann = client(lease_s_max=10.0)
    ann.put("jobs", job(1, ttl_s=1_000), job(2), job(3, ttl_s=5))
    assert [hand.event.ttl_s for hand in ann.read("jobs")] == [10.0, 10.0, 5.0]
    ann.rig.now += 11.0
    assert ann.get("jobs", 3) == []


def test_a_message_without_any_time_to_live_is_for_those_who_wait_already() -> None:
    ann = client()
    waiting = ann.wait("jobs")
    ann.put("jobs", job(1, ttl_s=0), job(2, ttl_s=0))
    ann.rig.run()
    assert numbers(ann.got(waiting) or []) == [1]
    pass_time(ann.rig, 0.1)
    assert ann.get("jobs") == []


def test_a_message_expires_in_a_readers_hands_and_does_not_come_back() -> None:
    ann = client()
    ann.put("jobs", job(1, ttl_s=5))
    (hand,) = ann.get("jobs")
    pass_time(ann.rig, 6.0)
    ann.settle(GIVE_BACK, hand)
    assert ann.get("jobs") == []
    assert ann.describe("jobs").get("messages", 0) == 0


def test_an_expired_message_can_still_be_acknowledged_by_who_holds_it() -> None:
    ann = client()
    ann.put("jobs", job(1, ttl_s=5))
    (hand,) = ann.get("jobs")
    pass_time(ann.rig, 6.0)
    ann.settle(0, hand)
    ann.rig.run()
    assert ann.refusals == []


def test_a_message_that_was_given_back_expires_when_it_would_have() -> None:
    ann = client()
    ann.put("jobs", job(1, ttl_s=5))
    (hand,) = ann.get("jobs")
    ann.settle(GIVE_BACK, hand)
    pass_time(ann.rig, 6.0)
    assert ann.rig.queues.find("jobs").size == 0


def test_many_messages_expire_though_all_were_in_hands_while_others_were_swept() -> None:
    ann = client()
    ann.put("jobs", *(job(n, ttl_s=100) for n in range(1_500)))
    hands = [*ann.get("jobs", 1_000), *ann.get("jobs", 1_000)]
    assert ann.describe("jobs")["in_flight"] == 1_500
    ann.settle(GIVE_BACK, *hands)
    ann.rig.run()
    ann.rig.now += 101.0
    assert ann.get("jobs", 1_500) == []


def test_a_message_expires_after_a_crash_when_it_would_have() -> None:
    ann = client()
    ann.put("jobs", job(1, ttl_s=5), job(2, ttl_s=50))
    ann.rig.run()
    again = ann.rig.restart()
    again.now += 6.0
    bob = Client(again, "b")
    assert numbers(bob.get("jobs", 2)) == [2]


def test_what_expires_under_a_transaction_that_has_read_it_is_given_to_nobody() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", job(1, ttl_s=5))
    ann.begin(1)
    assert numbers(ann.read("jobs", transaction=1)) == [1]
    waiting = bob.wait("jobs")
    ann.rig.now += 6.0
    ann.roll_back(1)
    assert bob.got(waiting) is None


# Leases


def put_one(ann: Client, **fields: object) -> str:
    """Put a message; its id."""
    ann.put("jobs", job(1, **fields))
    (hand,) = ann.read("jobs")
    identity = hand.event.id
    assert identity is not None
    return identity


def test_a_lease_is_counted_from_the_renewal_on() -> None:
    ann = client()
    identity = put_one(ann, ttl_s=5)
    ann.rig.now += 4.0
    assert ann.ask("queue.renew", queue="jobs", id=identity, lease_s=5.0) == 5.0
    pass_time(ann.rig, 4.0)
    assert numbers(ann.read("jobs")) == [1]
    pass_time(ann.rig, 2.0)
    assert ann.read("jobs") == []


def test_a_lease_may_be_made_shorter() -> None:
    ann = client()
    identity = put_one(ann, ttl_s=50)
    ann.ask("queue.renew", queue="jobs", id=identity, lease_s=1.0)
    pass_time(ann.rig, 2.0)
    assert ann.rig.queues.find("jobs").size == 0


def test_a_node_may_grant_less_than_was_asked_for() -> None:
    ann = client(lease_s_max=10.0)
    identity = put_one(ann)
    assert ann.ask("queue.renew", queue="jobs", id=identity, lease_s=1_000.0) == 10.0


def test_a_lease_of_nothing_ends_the_message() -> None:
    ann = client()
    identity = put_one(ann)
    assert ann.ask("queue.renew", queue="jobs", id=identity, lease_s=0.0) == 0
    assert ann.read("jobs") == []
    assert list(ann.rig.store.messages()) == []


def test_a_message_that_is_not_there_can_not_be_renewed() -> None:
    ann = client()
    failure = ann.fails("queue.renew", queue="jobs", id="nothing", lease_s=1.0)
    assert failure.code == "not-yours"
    assert failure.details["queue"] == "jobs"


def test_a_renewed_lease_holds_after_a_crash() -> None:
    ann = client()
    identity = put_one(ann, ttl_s=5)
    ann.ask("queue.renew", queue="jobs", id=identity, lease_s=100.0)
    again = ann.rig.restart()
    again.now += 50.0
    assert numbers(Client(again, "b").read("jobs")) == [1]


def test_a_renewed_message_is_in_its_old_place() -> None:
    ann = client()
    identity = put_one(ann)
    ann.put("jobs", 2)
    ann.ask("queue.renew", queue="jobs", id=identity, lease_s=100.0)
    assert numbers(ann.get("jobs", 2)) == [1, 2]


def test_what_has_no_lease_can_be_ended_but_not_renewed() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", 1)
    (event,) = [hand.event for hand in ann.read("jobs")]
    assert ann.fails("queue.renew", queue="jobs", id=event.id, lease_s=5.0).code == "queue"
    assert ann.ask("queue.renew", queue="jobs", id=event.id, lease_s=0.0) == 0
    assert ann.read("jobs") == []


# -- while the wall clock is set

HOUR_S, YEAR_S = 3_600.0, 365 * 86_400.0
JUMPS_S = [-HOUR_S, -5.0, 5.0, YEAR_S]


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(-YEAR_S, YEAR_S)), max_size=8))
def test_a_message_lives_as_long_as_it_may_however_often_the_clock_is_set(
    steps: list[tuple[float, float]],
) -> None:
    ann, passed_s = client(), 0.0
    ann.put("jobs", job(1, ttl_s=5))
    ann.rig.run()
    for wait_s, ahead_s in steps:
        ann.rig.broker.shift = ahead_s
        if abs(passed_s + wait_s - 5) > 1e-3:
            passed_s += wait_s
            pass_time(ann.rig, wait_s)
        assert ann.rig.queues.find("jobs").size == (passed_s < 5)


@pytest.mark.parametrize("jump_s", JUMPS_S)
def test_a_message_that_comes_while_the_clock_is_wrong_lives_no_longer_and_no_shorter(jump_s: float) -> None:
    ann = client()
    ann.put("jobs", job(1))
    ann.rig.broker.shift = jump_s
    ann.put("jobs", job(2, ttl_s=5))
    ann.rig.broker.shift = 0.0
    pass_time(ann.rig, 4.9)
    assert numbers(ann.read("jobs")) == [1, 2]
    pass_time(ann.rig, 0.2)
    assert numbers(ann.read("jobs")) == [1]


@pytest.mark.parametrize("jump_s", JUMPS_S)
def test_a_lease_that_is_renewed_while_the_clock_is_wrong_is_as_long_as_was_granted(jump_s: float) -> None:
    ann = client()
    ann.put("jobs", job(1, ttl_s=5))
    ann.rig.run()
    ann.rig.broker.shift = jump_s
    (hand,) = ann.read("jobs")
    assert ann.ask("queue.renew", queue="jobs", id=hand.event.id, lease_s=60.0) == 60.0
    pass_time(ann.rig, 59.0)
    assert numbers(ann.read("jobs")) == [1]
    pass_time(ann.rig, 1.1)
    assert ann.read("jobs") == []


def test_a_lease_that_was_renewed_while_the_clock_was_back_can_be_read_after_a_restart() -> None:
    ann = client(persistent=True, keep=True)
    ann.put("jobs", job(1, ttl_s=5))
    ann.rig.run()
    ann.rig.broker.shift = -HOUR_S
    (hand,) = ann.read("jobs")
    ann.ask("queue.renew", queue="jobs", id=hand.event.id, lease_s=60.0)
    again = ann.rig.restart()
    bob = Client(again, "b")
    assert [hand.event.ttl_s for hand in bob.read("jobs")] == [60.0]


def test_after_a_restart_a_message_from_a_clock_that_was_ahead_lives_for_its_ttl_at_most() -> None:
    ann = client(persistent=True, keep=True)
    ann.rig.broker.shift = YEAR_S
    ann.put("jobs", job(1, ttl_s=5))
    ann.rig.run()
    again = ann.rig.restart()
    assert again.queues.find("jobs").size == 1
    pass_time(again, 5.1)
    assert again.queues.find("jobs").size == 0


def test_a_message_whose_finish_could_not_be_stored_expires_when_it_would_have() -> None:
    ann = client()
    ann.put("jobs", job(1, ttl_s=5))
    ann.rig.run()
    ann.begin(1)
    assert numbers(ann.get("jobs", transaction=1)) == [1]
    ann.commit(1)
    ann.rig.broker.shift = YEAR_S
    ann.rig.tick()
    ann.rig.fail()
    pass_time(ann.rig, 4.9)
    assert ann.rig.queues.find("jobs").size == 1
    pass_time(ann.rig, 0.2)
    assert ann.rig.queues.find("jobs").size == 0


def test_numbers_and_ages_go_by_the_wall_clock() -> None:
    ann = client()
    ann.rig.broker.shift = HOUR_S
    ann.put("jobs", job(1))
    ann.rig.run()
    (hand,) = ann.read("jobs")
    assert hand.number == pytest.approx((1_000.0 + HOUR_S) * 1e6, abs=10)
    pass_time(ann.rig, 7.0)
    assert ann.rig.queues.find("jobs").status()["age_s"] == pytest.approx(7.0)
