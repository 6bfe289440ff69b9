"""A durable subscription that gets the newest events first when it comes back.

What was stored while it was away is read backwards, from the newest event to the oldest; whatever is
published meanwhile goes before the rest of it. Acknowledging counts in the order of delivery: an event, and
all that were delivered before it. The stored cursor moves once everything older has been delivered too, so a
client that dies before that gets what it had not finished again, marked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidings.event import Batch
from tidings.exchange import Rows
from tidings.protocol.cursors import Cursor
from tidings.protocol.streams import TAKEN_AT_ONCE, Stream
from tidings.steps import Steps
from tidings.store.interface import StoredBatch

if TYPE_CHECKING:
    from tidings.protocol.session import Session


class NewestStream(Stream):
    """See the module. It reads forwards from `next`, and backwards from `_back` down to the cursor."""

    def __init__(self, cursor: Cursor, session: Session, number: int, credit: int) -> None:
        super().__init__(cursor, session, number, credit)
        self._unfinished: deque[int] = deque()  # positions in the order of their delivery
        self._back = self._last = self.broker.position
        self.next = self._back + 1
        self._asked_back = 0

    @property
    def is_backward(self) -> bool:
        """Whether nothing new is to be read, and something old."""
        return self.next > self.broker.position and self._is_behind

    @property
    def place(self) -> int:
        """Where the next reading begins."""
        return self._back if self.is_backward else self.next

    @property
    def _is_behind(self) -> bool:
        return self._back > self.cursor.acknowledged

    # Reading

    def read_on(self) -> None:
        """Ask for what is new, then for what is old."""
        if not (self.is_backward and self._is_idle):
            super().read_on()
        elif self._back <= self.broker.position_durable:
            self.is_reading = True
            self._asked_back = self._back
            self.broker.reads.append(self)

    def _taking(self, stored: Sequence[StoredBatch]) -> Steps[None]:
        """Send what was read, forwards or backwards."""
        if not self._asked_back:
            yield from super()._taking(stored)
            return
        asked, self._asked_back = self._asked_back, 0
        if asked == self._back:
            yield from self._take_back(stored)
        self.is_reading = False
        self.read_on()

    def _take_back(self, stored: Sequence[StoredBatch]) -> Steps[None]:
        for one in stored:
            batch = self.batch_of(one)
            while self._is_behind and self._back >= one.first:
                if self.credit <= 0 or self.is_over or self.session.is_closed:
                    return
                self._take_rows_back(one, batch)
                yield
        if not stored:
            self._finish_back()

    def _take_rows_back(self, stored: StoredBatch, batch: Batch) -> None:
        """Send what is wanted of the last rows of a stored batch that were not looked at yet."""
        last = min(stored.count - 1, self._back - stored.first)
        first = max(0, self.cursor.acknowledged + 1 - stored.first, last + 1 - TAKEN_AT_ONCE)
        rows = self._wanted(batch, range(last, first - 1, -1), stored)
        taken = rows[: self.credit]
        self._back = stored.first + (taken[-1] if len(taken) < len(rows) else first) - 1
        known = [row for row in taken if stored.first + row <= self._seen]
        for part, redelivered in ((taken[: len(taken) - len(known)], False), (known, True)):
            if part:
                self._send_back(batch.take(part), [stored.first + row for row in part], redelivered)
        if not self._is_behind:
            self._finish_back()

    def _send_back(self, batch: Batch, places: list[int], redelivered: bool) -> None:
        self._unfinished.extend(places)
        self._hand_out(places[0])
        self.send(batch, range(len(batch)), places, redelivered)

    def _send_stored(self, batch: Batch, rows: Rows, places: list[int], redelivered: bool = False) -> None:
        self._unfinished.extend(places)
        super()._send_stored(batch, rows, places, redelivered)

    # Acknowledging

    def acknowledge(self, position: int) -> None:
        """The client has dealt with this event and all that were delivered before it."""
        if position in self._unfinished:
            while self._unfinished.popleft() != position:
                pass
            self._move_cursor()

    def _finish_back(self) -> None:
        """Nothing older is left to be delivered."""
        self._back = self.cursor.acknowledged
        self._move_cursor()

    def _move_cursor(self) -> None:
        finished = min(self._unfinished, default=self.next) - 1
        if not self._is_behind and finished > self.cursor.acknowledged:
            self._back = finished
            self.cursor.acknowledge(finished)
