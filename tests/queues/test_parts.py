"""Long bodies: put in parts, stored in parts, and fetched part by part by who holds the message."""

from __future__ import annotations

import pytest

from queues.rig import DONE, GIVE_BACK, REJECT, Client, Hand, Rig, job, numbers
from tidings.store.interface import Dequeue


def client(**fields: object) -> Client:
    """A client of a queue into which one message in three parts was put."""
    ann = Client(Rig())
    ann.create("jobs", **fields)
    put_long(ann)
    return ann


def put_long(ann: Client, n: int = 1) -> None:
    """Put a message in three parts."""
    ann.begin(n)
    ann.put("jobs", job(0, body=b"two"), job(0, body=b"three"), transaction=n, is_part=True)
    ann.put("jobs", job(n, body=b"one"), transaction=n)
    ann.commit(n)
    ann.rig.run()


def body(ann: Client, hand: Hand, queue: str = "jobs") -> bytes:
    """The whole body of a message."""
    parts = [
        ann.ask("part", queue=queue, number=hand.number, delivery=hand.delivery, index=index)
        for index in range(hand.parts)
    ]
    return b"|".join([hand.event.body or b"", *parts])


def test_a_body_in_parts_is_fetched_part_by_part() -> None:
    ann = client()
    (hand,) = ann.get("jobs", 5)
    assert hand.parts == 2
    assert body(ann, hand) == b"one|two|three"


def test_parts_are_those_of_the_next_message_only() -> None:
    ann = client()
    ann.put("jobs", 2)
    assert [(hand.n, hand.parts) for hand in ann.read("jobs")] == [(1, 2), (2, 0)]


def test_parts_survive_a_crash() -> None:
    bob = Client(client().rig.restart(), "b")
    (hand,) = bob.get("jobs")
    assert body(bob, hand) == b"one|two|three"


def test_parts_of_a_volatile_message_are_in_memory() -> None:
    ann = client(persistent=False)
    assert body(ann, ann.get("jobs")[0]) == b"one|two|three"
    assert list(ann.rig.store.messages()) == []


def test_parts_go_with_their_message() -> None:
    ann = client()
    ann.settle(DONE, *ann.get("jobs"))
    ann.rig.run()
    assert list(ann.rig.store.messages()) == []
    assert ann.rig.queues.size == 0


def test_parts_come_back_with_their_message() -> None:
    ann = client()
    ann.settle(GIVE_BACK, *ann.get("jobs"))
    (hand,) = ann.get("jobs")
    assert body(ann, hand) == b"one|two|three"


def test_parts_are_those_of_the_dead_letter_too() -> None:
    ann = client()
    ann.settle(REJECT, *ann.get("jobs"))
    (letter,) = ann.get("tidings.dead")
    assert body(ann, letter, "tidings.dead") == b"one|two|three"
    ann.settle(GIVE_BACK, letter)
    ann.ask("queue.replay")
    (hand,) = ann.get("jobs")
    assert body(ann, hand) == b"one|two|three"


def test_parts_may_be_read_without_taking_the_message() -> None:
    ann = client()
    (hand,) = ann.read("jobs")
    assert body(ann, hand) == b"one|two|three"


def test_parts_of_what_another_holds_are_not_told() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    (hand,) = ann.get("jobs")
    failure = bob.fails("part", queue="jobs", number=hand.number, delivery=hand.delivery, index=0)
    assert (failure.code, failure.details["queue"]) == ("not-yours", "jobs")


@pytest.mark.parametrize("index", [-1, 2])
def test_a_part_that_is_not_there_is_refused(index: int) -> None:
    ann = client()
    (hand,) = ann.get("jobs")
    failure = ann.fails("part", queue="jobs", number=hand.number, delivery=hand.delivery, index=index)
    assert failure.code == "queue"


def test_parts_can_be_fetched_in_the_transaction_that_took_the_message() -> None:
    ann = client()
    ann.begin(7)
    (hand,) = ann.get("jobs", transaction=7)
    assert body(ann, hand) == b"one|two|three"


def test_parts_are_put_in_a_transaction_only() -> None:
    ann = client()
    counter = ann.put("jobs", job(0, body=b"lost"), is_part=True)
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "protocol")]
    assert numbers(ann.read("jobs")) == [1]


def test_parts_without_a_message_are_forgotten_with_their_transaction() -> None:
    ann = client()
    ann.begin(7)
    ann.put("jobs", job(0, body=b"lost"), transaction=7, is_part=True)
    ann.commit(7)
    ann.rig.run()
    assert numbers(ann.read("jobs")) == [1]
    assert len(list(ann.rig.store.messages())) == 3


def test_parts_that_a_crash_left_without_their_message_are_given_up() -> None:
    ann = client()
    (head,) = [one.number for one in ann.rig.store.messages() if not one.part_of]
    ann.rig.store.commit([Dequeue(head)])
    ann.rig.store.sync()
    again = ann.rig.restart()
    again.run()
    assert list(again.store.messages()) == []


def test_a_deleted_queue_takes_the_parts_of_its_messages_with_it() -> None:
    ann = client()
    ann.ask("queue.delete", queue="jobs")
    assert list(ann.rig.store.messages()) == []
    assert ann.rig.queues.size == 0
