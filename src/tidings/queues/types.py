"""Types of queues: what is kept of a message, where it stands, and what a full queue does.

A type is a class with a name, registered with the node; one object of it serves one queue. The two that every
node has differ in what they keep. To make another, derive from one of them and say what is different:

    class Stack(Sqlite):
        name = "stack"

        def place(self, message):
            return -message.number
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from tidings.errors import QueueFull, UserError
from tidings.event.header import PRIORITY_MAX
from tidings.ids import ForwardedOrigin, Origin
from tidings.queues.description import Description
from tidings.queues.message import QueuedMessage, sight, stored_epoch
from tidings.store.interface import Dequeue, Enqueue, Operation, Revise, StoredMessage

if TYPE_CHECKING:
    from tidings.queues.queue import MessageQueue

PRIORITY_SHIFT = 58
"""Bits of a place below the priority; numbers are microseconds, and have fewer until the year 11000."""
_NOBODY = Origin()


class Volatile:
    """Messages live in memory only."""

    name: ClassVar[str] = "volatile"
    persistent: ClassVar[bool] = False

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

    def check_room(self, queue: MessageQueue, count: int) -> None:
        """Raise QueueFull if there would be no room for so many messages; nothing is changed by asking."""
        most = self.description.max_messages
        if most is not None and queue.size + count > most:
            raise QueueFull(queue.name, f"it holds {queue.size} of at most {most} messages")

    def put(self, message: QueuedMessage) -> Sequence[Operation]:
        """Return the operations that store a new message."""
        return ()

    def put_part(self, message: QueuedMessage, number: int, part: bytes) -> Sequence[Operation]:
        """Return the operations that store a further part of its body, which has a number of its own."""
        return ()

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


TYPES: dict[str, type[Volatile]] = {kind.name: kind for kind in (Volatile, Sqlite)}
"""The types that every node has."""
