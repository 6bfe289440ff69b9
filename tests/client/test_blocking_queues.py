"""Queues without await."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import tidings
from tidings import Event
from tidings.client.blocking import Bus, Queue
from tidings.errors import MessageNotHeld, QueueEmpty, QueueFull, QueueNotFound, TransactionLost


@pytest.fixture
def bus() -> Iterator[Bus]:
    with tidings.blocking.open() as opened:
        yield opened


@pytest.fixture
def queue(bus: Bus) -> Queue:
    made = bus.create_queue("jobs")
    made.put_all(Event("job", n=n) for n in range(5))
    return made


def test_what_is_put_is_got(queue: Queue) -> None:
    queue.put("job", {"n": 5}, priority=7)
    message = queue.get("n > 4", timeout_s=60)
    assert (message["n"], message.priority, message.deliveries, message.redelivered) == (5, 7, 1, False)
    assert "n" in message
    assert message.event.type == message.type == "job"
    with pytest.raises(MessageNotHeld):
        message.acknowledge()
    assert [each["n"] for each in queue.get_all({"n": int})] == [0, 1, 2, 3, 4]
    with pytest.raises(QueueEmpty):
        queue.get(timeout_s=0)
    assert queue.is_empty()


def test_a_taken_message_is_acknowledged_or_goes_back(queue: Queue) -> None:
    with queue.take(timeout_s=0) as message:
        assert message["n"] == 0

    def fail() -> None:
        with queue.take():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [(each["n"], each.deliveries) for each in queue.get_all()] == [(1, 2), (2, 1), (3, 1), (4, 1)]


def test_a_loop_ends_with_its_for(queue: Queue) -> None:
    for message in queue.messages(prefetch=3):
        if message["n"] == 1:
            message.reject("bad")
        if message["n"] == 2:
            message.release()
            break
    assert [each["n"] for each in queue.get_all()] == [2, 3, 4]


def test_a_loop_inside_with_acknowledges_its_last_message(queue: Queue) -> None:
    with queue.messages() as messages:
        for message in messages:
            if message["n"] == 3:
                break
    assert [each["n"] for each in queue.get_all()] == [4]


def test_a_loop_may_be_forgotten_until_the_bus_has_ended() -> None:
    with tidings.blocking.open() as bus:
        queue = bus.create_queue("jobs")
        queue.put("job", n=1)
        messages = iter(queue.messages())
        assert next(messages)["n"] == 1
    del messages


def test_looking_changes_nothing(bus: Bus, queue: Queue) -> None:
    assert queue.read("n = 3")["n"] == 3
    assert len(queue.read_all()) == len(queue.headers()) == 5
    assert queue.describe().messages == queue.description.messages == 5
    assert (queue.name, repr(queue)) == ("jobs", "<Queue 'jobs'>")
    with queue.watch("n > 5") as copies:
        queue.put("job", n=6)
        assert next(iter(copies))["n"] == 6
    assert not queue.is_full()
    assert queue.purge("n > 2") == 3


def test_a_transaction_is_committed_or_rolled_back(bus: Bus, queue: Queue) -> None:
    other = bus.create_queue("other")
    with bus.transaction() as tx, bus.subscribe("type = 'moved'") as events:
        message = tx.get(queue, "n = 0")
        tx.put("other", message.event)
        queue.put("job", n=9, transaction=tx)
        tx.put_all(other, [Event("job", n=10)])
        assert [each["n"] for each in tx.read_all(other)] == [0, 10]
        assert tx.read(other, "n > 5")["n"] == 10
        tx.publish("moved")
        tx.commit()
        assert next(iter(events)).type == "moved"
    assert [each["n"] for each in queue.get_all()] == [1, 2, 3, 4, 9]
    with bus.transaction() as tx:
        assert len(tx.get_all(other)) == 2
        tx.rollback()
    assert len(other.read_all()) == 2


def test_a_transaction_that_takes_too_long_is_lost(bus: Bus, queue: Queue) -> None:
    def dawdle() -> None:
        with bus.transaction(timeout_s=0.05) as tx:
            tx.get(queue, "n = 0")
            queue.get("n = 0", timeout_s=30)

    with pytest.raises(TransactionLost):
        dawdle()


def test_queues_are_managed(bus: Bus, queue: Queue) -> None:
    with queue.take() as message:
        message.reject("bad")
    assert bus.replay_dead() == 1
    assert bus.create_alias("work", "jobs").name == "work"
    assert {one.name for one in bus.lookup()} >= {"jobs", "work"}
    bus.delete_queue("work")
    with pytest.raises(QueueNotFound):
        bus.queue("work")
    full = bus.create_queue("full", max_messages=1)
    with pytest.raises(QueueFull):
        full.put_all([Event("job"), Event("job")])


def test_requests_are_answered_in_another_thread(bus: Bus) -> None:
    asked = bus.create_queue("asked")

    def answer() -> None:
        message = asked.get()
        bus.reply(message, "answer", n=2 * message["n"])

    thread = threading.Thread(target=answer)
    thread.start()
    assert asked.request("ask", n=21, timeout_s=30)["n"] == 42
    thread.join()


def test_the_life_of_a_message_can_be_ended(bus: Bus) -> None:
    queue = bus.create_queue("leased", expiry=True)
    queue.put("job", ttl_s=100)
    assert queue.renew(queue.read(), 50) == 50
    assert queue.renew(queue.read(), 0) == 0
    assert queue.is_empty()
