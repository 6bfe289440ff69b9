"""What a node has stored of a channel for members that come later, and how it is read again.

The first node of an event has it in its log. A node that *archives* a channel keeps all that its members get
there, as copies; so a client that can't reach the first node gets the events nonetheless. A *part* has the
events of one stored batch with the numbers that their first node gave them: by these a reader puts parts of
several nodes in order, and takes an event once, be it original or copy. Spark reads originals alone, as no
copy is in a log.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from tidings.channels.parts import HistoryPage, HistoryPart
from tidings.event import Batch, Event
from tidings.event.relayed import FirstNode, own_marks, restored, was_had
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.log.history import LogHistory
from tidings.protocol.channels import MARK, channel_of
from tidings.protocol.fading import is_over
from tidings.store.interface import StoredBatch

PIECE_SIZE_MAX = 256 << 10
"""Bytes of events in one reply: it may pass several links, on which others wait behind it."""
SCAN_SIZE_MAX = 4 << 20
"""Bytes of the log that are searched for one reply."""


class HistoryRange(Struct, frozen=True):
    """What is to be read: positions of one node, of a channel, and not the copies of some first nodes."""

    channel: str
    start: int
    end: int
    where: str = ""
    without: tuple[str, ...] = ()
    size_max: int = PIECE_SIZE_MAX


class KeptHistory:
    """The stored events of a node; `first_of` says in which epoch it has stored a position."""

    def __init__(self, node: str, history: LogHistory, first_of: Callable[[int], FirstNode]) -> None:
        self._node = node
        self._history = history
        self._first_of = first_of

    def position_at(self, time_us: int) -> int:
        """Return the position of the first event stored at that time or later."""
        return self._history.position_at(time_us)

    def read(self, wanted: HistoryRange, wall: float) -> HistoryPage:
        """Return some events of a range, maybe none yet if few are wanted; called in a thread."""
        needle, filter = (MARK + wanted.channel).encode(), Filter(wanted.where)
        parts: list[HistoryPart] = []
        position, size, scanned = max(1, wanted.start), 0, 0
        while position < wanted.end and size < wanted.size_max and scanned < SCAN_SIZE_MAX:
            found = self._history.batches(position, wanted.size_max)
            if not found or found[0].first >= wanted.end:
                return HistoryPage(parts, wanted.end, wanted.end)
            for stored in found:
                if needle in stored.raw:
                    parts += self._parts(stored, position, wanted, filter, wall)
                scanned += len(stored.raw)
                position = stored.first + stored.count
            size = sum(len(one.raw) for one in parts)
        return HistoryPage(parts, min(position, wanted.end), wanted.end)

    def _parts(
        self, stored: StoredBatch, start: int, wanted: HistoryRange, filter: Filter, wall: float
    ) -> Iterator[HistoryPart]:
        """Yield what is wanted of a stored batch: as first node what is in the log, else as a copy."""
        marks = own_marks(stored.provenance)
        numbers: Sequence[int] = range(stored.first, stored.first + stored.count)
        if marks is None:
            copy = restored(stored.raw, Origin(), stored.provenance)
            first, numbers, after = copy.first, copy.numbers, copy.after
            is_own = first.node == self._node
            if is_own is not stored.persistent or first.node in wanted.without:
                return
            if was_had(stored.provenance) or copy.only or first.is_volatile:
                return
        elif stored.persistent:
            first, after = self._first_of(stored.first), marks.after
        else:
            return
        batch = Batch(stored.raw, Origin(stored.system, stored.epoch, stored.source))
        rows = [
            row
            for row in range(max(0, start - stored.first), min(stored.count, wanted.end - stored.first))
            if _is_wanted(batch[row], wanted.channel, filter, wall - stored.stored_us / 1e6)
        ]
        if rows:
            of_rows = array("Q", [numbers[row] for row in rows]).tobytes()
            about = stored.system, stored.epoch, stored.source, stored.stored_us
            yield HistoryPart(first.node, first.epoch, of_rows, *about, batch.raw_of(rows), after)


def _is_wanted(event: Event, channel: str, filter: Filter, age_s: float) -> bool:
    is_kept = event.delivery != "transient" and not is_over(event, age_s)
    return is_kept and channel_of(event) == channel and filter.matches(event)
