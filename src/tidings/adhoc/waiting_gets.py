"""Gets from queues to which there is no path: they wait until there is one, or until the queue is elsewhere.

While one waits, the holder of the queue hears that its messages are wanted (`following.py`). A queue that
is called by its name alone may go to another host meanwhile, such as this one. Then, as when there is a path,
the get is dispatched again, for the time that is left.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct

from tidings.protocol.broker import Broker
from tidings.queues.backend import DispatchAgain, GetReply
from tidings.replies import Deferred
from tidings.timers import Alarm

if TYPE_CHECKING:
    from tidings.adhoc.queue_backend import AdhocQueue


class WaitingGet(Struct, eq=False):
    """One get."""

    queue: AdhocQueue
    ends_at: float
    alarm: Alarm | None = None


class WaitingGets:
    """All gets of one node that wait."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[WaitingGet, Deferred[GetReply]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, queue: AdhocQueue, wait_s: float | None) -> Deferred[GetReply]:
        """Wait for a queue; the reply fails with DispatchAgain, or with Disconnected when the time is up."""
        waiting = WaitingGet(queue, inf if wait_s is None else self._broker.now + wait_s)
        if wait_s is not None:
            waiting.alarm = self._broker.timers.at(waiting.ends_at, lambda _now: self._give_up(waiting))
        reply = self._waiting[waiting] = Deferred(partial(self._forget, waiting))
        queue.wish()
        return reply

    def look(self) -> None:
        """Go on with those that need not wait any more; to be called now and then."""
        for waiting in list(self._waiting):
            if not waiting.queue.is_reachable:
                waiting.queue.wish()
                continue
            left_s = None if waiting.ends_at == inf else max(0.0, waiting.ends_at - self._broker.now)
            self._forget(waiting).fail(DispatchAgain(left_s))

    def _give_up(self, waiting: WaitingGet) -> None:
        self._forget(waiting).fail(waiting.queue.no_path())

    def _forget(self, waiting: WaitingGet) -> Deferred[GetReply]:
        self._broker.timers.cancel(waiting.alarm)
        return self._waiting.pop(waiting)
