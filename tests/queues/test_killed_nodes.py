"""How often messages were delivered is counted over nodes that are killed while someone has them."""

from __future__ import annotations

import pytest

from queues.rig import DONE, GIVE_BACK, UNOPENED, Client, Rig, numbers
from tidings.queues.description import DEAD


def client(**wish: object) -> Client:
    ann = Client(Rig())
    ann.create("jobs", **wish)
    ann.rig.run()
    return ann


def kill(ann: Client) -> Client:
    """The node is killed and so is its client; another one comes to the next node."""
    return Client(ann.rig.restart(), f"{ann.system}x")


def letters(ann: Client) -> list[tuple[object, object, object]]:
    """The dead letters: their jobs, deliveries and reasons."""
    return [
        (one.n, one.event.values["dead.deliveries"], one.event.values["dead.reason"])
        for one in ann.read(DEAD)
    ]


@pytest.mark.parametrize("most", [1, 2, 10])
def test_a_message_that_ends_the_node_each_time_is_a_dead_letter_in_the_end(most: int) -> None:
    ann = client(deliveries_max=most)
    ann.put("jobs", 1)
    ann.rig.run()
    deliveries = 0
    while numbers(ann.get("jobs")) == [1]:
        deliveries += 1
        ann = kill(ann)
    assert most <= deliveries <= most + 1  # the first one is not stored
    ended = f"was handed out {most} times; the last time the node ended before it was settled"
    assert letters(ann) == [(1, most, ended)]


def test_without_a_limit_it_comes_for_ever() -> None:
    ann = client(deliveries_max=None)
    ann.put("jobs", 1)
    ann.rig.run()
    for _ in range(20):
        assert numbers(ann.get("jobs")) == [1]
        ann = kill(ann)


def test_messages_that_nobody_had_are_not_counted_however_often_the_node_is_killed() -> None:
    ann = client(deliveries_max=2, priorities=True)
    for n in range(3):
        ann.put("jobs", n)
    ann.rig.run()
    for _ in range(10):
        assert [(one.n, one.delivery) for one in ann.read("jobs", 10)] == [(0, 0), (1, 0), (2, 0)]
        (hand,) = ann.get("jobs", where="n = 2")
        ann.settle(UNOPENED, hand)
        ann.rig.run()
        ann = kill(ann)
    assert numbers(ann.get("jobs", 10)) == [0, 1, 2]


def test_those_that_came_with_it_are_not_counted() -> None:
    ann = client(deliveries_max=3)
    ann.put("jobs", 1, 2, 3)
    ann.rig.run()
    while numbers(ann.get("jobs", 3)) == [1, 2, 3]:
        ann = kill(ann)
    assert [n for n, *_ in letters(ann)] == [1]
    ann = kill(ann)
    assert [(one.n, one.delivery) for one in ann.get("jobs", 3)] == [(2, 2), (3, 1)]


def test_a_counted_hand_out_leaves_when_that_is_on_disk() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.rig.run()
    ann.get("jobs")
    ann = kill(ann)
    number = ann.request("get", queue="jobs")
    ann.rig.tick()
    assert ann.reply(number) is None
    ann.rig.sync()
    assert ann.reply(number) is not None


def test_new_messages_are_handed_out_without_a_write_for_each() -> None:
    ann = client()
    ann.put("jobs", *range(3))
    ann.rig.run()
    ann.get("jobs")
    ann.rig.run()
    written = len(ann.rig.store.disk.content)
    number = ann.request("get", queue="jobs")
    ann.rig.tick()
    assert ann.reply(number) is not None
    assert len(ann.rig.store.disk.content) == written


def test_what_was_settled_and_not_stored_is_settled_when_that_is_said_again_though_it_was_counted() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.rig.run()
    ann.get("jobs")
    ann = kill(ann)
    (hand,) = ann.get("jobs")
    counter = ann.settle(DONE, hand)
    ann.come(ann.rig.restart())
    ann.settle_again(counter, DONE, hand)
    ann.rig.run()
    assert (ann.refusals, ann.accepted) == ([], counter)
    assert kill(ann).get("jobs") == []


def test_what_was_counted_and_given_back_since_is_nobodys() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.rig.run()
    ann.get("jobs")
    ann = kill(ann)
    (hand,) = ann.get("jobs")
    ann.settle(GIVE_BACK, hand)
    ann.rig.run()
    ann.come(ann.rig.restart())
    counter = ann.settle(DONE, hand)
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "not-yours")]


def test_a_hand_out_that_was_not_looked_at_does_not_count_after_a_kill() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.rig.run()
    ann.get("jobs")
    for _ in range(3):
        ann = kill(ann)
        (hand,) = ann.get("jobs")
        assert (hand.delivery, hand.redelivered) == (1, True)
        ann.settle(UNOPENED, hand)
        ann.rig.run()


def test_what_was_given_back_by_who_got_it_again_is_nobodys() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.rig.run()
    for _ in range(2):  # the second time it is counted
        ann.get("jobs")
        ann = kill(ann)
    (hand,) = ann.get("jobs")
    ann.settle(GIVE_BACK, hand)
    counter = ann.settle(DONE, hand)
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "not-yours")]
    assert ann.describe("jobs")["messages"] == 1
