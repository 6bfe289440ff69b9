"""The simulated disk: what a crash leaves of it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.samples import Model, batch, everything, message, message_operations
from tidings.errors import StoreFailed
from tidings.store.interface import (
    Append,
    Counter,
    CountProducer,
    Dequeue,
    DropQueue,
    Durable,
    Enqueue,
    PutCursor,
    PutQueue,
    QueueRecord,
    Revise,
    StoredMessage,
)
from tidings.store.memory import SimulatedDisk, SimulatedStore


def opened(disk: SimulatedDisk) -> SimulatedStore:
    return SimulatedStore(disk, Random(0).randbytes)


@given(commits=st.integers(0, 6), synced=st.integers(0, 6), seed=st.integers())
def test_a_crash_keeps_all_synced_commits_and_the_others_whole_or_not_at_all(
    commits: int, synced: int, seed: int
) -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    for number in range(1, commits + 1):
        store.commit([Append(batch(2 * number - 1)), Append(batch(2 * number))])
        if number == synced:
            store.sync()
    disk.crash(Random(seed))
    kept = [one.first for one in everything(opened(disk))]
    assert kept == list(range(1, len(kept) + 1))
    assert len(kept) % 2 == 0
    assert 2 * min(synced, commits) * (synced <= commits) <= len(kept) <= 2 * commits


def test_a_crash_is_the_same_for_the_same_seed() -> None:
    contents = set()
    for _ in range(2):
        disk = SimulatedDisk()
        store = opened(disk)
        for number in range(1, 9):
            store.commit([Append(batch(number))])
        disk.crash(Random(5))
        contents.add(disk.content)
    assert len(contents) == 1


def test_crashes_lose_all_some_and_nothing() -> None:
    kept = set()
    for seed in range(60):
        disk = SimulatedDisk()
        store = opened(disk)
        for number in range(1, 4):
            store.commit([Append(batch(number))])
        disk.crash(Random(seed))
        kept.add(len(list(everything(opened(disk)))))
    assert kept >= {0, 1, 2}


def test_after_a_crash_the_store_goes_on() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    durable, counter = Durable("a", "ann", "", 1, 1), Counter("sensor", 1, 5, 5)
    store.commit([Append(batch(1)), PutCursor(durable), CountProducer(counter)])
    store.sync()
    store.commit([Append(batch(2))])
    disk.crash(Random(3))
    again = opened(disk)
    assert (again.state.boot, again.state.node) == (2, store.state.node)
    assert (again.state.durables, again.state.counters) == ([durable], [counter])
    again.commit([Append(batch(again.state.position + 1))])


def test_a_full_disk_refuses_a_commit_and_keeps_the_rest() -> None:
    disk = SimulatedDisk(size_max=1000)
    store = opened(disk)
    store.commit([Append(batch(1, size=300))])
    with pytest.raises(StoreFailed, match="no space"):
        store.commit([Append(batch(2, size=900))])
    assert list(everything(store)) == [batch(1, size=300)]
    store.commit([Append(batch(2, size=10))])
    store.close()
    assert len(list(everything(opened(disk)))) == 2


def test_queues_and_messages_are_there_after_a_crash_as_they_were_synced() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    jobs = QueueRecord(1, "jobs", 3, b"description")
    store.commit([PutQueue(jobs), PutQueue(QueueRecord(2, "gone", 0, b"")), Enqueue(message(1))])
    store.commit([Enqueue(message(2)), Enqueue(message(3)), Dequeue(1), Revise(message(2, 1)), DropQueue(2)])
    store.sync()
    store.commit([Dequeue(2), Dequeue(3), DropQueue(1)])
    disk.cut(len(disk.content) - 1)
    again = opened(disk)
    assert again.state.queues == [jobs]
    assert list(again.messages()) == [message(2, 1), message(3)]


@given(data=st.data(), seed=st.integers())
def test_after_a_crash_the_messages_are_those_after_some_commit(data: st.DataObject, seed: int) -> None:
    disk, model = SimulatedDisk(), Model()
    store = opened(disk)
    states: list[list[StoredMessage]] = [[]]
    synced = data.draw(st.integers(0, 5))
    for number in range(1, 6):
        commit = data.draw(message_operations(model))
        store.commit(commit)
        model.commit(commit)
        states.append([one for _, one in sorted(model.messages.items())])
        if number == synced:
            store.sync()
    disk.crash(Random(seed))
    assert list(opened(disk).messages()) in states[synced:]
