"""Queues and their messages, in every store: kept, changed, taken away, and told again when it is opened."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.store.openers import LASTING, Opener, openers, reopened
from tests.store.samples import Model, message, message_operations
from tidings.errors import InternalError
from tidings.store.interface import Dequeue, DropQueue, Enqueue, PutQueue, QueueRecord, Revise, Store
from tidings.store.sqlite import SqliteStore


def numbers(store: Store) -> list[int]:
    return [one.number for one in store.messages()]


# -- queues


def test_queues_are_told_as_they_were_last(lasting: Opener) -> None:
    store = lasting()
    jobs, other = QueueRecord(1, "jobs", 0, b"text"), QueueRecord(2**63 - 1, "öther", 5, b"")
    store.commit([PutQueue(jobs), PutQueue(other), PutQueue(QueueRecord(3, "dropped", 0, b""))])
    store.commit([DropQueue(3), DropQueue(4), PutQueue(replace(jobs, handed=9, description=b"changed"))])
    for _ in range(2):
        store = reopened(store, lasting)
        queues = {queue.key: queue for queue in store.state.queues}
        assert queues == {1: replace(jobs, handed=9, description=b"changed"), other.key: other}
    store.close()


def test_a_queue_that_is_dropped_leaves_its_messages_until_they_are_taken_away(lasting: Opener) -> None:
    store = lasting()
    store.commit([PutQueue(QueueRecord(1, "jobs", 0, b"")), Enqueue(message(1)), Enqueue(message(2))])
    store.commit([DropQueue(1)])
    store = reopened(store, lasting)
    assert store.state.queues == []
    assert list(store.messages()) == [message(1), message(2)]
    store.commit([Dequeue(1), Dequeue(2)])
    assert numbers(reopened(store, lasting)) == []


# -- messages


def test_messages_come_by_their_numbers_however_they_were_put(opener: Opener) -> None:
    store = opener()
    store.commit([Enqueue(message(30)), Enqueue(message(10))])
    store.commit([Enqueue(message(2**62)), Enqueue(message(20))])
    assert list(store.messages()) == [message(number) for number in (10, 20, 30, 2**62)]


def test_every_field_of_a_message_is_kept(lasting: Opener) -> None:
    store = lasting()
    messages = [
        message(1, system=None, source=None, raw=b""),
        message(2, system="ü", source="", epoch=2**63 - 1, deliveries=7, part_of=3, queue=2**62),
        message(3, size=20_000),
    ]
    store.commit([Enqueue(one) for one in messages])
    store = reopened(store, lasting)
    assert list(store.messages()) == messages
    store.close()


def test_what_was_taken_away_is_gone_and_what_was_changed_is_as_it_was_last(lasting: Opener) -> None:
    store = lasting()
    store.commit([Enqueue(message(number)) for number in range(1, 6)])
    store.commit([Dequeue(2), Revise(message(3, deliveries=1)), Revise(message(4, deliveries=1))])
    store.commit([Dequeue(4), Revise(message(3, deliveries=2, size=9000))])
    store = reopened(store, lasting)
    assert list(store.messages()) == [message(1), message(3, deliveries=2, size=9000), message(5)]
    store.close()


@pytest.mark.parametrize("is_there", [True, False])
def test_what_happens_to_a_message_in_one_commit_happens_in_order(opener: Opener, is_there: bool) -> None:
    store = opener()
    new, changed = message(1, deliveries=1), message(1, deliveries=2)
    store.commit([Enqueue(message(1))] if is_there else [])
    store.commit([Dequeue(1), Enqueue(new)])
    assert list(store.messages()) == [new]
    store.commit([Dequeue(1), Enqueue(changed), Dequeue(1)])
    assert list(store.messages()) == []
    store.commit([Enqueue(new), Revise(changed), Dequeue(1), Revise(new), Enqueue(new), Revise(changed)])
    assert list(store.messages()) == [changed]
    store.commit([Revise(new), Dequeue(1), Dequeue(1)])
    assert list(store.messages()) == []


def test_changing_or_taking_away_what_is_not_there_does_nothing(opener: Opener) -> None:
    store = opener()
    store.commit([Enqueue(message(1)), Enqueue(message(2))])
    store.commit([Dequeue(2), Dequeue(7), Revise(message(8)), Enqueue(message(3))])
    store.commit([Revise(message(9)), Enqueue(message(9, deliveries=1)), Dequeue(7)])
    assert list(store.messages()) == [message(1), message(3), message(9, deliveries=1)]


@pytest.mark.parametrize("number", [0, -1, 1])
def test_a_number_that_is_in_use_or_none_is_refused_and_nothing_is_done(opener: Opener, number: int) -> None:
    store = opener()
    store.commit([Enqueue(message(1))])
    with pytest.raises(InternalError, match=f"message {number} can't be new"):
        store.commit([Enqueue(message(2)), Enqueue(message(number, deliveries=1))])
    with pytest.raises(InternalError, match="message 3 can't be new"):
        store.commit([Enqueue(message(3)), Enqueue(message(3))])
    assert list(store.messages()) == [message(1)]
    store.commit([Dequeue(1), Enqueue(message(2))])
    assert numbers(store) == [2]


def test_messages_can_be_committed_while_they_are_read(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    for number in range(1, 10):
        store.commit([Enqueue(message(number))])
    read = store.messages()
    assert [next(read).number for _ in range(3)] == [1, 2, 3]
    store.commit([Dequeue(2), Dequeue(8), Enqueue(message(10))])
    assert [one.number for one in read] == [4, 5, 6, 7, 9]
    assert numbers(store) == [1, 3, 4, 5, 6, 7, 9, 10]
    store.close()


# -- against the model


@given(data=st.data(), kind=st.sampled_from(["sqlite", "simulated", "memory"]))
def test_the_messages_are_what_a_dict_would_hold(data: st.DataObject, kind: str) -> None:
    with TemporaryDirectory() as folder:
        opener, model = openers(Path(folder) / "node")[kind], Model()
        store = opener()
        for _ in range(data.draw(st.integers(1, 6))):
            commit = data.draw(message_operations(model))
            store.commit(commit)
            model.commit(commit)
            if kind in LASTING and data.draw(st.booleans()):
                store = reopened(store, opener)
            assert list(store.messages()) == [one for _, one in sorted(model.messages.items())]
        store.close()
