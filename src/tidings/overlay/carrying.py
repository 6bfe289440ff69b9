"""What a client that moves takes along: events that wait for it, and those that are held back meanwhile."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from tidings.errors import Refused, TidingsError
from tidings.event.relayed import RelayedBatch, own_marks, restored
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.overlay.relaying import at_node
from tidings.overlay.service import Overlay
from tidings.protocol.announced import MovedBatch
from tidings.protocol.arrivals import Gathering
from tidings.protocol.broker import Broker
from tidings.protocol.consumer import Consumer
from tidings.protocol.cursor import Cursor
from tidings.protocol.stored_consumer import wanted_rows
from tidings.replies import Deferred
from tidings.store.interface import StoredBatch

COMMIT_S = 0.01
"""Pause before events are read that are stored, and not on disk yet."""


class HeldBack:
    """A member to whom nothing more is delivered here; if it stays after all, it gets what came meanwhile."""

    def __init__(self, member: NodeSubscription, node: str) -> None:
        self._member = member
        self._sink = member.sink
        self._gathering = member.sink = Gathering(node)

    def go_on(self) -> None:
        """Deliver again: it stays."""
        sink = self._member.sink = self._sink
        for batch in self._gathering.batches:
            sink.deliver(batch, range(len(batch)), None)
        if self._gathering.lost and isinstance(sink, Consumer):
            sink.miss(self._gathering.lost, "slow")


class MovingEvents:
    """Reads what waits for a durable subscription up to a position, and has it brought elsewhere."""

    since_us = None
    is_backward = False

    def __init__(self, broker: Broker, overlay: Overlay, cursor: Cursor, last: int) -> None:
        self._broker = broker
        self._overlay = overlay
        self._cursor = cursor
        self._last = last
        self.place = cursor.acknowledged + 1

    @property
    def filter(self) -> Filter:
        """Filter of what it needs to see."""
        return self._cursor.subscription.filter

    def run(
        self,
        bring: Callable[[str, tuple[MovedBatch, ...]], Deferred[Any]],
        done: Callable[[], None],
        fail: Callable[[TidingsError], None],
    ) -> None:
        """Have all of it brought piece by piece, then call `done`; or `fail`."""
        self._bring, self._done, self._fail = bring, done, fail
        self._read()

    def _read(self, _told: Any = None) -> None:
        self._readable = self._broker.position_durable
        if self.place > self._last:
            self._done()
        elif self.place > self._readable:
            self._overlay.later(COMMIT_S, self._read)
        else:
            self._broker.reads.append(self)

    def begin(self, position: int) -> None:
        """It begins at a position, and at no time."""

    def fail_reading(self) -> None:
        """Stored events can't be read: the subscription stays."""
        self._fail(Refused("internal", "stored events can't be read"))

    def take(self, stored: Sequence[StoredBatch]) -> None:
        """Take stored events that were read from `place` on."""
        moved: list[MovedBatch] = []
        for one in stored:
            if self.place <= self._last:
                moved += self._moved(one)
                self.place = one.first + one.count
        if not stored:
            self.place = self._readable + 1  # what was between is there no longer
        if moved:
            self._bring(self._cursor.name, tuple(moved)).then(self._read, self._fail)
        else:
            self._read()

    def _moved(self, stored: StoredBatch) -> list[MovedBatch]:
        """Return what is wanted of a stored batch; what may have been delivered is marked."""
        cursor, first = self._cursor, max(0, self.place - stored.first)
        batch = self._batch_of(stored)
        end = min(stored.count, self._last + 1 - stored.first)
        rows = wanted_rows(cursor, batch, range(first, end), stored)
        handed = [row for row in rows if stored.first + row <= cursor.handed]
        parts = (handed, True), (rows[len(handed) :], False)
        return [_travelling(batch.take(part), was_handed) for part, was_handed in parts if part]

    def _batch_of(self, stored: StoredBatch) -> RelayedBatch:
        """Return a stored batch as other nodes know it."""
        broker = self._broker
        age_us = max(0, int(broker.wall * 1e6) - stored.stored_us)
        origin = Origin(stored.system, stored.epoch, stored.source)
        if own_marks(stored.provenance) is None:
            batch = restored(stored.raw, origin, stored.provenance, age_us)
            if batch.first.node == broker.node:
                batch.origin = self._own(origin)
            return batch
        numbers = range(stored.first, stored.first + stored.count)
        first = self._overlay.numbers.stored(stored.first)
        return RelayedBatch(stored.raw, self._own(origin), first, numbers, age_us)

    def _own(self, origin: Origin) -> Origin:
        """Return the origin of events that were taken in here, as other nodes know it."""
        source = at_node(origin.source, self._broker.name or self._broker.node)
        return Origin(origin.system, origin.epoch, source)


def _travelling(batch: RelayedBatch, was_handed: bool) -> MovedBatch:
    origin, first = batch.origin or Origin(), batch.first
    numbers = array("Q", batch.numbers).tobytes()
    about = origin.system, origin.epoch, origin.source, first.node, first.epoch
    return MovedBatch(batch.raw, *about, numbers, batch.age_us, was_handed)
