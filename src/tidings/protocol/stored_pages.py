"""Pages of the stored stream: some events from a position on, read once for who goes on from there later.

What is stored and not on disk yet is waited for, so a page ends where the stream ended when it was asked for,
or where it is full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidings.errors import Refused
from tidings.event import Batch
from tidings.filters import Filter
from tidings.replies import Deferred
from tidings.steps import Steps
from tidings.store.interface import StoredBatch

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

PAGE_SIZE = 64 << 10
"""Bytes of events in one page, except for an event that is larger."""
SCANNED_MAX = 4 << 20
"""Bytes that are looked through for one page, however few of them are wanted."""
LOOKED_AT_ONCE = 256
"""Events that are looked at in one step."""


class StoredPiece(NamedTuple):
    """Events of one origin, and when they were stored."""

    stored_us: int
    batch: Batch


class StoredPage(NamedTuple):
    """Pieces in the order of the stream, and the position to go on from; None at the end."""

    pieces: Sequence[StoredPiece]
    next: int | None


WantedRows = Callable[[StoredBatch, range], Batch | None]
"""Returns what is wanted of some rows of a stored batch; None for nothing."""


class PageReading:
    """Reading of one page, from a position, or a time, to before a position; see `StoreReader`.

    Sealed events that do not match the filter may be left out before `wanted` is asked.
    """

    is_backward = False

    def __init__(
        self,
        broker: Broker,
        start: int,
        end: int,
        filter: Filter,
        wanted: WantedRows,
        since_us: int | None = None,
    ) -> None:
        self.since_us = since_us
        self.place = start
        self.filter = filter
        self.reply: Deferred[StoredPage] = Deferred()
        self._broker = broker
        self._end = end
        self._wanted = wanted
        self._readable = 0
        self._pieces: list[StoredPiece] = []
        self._size = self._scanned = 0
        self.read_on()

    def begin(self, position: int) -> None:
        """Begin at this position: it was found for `since_us`."""
        self.since_us, self.place = None, position

    def read_on(self) -> None:
        """Have the next events read, once they are on disk."""
        if self.place >= self._end:
            self._conclude()
        elif self.since_us is None and self.place > self._broker.position_durable:
            self._broker.cursors.await_durable(self)
        else:
            self._readable = self._broker.position_durable
            self._broker.reads.append(self)

    def take(self, stored: Sequence[StoredBatch]) -> None:
        """Take stored events that were read from `place` on."""
        self._broker.background.begin(self._taking(stored))

    def fail_reading(self) -> None:
        """Stored events can't be read."""
        self.reply.fail(Refused("internal", "stored events can't be read"))

    def _taking(self, stored: Sequence[StoredBatch]) -> Steps[None]:
        for one in stored:
            stop = min(one.count, self._end - one.first)
            for start in range(max(0, self.place - one.first), stop, LOOKED_AT_ONCE):
                rows = range(start, min(start + LOOKED_AT_ONCE, stop))
                part = self._wanted(one, rows)
                if part is not None:
                    self._pieces.append(StoredPiece(one.stored_us, part))
                    self._size += len(part.raw)
                self.place = one.first + rows.stop
                yield
                if self._size >= PAGE_SIZE:
                    self._conclude()
                    return
            self._scanned += len(one.raw)
        if not stored or stored[-1].first >= self._end:
            self.place = max(self.place, min(self._readable + 1, self._end))  # what was between is gone
        if self._scanned >= SCANNED_MAX:
            self._conclude()
        else:
            self.read_on()

    def _conclude(self) -> None:
        self.reply.resolve(StoredPage(self._pieces, self.place if self.place < self._end else None))
