"""What one client can cost a node: work grows with what is asked for, and memory is counted."""

from __future__ import annotations

from typing import Any

import pytest

from queues.rig import DONE, Client, Rig, job, numbers, pass_time
from tidings.event import Event
from tidings.event.values import ATTRIBUTES_MAX
from tidings.filters import Filter
from tidings.protocol.frames import FRAME_MAX, encode
from tidings.protocol.messages import HANDLE, Put, Settle
from tidings.queues import getting, queue
from tidings.timers import TIDY_AFTER


def client(**fields: object) -> Client:
    ann = Client(Rig())
    ann.create("jobs", **fields)
    return ann


def test_taking_many_by_a_condition_without_an_index_is_one_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ann = client()
    ann.put("jobs", *(Event("job", n=n, s="it" if n > 200 else "no") for n in range(400)))
    ann.rig.run()
    tried: list[Any] = []
    sight = queue.sight
    shelf = ann.rig.queues.find("jobs").shelf
    monkeypatch.setattr(shelf, "read", lambda message: tried.append(message) or sight(message))
    assert len(ann.get("jobs", 100, where="s LIKE '%it%'")) == 100
    assert len(tried) <= 4 * 400  # for the search, and for an index of what it could use


def test_a_lease_that_is_renewed_again_and_again_leaves_nothing_behind() -> None:
    ann = client(expiry=True)
    ann.put("jobs", Event("job", n=1, ttl_s=10.0))
    (hand,) = ann.read("jobs")
    for lease_s in range(3 * TIDY_AFTER):
        ann.rig.queues.find("jobs").deadlines.renew(hand.number, 100.0 + lease_s)
    assert len(ann.rig.queues.find("jobs").deadlines.expiry._heap) <= TIDY_AFTER + 3
    pass_time(ann.rig, 1_000.0)
    assert numbers(ann.read("jobs")) == [1]


def test_a_lease_can_not_be_ended_under_a_transaction_that_has_read_the_message() -> None:
    ann = client(expiry=True)
    bob = Client(ann.rig, "b")
    ann.put("jobs", Event("job", n=1, ttl_s=10.0))
    bob.begin(1)
    (hand,) = bob.read("jobs", transaction=1)
    assert ann.fails("queue.renew", queue="jobs", id=hand.event.id, lease_s=0.0).code == "not-yours"
    assert numbers(bob.read("jobs", transaction=1)) == [1]


def test_many_settlements_of_nothing_are_one_refusal() -> None:
    ann = client()
    handles = b"".join(HANDLE.pack(number, 1) for number in range(1_000, 2_000))
    ann.peer.send(Settle(1, 0, handles, DONE))
    ann.rig.run()
    assert ann.refusals == [(1, 1_000, "not-yours")]


def test_the_refusals_of_a_thousand_late_words_fit_a_welcome() -> None:
    ann = client()
    ann.put("jobs", *range(1_000))
    hands = ann.get("jobs", 1_000)
    ann.settle(DONE, *hands)
    ann.settle(DONE, *hands)
    ann.rig.run()
    ann.lose()
    ann.come()
    assert len(encode(ann.welcome)) < 1_000


@pytest.mark.parametrize("room", [0, 1, 2, 3])
def test_a_message_with_as_many_attributes_as_can_be_is_a_dead_letter_that_can_be_read(room: int) -> None:
    ann = client(deliveries_max=1)
    full = {f"a{number}": number for number in range(ATTRIBUTES_MAX - room - 1)}
    ann.put("jobs", Event("job", {**full, "n": 1}))
    hands = ann.get("jobs")
    ann.settle(2, *hands, text="no")
    ann.rig.run()
    (letter,) = ann.read("tidings.dead")
    assert len(letter.event.values) == ATTRIBUTES_MAX
    assert ("dead.queue" in letter.event.values) is (room > 0)


def test_a_refused_commit_drops_nothing_from_a_queue_that_makes_room() -> None:
    from queues.test_types import Ring

    rig = Rig()
    rig.queues.types["ring"] = Ring
    ann = Client(rig)
    ann.create("latest", type="ring", max_messages=2)
    ann.create("full", max_messages=1)
    ann.put("latest", 1, 2)
    ann.put("full", 3)
    ann.begin(1)
    ann.put("latest", 4, transaction=1)
    ann.put("full", 5, transaction=1)
    ann.commit(1)
    rig.run()
    assert ann.refusals[-1][2] == "queue-full"
    assert numbers(ann.read("latest")) == [1, 2]


def test_of_what_a_lost_reader_had_fetched_at_once_only_the_first_counts_as_delivered() -> None:
    ann = client(deliveries_max=2)
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1, 2, 3)
    for _ in range(2):
        assert len(bob.get("jobs", 3)) == 3 or _
        bob.lose()
        pass_time(ann.rig, 2.0)
        bob.come()
    hands = ann.get("jobs", 3)
    assert [(hand.n, hand.delivery, hand.redelivered) for hand in hands] == [(2, 1, True), (3, 1, True)]
    assert numbers(ann.read("tidings.dead")) == [1]


def test_what_a_transaction_holds_is_counted_and_given_back() -> None:
    ann = client()
    ann.begin(1)
    ann.put("jobs", Event("job", body=bytes(10_000)), transaction=1)
    ann.put("jobs", *(job(n) for n in range(10)), transaction=1, is_part=True)
    ann.rig.run()
    assert ann.rig.queues.size > 14_000
    ann.roll_back(1)
    assert ann.rig.queues.size == 0


def test_long_filters_are_not_remembered() -> None:
    text = " OR ".join(f"n = {n}" for n in range(200))
    assert getting.filter_of(text) is not getting.filter_of(text)
    assert getting.filter_of("n = 1") is getting.filter_of("n = 1") == Filter("n = 1")


def test_a_name_that_no_queue_can_have_is_not_repeated_in_full() -> None:
    ann = client()
    ann.peer.send(Put("x" * 100_000), encode_events_of(1))
    ann.rig.run()
    assert ann.peer.session.origin is not None
    (refusal,) = ann.rig.broker.ledger.refused(ann.peer.session.origin)
    assert refusal.failure.code == "queue-not-found"
    assert len(refusal.failure.text) < 1_000


def encode_events_of(counter: int) -> bytes:
    from msgspec.structs import replace

    from tidings.event.wire import encode_events

    return encode_events([replace(job(1), counter=counter)])


def test_an_answer_that_no_frame_can_hold_is_refused() -> None:
    ann = client()
    text = "x" * 4_000
    for number in range(FRAME_MAX // 4_000 + 1):
        ann.rig.queues.create(queue_of(f"q{number}", text))
    assert ann.fails("queue.find").code == "limit"
    assert len(ann.ask("queue.find", name="q1")) == 1


def queue_of(name: str, text: str) -> Any:
    from tidings.queues import Description

    return Description(name=name, text=text)


def test_who_only_says_hello_leaves_nothing_behind() -> None:
    rig = Rig()
    for number in range(100):
        Client(rig, f"s{number}").leave()
    assert not rig.broker.ledger._clients
