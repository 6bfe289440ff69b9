"""Messages of a queue that may have been in flight when their node ended.

Before such a message is delivered, the delivery is stored: what makes a node end, or comes with what does, is
a message like that from the next start on, and becomes a dead letter when it was delivered too often.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from tidings.queues.inflight import InFlight, ReaderKey

if TYPE_CHECKING:
    from tidings.queues.manager import QueueManager
    from tidings.queues.message import MessagePart, QueuedMessage
    from tidings.queues.queue import MessageQueue


class Recovery:
    """What a queue remembers of the life of the node before this one."""

    def __init__(self, queue: MessageQueue, manager: QueueManager, doubtful: int) -> None:
        self.doubtful = doubtful
        """Messages up to this number may have been handed out before a restart."""
        self.lost: set[int] = set()
        """Messages that were in flight, as is stored, when the node ended."""
        self._queue = queue
        self._manager = manager

    def restore(self, message: QueuedMessage, deliveries: int, parts: list[MessagePart]) -> bool:
        """Take in a message that was stored; whether it may have been in flight."""
        queue, broker, number = self._queue, self._manager.broker, message.number
        if deliveries:
            queue.returned[number] = abs(deliveries)
        if deliveries < 0:
            self.lost.add(number)
        queue.grow(message.size + queue.parts.add(number, parts))
        queue.kind.restored(message)
        ttl_s = queue.deadlines.expiry.ttl_s(message)
        queue.deadlines.expire_at(number, broker.deadline(number / 1e6 + ttl_s, ttl_s))
        if not queue.schedule.restore(message, deliveries):
            queue.shelf.add(number, message, queue.kind.place(message))
        return number <= self.doubtful

    def bury_lost(self) -> None:
        """Give up messages that were in flight for the last time when the node ended."""
        queue, most = self._queue, self._queue.description.deliveries_max
        for number in () if most is None else [one for one in self.lost if queue.returned[one] >= most]:
            deliveries = queue.returned[number]
            reason = f"was handed out {deliveries} times; the last time the node ended before it was settled"
            queue.bury(queue.pick(number), reason, deliveries)

    def note(self, held: InFlight) -> None:
        """Have it stored, before a doubtful message is delivered, that this delivery was begun.

        Of what comes with one request only the first is dealt with for sure.
        """
        queue = self._queue
        about = queue.description
        if queue.kind.persistent and about.keep and about.deliveries_max is not None:
            held.is_noted = True
            queue.handed_mark = self._manager.keep(queue.kind.revise(held.message, -held.delivery))

    def hold_again(self, number: int, delivery: int, holder: ReaderKey) -> InFlight | None:
        """Put a message in flight again that was so when the node was killed, and to no other reader since.

        So what was settled then, and not stored in time, is settled when that is said again.
        """
        queue = self._queue
        before = queue.returned.get(number, 0)
        is_last = delivery == (before if number in self.lost else before + 1)
        if number > self.doubtful or not is_last or number in queue.schedule.delayed:
            return None
        if number in queue.locks or not queue.is_loose(number):
            return None
        held = InFlight(queue, queue.pick(number), delivery, holder, 0, inf)
        if queue.schedule.groups is not None:
            queue.schedule.groups.hold_again(number)
        queue.take_up(held)
        return held
