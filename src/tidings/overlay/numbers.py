"""Numbers of the events that this node takes in: an epoch for each start, and positions that grow.

A node cannot know that its directory was restored from a backup, in which case it would use positions again.
So each start has a new epoch, higher than any before: the time of the start, or one more than the last one
that is known, here or at a neighbour. Numbers are compared by epoch, then by position.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct

from tidings.event import Batch
from tidings.event.relayed import FirstNode, RelayedBatch
from tidings.exchange import Positions, Rows
from tidings.protocol.broker import Broker
from tidings.store.interface import RecordKind

EPOCHS_MAX = 100
"""Epochs whose first positions are remembered; older events count to the oldest of them."""


class EpochStart(Struct, frozen=True):
    """The stored record of an epoch: the first position in it."""

    position: int


EPOCHS: RecordKind[tuple[str], EpochStart] = RecordKind("epoch", EpochStart)


class Numbers:
    """Epochs of this node and its volatile numbers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        known = sorted((int(key[0]), start.position) for key, start in EPOCHS.known(broker.state).items())
        self._epochs = [epoch for epoch, _ in known]
        self._starts = [position for _, position in known]
        self._volatile = 0
        self._last: Batch | None = None  # the batch that was numbered last, which goes to several links
        self._base = 0
        self._is_kept = False
        self.begin(max(int(broker.wall * 1e6), self.epoch + 1))
        if broker.cursors.of_links:
            self.keep()

    @property
    def epoch(self) -> int:
        """The current epoch; 0 before the first."""
        return self._epochs[-1] if self._epochs else 0

    @property
    def epochs(self) -> Sequence[int]:
        """All epochs that are remembered, the current one last."""
        return self._epochs

    def begin(self, epoch: int) -> None:
        """Begin an epoch: of this start, or since a neighbour knows of a later one than this."""
        if epoch <= self.epoch:
            return
        self._epochs.append(epoch)
        self._starts.append(self._broker.position + 1)
        self._volatile, self._last = 0, None
        if self._is_kept:
            self._store()

    def keep(self) -> None:
        """Store the current epoch, as its numbers are used; a node without links has no use for it."""
        if not self._is_kept:
            self._is_kept = True
            self._store()

    def _store(self) -> None:
        self._broker.store(EPOCHS.set((str(self.epoch),), EpochStart(self._starts[-1])))
        if len(self._epochs) > EPOCHS_MAX:
            self._broker.store(EPOCHS.drop((str(self._epochs.pop(0)),)))
            del self._starts[0]

    def stored(self, position: int) -> FirstNode:
        """Return this node with the epoch in which the position was stored."""
        place = bisect_right(self._starts, position) - 1
        return FirstNode(self._broker.node, self._epochs[max(place, 0)])

    @property
    def last_volatile(self) -> int:
        """The last volatile number of this epoch."""
        return self._volatile

    def volatile(self, batch: Batch) -> tuple[FirstNode, int]:
        """Return this node, and the volatile number of the first row of a batch that is being published."""
        if batch is not self._last:
            self._last, self._base = batch, self._volatile + 1
            self._volatile += len(batch)
        return FirstNode(self._broker.node, self.epoch, is_volatile=True), self._base

    def numbered(self, batch: Batch, positions: Positions, rows: Rows) -> RelayedBatch:
        """Return rows of a batch that is being published as other nodes know them: all stored, or none."""
        if isinstance(batch, RelayedBatch):
            return batch.take(rows)
        places = None if positions is None else [positions[row] for row in rows]
        if places and places[0] is not None:
            first, numbers = self.stored(places[0]), array("Q", [place or 0 for place in places])
        else:
            first, base = self.volatile(batch)
            numbers = array("Q", [base + int(row) for row in rows])
        part = batch.take(rows)
        return RelayedBatch(part.raw, part.origin, first, numbers)
