"""Batches and messages to store, a plain model of what a store holds, and operations to drive both with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from hypothesis import strategies as st

from tidings.store.interface import (
    Append,
    Counter,
    CountProducer,
    Dequeue,
    Discard,
    Drop,
    DropQueue,
    DropRecord,
    Durable,
    Enqueue,
    Operation,
    PutCursor,
    PutQueue,
    QueueRecord,
    Revise,
    SetRecord,
    Store,
    StoredBatch,
    StoredMessage,
    Trim,
)


def batch(
    first: int, count: int = 1, size: int = 40, persistent: bool = True, **fields: object
) -> StoredBatch:
    """A batch whose bytes no other has."""
    raw = Random(first * 1000 + count).randbytes(size)
    values = {"system": "sensor", "epoch": 1, "source": "roof", "stored_us": first, **fields}
    return StoredBatch(first=first, count=count, persistent=persistent, raw=raw, **values)  # type: ignore[arg-type]


def message(number: int, deliveries: int = 0, size: int = 40, **fields: object) -> StoredMessage:
    """A message whose bytes no other has, nor the same one before or after a delivery."""
    raw = Random(number * 1000 + deliveries).randbytes(size)
    values = {"queue": 1, "system": "sensor", "epoch": 1, "source": "roof", "raw": raw, **fields}
    return StoredMessage(number=number, deliveries=deliveries, **values)  # type: ignore[arg-type]


def last(stored: StoredBatch) -> int:
    return stored.first + stored.count - 1


class Model:
    """What a store must hold after the same operations, written as plainly as can be."""

    def __init__(self) -> None:
        self.position = self.trimmed = 0
        self.batches: list[StoredBatch] = []
        self.durables: dict[tuple[str, str], Durable] = {}
        self.counters: dict[tuple[str, int], Counter] = {}
        self.queues: dict[int, QueueRecord] = {}
        self.messages: dict[int, StoredMessage] = {}
        self.records: dict[tuple[str, str], bytes] = {}

    def commit(self, operations: Iterable[Operation]) -> None:
        trimmed = self.trimmed
        for operation in operations:
            match operation:
                case Append(stored):
                    self.batches.append(stored)
                    self.position = last(stored)
                case PutCursor(durable):
                    self.durables[durable.owner, durable.name] = durable
                case Drop(name, owner):
                    self.durables.pop((owner, name), None)
                case CountProducer(counter):
                    self.counters[counter.system, counter.epoch] = counter
                case Trim(position):
                    self.batches = [one for one in self.batches if one.persistent or last(one) > position]
                    self.trimmed = max(self.trimmed, min(position, self.position))
                case Discard(position):
                    position = min(position, trimmed)
                    self.batches = [one for one in self.batches if last(one) > position]
                case Enqueue(one):
                    assert one.number not in self.messages
                    self.messages[one.number] = one
                case Revise(one):
                    self.messages.update({one.number: one} if one.number in self.messages else {})
                case Dequeue(number):
                    self.messages.pop(number, None)
                case PutQueue(queue):
                    self.queues[queue.key] = queue
                case DropQueue(key):
                    self.queues.pop(key, None)
                case SetRecord(kind, name, value):
                    self.records[kind, name] = value
                case DropRecord(kind, name):
                    self.records.pop((kind, name), None)

    def read(self, position: int, size_max: int) -> list[StoredBatch]:
        return fitting([one for one in self.batches if last(one) >= position], size_max)

    def read_before(self, position: int, size_max: int) -> list[StoredBatch]:
        return fitting([one for one in reversed(self.batches) if one.first <= position], size_max)

    def position_at(self, time_us: int) -> int:
        return min((one.first for one in self.batches if one.stored_us >= time_us), default=self.position + 1)


def fitting(batches: list[StoredBatch], size_max: int) -> list[StoredBatch]:
    count = len(batches)
    while count > 1 and sum(len(one.raw) for one in batches[:count]) > size_max:
        count -= 1
    return batches[:count]


def everything(store: Store, size_max: int = 10_000) -> Iterator[StoredBatch]:
    """All batches of a store, as a reader gets them that asks for a piece at a time."""
    position = 0
    while found := store.read(position, size_max):
        yield from found
        position = last(found[-1]) + 1


def records_of(store: Store) -> dict[tuple[str, str], bytes]:
    """All records that a store had when it was opened."""
    kinds = store.state.kinds
    return {(kind, key): value for kind in kinds for key, value in store.state.records(kind).items()}


_names = st.sampled_from(["a", "b", "ü"])
_numbers = st.integers(0, 2**63 - 1)
_small = st.integers(0, 60)
_options = st.binary(max_size=9)
_descriptions = _options | st.just(b"d" * 5000)
_keys = st.sampled_from([1, 2, 2**63 - 1])


_KINDS = [
    Append,
    Append,
    Append,
    PutCursor,
    Drop,
    CountProducer,
    Trim,
    Discard,
    PutQueue,
    DropQueue,
    SetRecord,
    DropRecord,
]


@st.composite
def operations(draw: st.DrawFn, model: Model) -> list[Operation]:
    """The operations of a commit on a store that holds what the model does."""
    position = model.position
    found: list[Operation] = []
    for kind in draw(st.lists(st.sampled_from(_KINDS), max_size=6)):
        if kind is Append:
            stored = draw(_batches(position))
            position = last(stored)
            found.append(Append(stored))
        else:
            found.append(draw(_OTHERS[kind]))
    return [*found, *draw(message_operations(model))]


@st.composite
def message_operations(draw: st.DrawFn, model: Model) -> list[Operation]:
    """Operations on messages, the same ones again and again, and on some that are not there."""
    there = set(model.messages)
    found: list[Operation] = []
    for number in draw(st.lists(st.integers(1, 12), max_size=12)):
        kinds = [Revise, Dequeue] if number in there else [Enqueue, Enqueue, Revise, Dequeue]
        kind = draw(st.sampled_from(kinds))
        if kind is Dequeue:
            found.append(Dequeue(number))
            there.discard(number)
        else:
            found.append(kind(draw(_messages(number))))
            there.update([number] if kind is Enqueue else [])
    return found


@st.composite
def _messages(draw: st.DrawFn, number: int) -> StoredMessage:
    size = draw(st.sampled_from([0, 1, 255, 256, 1000, 4061, 9000]))
    return StoredMessage(
        number,
        queue=draw(_numbers),
        system=draw(st.none() | _names),
        epoch=draw(_numbers),
        source=draw(st.none() | _names),
        deliveries=draw(_small),
        raw=draw(st.sampled_from([b"x" * size, Random(size).randbytes(size)])),
        part_of=draw(_small),
        compress=draw(st.booleans()),
    )


@st.composite
def _batches(draw: st.DrawFn, position: int) -> StoredBatch:
    return batch(
        position + draw(st.integers(1, 3)),
        count=draw(st.integers(1, 5)),
        size=draw(st.sampled_from([0, 1, 100, 4061, 5000, 20_000])),
        persistent=draw(st.booleans()),
        system=draw(st.none() | _names),
        epoch=draw(_numbers),
        source=draw(st.none() | _names),
        stored_us=draw(_small),
    )


_OTHERS: dict[type, st.SearchStrategy[Operation]] = {
    PutCursor: st.builds(
        PutCursor, st.builds(Durable, _names, _names, st.text(max_size=9), _small, _small, _options)
    ),
    Drop: st.builds(Drop, _names, _names),
    CountProducer: st.builds(
        CountProducer,
        st.builds(Counter, _names, st.integers(0, 3), _numbers, _numbers, st.binary(max_size=9)),
    ),
    Trim: st.builds(Trim, _small),
    Discard: st.builds(Discard, _small),
    PutQueue: st.builds(
        PutQueue,
        st.builds(QueueRecord, _keys, _names, _numbers, st.binary(max_size=9) | st.just(b"d" * 5000)),
    ),
    DropQueue: st.builds(DropQueue, _keys),
    SetRecord: st.builds(SetRecord, _names, _names | st.just("k" * 4096), _descriptions),
    DropRecord: st.builds(DropRecord, _names, _names),
}
