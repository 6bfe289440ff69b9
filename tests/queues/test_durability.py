"""What a crash, a lost connection or a failed commit leaves of queues: nothing lost, nothing done twice."""

from __future__ import annotations

import pytest

from queues.rig import DONE, GIVE_BACK, REJECT, UNOPENED, Client, Rig, job, numbers, pass_time
from tidings.protocol.messages import Accepted, Bye, Refusal


def client(**fields: object) -> Client:
    """A client of a queue."""
    ann = Client(Rig())
    ann.create("jobs", **fields)
    return ann


# Promises


def test_a_put_is_accepted_when_it_is_on_disk() -> None:
    ann = client()
    counter = ann.put("jobs", 1)
    ann.rig.tick()
    assert ann.accepted == 0
    ann.rig.sync()
    assert ann.accepted == counter


def test_a_put_into_a_volatile_queue_waits_for_no_disk() -> None:
    ann = client(persistent=False)
    counter = ann.put("jobs", 1)
    ann.rig.tick()
    assert ann.accepted == counter


def test_a_message_is_handed_out_when_it_is_on_disk() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    number = bob.request("get", queue="jobs")
    ann.rig.tick()
    assert bob.got(number) is None
    ann.rig.sync()
    assert numbers(bob.got(number) or []) == [1]


def test_a_hand_out_waits_until_it_is_on_disk_that_there_may_have_been_one() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.rig.run()
    number = ann.request("get", queue="jobs")
    ann.rig.tick()
    assert ann.got(number) is None
    ann.rig.sync()
    assert numbers(ann.got(number) or []) == [1]


def test_a_watcher_is_told_of_a_message_when_it_is_on_disk() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    bob.subscribe(queue="jobs")
    ann.put("jobs", 1)
    ann.rig.tick()
    assert bob.told == []
    ann.rig.sync()
    assert bob.told == [1]


def test_an_acknowledgement_is_accepted_when_it_is_on_disk() -> None:
    ann = client()
    ann.put("jobs", 1)
    counter = ann.settle(DONE, *ann.get("jobs"))
    ann.rig.tick()
    assert ann.accepted < counter
    ann.rig.sync()
    assert ann.accepted == counter


@pytest.mark.parametrize("outcome", [DONE, GIVE_BACK, REJECT, UNOPENED])
@pytest.mark.parametrize("persistent", [True, False])
def test_every_settlement_is_accepted_in_the_end(outcome: int, persistent: bool) -> None:
    ann = client(persistent=persistent)
    ann.put("jobs", 1)
    counter = ann.settle(outcome, *ann.get("jobs"))
    ann.rig.run()
    assert ann.accepted == counter


def test_a_refusal_comes_before_the_acceptance_that_covers_it() -> None:
    ann = client(max_messages=1)
    ann.put("jobs", 1, 2)
    ann.rig.run()
    kinds = [type(message) for message, _ in ann.peer.frames if isinstance(message, Accepted | Refusal)]
    assert kinds == [Refusal, Accepted]


# Sent again


def test_a_put_that_is_sent_again_is_not_put_twice() -> None:
    ann = client()
    counter = ann.put("jobs", 1)
    ann.rig.run()
    ann.lose()
    ann.come()
    assert ann.welcome.counter == counter
    ann.put_again("jobs", counter, job(1))
    ann.rig.run()
    assert numbers(ann.read("jobs")) == [1]


def test_of_what_is_sent_again_only_what_is_new_is_put() -> None:
    ann = client()
    ann.put("jobs", 1, 2)
    ann.rig.run()
    ann.lose()
    ann.come()
    ann.counter = 0
    ann.put("jobs", 1, 2, 3)
    ann.rig.run()
    assert numbers(ann.read("jobs")) == [1, 2, 3]


def test_a_put_that_is_sent_again_after_its_queue_was_deleted_is_passed_over() -> None:
    ann = client()
    counter = ann.put("jobs", 1)
    ann.ask("queue.delete", queue="jobs")
    ann.lose()
    ann.come()
    ann.put_again("jobs", counter, job(1))
    ann.rig.run()
    assert ann.refusals == []
    assert not ann.peer.got(Bye)


def test_a_settlement_that_is_sent_again_is_done_once() -> None:
    ann = client()
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    counter = ann.settle(GIVE_BACK, hand)
    ann.rig.run()
    ann.lose()
    ann.come()
    ann.settle_again(counter, GIVE_BACK, hand)
    ann.rig.run()
    assert ann.refusals == []
    assert ann.get("jobs")[0].delivery == 2


@pytest.mark.parametrize("crash", [False, True])
def test_refusals_are_told_again_until_they_were_seen(crash: bool) -> None:
    ann = client(max_messages=1)
    ann.put("jobs", 1, 2, 3)
    ann.rig.run()
    again = ann.rig.restart() if crash else None
    if not crash:
        ann.lose()
    ann.come(again)
    (refusal,) = ann.welcome.refused
    assert (refusal.first, refusal.last, refusal.failure.code) == (2, 3, "queue-full")
    assert refusal.failure.details["queue"] == "jobs"
    ann.seen = 3
    ann.lose()
    ann.come()
    assert ann.welcome.refused == []


def test_what_was_seen_is_told_with_any_numbered_frame() -> None:
    ann = client(max_messages=1)
    ann.put("jobs", 1, 2)
    ann.rig.run()
    ann.seen = 2
    ann.put("jobs", 3)
    ann.rig.run()
    ann.seen = 0
    ann.lose()
    ann.come()
    assert [refusal.first for refusal in ann.welcome.refused] == [3]


# Crashes


def test_messages_of_a_persistent_queue_are_there_after_a_crash() -> None:
    ann = client()
    ann.put("jobs", job(1, body=b"x", subject="rain"))
    ann.rig.run()
    (hand,) = Client(ann.rig.restart(), "b").get("jobs")
    assert (hand.n, hand.event.body, hand.event.subject) == (1, b"x", "rain")
    assert (hand.system, hand.epoch, hand.source) == ("sys", 1, "ann")


def test_messages_that_were_acknowledged_are_not() -> None:
    ann = client()
    ann.put("jobs", 1, 2)
    ann.settle(DONE, *ann.get("jobs"))
    ann.rig.run()
    assert numbers(Client(ann.rig.restart(), "b").get("jobs", 5)) == [2]


def test_what_may_have_been_handed_out_before_a_crash_is_marked() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.get("jobs")
    ann.rig.now += 10.0
    ann.put("jobs", 2)
    ann.rig.run()
    hands = Client(ann.rig.restart(), "b").get("jobs", 2)
    assert [(hand.n, hand.redelivered) for hand in hands] == [(1, True), (2, False)]


def test_how_often_a_message_came_back_is_known_after_a_crash() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.settle(GIVE_BACK, *ann.get("jobs"))
    ann.rig.run()
    (hand,) = Client(ann.rig.restart(), "b").get("jobs")
    assert (hand.delivery, hand.redelivered) == (2, True)


def test_a_put_that_was_not_on_disk_is_sent_again_after_a_crash() -> None:
    ann = client()
    counter = ann.put("jobs", 1)
    ann.rig.tick()
    ann.come(ann.rig.restart())
    assert ann.welcome.counter < counter
    ann.put_again("jobs", counter, job(1))
    ann.rig.run()
    assert numbers(ann.get("jobs", 5)) == [1]


def test_a_put_that_was_on_disk_but_not_accepted_is_not_put_twice() -> None:
    ann = client()
    counter = ann.put("jobs", 1)
    ann.rig.run()
    ann.come(ann.rig.restart())
    ann.put_again("jobs", counter, job(1))
    ann.rig.run()
    assert numbers(ann.get("jobs", 5)) == [1]


def test_an_acknowledgement_that_was_not_on_disk_leaves_the_message() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.settle(DONE, *ann.get("jobs"))
    ann.rig.tick()
    (hand,) = Client(ann.rig.restart(), "b").get("jobs")
    assert (hand.n, hand.redelivered) == (1, True)


def test_a_volatile_queue_that_is_kept_comes_back_empty() -> None:
    ann = client(persistent=False, keep=True, text="mine")
    ann.put("jobs", 1)
    ann.rig.run()
    bob = Client(ann.rig.restart(), "b")
    assert bob.get("jobs") == []
    assert bob.describe("jobs")["text"] == "mine"


def test_a_queue_that_is_not_kept_is_gone_after_a_crash_with_its_messages() -> None:
    ann = client(persistent=True, keep=False)
    ann.put("jobs", 1)
    ann.rig.run()
    again = ann.rig.restart()
    bob = Client(again, "b")
    assert bob.fails("get", queue="jobs").code == "queue-not-found"
    assert list(again.store.messages()) == []


def test_a_description_is_the_same_after_a_crash() -> None:
    fields = {"priorities": True, "expiry": True, "max_messages": 7, "bind": "n > 1", "passive": True}
    ann = client(**fields, ttl_s=5.0, ageing_s=2.0, priority=3, properties={"a": 1, "b": True, "c": 1.5})
    told = ann.describe("jobs")
    assert Client(ann.rig.restart(), "b").describe("jobs") == told


def test_a_deleted_queue_does_not_come_back() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.ask("queue.delete", queue="jobs")
    assert Client(ann.rig.restart(), "b").fails("get", queue="jobs").code == "queue-not-found"


def test_ids_of_queues_that_are_made_after_a_crash_are_new() -> None:
    ann = client()
    bob = Client(ann.rig.restart(), "b")
    assert bob.create("other")["id"] != bob.describe("jobs")["id"]


def test_a_crash_between_two_writes_of_one_commit_can_not_be_seen() -> None:
    ann = client()
    ann.put("jobs", 1, 2, 3)
    ann.rig.tick()
    for operations in ann.rig.commits:
        ann.rig.store.commit(operations)
    whole = ann.rig.store.disk.unsynced
    for kept in range(0, whole, 7):
        disk = type(ann.rig.store.disk)()
        content = ann.rig.store.disk.content
        disk.append(content[: len(content) - whole + kept])
        assert Client(Rig(disk), "b").get("jobs", 5) == []


def test_time_held_is_not_counted_over_a_crash() -> None:
    ann = client(redelivery_s=10.0)
    ann.put("jobs", 1)
    ann.get("jobs")
    again = ann.rig.restart()
    bob = Client(again, "b")
    assert numbers(bob.get("jobs")) == [1]
    pass_time(again, 11.0)
    assert numbers(bob.get("jobs")) == [1]
