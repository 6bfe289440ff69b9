"""A queue bound to a filter: the sink of a subscription that puts what is published into the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.errors import QueueFull
from tidings.event import Batch
from tidings.exchange import EventSink, Positions, Rows
from tidings.queues.message import LENGTH_MAX, QueuedMessage
from tidings.queues.queue import MessageQueue

if TYPE_CHECKING:
    from tidings.queues.manager import QueueManager


class BoundQueue(EventSink):
    """Puts publications that match into a queue; those it has no room for are dead letters.

    `is_outward`: they go to another node, where neither requests of clients of this one nor the answers to
    these are of use: an inbox is at one node.
    """

    def __init__(self, manager: QueueManager, queue: MessageQueue, is_outward: bool = False) -> None:
        self._manager = manager
        self._queue = queue
        self._is_outward = is_outward

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Take these rows of the batch."""
        queue = self._queue
        is_sent_again = positions is not None  # if this can't be stored
        raw, offsets = batch.raw, batch.offsets
        for row in self._outward(batch, rows) if self._is_outward else rows:
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

    def _outward(self, batch: Batch, rows: Rows) -> Rows:
        answers, requests = self._manager.broker.answers.look(batch)
        return [row for row in rows if row not in answers and row not in requests]
