"""Types of queues: what is kept of a message, where it stands, and what a full queue does.

A type is a class with a name, registered with the node; one object of it serves one queue. The two that every
node has differ in what they keep. To make another, derive from one of them and say what is different:

    class Stack(Sqlite):
        name = "stack"

        def place(self, message):
            return -message.number
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from tidings.errors import NotAllowed, QueueFull, UserError
from tidings.event.header import PRIORITY_MAX
from tidings.ids import ForwardedOrigin, Origin
from tidings.queues.description import Description
from tidings.queues.displacing import DisplacementOrder, RoomLimits
from tidings.queues.message import QueuedMessage, sight, stored_epoch
from tidings.store.interface import Dequeue, Enqueue, Operation, Revise, StoredMessage

if TYPE_CHECKING:
    from tidings.queues.queue import MessageQueue

PRIORITY_SHIFT = 58
"""Bits of a place below the priority; numbers are microseconds, and have fewer until the year 11000."""
_LAST = 1 << PRIORITY_SHIFT
"""Above all numbers."""
_NOBODY = Origin()


class Volatile:
    """Messages live in memory only."""

    name: ClassVar[str] = "volatile"
    persistent: ClassVar[bool] = False
    is_own: ClassVar[bool] = False
    """Whether only the node puts messages in and takes them out; clients may read."""

    def __init__(self, key: int, description: Description) -> None:
        self.key = key
        self.description = description
        self._ageing_us = int((description.ageing_s or 0) * 1e6)

    def place(self, message: QueuedMessage) -> int:
        """Return the place of a message: the lowest is the first; places are distinct and never change.

        With ageing a level of priority is worth so many microseconds of waiting, so the order of two messages
        stays what it was when the second came, and nothing has to be sorted anew.
        """
        if not self.description.priorities:
            return message.number
        priority = sight(message).priority
        if self._ageing_us:
            return (message.number - priority * self._ageing_us) * (PRIORITY_MAX + 1) + priority
        return (PRIORITY_MAX - priority) << PRIORITY_SHIFT | message.number

    def make_room(self, queue: MessageQueue) -> None:
        """Called before a message is put, for which there is room as `check_room` has it."""

    def make_room_for(self, queue: MessageQueue, raw: bytes, size: int) -> None:
        """As `make_room`, for a type that looks at the event; `size` is what the message will hold."""
        self.make_room(queue)

    def check_room(self, queue: MessageQueue, count: int) -> None:
        """Raise QueueFull if there would be no room for so many messages; nothing is changed by asking."""
        most = self.description.max_messages
        if most is not None and queue.size + count > most:
            raise QueueFull(queue.name, f"it holds {queue.size} of at most {most} messages")

    def check_bytes(self, queue: MessageQueue, size: int) -> None:
        """Raise QueueFull if there would be no room for so many bytes; nothing is changed by asking."""
        most = self.description.max_bytes
        if most is not None and queue.bytes + size > most:
            raise QueueFull(
                queue.name, f"it holds {queue.bytes} of at most {most} bytes, and has no {size} left"
            )

    def check_room_for(self, queue: MessageQueue, raw: bytes, size: int) -> None:
        """Raise QueueFull if there would be no room for this event; nothing is changed by asking."""
        self.check_room(queue, 1)
        self.check_bytes(queue, size)

    def put(self, message: QueuedMessage) -> Sequence[Operation]:
        """Return the operations that store a new message."""
        return ()

    def put_part(self, message: QueuedMessage, number: int, part: bytes) -> Sequence[Operation]:
        """Return the operations that store a further part of its body, which has a number of its own."""
        return ()

    def restored(self, message: QueuedMessage) -> None:
        """Called with a message that was stored, or whose removal was undone, before it has its place."""

    def revise(self, message: QueuedMessage, deliveries: int) -> Sequence[Operation]:
        """Return the operations for a message that has changed, or has come back after so many deliveries."""
        return ()

    def gone(self, numbers: Sequence[int]) -> Sequence[Operation]:
        """Return the operations that remove messages, or parts of them."""
        return ()


class Sqlite(Volatile):
    """Messages are in the node's database too, and a put is acknowledged when they are on disk."""

    name = "sqlite"
    persistent = True

    def put(self, message: QueuedMessage) -> Sequence[Operation]:
        """Store it."""
        return (Enqueue(self._stored(message, 0)),)

    def put_part(self, message: QueuedMessage, number: int, part: bytes) -> Sequence[Operation]:
        """Store the part."""
        compress = self.description.compress
        return (Enqueue(StoredMessage(number, self.key, None, 0, None, 0, part, message.number, compress)),)

    def revise(self, message: QueuedMessage, deliveries: int) -> Sequence[Operation]:
        """Store how often it was handed out."""
        return (Revise(self._stored(message, deliveries)),)

    def gone(self, numbers: Sequence[int]) -> Sequence[Operation]:
        """Store them no longer."""
        return [Dequeue(number) for number in numbers]

    def _stored(self, message: QueuedMessage, deliveries: int) -> StoredMessage:
        origin = message.origin or _NOBODY
        sender = origin.system, stored_epoch(origin), origin.source
        compress = self.description.compress
        passed = origin.passed if isinstance(origin, ForwardedOrigin) else ()
        return StoredMessage(message.number, self.key, *sender, deliveries, message.raw, 0, compress, passed)


class VolatileBuffer(Volatile):
    """A full queue displaces: transient messages go first, then those of low priority, then the oldest.

    A message that would itself be the first to go is refused. A transaction displaces nothing.
    """

    name = "volatile-buffer"

    def __init__(self, key: int, description: Description) -> None:
        super().__init__(key, description)
        self._order: DisplacementOrder[BufferRank] = DisplacementOrder()
        self._ranks: dict[int, BufferRank] = {}
        self.on_gone: Callable[[int], None] = lambda _number: None
        """Called with each message that goes, for whatever reason."""

    def place(self, message: QueuedMessage) -> int:
        """Return the place of a message: the first is the one displaced last, of equals the oldest."""
        is_lasting, priority, number = _rank(message)
        return (not is_lasting) << PRIORITY_SHIFT + 4 | (PRIORITY_MAX - priority) << PRIORITY_SHIFT | number

    def check_room_for(self, queue: MessageQueue, raw: bytes, size: int) -> None:
        """Raise QueueFull if better messages fill the queue."""
        self._displaced(queue, raw, size)

    def make_room_for(self, queue: MessageQueue, raw: bytes, size: int) -> None:
        """Drop what the event displaces."""
        for _, _, number in self._displaced(queue, raw, size):
            queue.drop(number)

    def _displaced(self, queue: MessageQueue, raw: bytes, size: int) -> list[BufferRank]:
        own, shelf = _rank(QueuedMessage(_LAST, raw, None)), queue.shelf

        def size_of(rank: BufferRank) -> int | None:
            return queue.size_of(shelf[rank[-1]]) if rank[-1] in shelf else None

        limits = RoomLimits(self.description.max_messages, self.description.max_bytes)
        gone = self._order.displaced(own, queue.size + 1, queue.bytes + size, limits, size_of)
        if gone is None:
            problem = f"it has no room for {size} bytes without displacing better messages"
            raise QueueFull(queue.name, problem)
        return gone

    def excess(self, queue: MessageQueue) -> list[int]:
        """Return the messages that must go since the limits were made smaller."""
        gone: list[int] = []
        size = queue.bytes
        limits = RoomLimits(self.description.max_messages, self.description.max_bytes)
        for number in (rank[-1] for rank in self._order if rank[-1] in queue.shelf):
            if limits.fit(queue.size - len(gone), size):
                break
            gone.append(number)
            size -= queue.size_of(queue.shelf[number])
        return gone

    def put(self, message: QueuedMessage) -> Sequence[Operation]:
        """Rank it."""
        self.restored(message)
        return super().put(message)

    def restored(self, message: QueuedMessage) -> None:
        """Rank it again."""
        rank = self._ranks[message.number] = _rank(message)
        self._order.add(rank)

    def gone(self, numbers: Sequence[int]) -> Sequence[Operation]:
        """Rank them no longer."""
        for number in numbers:
            rank = self._ranks.pop(number, None)
            if rank is not None:
                self._order.remove(rank)
                self.on_gone(number)
        return super().gone(numbers)


BufferRank = tuple[bool, int, int]
"""The place of a message among those that are displaced: the lowest goes first."""


def _rank(message: QueuedMessage) -> BufferRank:
    seen = sight(message)
    return seen.delivery != "transient", seen.priority, message.number


class Buffer(VolatileBuffer, Sqlite):
    """As `volatile-buffer`, in the node's database."""

    name = "buffer"
    persistent = True


class VolatileCarried(VolatileBuffer):
    """The buffer of messages that a node carries for hosts that meet by chance; clients may read it."""

    name = "volatile-carried"
    is_own = True

    def __init__(self, key: int, description: Description) -> None:
        super().__init__(key, description)
        self.is_open = False
        """Whether the node itself is about to put."""

    def check_room(self, queue: MessageQueue, count: int) -> None:
        """Refuse a transaction."""
        self._check_own(queue)

    def check_room_for(self, queue: MessageQueue, raw: bytes, size: int) -> None:
        """Raise QueueFull if better messages fill the queue, and NotAllowed for any but the node."""
        self._check_own(queue)
        super().check_room_for(queue, raw, size)

    def _check_own(self, queue: MessageQueue) -> None:
        if not self.is_open:
            raise NotAllowed(f"{queue.name!r} has what this node carries: put into the queue of a host")


class Carried(VolatileCarried, Buffer):
    """As `volatile-carried`, in the node's database."""

    name = "carried"
    persistent = True


def load_types(names: str) -> list[type[Volatile]]:
    """The types named as `module:Class`, with commas between; UserError for what is none."""
    return [_load_type(name.strip()) for name in names.split(",") if name.strip()]


def _load_type(name: str) -> type[Volatile]:
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(import_module(module), attribute)
    except (ImportError, ValueError, AttributeError) as error:
        raise UserError(f"queue type {name!r} can't be loaded: {error}") from None
    if not (isinstance(kind, type) and issubclass(kind, Volatile)):
        raise UserError(f"queue type {name!r} is not derived from a type of tidings.queues")
    return kind


TYPES: dict[str, type[Volatile]] = {
    kind.name: kind for kind in (Volatile, Sqlite, VolatileBuffer, Buffer, VolatileCarried, Carried)
}
"""The types that every node has."""
