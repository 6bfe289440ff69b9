"""Interface of stores: records, the operations of one commit, and the methods of every store.

The stored events are one *stream*: batches of raw bytes, each event at a position of its own that only ever
grows. A durable subscription is a cursor on the stream, so an event is stored once however many want it.

The *messages* of queues are stored one by one, each under a number of its own, until they are dequeued. A
queue's record and its messages are independent: a queue that is dropped leaves its messages behind.

*Records* are the state of services, each under a kind and a key: see `RecordKind`.

A commit is a list of operations that all happen or none, and is durable when `commit` returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from tidings.errors import InternalError

RECORD_KEY_SIZE_MAX = 4 << 10
"""Bytes of the key of a record."""
RECORD_VALUE_SIZE_MAX = 64 << 10
"""Bytes of its value: all records are read when a store is opened, and stay in memory."""

Key = TypeVar("Key", bound=tuple[str, ...])
Value = TypeVar("Value", bound=Struct)


class StoredBatch(Struct, frozen=True, gc=False):
    """Events of one origin that were stored together; those at `first`, `first + 1`, …"""

    first: int
    count: int
    system: str | None
    epoch: int
    source: str | None
    stored_us: int
    persistent: bool  # kept for later readers, not only until the durable subscriptions have passed
    raw: bytes  # an array of events with its head, as in `tidings.event.wire`
    provenance: bytes = b""  # for the owner: which node took them in, if it was another one


class Durable(Struct, frozen=True, gc=False):
    """Named subscription that outlives its connections."""

    name: str
    owner: str
    filter: str
    cursor: int  # everything up to this position is acknowledged
    handed: int  # everything up to this position may have been delivered
    options: bytes = b""  # msgpack, for the owner


class Counter(Struct, frozen=True, gc=False):
    """Highest number that was accepted of one system in one epoch."""

    system: str
    epoch: int
    counter: int
    seen_us: int
    refused: bytes = b""  # msgpack, for the owner: the numbers that were refused


class QueueRecord(Struct, frozen=True, gc=False):
    """Queue that outlives the process."""

    key: int
    name: str
    handed: int  # messages up to this number may have been delivered
    description: bytes  # for the owner


class StoredMessage(Struct, frozen=True, gc=False, array_like=True):
    """Message of a queue; its number is positive, and its place in the order of all messages.

    On disk it is the array of its fields, so new ones are added at the end and have defaults.
    """

    number: int
    queue: int  # the key of its queue
    system: str | None
    epoch: int
    source: str | None
    deliveries: int  # below 0: so many, and the last may not have been completed
    raw: bytes  # one event, as in `tidings.event.wire`, without the head of an array
    part_of: int = 0  # the number of the message whose body it continues
    compress: bool = False  # to be compressed on disk
    passed: tuple[str, ...] = ()  # the nodes that it has passed, if others have handed it on


class StoreState(Struct, frozen=True):
    """State of a store when it was opened."""

    node: str  # the name of the node, chosen when the store was created
    boot: int  # how often it was opened, this time included
    position: int  # of the last event that was ever stored, 0 if none was
    durables: list[Durable]
    counters: list[Counter]
    queues: list[QueueRecord] = []
    kinds: dict[str, dict[str, bytes]] = {}  # of records, each with its keys and values

    def records(self, kind: str) -> Mapping[str, bytes]:
        """Return the records of a kind, by their keys."""
        return self.kinds.get(kind, {})


class Append(Struct, frozen=True, gc=False):
    """Add a batch at the end of the stream; its `first` is above every position stored before."""

    batch: StoredBatch


class PutCursor(Struct, frozen=True, gc=False):
    """Store a durable subscription, or change it."""

    durable: Durable


class Drop(Struct, frozen=True, gc=False):
    """Remove a durable subscription."""

    name: str
    owner: str


class CountProducer(Struct, frozen=True, gc=False):
    """Store the highest number of a producer."""

    counter: Counter


class Trim(Struct, frozen=True, gc=False):
    """Delete all batches that end at or before the position and are not persistent."""

    position: int


class Discard(Struct, frozen=True, gc=False):
    """Delete persistent batches too, all that end at or before the position: they are kept elsewhere.

    Only up to where earlier commits have trimmed the stream: later events are still needed.
    """

    position: int


class Enqueue(Struct, frozen=True, gc=False):
    """Store a message; its number must be unused."""

    message: StoredMessage


class Revise(Struct, frozen=True, gc=False):
    """Replace the message of the same number; does nothing if there is none."""

    message: StoredMessage


class Dequeue(Struct, frozen=True, gc=False):
    """Remove a message; does nothing if there is none."""

    number: int


class PutQueue(Struct, frozen=True, gc=False):
    """Store a queue, or change it."""

    queue: QueueRecord


class DropQueue(Struct, frozen=True, gc=False):
    """Remove a queue; its messages stay until they are dequeued."""

    key: int


class SetRecord(Struct, frozen=True, gc=False):
    """Store a record, replacing the one of this kind and key if there is one."""

    kind: str
    key: str
    value: bytes


class DropRecord(Struct, frozen=True, gc=False):
    """Remove a record; does nothing if there is none."""

    kind: str
    key: str


Operation = (
    Append
    | PutCursor
    | Drop
    | CountProducer
    | Trim
    | Discard
    | Enqueue
    | Revise
    | Dequeue
    | PutQueue
    | DropQueue
    | SetRecord
    | DropRecord
)


def check_record(record: SetRecord) -> None:
    """Refuse a record that is too large; the limits of services allow none."""
    sizes = len(record.key.encode()), len(record.value)
    if sizes[0] > RECORD_KEY_SIZE_MAX or sizes[1] > RECORD_VALUE_SIZE_MAX:
        limits = f"RECORD_KEY_SIZE_MAX = {RECORD_KEY_SIZE_MAX} and {RECORD_VALUE_SIZE_MAX = }"
        raise InternalError(f"record {record.kind!r}: {sizes[0]} and {sizes[1]} bytes are above {limits}")


Stored = TypeVar("Stored", StoredBatch, StoredMessage)


def within(found: Iterable[Stored], size_max: int) -> list[Stored]:
    """Return the first of these, and then as many as have no more than `size_max` bytes together."""
    taken: list[Stored] = []
    size = 0
    for one in found:
        size += len(one.raw)
        if taken and size > size_max:
            break
        taken.append(one)
    return taken


class Store(Protocol):
    """Persistent memory of one node. One thread at a time calls `commit` and `close`, any calls `read`."""

    @property
    def state(self) -> StoreState:
        """State when the store was opened."""

    def commit(self, operations: Sequence[Operation]) -> None:
        """Do all of these, or raise StoreFailed and have done none; durable on return."""

    def read(self, position: int, size_max: int) -> list[StoredBatch]:
        """Return the batches that hold positions from this one on, in order: at least one if there is any,
        then as many as have no more than `size_max` bytes together."""

    def read_before(self, position: int, size_max: int) -> list[StoredBatch]:
        """Return the batches that begin at or before the position, the last first, with that limit."""

    def position_at(self, time_us: int) -> int:
        """Return the position of the first event stored at or after that time, or one past the last."""

    @property
    def discarded(self) -> int:
        """Position up to which persistent batches were deleted too."""

    def corrupt(self, first: int, end: int) -> list[int]:
        """Return the first positions of the damaged batches that were read, from `first` on, before `end`."""

    def messages(self) -> Iterator[StoredMessage]:
        """Yield all messages by number; called once, before the first commit, to restore the queues."""

    def close(self) -> None:
        """Close the store; committed data stays."""


class RecordKind(Generic[Key, Value]):
    """Records of one kind: state of a service, as structs under keys of one or more names.

    A kind has a name, which is stored, and a struct, to which fields can be added that have defaults. All
    records of a kind are in memory when the store is opened, and each is changed as a whole; so a service
    limits the number of its records.
    """

    def __init__(self, name: str, value: type[Value]) -> None:
        self.name = name
        self._value = value

    def set(self, key: Key, value: Value) -> SetRecord:
        """Return the operation that stores the value under the key, replacing the last one."""
        return SetRecord(self.name, _text(key), msgspec.msgpack.encode(value))

    def drop(self, key: Key) -> DropRecord:
        """Return the operation that removes the key."""
        return DropRecord(self.name, _text(key))

    def known(self, state: StoreState) -> dict[Key, Value]:
        """Return the values that were stored when the store was opened."""
        return self._decoded(state.records(self.name))

    def taken(self, state: StoreState) -> dict[Key, Value]:
        """Return the same and remove it from the state: for a service that has it in another form."""
        return self._decoded(state.kinds.pop(self.name, {}))

    def key_of(self, operation: Operation) -> Key | None:
        """Return the key that an operation sets or removes; None if it is none of this kind."""
        if isinstance(operation, SetRecord | DropRecord) and operation.kind == self.name:
            return cast("Key", _key(operation.key))
        return None

    def _decoded(self, records: Mapping[str, bytes]) -> dict[Key, Value]:
        decode = msgspec.msgpack.Decoder(self._value).decode
        return {cast("Key", _key(text)): decode(value) for text, value in records.items()}


def _key(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])


def _text(key: tuple[str, ...]) -> str:
    return msgspec.json.encode(key).decode()
