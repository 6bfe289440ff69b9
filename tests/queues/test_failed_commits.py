"""Commits that can't be made: clients come again, and then nothing is lost and nothing is there twice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from queues.rig import DONE, GIVE_BACK, REJECT, Client, Rig, job, numbers, pass_time
from tidings.protocol.messages import Bye, Commit, Refusal
from tidings.queues import inflight


def client(**fields: object) -> Client:
    """A client of a queue."""
    ann = Client(Rig())
    ann.create("jobs", **fields)
    return ann


def fail(rig: Rig) -> None:
    """The next commit can't be made."""
    rig.tick()
    rig.fail()
    rig.run()


def come_again(*clients: Client) -> None:
    """Those who were sent away come again."""
    for one in clients:
        if one.peer.got(Bye):
            one.lose()
            one.come()


def test_a_put_that_could_not_be_stored_is_not_there_until_it_is_sent_again() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    counter = ann.put("jobs", 1)
    fail(ann.rig)
    assert [bye.code for bye in ann.peer.got(Bye)] == ["internal"]
    assert bob.get("jobs") == []
    come_again(ann)
    assert ann.welcome.counter < counter
    ann.put_again("jobs", counter, job(1))
    assert numbers(bob.get("jobs", 5)) == [1]
    assert numbers(Client(ann.rig.restart(), "c").read("jobs")) == [1]


def test_a_hand_out_of_what_could_not_be_stored_is_never_told() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    counter = ann.put("jobs", 1)
    number = bob.request("get", queue="jobs")
    fail(ann.rig)
    assert bob.got(number) is None
    come_again(ann, bob)
    ann.put_again("jobs", counter, job(1))
    (hand,) = bob.get("jobs", 5)
    assert (hand.n, hand.delivery) == (1, 1)


def test_a_watcher_is_told_once_of_a_put_that_had_to_be_sent_again() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    bob.subscribe(queue="jobs")
    counter = ann.put("jobs", 1)
    fail(ann.rig)
    assert bob.told == []
    come_again(ann, bob)
    bob.subscribe(queue="jobs")
    ann.put_again("jobs", counter, job(1))
    ann.rig.run()
    assert bob.told == [1]


def test_a_waiting_reader_is_not_told_of_a_put_that_was_undone_before_the_tick_ended() -> None:
    ann = client()
    bob, cat = Client(ann.rig, "b"), Client(ann.rig, "c")
    waiting = bob.wait("jobs")
    ann.rig.run()
    cat.create("other")
    cat.put("other", 9)
    ann.rig.tick()
    counter = ann.put("jobs", 1)
    ann.rig.fail()
    ann.rig.run()
    assert bob.got(waiting) is None
    come_again(ann, bob)
    ann.put_again("jobs", counter, job(1))
    ann.rig.run()
    handed = bob.got(waiting)
    assert numbers(bob.get("jobs", 5) if handed is None else handed) == [1]


def test_an_acknowledgement_that_could_not_be_stored_is_not_forgotten() -> None:
    ann = client(redelivery_s=10.0)
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    counter = ann.settle(DONE, hand)
    fail(ann.rig)
    come_again(ann)
    if ann.welcome.counter < counter:
        ann.settle_again(counter, DONE, hand)
    ann.rig.run()
    pass_time(ann.rig, 60.0)
    assert ann.get("jobs") == []
    assert Client(ann.rig.restart(), "b").get("jobs") == []


def test_an_acknowledgement_among_puts_that_could_not_be_stored_is_not_forgotten() -> None:
    ann = client(redelivery_s=10.0)
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    counter = ann.settle(DONE, hand)
    ann.put("jobs", 2)
    fail(ann.rig)
    come_again(ann)
    assert ann.welcome.counter < counter
    ann.settle_again(counter, DONE, hand)
    ann.put_again("jobs", counter + 1, job(2))
    ann.rig.run()
    pass_time(ann.rig, 60.0)
    assert numbers(ann.read("jobs")) == [2]
    assert numbers(Client(ann.rig.restart(), "b").read("jobs")) == [2]


@pytest.mark.parametrize("outcome", [GIVE_BACK, REJECT])
def test_what_was_given_back_or_rejected_is_in_one_place_after_a_failed_commit(outcome: int) -> None:
    ann = client()
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    counter = ann.settle(outcome, hand)
    fail(ann.rig)
    come_again(ann)
    if ann.welcome.counter < counter:
        ann.settle_again(counter, outcome, hand)
    ann.rig.run()
    pass_time(ann.rig, 100.0)
    for one in (ann, Client(ann.rig.restart(), "b")):
        places = [("jobs", one.read("jobs"))]
        if outcome == REJECT:
            places.append(("dead", one.read("tidings.dead")))
        assert [(name, numbers(hands)) for name, hands in places if hands] == [
            ("dead" if outcome == REJECT else "jobs", [1])
        ]


def test_a_volatile_put_that_was_accepted_survives_the_failed_commit_of_another() -> None:
    ann = client(persistent=False)
    bob = Client(ann.rig, "b")
    bob.create("bills")
    bob.put("bills", 9)
    counter = ann.put("jobs", 1)
    ann.rig.tick()
    assert ann.accepted == counter
    ann.rig.fail()
    ann.rig.run()
    assert not ann.peer.got(Bye)
    assert numbers(ann.get("jobs", 5)) == [1]


def test_a_volatile_put_that_was_accepted_survives_a_later_failed_commit_of_its_own_client() -> None:
    ann = client(persistent=False)
    bob = Client(ann.rig, "b")
    bob.create("bills")
    bob.put("bills", 9)
    ann.rig.tick()
    first = ann.put("jobs", 1)
    ann.rig.tick()
    assert ann.accepted == first
    second = ann.put("bills", 2)
    fail(ann.rig)
    come_again(ann, bob)
    for counter, queue in ((first, "jobs"), (second, "bills")):
        if counter > max(ann.welcome.counter, first):
            ann.put_again(queue, counter, job(counter))
    bob.put_again("bills", 1, job(9))
    ann.rig.run()
    assert numbers(bob.get("jobs", 5)) == [1]
    assert sorted(numbers(bob.get("bills", 5))) == [2, 9]


def test_volatile_and_persistent_puts_of_one_client_are_there_once_after_a_failed_commit() -> None:
    ann = client(persistent=False)
    ann.create("bills")
    plan = [("jobs", 1), ("bills", 2), ("jobs", 3), ("bills", 4)]
    for queue, n in plan:
        ann.put(queue, n)
    fail(ann.rig)
    come_again(ann)
    for counter, (queue, n) in enumerate(plan, 1):
        if counter > ann.welcome.counter:
            ann.put_again(queue, counter, job(n))
    ann.rig.run()
    assert numbers(ann.get("jobs", 5)) == [1, 3]
    assert numbers(ann.get("bills", 5)) == [2, 4]


def test_a_transient_publication_into_a_queue_survives_the_failed_commit_of_another() -> None:
    ann = client(persistent=False, bind="type = 'job'")
    bob = Client(ann.rig, "b")
    bob.create("bills")
    bob.put("bills", 9)
    ann.counter += 1
    ann.peer.publish(replace(job(1), counter=ann.counter))
    fail(ann.rig)
    assert numbers(ann.get("jobs", 5)) == [1]


def test_what_is_handed_out_after_a_failed_commit_waits_until_it_is_on_disk_that_it_may_have_been() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1, 2)
    ann.rig.run()
    ann.request("get", queue="jobs")
    ann.rig.tick()
    ann.rig.fail()
    number = bob.request("get", queue="jobs")
    ann.rig.tick()
    assert bob.got(number) is None
    ann.rig.sync()
    assert numbers(bob.got(number) or []) == [2]
    (hand,) = Client(ann.rig.restart(), "c").get("jobs", where="n = 2")
    assert hand.redelivered


def test_purged_while_the_put_was_not_on_disk_yet_is_counted_once() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    bob.request("queue.purge", queue="jobs")
    fail(ann.rig)
    assert ann.rig.queues.size == 0


def test_a_transaction_whose_commit_could_not_be_stored_is_rolled_back_whole() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.create("fast", persistent=False)
    ann.put("jobs", 1)
    ann.put("fast", 2)
    ann.begin(1)
    assert numbers(ann.get("jobs", transaction=1)) == [1]
    assert numbers(ann.get("fast", transaction=1)) == [2]
    ann.put("jobs", 3, transaction=1)
    ann.put("fast", 4, transaction=1)
    counter = ann.commit(1)
    fail(ann.rig)
    come_again(ann, bob)
    assert ann.welcome.counter < counter
    ann.peer.send(Commit(counter, 0, 1))
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "rolled-back")]
    assert numbers(bob.read("jobs")) == [1]
    assert numbers(bob.read("fast")) == [2]
    assert numbers(Client(ann.rig.restart(), "c").read("jobs")) == [1]


def test_a_message_in_parts_is_whole_after_a_failed_commit_and_a_crash() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.begin(1)
    ann.put("jobs", job(0, body=b"two"), transaction=1, is_part=True)
    ann.put("jobs", job(1, body=b"one"), transaction=1)
    ann.commit(1)
    ann.rig.run()
    bob.begin(1)
    (hand,) = bob.get("jobs", transaction=1)
    assert hand.parts == 1
    bob.commit(1)
    fail(ann.rig)
    come_again(ann, bob)
    cat = Client(ann.rig.restart(), "c")
    (again,) = cat.get("jobs")
    assert again.parts == 1
    assert cat.ask("part", queue="jobs", number=again.number, delivery=again.delivery, index=0) == b"two"


def test_a_description_that_could_not_be_stored_is_stored_with_the_next_commit() -> None:
    rig = Rig()
    ann = Client(rig)
    ann.request("queue.create", name="jobs")
    fail(rig)
    come_again(ann)
    ann.create("jobs")
    ann.put("jobs", 1)
    rig.run()
    assert numbers(Client(rig.restart(), "b").get("jobs")) == [1]


def test_a_dead_letter_that_could_not_be_stored_is_handed_out_when_it_is() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    ann.settle(REJECT, *ann.get("jobs"))
    ann.rig.tick()
    ann.rig.fail()
    number = bob.request("get", queue="tidings.dead")
    ann.rig.tick()
    assert bob.got(number) is None
    ann.rig.sync()
    ann.rig.run()
    assert numbers(bob.got(number) or []) == [1]


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("is_late", [True, False])
def test_a_settlement_of_what_was_taken_back_meanwhile_is_refused_by_the_name_of_its_queue(
    persistent: bool, is_late: bool
) -> None:
    """Without the name, a client takes it after a failed commit for done, and the message comes again."""
    ann = client(persistent=persistent, redelivery_s=5.0)
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    if is_late:
        pass_time(ann.rig, 6.0)
    else:
        ann.lose()
        pass_time(ann.rig, 2.0)
        ann.come()
    counter = ann.settle(DONE, hand)
    ann.rig.run()
    assert ann.refused_at == [(counter, "jobs")]


def test_so_is_one_of_what_another_reader_has_settled_since() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    ann.lose()
    pass_time(ann.rig, 2.0)
    (other,) = bob.get("jobs")
    counter = ann.counter + 1
    ann.come()
    ann.settle(DONE, hand)
    bob.settle(DONE, other)
    ann.rig.run()
    ann.settle(DONE, hand)
    ann.rig.run()
    assert ann.refused_at == [(counter, "jobs"), (counter + 1, "jobs")]


def test_so_is_one_of_what_was_taken_back_from_another_reader_since() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    ann.lose()
    pass_time(ann.rig, 2.0)
    bob.get("jobs")
    bob.lose()
    pass_time(ann.rig, 2.0)
    ann.come()
    counter = ann.settle(DONE, hand)
    ann.rig.run()
    assert ann.refused_at == [(counter, "jobs")]


def test_who_has_settled_a_message_that_was_taken_back_from_him_before_is_not_told_that() -> None:
    ann = client(redelivery_s=5.0)
    ann.put("jobs", 1)
    ann.get("jobs")
    pass_time(ann.rig, 6.0)
    (hand,) = ann.get("jobs")
    counter = ann.settle(DONE, hand)
    fail(ann.rig)
    come_again(ann)
    ann.settle_again(counter, DONE, hand)
    ann.rig.run()
    assert [one.failure.details["queue"] for one in ann.peer.got(Refusal)] == [""]


def test_of_what_was_taken_back_the_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "RETURNED_MAX", 2)
    known = inflight.Returned()
    for number in (1, 2, 1, 3):
        known.note(number, 1, ("ann", 1), "jobs")
    assert [number for number, _ in known] == [1, 3]
    assert known.find(3, 1, ("ann", 1)) == "jobs"
    assert known.find(3, 2, ("ann", 1)) == known.find(3, 1, ("bob", 1)) == known.find(2, 1, ("ann", 1)) == ""
