"""What grows with a queue is done in steps: how many there are, and what may happen between them."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from msgspec.structs import replace

from queues.rig import DONE, REJECT, UNOPENED, Client, Rig, job, numbers, pass_time
from queues.stepping import begin, make_steps_small
from tidings import timers
from tidings.errors import QueueNotFound
from tidings.event import Event
from tidings.event.wire import encode_events
from tidings.filters import Filter
from tidings.matching import search
from tidings.protocol.messages import Bye, Put, Settle
from tidings.queues import Description, getting, manager, service, serving, transactions, waiting
from tidings.queues.inflight import RESUME_S
from tidings.steps import Steps, finish


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    make_steps_small(monkeypatch)


def jobs(count: int, **fields: Any) -> Client:
    """A client, and a queue with so many messages."""
    ann = Client(Rig())
    ann.create("jobs", **fields)
    ann.put("jobs", *(Event("job", {"n": n, "s": f"job {n}"}, ttl_s=100.0) for n in range(count)))
    ann.rig.run()
    return ann


def steps_of(steps: Steps[Any] | None) -> int:
    """How many steps there were."""
    assert steps is not None
    return sum(1 for _ in steps)


def test_a_search_over_many_messages_takes_many_steps() -> None:
    ann = jobs(5_000)
    number, steps = begin(ann, "get", queue="jobs", where="s LIKE '%4999'")
    assert steps_of(steps) >= 5_000 // search.TRIES_MAX - 1
    ann.rig.run()
    assert numbers(ann.got(number) or []) == [4_999]


def test_a_message_at_the_head_is_found_at_once() -> None:
    ann = jobs(1_000)
    assert begin(ann, "get", queue="jobs")[1] is None
    assert begin(ann, "get", queue="jobs", where="s LIKE '%5'")[1] is None


def test_many_messages_are_taken_in_steps_and_told_once() -> None:
    ann = jobs(3_000)
    number, steps = begin(ann, "get", queue="jobs", count=10_000)
    assert steps_of(steps) >= waiting.ANSWER_COUNT_MAX // serving.AT_ONCE - 3
    ann.rig.run()
    assert numbers(ann.got(number) or []) == list(range(waiting.ANSWER_COUNT_MAX))


def test_a_purge_takes_many_steps_and_leaves_what_comes_meanwhile() -> None:
    ann = jobs(2_000)
    bob = Client(ann.rig, "b")
    number, steps = begin(ann, "queue.purge", queue="jobs")
    assert steps is not None
    for count, _ in enumerate(steps):
        bob.put("jobs", 10_000 + count)
        bob.rig.run()
    assert count >= 2_000 // serving.AT_ONCE - 1
    ann.rig.run()
    reply = ann.reply(number)
    assert reply is not None
    assert reply.result == 2_000
    assert numbers(bob.read("jobs")) == [10_000 + one for one in range(count + 1)]


@pytest.mark.usefixtures("small_steps")
def test_who_searches_is_offered_what_comes_back_where_the_search_has_been() -> None:
    ann = jobs(20)
    bob = Client(ann.rig, "b")
    (hand,) = bob.get("jobs", where="n = 1")
    number, steps = begin(ann, "get", queue="jobs", where="n * 1 = 1")
    assert steps is not None
    next(steps)
    bob.settle(UNOPENED, hand)
    ann.rig.run()
    assert ann.got(number) is None  # it is told when the search ends
    assert steps_of(steps) == 0
    ann.rig.run()
    assert numbers(ann.got(number) or []) == [1]


@pytest.mark.usefixtures("small_steps")
def test_who_searches_gets_the_first_in_order_though_a_later_one_comes_meanwhile() -> None:
    ann = jobs(20)
    bob = Client(ann.rig, "b")
    number, steps = begin(ann, "get", queue="jobs", where="s LIKE '%9'", wait_s=None)
    bob.put("jobs", Event("job", {"n": 99, "s": "job 99"}))
    bob.rig.run()
    assert steps is not None
    finish(steps)
    ann.rig.run()
    assert numbers(ann.got(number) or []) == [9]


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("ends", ["closed", "lost", "left"])
def test_a_search_that_is_not_wanted_any_more_leaves_nothing_in_hands(ends: str) -> None:
    ann = jobs(20, deliveries_max=1)
    bob = Client(ann.rig, "b")
    _, steps = begin(ann, "get", queue="jobs", where="s LIKE '%1%'", count=10)
    assert steps is not None
    while len(ann.rig.queues.in_flight.held) < 3:
        next(steps)
    if ends == "left":
        ann.peer.send(Bye())
    if ends != "closed":
        ann.peer.lose()
    steps.close()
    ann.rig.run()
    told = bob.describe("jobs")
    assert (told["messages"], told.get("in_flight"), told.get("waiting")) == (20, None, None)
    assert [hand.delivery for hand in bob.get("jobs", 20)] == [1] * 20


@pytest.mark.usefixtures("small_steps")
def test_a_search_in_a_queue_that_is_deleted_ends_with_that() -> None:
    ann = jobs(20)
    bob = Client(ann.rig, "b")
    _, steps = begin(ann, "get", queue="jobs", where="s LIKE '%19'", count=5)
    assert steps is not None
    next(steps)
    bob.ask("queue.delete", queue="jobs")
    with pytest.raises(QueueNotFound):
        finish(steps)
    assert not ann.rig.queues.in_flight.held


@pytest.mark.usefixtures("small_steps")
def test_a_search_in_a_transaction_that_is_over_meanwhile_has_taken_nothing() -> None:
    ann = jobs(20)
    bob = Client(ann.rig, "b")
    ann.begin(1, timeout_s=1.0)
    number, steps = begin(ann, "get", queue="jobs", where="s LIKE '%1%'", count=10, transaction=1)
    assert steps is not None
    while len(ann.rig.queues.in_flight.held) < 3:
        next(steps)
    pass_time(ann.rig, 2.0)
    finish(steps)
    reply = ann.reply(number)
    assert reply is not None
    assert reply.error is not None
    assert reply.error.code == "rolled-back"
    assert len(bob.get("jobs", 20)) == 20


@pytest.mark.usefixtures("small_steps")
def test_what_was_found_and_could_not_be_stored_is_not_told() -> None:
    ann = jobs(10)
    bob = Client(ann.rig, "b")
    bob.put("jobs", Event("job", {"n": 99, "s": "last"}))
    ann.rig.tick()
    number, steps = begin(ann, "get", queue="jobs", where="s = 'last' AND s LIKE 'l%t'", count=2)
    assert steps is not None
    while not ann.rig.queues.in_flight.held:
        next(steps)
    ann.rig.fail()
    finish(steps)
    ann.rig.run()
    assert ann.got(number) == []


@pytest.mark.usefixtures("small_steps")
def test_a_deleted_queue_is_gone_at_once_and_its_messages_bit_by_bit() -> None:
    ann = jobs(20)
    bob = Client(ann.rig, "b")
    held = bob.get("jobs", 5)
    size = ann.rig.queues.size
    _, steps = begin(ann, "queue.delete", queue="jobs")
    assert steps is None
    assert 0 < ann.rig.queues.size < size
    assert not ann.rig.queues.knows("jobs")
    bob.settle(DONE, *held)
    ann.rig.run()
    assert bob.refusals[-1][2] == "not-yours"
    assert ann.rig.queues.size == 0
    assert not ann.rig.queues.in_flight.held
    assert not list(ann.rig.store.messages())


@pytest.mark.usefixtures("small_steps")
def test_a_node_that_is_killed_while_it_deletes_a_queue_has_nothing_of_it_left() -> None:
    ann = jobs(20)
    begin(ann, "queue.delete", queue="jobs")
    left, ann.rig.broker.background = ann.rig.broker.background, deque()
    assert left
    ann.rig.tick()
    ann.rig.sync()
    again = ann.rig.restart()
    again.run()
    assert not again.queues.knows("jobs")
    assert again.queues.size == 0
    assert not list(again.restart().store.messages())


def test_many_messages_expire_in_steps_and_nobody_gets_one_meanwhile() -> None:
    ann = jobs(1_000, expiry=True)
    ann.rig.now += 200.0
    ann.rig.broker.wake(ann.rig.now)
    assert len(ann.rig.broker.background) == 1
    queue = ann.rig.queues.find("jobs")
    assert len(queue.shelf) >= 1_000 - 2 * serving.AT_ONCE
    number, steps = begin(ann, "get", queue="jobs", count=5)
    if steps is not None:
        finish(steps)
    assert begin(ann, "get", queue="jobs", action="read", where="n > 500")[1] is not None
    ann.rig.run()
    assert ann.got(number) == []
    assert "messages" not in ann.describe("jobs")


def test_a_lost_clients_messages_go_back_in_steps_and_it_holds_none_from_the_first_on() -> None:
    ann = jobs(1_000)
    bob = Client(ann.rig, "b")
    hands = bob.get("jobs", 1_000)
    bob.lose()
    ann.rig.now += RESUME_S + 0.1
    ann.rig.broker.wake(ann.rig.now)
    assert len(ann.rig.broker.background) == 1
    assert len(ann.rig.queues.find("jobs").shelf) == serving.AT_ONCE
    bob.come(run=False)
    bob.settle(DONE, hands[-1])
    ann.rig.run()
    assert bob.refusals[0][2] == "not-yours"
    assert ann.describe("jobs")["messages"] == 1_000


def test_messages_that_were_held_for_too_long_go_back_in_steps() -> None:
    ann = jobs(1_000, redelivery_s=10.0)
    ann.get("jobs", 1_000)
    ann.rig.now += 11.0
    ann.rig.broker.wake(ann.rig.now)
    assert len(ann.rig.queues.find("jobs").shelf) == serving.AT_ONCE
    ann.rig.run()
    assert ann.describe("jobs")["messages"] == 1_000


def test_a_rollback_takes_many_steps_and_is_answered_at_its_end() -> None:
    ann = jobs(1_000)
    ann.begin(1)
    ann.get("jobs", 1_000, transaction=1)
    number, steps = begin(ann, "rollback", transaction=1)
    assert steps_of(steps) >= 1_000 // serving.AT_ONCE - 1
    assert len(ann.rig.queues.find("jobs").shelf) == 1_000
    ann.rig.run()
    assert ann.reply(number) is not None


@pytest.mark.usefixtures("small_steps")
def test_what_a_transaction_has_read_is_free_as_soon_as_it_is_over() -> None:
    ann = jobs(20)
    bob = Client(ann.rig, "b")
    ann.begin(1)
    hands = ann.read("jobs", 20, transaction=1)
    queue = ann.rig.queues.find("jobs")
    assert all(hand.number in queue.locks for hand in hands)
    _, steps = begin(ann, "rollback", transaction=1)
    assert steps is not None
    assert len(list(queue.locks)) > 10  # most are yet to be unlocked
    assert not any(hand.number in queue.locks for hand in hands)
    number, getting = begin(bob, "get", queue="jobs", count=20)
    assert getting is not None
    finish(getting)
    assert len(queue.held) == 20
    bob.rig.run()
    assert len(bob.got(number) or []) == 20


def test_a_rollback_goes_on_when_its_client_leaves() -> None:
    ann = jobs(1_000)
    bob = Client(ann.rig, "b")
    ann.begin(1)
    ann.get("jobs", 1_000, transaction=1)
    _, steps = begin(ann, "rollback", transaction=1)
    assert steps is not None
    next(steps)
    steps.close()
    ann.lose()
    assert bob.describe("jobs")["messages"] == 1_000


def test_a_transaction_has_a_limit_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MESSAGES_MAX", 5)
    ann = jobs(10)
    ann.begin(1)
    ann.put("jobs", 100, 101, transaction=1)
    assert len(ann.get("jobs", 10, transaction=1)) == 3
    assert ann.fails("get", queue="jobs", transaction=1).code == "limit"
    ann.put("jobs", 102, transaction=1)
    ann.rig.run()
    assert ann.refusals[-1][2] == "limit"
    ann.commit(1)
    ann.rig.run()
    assert ann.describe("jobs")["messages"] == 9


def test_dead_letters_are_put_back_in_steps() -> None:
    ann = jobs(300, deliveries_max=1)
    for _ in range(3):
        ann.settle(REJECT, *ann.get("jobs", 100))
        ann.rig.run()
    number, steps = begin(ann, "queue.replay")
    assert steps_of(steps) >= 300 // search.TRIES_MAX
    ann.rig.run()
    reply = ann.reply(number)
    assert reply is not None
    assert reply.result == 300
    assert ann.describe("jobs")["messages"] == 300


# Frames


def test_a_frame_of_many_puts_takes_many_steps_and_what_was_not_put_is_sent_again() -> None:
    ann = jobs(0)
    events = [replace(job(n), counter=n + 1) for n in range(200)]
    put = ann.rig.broker.frames[Put]
    steps = put(ann.peer.session, Put("jobs"), encode_events(events))
    assert steps is not None
    next(steps)
    steps.close()
    ann.lose()
    ann.come()
    assert ann.welcome.counter == serving.AT_ONCE
    steps = put(ann.peer.session, Put("jobs"), encode_events(events))
    assert steps_of(steps) == 4
    ann.rig.run()
    assert numbers(ann.read("jobs")) == list(range(200))
    assert ann.accepted == 200


def test_puts_that_can_not_be_done_are_refused_once_from_the_first_of_them_on() -> None:
    ann = jobs(0, max_messages=70)
    ann.put("jobs", *range(200))
    ann.rig.run()
    assert ann.refusals == [(71, 200, "queue-full")]
    assert len(ann.read("jobs")) == 70


def test_a_frame_of_many_settlements_is_accepted_when_it_is_known_what_is_refused() -> None:
    ann = jobs(200)
    hands = ann.get("jobs", 200)
    ann.settle(DONE, *hands[50:150])
    ann.rig.run()
    accepted = ann.accepted
    handles = b"".join(hand.handle for hand in hands)
    steps = ann.rig.broker.frames[Settle](ann.peer.session, Settle(ann.counter + 1, 0, handles, DONE), b"")
    assert steps is not None
    for _ in steps:
        ann.rig.run()
        assert (ann.accepted, ann.refusals) == (accepted, [])
    ann.rig.run()
    first = ann.counter + 1
    assert ann.accepted == first + 199
    assert ann.refusals == [(first + 50, first + 149, "not-yours")]
    assert "in_flight" not in ann.describe("jobs")


# Waiting


class Counting(Filter):
    """A filter that counts how often it is asked."""

    asked = 0

    def matches(self, event: Event) -> bool:
        Counting.asked += 1
        return super().matches(event)


def test_a_message_is_compared_once_with_the_condition_of_a_thousand_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Counting("n = 7")
    monkeypatch.setattr(getting, "filter_of", lambda _text: kept)
    ann = jobs(0)
    first, *_ = [ann.wait("jobs", where="n = 7") for _ in range(1_000)]
    ann.wait("jobs")
    ann.rig.run()
    Counting.asked = 0
    ann.put("jobs", 7)
    ann.rig.run()
    assert Counting.asked == 1
    assert numbers(ann.got(first) or []) == [7]
    assert len(ann.rig.queues.find("jobs").waiting) == 1_000


def test_readers_with_several_conditions_and_with_none_are_served_in_turn() -> None:
    ann = jobs(0)
    wanted = ["n = 1", "", "n > 0", "n = 1", "", "n * 1 = 1", "n = 2"]
    waits = [ann.wait("jobs", where=where) for where in wanted]
    ann.rig.run()
    for count in range(6):
        ann.put("jobs", 1)
        ann.rig.run()
        assert [ann.got(number) is not None for number in waits] == [place <= count for place in range(7)]


def test_many_readers_time_out_in_steps() -> None:
    ann = jobs(0)
    waits = [ann.wait("jobs", wait_s=1.0) for _ in range(200)]
    ann.rig.run()
    ann.rig.now += 2.0
    ann.rig.broker.wake(ann.rig.now)
    assert len(ann.rig.queues.find("jobs").waiting) == 200 - timers.CALLED_AT_ONCE
    ann.rig.run()
    assert all(ann.got(number) == [] for number in waits)


# Many queues


def test_a_lookup_over_many_queues_takes_many_steps_and_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    ann = jobs(0)
    for number in range(500):
        ann.rig.queues.create(Description(name=f"q{number}", text="even" if number % 2 == 0 else "odd"))
    number, steps = begin(ann, "queue.find", text="even")
    assert steps_of(steps) >= 500 // manager.LOOKED_AT_ONCE
    ann.rig.run()
    reply = ann.reply(number)
    assert reply is not None
    assert len(reply.result) == 250
    monkeypatch.setattr(manager, "FOUND_MAX", 100)
    assert ann.fails("queue.find").code == "limit"


def test_a_node_tells_of_so_many_queues_and_how_many_more_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "STATUS_QUEUES_MAX", 3)
    ann = jobs(0)
    for number in range(5):
        ann.create(f"q{number}")
    told = ann.ask("status")
    assert [one["name"] for one in told["queues"]] == ["jobs", "q0", "q1"]
    assert told["queues_left_out"] == 3
