"""The end of the stored stream: which events of a batch must be stored, and at which positions.

The need of each sink decides (`exchange.Need`): nothing, reliable events, everything, or everything in the
log.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tidings.event import Batch
from tidings.event.header import DELIVERIES
from tidings.event.relayed import OWN_REPEAT, OrderedBatch, RelayedBatch
from tidings.event.wire import Checked
from tidings.exchange import Need, OutwardSink
from tidings.ids import Origin
from tidings.store.interface import Append, StoredBatch

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker
    from tidings.protocol.publishing import MatchedRows

STORED_SIZE_MAX = 64 << 10
"""Bytes of events that are stored under one checksum, save one event that is larger."""

_NOTHING, _RELIABLE, _LOGGED = Need.NOTHING, Need.RELIABLE, Need.LOGGED
_ELSEWHERE = Need.ELSEWHERE
_PERSISTENT = DELIVERIES.index("persistent")


class Appending:
    """Appends events to the stored stream of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def keep(self, batch: Batch, checked: Checked, matches: MatchedRows) -> list[int | None] | None:
        """Store what must be stored of a batch; the positions by row, None if it waits for no commit.

        That reliable events were counted is stored even if nobody wants them: sent again after a crash, they
        would be delivered twice.
        """
        if checked.is_plain:
            for subscription, rows in matches:
                if subscription.sink.need(len(rows)) is not _NOTHING:
                    break
            else:
                return None
        is_own = self._is_for_log(batch)
        codes = b"" if checked.is_plain or not is_own else checked.deliveries
        persistent = {row for row, code in enumerate(codes) if code == _PERSISTENT}
        elsewhere, logged, wanted = set[int](), set[int](), set[int]()
        for subscription, rows in matches:
            need = subscription.sink.need(len(rows))
            if need is _NOTHING or (need is _LOGGED and not is_own):
                continue
            if need is _ELSEWHERE:
                if persistent and isinstance(subscription.sink, OutwardSink):
                    elsewhere.update(subscription.sink.outward(batch, rows))
            elif need is not _RELIABLE:
                wanted.update(rows)
                if need is _LOGGED:
                    logged.update(rows)
            elif not checked.is_plain:
                wanted.update(row for row in rows if checked.deliveries[row])
        persistent = (persistent - elsewhere) | logged
        wanted |= persistent
        if not wanted and checked.is_plain:
            return None
        positions: list[int | None] = [None] * len(batch)
        for is_persistent, run in groupby(sorted(wanted), persistent.__contains__):
            self._append(batch, list(run), is_persistent, positions)
        self._broker.ledger.keep(batch.origin or Origin())
        return positions

    def _is_for_log(self, batch: Batch) -> bool:
        """Whether this node logs what is to be logged: as first node, once it has its place."""
        if isinstance(batch, RelayedBatch):
            return batch.is_released and batch.first.node == self._broker.node
        return not (isinstance(batch, OrderedBatch) and batch.is_had)

    def bring(self, batch: RelayedBatch) -> int:
        """Store events that have moved here for one reader only; return the position of the last."""
        positions: list[int | None] = [None] * len(batch)
        self._append(batch, list(range(len(batch))), persistent=False, positions=positions)
        return self._broker.position

    def _append(self, batch: Batch, rows: list[int], persistent: bool, positions: list[int | None]) -> None:
        """Store rows that follow each other in the batch, though not at once: positions grow with rows.

        What is large is stored in pieces, each with a checksum of its own: damage costs one of them.
        """
        for place, row in enumerate(rows, self._broker.position + 1):
            positions[row] = place
        for piece in batch.cut(rows, STORED_SIZE_MAX):
            self._append_piece(piece, persistent)

    def _append_piece(self, batch: Batch, persistent: bool) -> None:
        first, raw = self._broker.position + 1, batch.raw
        self._broker.position += len(batch)
        if persistent:
            self._broker.position_logged = self._broker.position
        origin = batch.origin or Origin()
        self._broker.size_logged += len(raw) if persistent else 0
        age_us, provenance = 0, b""
        if isinstance(batch, RelayedBatch):
            age_us, provenance = batch.age_us, batch.provenance
        elif isinstance(batch, OrderedBatch):
            provenance = batch.provenance
        elif batch.is_repeat:
            provenance = OWN_REPEAT
        stored = StoredBatch(
            first,
            len(batch),
            origin.system,
            origin.epoch,
            origin.source,
            int(self._broker.wall * 1e6) - age_us,
            persistent,
            raw,
            provenance,
        )
        self._broker.store(Append(stored))
