"""Selection of events in the store: the rows of stored batches that match a filter, as live parts.

The bytes of a batch are matched as they are, and the matching ones copied: no event is decoded, with compiled
code. A selection is made once for a request, as preparing its index costs more than to match a batch.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from tidings.event import Batch
from tidings.filters import Filter
from tidings.filters.tree import FunctionCall, Literal, Not
from tidings.ids import Origin
from tidings.log.chunks import LivePart, live_part, rows_bytes
from tidings.matching import Index
from tidings.store.interface import StoredBatch


class Selection:
    """Events that match a filter; for one thread."""

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self._index: Index[str] = Index()
        self._index.add("", filter)
        self._needle = _contained_by_misses(filter)

    def parts(self, batches: Iterable[StoredBatch], start: int, end: int) -> Iterator[LivePart]:
        """Yield the matching events of stored batches, within these positions."""
        for stored in batches:
            low, high = max(start - stored.first, 0), min(end - stored.first, stored.count)
            if (low, high) == (0, stored.count) and self._wants_all(stored.raw):
                yield live_part(stored)
                continue
            batch = Batch(stored.raw, Origin(stored.system, stored.epoch, stored.source))
            rows = self._rows(batch, low, high)
            if len(rows) == stored.count:
                yield live_part(stored)
            elif rows:
                part = live_part(stored)
                fields = part.system, part.epoch, part.source, part.stored_us
                bytes_of = rows_bytes(array("I", rows))
                yield LivePart(part.first, part.count, bytes_of, *fields, batch.raw_of(rows))

    def _wants_all(self, raw: bytes) -> bool:
        return self._needle is not None and (not self._needle or self._needle not in raw)

    def _rows(self, batch: Batch, low: int, high: int) -> list[int]:
        matched = self._index.match_rows(batch).rows.tolist()  # of the only key
        if (low, high) == (0, len(batch)):
            return matched
        return [row for row in matched if low <= row < high]


def _contained_by_misses(filter: Filter) -> bytes | None:
    """Return bytes that each event contains which does not match, empty if there is none; None: unknown.

    A search for them is much quicker than to evaluate the filter that readers without a filter have.
    """
    match filter.condition:
        case Literal(True):
            return b""
        case Not(FunctionCall("STARTS_WITH", ("type",), (str(prefix),))):
            return prefix.encode()
    return None
