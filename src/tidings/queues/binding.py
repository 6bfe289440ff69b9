"""A queue bound to a filter: the sink of a subscription that puts what is published into the queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidings.errors import QueueFull
from tidings.event import Batch
from tidings.event.relayed import RelayedBatch
from tidings.exchange import Need, Positions, Rows, Sink
from tidings.ids import ForwardedOrigin
from tidings.queues.message import LENGTH_MAX, QueuedMessage
from tidings.queues.queue import MessageQueue

if TYPE_CHECKING:
    from tidings.queues.manager import QueueManager


class BoundQueue(Sink):
    """Puts publications that match into a queue; those it has no room for are dead letters.

    `leads_to` returns the id of the node to which they go, if it is another one. Neither requests of clients
    of this node nor the answers to these are of use there: an inbox is at one node. What that node has had
    does not go back to it, and what a neighbour has relayed here is for its first node to send on. The other
    node has the rest in its log.
    """

    def __init__(
        self, manager: QueueManager, queue: MessageQueue, leads_to: Callable[[], str] | None = None
    ) -> None:
        self._manager = manager
        self._queue = queue
        self._leads_to = leads_to

    def need(self, count: int) -> Need:  # noqa: ARG002
        """Have nothing stored: the queue stores for itself."""
        return Need.NOTHING if self._leads_to is None else Need.ELSEWHERE

    def outward(self, batch: Batch, rows: Rows) -> Rows:
        """Return the rows that go to the other node."""
        origin, above = batch.origin, "" if self._leads_to is None else self._leads_to()
        has_passed = isinstance(origin, ForwardedOrigin) and above in origin.passed
        if has_passed or isinstance(batch, RelayedBatch):
            return ()
        answers, requests = self._manager.broker.answers.look(batch)
        return [row for row in rows if row not in answers and row not in requests]

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Take these rows of the batch."""
        queue = self._queue
        is_sent_again = positions is not None  # if this can't be stored
        raw, offsets = batch.raw, batch.offsets
        for row in rows if self._leads_to is None else self.outward(batch, rows):
            event = raw[offsets[row] : offsets[row + 1]]
            if len(event) > LENGTH_MAX:
                self._manager.broker.count("dropped", reason="too-large")
                continue
            try:
                self._manager.check_size(queue.name)
                queue.check_room()
            except QueueFull as error:
                letter = QueuedMessage(0, event, batch.origin)
                self._manager.dead_letters.bury(queue, letter, error.problem, 0, is_sent_again)
            else:
                queue.put(event, batch.origin, undo=is_sent_again)
