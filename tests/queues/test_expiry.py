"""How long messages live: one that has outlived its time is never handed out."""

from __future__ import annotations

import pytest

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
    hands = ann.get("jobs", 1_500)
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
