"""Buffer of a node: the replicas that it carries, as the messages of its queue `tidings.carried`.

The queue stores and restores them, decides what a full one displaces, and is looked into as any queue is.
Its messages are the carried events as their senders put them, with the origin that they have at the host
which took them in: so no number of theirs is counted here. Beside the queue stands what the node knows of
each replica (`records.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from msgspec.structs import replace

from tidings.adhoc.buffer import ReplicaBuffer
from tidings.adhoc.carried_events import pack, unpack
from tidings.adhoc.messages import CarriedMessage, MessageId, Replica
from tidings.errors import CodecError, ConfigError, QueueFull
from tidings.event import Event
from tidings.event.wire import decode_event
from tidings.ids import ForwardedOrigin, Origin
from tidings.queues.description import CARRIED, Description
from tidings.queues.manager import QueueManager
from tidings.queues.message import LENGTH_MAX, event_bytes
from tidings.queues.queue import MessageQueue
from tidings.queues.types import VolatileCarried

EVENTS = ("queue:", "topic:", "news:", "area:")
"""Destinations whose messages are events; others are the bodies of such."""


def check_carried(message: CarriedMessage) -> str:
    """Return why nobody could make use of a message, '' if somebody can."""
    if message.size > LENGTH_MAX:
        return "size"
    try:
        event_of(message)
    except CodecError:
        return "event"
    return ""


def event_of(message: CarriedMessage) -> tuple[bytes, Origin]:
    """Return a message as one of a queue; CodecError if it carries no event."""
    if message.destination.startswith(EVENTS):
        carried = unpack(message.raw)
        return carried.raw, ForwardedOrigin(carried.system, carried.epoch, carried.source)
    kind = message.destination.partition(":")[0]
    is_named = kind.isascii() and kind.isalpha()
    event = Event(f"adhoc.{kind if is_named else 'other'}", {}, delivery="reliable", body=message.raw)
    return event_bytes(event), ForwardedOrigin(message.id.system, message.id.epoch, message.id.system)


class QueuedReplicas(ReplicaBuffer):
    """Replicas in the queue of a node; with a limit of 0 bytes it takes none."""

    def __init__(self, queues: QueueManager, bytes_max: int) -> None:
        super().__init__(bytes_max=bytes_max)
        self.on_purged: Callable[[Replica], None] = lambda _replica: None
        """Called with a replica that a client has purged."""
        self._queues = queues
        self._numbers: dict[MessageId, int] = {}
        self._ids: dict[int, MessageId] = {}
        self._leaving: list[Replica] | None = None  # what goes by the decision of this node
        known = queues.get(CARRIED)
        if known is not None:
            self._adopt(known)

    def _queue(self) -> MessageQueue:
        """The queue, made when it is first needed, or when a client has deleted it."""
        known = self._queues.get(CARRIED)
        if known is not None:
            return known
        kind = "carried" if self._queues.lasts else "volatile-carried"
        made = self._queues.create(Description(name=CARRIED, type=kind, deliveries_max=None))
        self._adopt(made)
        return made

    def _adopt(self, queue: MessageQueue) -> None:
        if not isinstance(queue.kind, VolatileCarried):
            raise ConfigError("the queues", CARRIED, "it is another queue: delete it, its name is needed")
        queue.kind.on_gone = self._gone
        about = replace(queue.description, max_bytes=self.bytes_max or None)
        queue.description = queue.kind.description = about
        self._queues.keep([queue.record()] if about.keep else [])

    # Taking in

    def put(self, replica: Replica) -> list[Replica] | None:
        """Take a replica in; those that it displaces, or None if it is refused and nothing has changed."""
        assert replica.id not in self._replicas
        if not self.bytes_max:
            return None
        queue = self._queue()
        kind = cast("VolatileCarried", queue.kind)
        raw, origin = event_of(replica.message)
        displaced: list[Replica] = []
        self._leaving = displaced
        kind.is_open = True
        try:
            self._queues.check_size(queue.name)
            queue.check_room_for(raw)
            number = queue.put(raw, origin, undo=False).number
        except QueueFull:
            return None
        finally:
            kind.is_open, self._leaving = False, None
        self.take(replica, number)
        return displaced

    def take(self, replica: Replica, number: int) -> None:
        """Know a replica whose message has this number in the queue, and keep its bytes there alone."""
        self._numbers[replica.id], self._ids[number] = number, replica.id
        replica.arrival = self._arrivals + 1
        replica.message = replace(replica.message, raw=b"")
        self._add(replica)

    def number_of(self, id: MessageId) -> int:
        """The number of a message in the queue."""
        return self._numbers[id]

    def raw_of(self, replica: Replica) -> bytes:
        """Return the bytes of a replica's message."""
        message = self._queue().shelf[self._numbers[replica.id]]
        if not replica.message.destination.startswith(EVENTS):
            return decode_event(message.raw, None).body or b""
        return pack(message.raw, message.origin)

    @property
    def stored(self) -> list[int]:
        """The numbers of the messages that are in the queue."""
        queue = self._queues.get(CARRIED)
        return [] if queue is None else list(queue.shelf)

    def shrink(self) -> list[Replica]:
        """Drop what goes beyond the limit, if that was made smaller."""
        queue = self._queues.get(CARRIED)
        if queue is None:
            return []
        return self.drop(cast("VolatileCarried", queue.kind).excess(queue) if self.bytes_max else self.stored)

    @property
    def held(self) -> int:
        """Bytes that count against the limit."""
        queue = self._queues.get(CARRIED)
        return 0 if queue is None else queue.bytes

    @property
    def free(self) -> float:
        """The share of it that is free, from 0 to 1."""
        return max(0.0, 1 - self.held / self.bytes_max) if self.bytes_max else 0.0

    # Taking out

    def remove(self, id: MessageId) -> Replica | None:
        """Take a replica out; None if it is not here."""
        if id not in self._numbers:
            return None
        (gone,) = self.drop((self._numbers[id],))
        return gone

    def drop(self, numbers: Sequence[int]) -> list[Replica]:
        """Drop messages of the queue, and return the replicas that these were."""
        if not numbers:
            return []
        queue = self._queue()
        left: list[Replica] = []
        self._leaving = left
        for number in numbers:
            queue.drop(number)
        self._leaving = None
        return left

    def _gone(self, number: int) -> None:
        """A message has left the queue."""
        id = self._ids.pop(number, None)
        if id is None:
            return
        del self._numbers[id]
        replica = self._forget(id)
        assert replica is not None
        if self._leaving is None:
            self.on_purged(replica)
        else:
            self._leaving.append(replica)
