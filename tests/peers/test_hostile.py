"""What another node, or a device, hands on is no more than it may say."""

from __future__ import annotations

from struct import pack

import pytest
from protocol.guarded import ALL, Book, guarded, may
from queues.rig import Client, job, numbers

from tidings.event import Event
from tidings.event.wire import encode_events
from tidings.protocol.access import Rule
from tidings.protocol.messages import Forward


def house(*rules: Rule) -> tuple[Client, Client]:
    """The boss of a node with two queues, and attic, a node that has these rules there."""
    rig = guarded(boss=ALL, attic=list(rules))
    assert isinstance(rig.broker.authenticator, Book)
    rig.broker.authenticator.nodes.add("attic")
    boss = Client(rig, "sys-boss", "", "boss")
    boss.create("jobs")
    boss.create("letters")
    boss.subscribe()
    return boss, Client(rig, "sys-attic", "", "attic")


def hand_on(client: Client, queue: str, *events: Event, source: str = "ann") -> None:
    """Hand on what someone else is said to have said."""
    first = client.counter + 1
    client.counter += len(events)
    counters = range(first, client.counter + 1)
    forward = Forward(queue, b"".join(pack(">Q", n) for n in counters), "sys-ann", 1, source)
    client.peer.send(forward, encode_events(events))
    client.rig.run()


def test_a_node_is_believed_in_who_has_said_what_it_hands_on() -> None:
    boss, attic = house(*ALL)
    hand_on(attic, "jobs", job(1), source="ann/phone")
    assert [hand.source for hand in boss.get("jobs")] == ["ann/phone"]


@pytest.mark.parametrize("said", ["ann", "boss", "attic2", "attic2/phone"])
def test_whoever_is_no_node_hands_on_in_its_own_name_only(said: str) -> None:
    boss, _ = house()
    book = boss.rig.broker.authenticator
    assert isinstance(book, Book)
    book.users["eve"] = tuple(ALL)
    eve = Client(boss.rig, "sys-eve", "", "eve")
    hand_on(eve, "jobs", job(1), source=said)
    assert [hand.source for hand in boss.get("jobs")] == [f"eve/{said}"]


def test_whoever_is_no_node_hands_on_neither_requests_nor_answers_of_others() -> None:
    boss, attic = house(*ALL)
    book = boss.rig.broker.authenticator
    assert isinstance(book, Book)
    book.users["eve"] = tuple(ALL)
    eve = Client(boss.rig, "sys-eve", "", "eve")
    asked, answer = job(1, reply_to="inbox.boss/x"), job(2, subject="inbox.boss/x", correlation_id="1")
    for queue in ("", "jobs"):
        hand_on(eve, queue, asked)
    hand_on(eve, "", answer, job(3, reply_to="inbox.eve/x"))
    assert eve.refusals == [(1, 1, "not-allowed"), (2, 2, "not-allowed"), (3, 3, "not-allowed")]
    assert boss.told == [3]
    hand_on(attic, "", asked, answer)  # a node is believed
    assert attic.refusals == []
    assert boss.told == [3, 1, 2]


def test_what_a_node_hands_on_must_be_granted_to_that_node_event_by_event() -> None:
    boss, attic = house(may("put", "n < 5", "jobs"))
    hand_on(attic, "jobs", job(1), job(9), job(2), source="boss")
    assert numbers(boss.get("jobs", 10)) == [1, 2]
    assert attic.refusals == [(2, 2, "not-allowed")]


@pytest.mark.parametrize("queue", ["letters", "", "no such queue"])
def test_a_node_reaches_nothing_that_is_not_granted_to_it_by_whoever_it_speaks_for(queue: str) -> None:
    boss, attic = house(may("put", queue="jobs"))
    hand_on(attic, queue, job(1), source="boss")
    assert attic.refusals == [(1, 1, "not-allowed")]
    assert boss.read("letters") == []
    assert boss.told == []


def test_what_a_node_hands_on_twice_is_taken_once() -> None:
    boss, attic = house(*ALL)
    hand_on(attic, "jobs", job(1))
    attic.counter = 0
    hand_on(attic, "jobs", job(1))
    assert numbers(boss.get("jobs", 10)) == [1]
