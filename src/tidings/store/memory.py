"""Stores without a disk: for nodes that store nothing, for tests, and for the simulator.

`MemoryStore` keeps its contract for as long as the process lives. `SimulatedStore` lies on a `SimulatedDisk`,
where a commit is only written: it is durable after `sync`, and a crash before that loses it or tears it.
"""

from __future__ import annotations

import threading
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import get_args

import msgspec
from msgspec import Struct

from tidings.errors import StoreDamaged, StoreFailed
from tidings.ids import new_system
from tidings.store.commit_sql import check_append, check_enqueue
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
    StoredBatch,
    StoredMessage,
    StoreState,
    Trim,
    check_record,
    within,
)


class MemoryStore:
    """Store that ends with the process; `node` names it, since it can't remember a name."""

    def __init__(self, node: str) -> None:
        self.damage: list[StoreDamaged] = []
        self.state = StoreState(node, 1, 0, [], [])
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self.discarded = 0
        self._position = 0
        self._durables: dict[tuple[str, str], Durable] = {}
        self._counters: dict[tuple[str, int], Counter] = {}
        self._queues: dict[int, QueueRecord] = {}
        self._messages: dict[int, StoredMessage] = {}
        self._records: dict[str, dict[str, bytes]] = {}
        self._trimmed = 0
        self._batches: list[StoredBatch] = []

    def commit(self, operations: Sequence[Operation]) -> None:
        """Do all of these, or raise and have done none."""
        with self._lock:
            self._check(operations)
            self._apply(operations)

    def read(self, position: int, size_max: int) -> list[StoredBatch]:
        """Return the batches with positions from this one on: at least one, then as many as fit the size."""
        with self._lock:
            begin = bisect_left(self._batches, position, key=_last)
            indexes = range(begin, len(self._batches))
            return within((self._batches[index] for index in indexes), size_max)

    def read_before(self, position: int, size_max: int) -> list[StoredBatch]:
        """Return the batches that begin at or before the position, the last first, with that limit."""
        with self._lock:
            end = bisect_right(self._batches, position, key=lambda batch: batch.first)
            return within((self._batches[index] for index in range(end - 1, -1, -1)), size_max)

    def position_at(self, time_us: int) -> int:
        """Return the position of the first event stored at or after that time, or one past the last."""
        with self._lock:
            found = (batch.first for batch in self._batches if batch.stored_us >= time_us)
            return next(found, self._position + 1)

    def corrupt(self, _first: int, _end: int) -> list[int]:
        """Return nothing: memory is not damaged."""
        return []

    def messages(self) -> Iterator[StoredMessage]:
        """Yield all present messages, by number."""
        with self._lock:
            found = sorted(self._messages.items())
        return (message for _, message in found)

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._clear()

    def _check(self, operations: Iterable[Operation]) -> None:
        """Refuse operations that can't follow those before, while nothing is changed yet."""
        position = self._position
        is_there: dict[int, bool] = {}  # the messages that the operations so far add or remove
        for operation in operations:
            match operation:
                case Append(batch):
                    check_append(batch, position)
                    position = _last(batch)
                case Enqueue(message):
                    number = message.number
                    check_enqueue(message, is_there.get(number, number in self._messages))
                    is_there[number] = True
                case Dequeue(number):
                    is_there[number] = False
                case SetRecord():
                    check_record(operation)

    def _apply(self, operations: Iterable[Operation]) -> None:
        trimmed = self._trimmed  # by earlier commits
        for operation in operations:
            match operation:
                case Append(batch):
                    self._batches.append(batch)
                    self._position = _last(batch)
                case PutCursor(durable):
                    self._durables[durable.owner, durable.name] = durable
                case Drop(name, owner):
                    self._durables.pop((owner, name), None)
                case CountProducer(counter):
                    self._counters[counter.system, counter.epoch] = counter
                case Trim(position):
                    self._trim(min(position, self._position))
                case Discard(position):
                    self._discard(min(position, trimmed))
                case Enqueue(message):
                    self._messages[message.number] = message
                case Revise(message) if message.number in self._messages:
                    self._messages[message.number] = message
                case Dequeue(number):
                    self._messages.pop(number, None)
                case PutQueue(queue):
                    self._queues[queue.key] = queue
                case DropQueue(key):
                    self._queues.pop(key, None)
                case SetRecord(kind, name, value):
                    self._records.setdefault(kind, {})[name] = value
                case DropRecord(kind, name):
                    self._records.get(kind, {}).pop(name, None)

    def _trim(self, position: int) -> None:
        begin = bisect_right(self._batches, self._trimmed, key=_last)
        end = bisect_right(self._batches, position, key=_last)
        self._batches[begin:end] = [batch for batch in self._batches[begin:end] if batch.persistent]
        self._trimmed = max(self._trimmed, position)

    def _discard(self, position: int) -> None:
        ended = bisect_right(self._batches, position, key=_last)
        if ended:
            self.discarded = _last(self._batches[ended - 1])
            del self._batches[:ended]


def _last(batch: StoredBatch) -> int:
    return batch.first + batch.count - 1


class SimulatedDisk:
    """Bytes that are appended, and are safe from a crash once they are synced."""

    def __init__(self, size_max: int | None = None) -> None:
        self.size_max = size_max  # None: it is never full
        self._content = bytearray()
        self._synced = 0

    @property
    def content(self) -> bytes:
        """Return a copy of the contents."""
        return bytes(self._content)

    @property
    def unsynced(self) -> int:
        """Number of bytes that a crash may lose."""
        return len(self._content) - self._synced

    def append(self, data: bytes) -> None:
        """Write at the end; all of it, or raise StoreFailed and write nothing."""
        if self.size_max is not None and len(self._content) + len(data) > self.size_max:
            raise StoreFailed("simulated disk", "no space left on device")
        self._content += data

    def cut(self, size: int) -> None:
        """Cut off everything after the first `size` bytes."""
        del self._content[size:]
        self._synced = min(self._synced, size)

    def sync(self) -> None:
        """Make everything written so far safe."""
        self._synced = len(self._content)

    def crash(self, random: Random) -> None:
        """Lose the unsynced bytes, or those from a random one on; some lost blocks may read as zeros."""
        kept = random.choice((0, random.randint(0, self.unsynced)))
        zeros = random.choice((0, random.randint(0, self.unsynced - kept)))
        self.cut(self._synced + kept)
        self._content += bytes(zeros)
        self.sync()


class _Append(Struct, array_like=True):
    """One append to the simulated disk: the operations of a commit, or none at an opening."""

    node: str
    boot: int
    operations: list[tuple[str, msgspec.Raw]]


_KINDS: dict[str, type[Operation]] = {kind.__name__: kind for kind in get_args(Operation)}
_HEAD_SIZE = 8


class SimulatedStore(MemoryStore):
    """Store on a simulated disk: `commit` writes, and the commit is durable after `sync` of the disk.

    After `SimulatedDisk.crash` a new store is opened on the disk; it holds every synced commit, and of the
    others the first few or none, each whole.
    """

    def __init__(self, disk: SimulatedDisk, random_bytes: Callable[[int], bytes]) -> None:
        """`random_bytes` makes the node's name if the disk is new."""
        super().__init__("")
        self.disk = disk
        node, boot = "", 0
        for entry in _entries(disk):
            node, boot = entry.node, max(boot, entry.boot)
            self._apply(
                msgspec.msgpack.decode(encoded, type=_KINDS[kind]) for kind, encoded in entry.operations
            )
        self.state = StoreState(
            node or new_system(random_bytes),
            boot + 1,
            self._position,
            list(self._durables.values()),
            list(self._counters.values()),
            list(self._queues.values()),
            {kind: dict(found) for kind, found in self._records.items()},
        )
        self._write([])
        disk.sync()

    def commit(self, operations: Sequence[Operation]) -> None:
        """Do all of these, or raise StoreFailed and have done none; durable once the disk is synced."""
        self._check(operations)
        self._write(operations)
        self._apply(operations)

    def sync(self) -> None:
        """Make every commit so far durable."""
        self.disk.sync()

    def close(self) -> None:
        """Close the store; committed data stays on the disk."""
        self.disk.sync()

    def _write(self, operations: Sequence[Operation]) -> None:
        encoded = [(type(one).__name__, msgspec.Raw(msgspec.msgpack.encode(one))) for one in operations]
        data = msgspec.msgpack.encode(_Append(self.state.node, self.state.boot, encoded))
        self.disk.append(len(data).to_bytes(4, "big") + zlib.crc32(data).to_bytes(4, "big") + data)


def _entries(disk: SimulatedDisk) -> list[_Append]:
    """Return all whole entries; cut off the remains that a crash left behind them."""
    content, entries, at = disk.content, [], 0
    while at + _HEAD_SIZE <= len(content):
        size, checksum = int.from_bytes(content[at : at + 4], "big"), content[at + 4 : at + _HEAD_SIZE]
        data = content[at + _HEAD_SIZE : at + _HEAD_SIZE + size]
        if size == 0 or len(data) < size or zlib.crc32(data).to_bytes(4, "big") != checksum:
            break
        entries.append(msgspec.msgpack.decode(data, type=_Append))
        at += _HEAD_SIZE + size
    disk.cut(at)
    return entries
