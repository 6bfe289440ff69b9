"""Batches to store, a plain model of what a store holds, and operations to drive both with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from hypothesis import strategies as st

from tidings.store.interface import (
    Append,
    Count,
    Counter,
    Drop,
    Durable,
    Operation,
    Put,
    Store,
    StoredBatch,
    Trim,
)


def batch(
    first: int, count: int = 1, size: int = 40, persistent: bool = True, **fields: object
) -> StoredBatch:
    """A batch whose bytes no other has."""
    raw = Random(first * 1000 + count).randbytes(size)
    values = {"system": "sensor", "epoch": 1, "source": "roof", "stored_us": first, **fields}
    return StoredBatch(first=first, count=count, persistent=persistent, raw=raw, **values)  # type: ignore[arg-type]


def last(stored: StoredBatch) -> int:
    return stored.first + stored.count - 1


class Model:
    """What a store must hold after the same operations, written as plainly as can be."""

    def __init__(self) -> None:
        self.position = 0
        self.batches: list[StoredBatch] = []
        self.durables: dict[tuple[str, str], Durable] = {}
        self.counters: dict[tuple[str, int], Counter] = {}

    def commit(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            match operation:
                case Append(stored):
                    self.batches.append(stored)
                    self.position = last(stored)
                case Put(durable):
                    self.durables[durable.owner, durable.name] = durable
                case Drop(name, owner):
                    self.durables.pop((owner, name), None)
                case Count(counter):
                    self.counters[counter.system, counter.epoch] = counter
                case Trim(position):
                    self.batches = [one for one in self.batches if one.persistent or last(one) > position]

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


_names = st.sampled_from(["a", "b", "ü"])
_numbers = st.integers(0, 2**63 - 1)
_small = st.integers(0, 60)


@st.composite
def operations(draw: st.DrawFn, position: int) -> list[Operation]:
    """The operations of a commit on a store whose last position is this one."""
    found: list[Operation] = []
    for kind in draw(st.lists(st.sampled_from([Append, Append, Append, Put, Drop, Count, Trim]), max_size=6)):
        if kind is Append:
            stored = draw(_batches(position))
            position = last(stored)
            found.append(Append(stored))
        else:
            found.append(draw(_OTHERS[kind]))
    return found


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
    Put: st.builds(
        Put, st.builds(Durable, _names, _names, st.text(max_size=9), _small, _small, st.binary(max_size=9))
    ),
    Drop: st.builds(Drop, _names, _names),
    Count: st.builds(Count, st.builds(Counter, _names, st.integers(0, 3), _numbers, _numbers)),
    Trim: st.builds(Trim, _small),
}
