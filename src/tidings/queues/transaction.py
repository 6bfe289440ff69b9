"""A transaction: puts, takes, readings and publications that all happen at once, or not at all.

What it has put is seen by itself at once and by others when it commits. What it has taken is gone for others,
and is where it was if it is rolled back. What it has read others may read, but not take, until it ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidings.errors import Refused
from tidings.event import Batch
from tidings.matching import Shelf
from tidings.queues.message import BYTES_EACH, Message, sight
from tidings.queues.queue import Queue
from tidings.timers import Alarm

if TYPE_CHECKING:
    from tidings.protocol.session import Session
    from tidings.queues.inflight import Held
    from tidings.queues.waiting import Reader

Put = tuple[Queue, Message, Sequence[bytes]]
"""What is put where, and further parts of its body."""
SIZE_MAX = 256 << 20
"""Bytes that may be put and published in one transaction."""
MESSAGES_MAX = 10_000
"""Messages that may be put, taken and published in one: all of it is done at once."""


class Transaction:
    """What one client has begun and not ended."""

    def __init__(self, session: Session, number: int, grow: Callable[[int], None]) -> None:
        """`grow` is told how many bytes it holds more, or fewer."""
        self.session = session
        self.number = number
        self._tell = grow
        self.timer: Alarm | None = None
        self.held: dict[int, Held] = {}
        self.locked: dict[tuple[Queue, int], None] = {}
        self.waiting: dict[int, Reader] = {}  # by the numbers of their requests
        self.is_over = False  # what it has read is free for others
        self.publications: list[Batch] = []
        self._published = 0
        self._puts: dict[int, Put] = {}
        self._shelves: dict[Queue, Shelf[int, Message]] = {}
        self._parts: dict[Queue, list[bytes]] = {}  # of the message that comes next
        self._withdrawn: dict[int, tuple[int, Put]] = {}  # what it put and has taken, and for which request
        self._size = 0

    @property
    def queues(self) -> set[Queue]:
        """Those in which it has read or taken something."""
        return {held.queue for held in self.held.values()} | {queue for queue, _ in self.locked}

    @property
    def puts(self) -> list[Put]:
        """What it has put, and not taken again, in order; with further parts of the bodies."""
        return list(self._puts.values())

    def shelf(self, queue: Queue) -> Shelf[int, Message] | None:
        """What it has put into a queue."""
        return self._shelves.get(queue)

    @property
    def room(self) -> int:
        """How many messages more may be put, taken or published in it."""
        return MESSAGES_MAX - len(self._puts) - len(self.held) - self._published

    def check_room_for(self, count: int) -> None:
        """Raise Refused if so many more are too many."""
        if self.room < count:
            raise Refused("limit", f"a transaction has at most {MESSAGES_MAX} messages: commit it before")

    def has_put(self, number: int) -> bool:
        """Whether it has put a message, and not taken it again."""
        return number in self._puts

    def knows(self, number: int) -> bool:
        """Whether it has put a message, taken again or not."""
        return number in self._puts or number in self._withdrawn

    def put(self, queue: Queue, message: Message) -> None:
        """Put a message; its number is for the order in which the transaction sees its own.

        Whether there is room is seen when it commits: until then nothing may be dropped for it.
        """
        self.check_room_for(1)
        self._grow(message.size)
        self._show((queue, message, self._parts.pop(queue, ())))

    def _show(self, put: Put) -> None:
        """Let the transaction see something that it has put."""
        queue, message, _ = put
        pending = self._shelves.get(queue)
        if pending is None:
            pending = self._shelves[queue] = Shelf(sight, distinct=True)
        pending.add(message.number, message, queue.kind.place(message))
        self._puts[message.number] = put

    def put_part(self, queue: Queue, part: bytes) -> None:
        """Put a part of the body of the next event."""
        self._grow(len(part) + BYTES_EACH)
        self._parts.setdefault(queue, []).append(part)

    def publish(self, batch: Batch) -> None:
        """Publish events when it commits."""
        self.check_room_for(len(batch))
        self._grow(len(batch.raw))
        self._published += len(batch)
        self.publications.append(batch)

    def _grow(self, size: int) -> None:
        if self._size + size > SIZE_MAX:
            raise Refused("limit", f"a transaction holds at most {SIZE_MAX} bytes")
        self._size += size
        self._tell(size)

    def release(self) -> None:
        """It is over, and holds nothing any more."""
        self._tell(-self._size)
        self._size = 0

    def withdraw(self, queue: Queue, message: Message, request: int) -> None:
        """A message that it has put itself is taken again, by a request: it was never there."""
        self._withdrawn[message.number] = request, self._puts.pop(message.number)
        self._shelves[queue].remove(message.number)

    def put_back(self, request: int) -> None:
        """What it put itself and was taken by a request is taken no longer."""
        taken = [one for one, (taker, _) in self._withdrawn.items() if taker == request]
        for number in taken:
            self._show(self._withdrawn.pop(number)[1])
        if taken:
            self._puts = dict(sorted(self._puts.items()))  # in the order in which they were put

    def parts(self, number: int) -> Sequence[bytes]:
        """The further parts of the body of a message that it has put."""
        if number in self._withdrawn:
            return self._withdrawn[number][1][2]
        put = self._puts.get(number)
        return () if put is None else put[2]

    def part(self, number: int, index: int) -> bytes | None:
        """One of these, None if there is none."""
        parts = self.parts(number)
        return parts[index] if 0 <= index < len(parts) else None

    def check_room(self) -> None:
        """Raise QueueFull if a queue has no room for what was put into it."""
        taken = Counter(held.queue for held in self.held.values())
        for queue, pending in self._shelves.items():
            queue.check_room(len(pending) - taken[queue])
