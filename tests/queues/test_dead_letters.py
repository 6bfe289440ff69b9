"""Dead letters: messages that could not be dealt with, why, and how they go back."""

from __future__ import annotations

import pytest

from queues.rig import GIVE_BACK, REJECT, Client, Hand, Rig, job, numbers, pass_time
from tidings.queues.description import REASON_LENGTH_MAX


def client(**fields: object) -> Client:
    """A client of a queue."""
    ann = Client(Rig())
    ann.create("jobs", **fields)
    return ann


def dead(ann: Client) -> list[Hand]:
    return ann.read("tidings.dead")


def test_a_message_that_was_handed_out_often_enough_is_a_dead_letter() -> None:
    ann = client(deliveries_max=2)
    ann.put("jobs", job(1, priority=7))
    for _ in range(2):
        ann.settle(GIVE_BACK, *ann.get("jobs"))
    assert ann.get("jobs") == []
    (letter,) = dead(ann)
    values = letter.event.values
    assert (values["n"], values["dead.queue"], values["dead.deliveries"]) == (1, "jobs", 2)
    assert values["dead.reason"] == "was handed out 2 times"
    assert letter.event.priority == 7
    assert letter.system == "sys"


def test_ten_deliveries_are_enough_unless_something_else_is_said() -> None:
    ann = client()
    ann.put("jobs", 1)
    for _ in range(10):
        (hand,) = ann.get("jobs")
        ann.settle(GIVE_BACK, hand)
    assert hand.delivery == 10
    assert len(dead(ann)) == 1


def test_without_a_limit_a_message_is_handed_out_for_ever() -> None:
    ann = client(deliveries_max=None)
    ann.put("jobs", 1)
    for delivery in range(1, 30):
        (hand,) = ann.get("jobs")
        assert hand.delivery == delivery
        ann.settle(GIVE_BACK, hand)


@pytest.mark.parametrize(("text", "reason"), [("no such account", "no such account"), ("", "rejected")])
def test_a_rejected_message_is_a_dead_letter_with_the_reason(text: str, reason: str) -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.settle(REJECT, *ann.get("jobs"), text=text)
    (letter,) = dead(ann)
    assert letter.event.values["dead.reason"] == reason
    assert ann.rig.queues.find("jobs").size == 0


@pytest.mark.parametrize(
    ("way", "reason"), [("late", "was held for too long"), ("lost", "its reader was lost")]
)
def test_a_dead_letter_says_how_it_came_back(way: str, reason: str) -> None:
    ann = client(deliveries_max=1, redelivery_s=10.0)
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    ann.get("jobs")
    if way == "lost":
        ann.lose()
    pass_time(ann.rig, 11.0)
    (letter,) = dead(bob)
    assert letter.event.values["dead.reason"] == reason


def test_a_long_reason_is_cut_off() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.settle(REJECT, *ann.get("jobs"), text="x" * 10_000)
    (letter,) = dead(ann)
    assert letter.event.values["dead.reason"] == "x" * REASON_LENGTH_MAX


def test_a_rejected_dead_letter_is_thrown_away() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.settle(REJECT, *ann.get("jobs"))
    ann.settle(REJECT, *ann.get("tidings.dead"))
    assert dead(ann) == []
    assert list(ann.rig.store.messages()) == []


def test_dead_letters_survive_a_crash() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.settle(REJECT, *ann.get("jobs"))
    ann.rig.run()
    bob = Client(ann.rig.restart(), "b")
    assert numbers(dead(bob)) == [1]
    assert bob.get("jobs") == []


def test_the_oldest_dead_letters_are_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.queues.dead_letters.DEAD_MAX", 2)
    ann = client()
    ann.put("jobs", 1, 2, 3)
    ann.settle(REJECT, *ann.get("jobs", 3))
    assert numbers(dead(ann)) == [2, 3]


def test_the_dead_letters_may_be_described_otherwise_by_whoever_makes_them_first() -> None:
    ann = client()
    ann.create("tidings.dead", text="mine", max_messages=5)
    ann.put("jobs", 1)
    ann.settle(REJECT, *ann.get("jobs"))
    assert numbers(dead(ann)) == [1]


def test_the_name_of_the_dead_letters_can_not_be_an_alias() -> None:
    ann = client()
    assert ann.fails("queue.alias", name="tidings.dead", target="jobs").code == "queue-exists"
    ann.put("jobs", 1)
    ann.settle(REJECT, *ann.get("jobs"))
    assert numbers(dead(ann)) == [1]


def test_there_are_dead_letters_though_there_may_be_no_more_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    ann = client()
    monkeypatch.setattr("tidings.queues.manager.QUEUES_MAX", 1)
    ann.put("jobs", 1)
    ann.settle(REJECT, *ann.get("jobs"))
    assert numbers(dead(ann)) == [1]


def test_dead_letters_go_back_where_they_came_from() -> None:
    ann = client()
    ann.create("bills")
    ann.put("jobs", 1, 2)
    ann.put("bills", 3)
    ann.settle(REJECT, *ann.get("jobs", 2), *ann.get("bills"))
    assert ann.ask("queue.replay", where="n <> 2") == 2
    assert numbers(ann.get("bills")) == [3]
    (hand,) = ann.get("jobs", 5)
    assert hand.event.values == {"n": 1}
    assert (hand.delivery, hand.redelivered) == (1, False)
    assert numbers(dead(ann)) == [2]


def test_dead_letters_may_go_elsewhere() -> None:
    ann = client()
    ann.create("later")
    ann.put("jobs", 1)
    ann.settle(REJECT, *ann.get("jobs"))
    assert ann.ask("queue.replay", queue="later") == 1
    assert numbers(ann.get("later")) == [1]


def test_dead_letters_of_a_queue_that_is_gone_stay_until_they_may_go_elsewhere() -> None:
    ann = client()
    ann.create("bills")
    ann.put("jobs", 1)
    ann.put("bills", 2)
    ann.settle(REJECT, *ann.get("jobs"), *ann.get("bills"))
    ann.ask("queue.delete", queue="jobs")
    assert ann.ask("queue.replay") == 1
    assert numbers(ann.get("bills")) == [2]
    assert ann.fails("queue.replay", queue="jobs").code == "queue-not-found"
    assert ann.ask("queue.replay", queue="bills") == 1
    assert numbers(ann.get("bills")) == [1]


def test_where_there_are_no_dead_letters_none_is_replayed() -> None:
    assert client().ask("queue.replay") == 0


def test_dead_letters_stay_where_they_are_when_there_is_no_room_for_them() -> None:
    ann = client(max_messages=1)
    ann.put("jobs", 1)
    ann.settle(REJECT, *ann.get("jobs"))
    ann.put("jobs", 2)
    assert ann.fails("queue.replay").code == "queue-full"
    assert numbers(dead(ann)) == [1]
