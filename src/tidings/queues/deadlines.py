"""What one queue does by itself when a moment has come.

Messages expire, delays end, messages in flight are taken back, and a rate allows the next one. All of it is
done before a reader is served, and else when the queue is woken, at the earliest of these moments.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice, takewhile
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidings.errors import MessageNotHeld
from tidings.event.header import EMPTY_HEADER
from tidings.queues import serving
from tidings.queues.message import Expiry, QueuedMessage, event_bytes
from tidings.queues.offering import offer_shelf
from tidings.steps import Steps
from tidings.timers import granted_s

if TYPE_CHECKING:
    from tidings.queues.inflight import InFlight
    from tidings.queues.manager import QueueManager
    from tidings.queues.queue import MessageQueue


class Deadlines:
    """The moments of one queue."""

    def __init__(self, queue: MessageQueue, manager: QueueManager) -> None:
        self.expiry = Expiry(queue.description.expiry)
        self._queue = queue
        self._manager = manager
        self._broker = manager.broker
        self._in_flight: OrderedDict[int, InFlight] = OrderedDict()  # to be settled in time: who is due first
        self._offer_at = inf  # when what is on the shelf is offered to readers that the rate made wait
        self._wakes_at = inf  # when the queue is woken
        self._waking: Steps[None] | None = None  # what is overdue, as far as that was not dealt with yet

    def wake_at(self, at: float) -> None:
        """Have the queue woken at a moment, unless it is earlier."""
        if at < self._wakes_at:
            self._wakes_at = at
            self._manager.timers.at(at, self._wake)

    def offer_at(self, at: float) -> None:
        """Have what is on the shelf offered at a moment to those who wait."""
        self._offer_at = at
        self.wake_at(at)

    def settle_by(self, held: InFlight) -> None:
        """Have a message taken back when its reader is late."""
        self._in_flight[held.message.number] = held
        self.wake_at(held.due)

    def settled(self, number: int) -> None:
        """A message is not in flight any more."""
        self._in_flight.pop(number, None)

    def expire_at(self, number: int, at: float) -> None:
        """Let a message live until then, whatever becomes of the wall clock."""
        if at < inf:
            self.expiry.at(at, number)
            self.wake_at(at)

    def renew(self, number: int, lease_s: float) -> float:
        """Let a message on the shelf live for so long from now on; how long it is. 0 ends it."""
        queue = self._queue
        if number in queue.locks:
            raise MessageNotHeld(queue.name, f"message {number} was read in a transaction that is open")
        granted = granted_s(lease_s, queue.description.lease_s_max)
        message = queue.shelf[number]
        if granted <= 0:
            queue.drop(number)
            return 0.0
        ttl_s = max(0.0, self._broker.wall - number / 1e6) + granted
        event = message.event
        event = replace(event, header=replace(event.header or EMPTY_HEADER, ttl_s=ttl_s))
        renewed = QueuedMessage(number, event_bytes(event), message.origin)
        queue.grow(renewed.size - message.size)
        queue.shelf.remove(number)
        queue.shelf.add(number, renewed, queue.kind.place(renewed))
        self._manager.keep(queue.kind.revise(renewed, queue.returned.get(number, 0)))
        self.expire_at(number, self._broker.now + granted)
        return granted

    def left_s(self, number: int) -> float:
        """Return the time that a message has left to live."""
        return max(0.0, self.expiry.moment(number) - self._broker.now)

    def is_expired(self, number: int) -> bool:
        """Whether a message on the shelf has outlived its time, and is to be swept out."""
        return self.expiry.wake_at <= self._broker.now and self.expiry.moment(number) <= self._broker.now

    def sweep(self) -> None:
        """Let go of messages whose time is over, and offer delayed ones that are due; of many some."""
        now, queue = self._broker.now, self._queue
        if self._wakes_at > now and self._waking is None:
            return
        if self.expiry.wake_at <= now:
            for number in self.expiry.due(now, serving.AT_ONCE):
                if queue.is_loose(number):
                    queue.expire(queue.pick(number))
        if queue.schedule.delayed.wake_at <= now:
            queue.schedule.end_delays(serving.AT_ONCE)

    def clear(self) -> None:
        """The queue is closed: nothing comes due any more."""
        self._manager.timers.cancel(self._wake)
        self._in_flight.clear()

    def _wake(self, _now: float) -> None:
        """Let go of what has expired, offer what is due, and take back what was held for too long."""
        self._wakes_at = inf
        if self._waking is None:
            self._waking = self._overdue()
            self._manager.begin(self._waking)

    def _overdue(self) -> Steps[None]:
        while not self._queue.is_closed:
            self.sweep()
            self._take_back_late()
            if self._offer_at <= self._broker.now:
                self._offer_at = inf
                yield from offer_shelf(self._queue)
            if self._due_at > self._broker.now:
                break
            yield
        self._waking = None
        if self._due_at < inf and not self._queue.is_closed:
            self.wake_at(self._due_at)

    @property
    def _due_at(self) -> float:
        """When something expires, is due, is to be offered, or has been held for too long."""
        first = next(iter(self._in_flight.values()), None)  # all may be held equally long: in order of time
        late_at = inf if first is None else first.due
        return min(self.expiry.wake_at, self._queue.schedule.delayed.wake_at, self._offer_at, late_at)

    def _take_back_late(self) -> None:
        """Take back what is held for too long, of many messages some."""
        first = list(islice(self._in_flight.values(), serving.AT_ONCE))
        for held in takewhile(lambda held: held.due <= self._broker.now, first):
            self._queue.take_back(held, True, "was held for too long")
