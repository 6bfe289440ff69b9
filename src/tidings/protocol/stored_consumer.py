"""Consumers of the stored stream: durable subscriptions, history, and events a slow client could not take.

Such a consumer has a cursor, behind which it begins, and a place in the stream, `next`. While it is
*abreast*, new events are sent as they are published, with their positions. When its client has no credit it
falls behind, and new events stay in the store; with credit it reads on from `next`, at its client's pace,
until it is abreast again. Each position passes once: there is no gap and no overlap where the two meet.

Before events leave that may have to be marked as delivered twice, the stored `handed` is moved past them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tidings.event import Batch, Event
from tidings.event.relayed import OWN_REPEAT, is_for, is_late, moved_for, restored
from tidings.exchange import Need, Positions, Rows
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.protocol.answers import hears
from tidings.protocol.channels import MARK_BYTES, may_hear
from tidings.protocol.consumer import Consumer
from tidings.protocol.cursor import Cursor, unstored
from tidings.protocol.fading import is_over
from tidings.steps import Steps
from tidings.store.interface import StoredBatch

if TYPE_CHECKING:
    from tidings.protocol.session import Session

TAKEN_AT_ONCE = 256
"""Stored events that are looked at in one step."""
HANDED_AHEAD = 1_000
"""Positions by which `handed` is moved at once: fewer writes, and at most so many events marked in vain."""


class StoreReader(Protocol):
    """Reader of the stored stream, for which the driver of the broker reads."""

    @property
    def since_us(self) -> int | None:
        """Begin at this time instead of at `place`: see `begin`."""

    @property
    def place(self) -> int:
        """The position of the next read."""

    @property
    def is_backward(self) -> bool:
        """Whether the next reading is of what lies before its place."""

    @property
    def filter(self) -> Filter:
        """Filter of what it needs to see."""

    def begin(self, position: int) -> None:
        """Set the position for `since_us`."""

    def take(self, stored: Sequence[StoredBatch]) -> None:
        """Take stored events that were read from `place` on."""

    def fail_reading(self) -> None:
        """Stored events can't be read."""


class StoredConsumer(Consumer):
    """Delivers the stored stream to a client, from its cursor on, until the client goes.

    `keeps_all` has even transient events stored while it is behind.
    """

    def __init__(
        self, cursor: Cursor, session: Session, number: int, credit: int, keeps_all: bool = False
    ) -> None:
        super().__init__(session, number, credit)
        self.broker = cursor.broker
        self.cursor = cursor
        self.subscription = cursor.subscription
        self.keeps_all = keeps_all
        self.is_abreast = False
        self.is_reading = False
        self.since_us = cursor.since_us  # begin at this time instead of at `next`: see `begin`
        self.next = cursor.acknowledged + 1
        self._readable = 0  # up to here everything was on disk when it was asked for
        self._last = cursor.acknowledged  # the last position that was sent
        self._seen = cursor.handed  # up to here it may have been delivered before
        self.is_paused = False  # it is on its way to another node
        self._indexed_from: int | None = None  # what is stored is looked through; then it goes on from here

    @property
    def passed(self) -> int:
        """The position up to which nothing is needed any more."""
        cursor = self.cursor
        if self.is_abreast and (not cursor.name or cursor.acknowledged >= self._last):
            return self.broker.position
        return cursor.acknowledged if cursor.name else self.next - 1

    # Its client

    def attach(self) -> None:
        """Let the client have what it has not acknowledged, and what comes."""
        self.cursor.attach(self)
        self.broker.cursors.attach(self)
        self.broker.missed.recall(self)
        if not self.cursor.is_indexed:
            self._indexed_from = self.next
        self.read_on()

    @property
    def is_over(self) -> bool:
        """Whether the client has gone."""
        return self.cursor.consumer is not self

    def begin(self, position: int) -> None:
        """Set the position for `since_us`; called by the driver of the broker, before reading."""
        self.since_us = None
        if self.cursor.consumer in (self, None):  # else another client is there, and begins for itself
            self.next = position
            self._last = position - 1
            self.cursor.begin(position)

    def detach(self) -> None:
        """The client has gone; the store goes on for it."""
        self.cursor.detach()
        self.is_abreast = False
        self.broker.cursors.detach(self)

    def pause(self) -> None:
        """Send nothing more for now: it is on its way to another node."""
        self.is_paused, self.is_abreast = True, False

    def go_on(self) -> None:
        """Send again: it stays."""
        self.is_paused = False
        self.read_on()

    def part(self, reason: str) -> None:
        """End it and report the reason to its client."""
        self.session.subscriptions.end(self.number, reason)

    def grant(self, total: int) -> None:
        """Read on with more credit."""
        super().grant(total)
        self.read_on()

    def acknowledge(self, position: int) -> None:
        """The client has dealt with everything up to the position; what was never sent can't be meant."""
        if self.cursor.name and self.cursor.acknowledged < position < self.next:
            self.cursor.acknowledge(position)

    def confirm(self, positions: Sequence[int]) -> None:
        """Others beyond the client have what it was sent; clients have nobody beyond them."""

    # New events

    def need(self, count: int) -> Need:
        """Events to store for it: all while it spills, else those that ask for it if it is durable."""
        if self.keeps_all and self.is_abreast and self.credit < count:
            self.is_abreast = False
        if self.keeps_all and not self.is_abreast:
            return Need.EVERYTHING
        return Need.RELIABLE if self.cursor.name else Need.NOTHING

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Send what is new, if the client is abreast and can take it; otherwise it stays in the store."""
        rows = self.cursor.unhad(batch, rows)
        if self.cursor.newest is not None:
            self.cursor.newest.note_stored(batch, rows, positions)
        sent = min(len(rows), self.credit) if self.is_abreast else 0
        if sent:
            self._send_new(batch, rows[:sent], positions)
        if sent < len(rows):
            self.is_abreast = False
            self.lose(unstored(rows[sent:], positions), "behind")

    def _send_new(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        if positions is None:
            self.send(batch, rows)
            return
        self.depend()
        for part, are_stored in _runs(rows, positions):
            if are_stored:
                self._send_stored(batch, part, [positions[row] for row in part])  # type: ignore[misc]
            else:
                self.send(batch, part)

    def _send_stored(self, batch: Batch, rows: Rows, places: list[int], redelivered: bool = False) -> None:
        self._last = places[-1]
        self.next = max(self.next, self._last + 1)
        self._hand_out(self._last)
        self.send(batch, rows, places, redelivered)

    # Stored events

    def read_on(self) -> None:
        """Ask for stored events, if there is someone to have them."""
        if self._is_idle:
            if self.next > self.broker.position and self._indexed_from is not None:
                self._go_back()
            if self.next > self.broker.position:
                self.is_abreast = True
                self.since_us = self.cursor.since_us = None
                self.report_gap()
            else:
                self.is_reading = True
                self._readable = self.broker.position_durable
                self.broker.reads.append(self)

    @property
    def _is_idle(self) -> bool:
        """Whether there is someone to read for, and nothing on its way to him."""
        is_busy = self.is_over or self.is_abreast or self.is_reading or self.is_paused
        return not is_busy and self.credit > 0

    @property
    def is_backward(self) -> bool:
        """Whether the next reading is of what lies before its place."""
        return False

    @property
    def filter(self) -> Filter:
        """Filter of what it needs to see."""
        return self.subscription.filter

    @property
    def place(self) -> int:
        """The position of the next read."""
        return self.next

    def take(self, stored: Sequence[StoredBatch]) -> None:
        """Take stored events that were read from `place` on; called by the driver of the broker."""
        if not self.is_over:
            self.session.do(self._taking(stored))

    def fail_reading(self) -> None:
        """Stored events can't be read: the client gets an error, and may try again."""
        self.is_reading = False
        if not self.is_over:
            self.session.close("internal", "stored events can't be read")

    def _taking(self, stored: Sequence[StoredBatch]) -> Steps[None]:
        """Send what is wanted of what was read, for as long as the client is there."""
        yield from self._take(stored)
        self.is_reading = False
        # What is stored but not on disk yet is asked for when it is.
        if not self.broker.position_durable < self.next <= self.broker.position:
            self.read_on()

    def _go_back(self) -> None:
        """All that is stored was looked through: begin to send."""
        assert self._indexed_from is not None
        self.next, self._indexed_from = self._indexed_from, None
        self.cursor.is_indexed = True

    def _index(self, stored: Sequence[StoredBatch]) -> Steps[None]:
        """Note the newest updates of what was read, and send nothing yet."""
        for one in stored:
            if MARK_BYTES in one.raw and self.cursor.newest is not None:
                batch, places = self.batch_of(one), range(one.first, one.first + one.count)
                rows = self._wanted(batch, range(one.count), one)
                self.cursor.newest.note(batch, ((row, places[row]) for row in rows))
            self.next = one.first + one.count
            yield
        if not stored:
            self.next = self._readable + 1

    def _take(self, stored: Sequence[StoredBatch]) -> Steps[None]:
        if self._indexed_from is not None:
            yield from self._index(stored)
            return
        for one in stored:
            batch, row = self.batch_of(one), max(0, self.next - one.first)
            while row < one.count:
                if self.credit <= 0 or self.is_over or self.session.is_closed:
                    return
                row = self._take_rows(one, batch, row)
                yield
        if not stored and self.next <= self._readable:
            self.next = self._readable + 1  # what was between is there no longer

    def _take_rows(self, stored: StoredBatch, batch: Batch, start: int) -> int:
        """Send what is wanted of some rows of a stored batch; the row to go on with."""
        end = min(start + TAKEN_AT_ONCE, stored.count)
        rows = self._wanted(batch, range(start, end), stored)
        taken = rows[: self.credit]
        following = taken[-1] + 1 if len(taken) < len(rows) else end
        self.next = stored.first + following
        again = [row for row in taken if stored.first + row <= self._seen]
        for part, redelivered in ((again, True), (taken[len(again) :], False)):
            if part:
                self._send_stored(batch, part, [stored.first + row for row in part], redelivered)
        return following

    def _wanted(self, batch: Batch, rows: range, stored: StoredBatch) -> list[int]:
        """The rows of a stored batch that match and have not outlived their time."""
        return wanted_rows(self.cursor, batch, rows, stored)

    def batch_of(self, stored: StoredBatch) -> Batch:
        """The events of a stored batch."""
        origin = Origin(stored.system, stored.epoch, stored.source)
        if is_late(stored.provenance):
            return restored(stored.raw, origin, stored.provenance)
        return Batch(stored.raw, origin)

    def _hand_out(self, position: int) -> None:
        """Have it stored that events up to the position may have been delivered, before they are."""
        if self.cursor.name and position > self.cursor.handed:
            self.cursor.hand_out(position + HANDED_AHEAD)


def wanted_rows(cursor: Cursor, batch: Batch, rows: range, stored: StoredBatch) -> list[int]:
    """Return the rows of a stored batch that a cursor is for, and that have not outlived their time."""
    lacked = _lacked(cursor, rows, stored)
    if not lacked:
        return []
    events = batch.take(lacked).events if len(lacked) < len(batch) else batch.events
    found = [row for row, event in zip(lacked, events, strict=True) if _is_wanted(cursor, event, stored)]
    if not cursor.newest:
        return found
    kept = cursor.newest.without_older(batch, [(row, stored.first + row) for row in found])
    if len(kept) < len(found):
        cursor.broker.count("channel_superseded", len(found) - len(kept))
    return kept


def _lacked(cursor: Cursor, rows: range, stored: StoredBatch) -> Rows:
    """Return the rows that are for a cursor, and that it has not had before it came to this node."""
    if not is_for(stored.provenance, cursor.reader):
        return ()
    if not (cursor.cut or cursor.had) or moved_for(stored.provenance):
        return rows
    if stored.first <= cursor.cut:
        return ()
    if not cursor.had or stored.provenance in (b"", OWN_REPEAT):
        return rows
    return cursor.unhad(restored(stored.raw, Origin(), stored.provenance), rows)


def _is_wanted(cursor: Cursor, event: Event, stored: StoredBatch) -> bool:
    """Whether a stored event matches, has not outlived its time, and is to be stored still."""
    subscription, broker = cursor.subscription, cursor.broker
    return (
        subscription.filter.matches(event)
        and hears(broker.node, subscription.user, event)
        and may_hear(subscription, event)
        and not is_over(event, broker.wall - stored.stored_us / 1e6)
    )


def _runs(rows: Rows, positions: Sequence[int | None]) -> list[tuple[list[int], bool]]:
    """The rows in runs that are stored or not, in order."""
    runs: list[tuple[list[int], bool]] = []
    for row in rows:
        is_stored = positions[row] is not None
        if not runs or runs[-1][1] is not is_stored:
            runs.append(([], is_stored))
        runs[-1][0].append(row)
    return runs


class NewestFirstConsumer(StoredConsumer):
    """A durable subscription that gets the newest events first when it comes back.

    What was stored while it was away is read backwards, from the newest event to the oldest; whatever is
    published meanwhile goes before the rest of it: it reads forwards from `next`, and backwards from `_back`
    down to the cursor. Acknowledging counts in the order of delivery: an event, and all that were delivered
    before it. The stored cursor moves once everything older has been delivered too, so a client that dies
    before that gets what it had not finished again, marked.
    """

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
