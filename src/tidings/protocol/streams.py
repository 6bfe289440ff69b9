"""Outlets on the stored stream: durable subscriptions, history, and what a slow client could not take.

Such an outlet has a place in the stream, `next`. While it is *abreast*, new events are sent as they are
published, with their positions. When it has no client, or its client no credit, it falls behind, and what
comes is left in the store; with credit it reads on from `next`, at its client's pace, until it is abreast
again. Every position goes by once, so there is no gap and no overlap where the two meet.

Before events leave that may have to be marked as delivered twice, the stored `handed` is moved past them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidings.event import Batch, Event
from tidings.exchange import Need, Positions, Rows, Subscription
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.protocol.answers import hears
from tidings.protocol.outlets import Outlet
from tidings.steps import Steps
from tidings.store.interface import Durable, StoredBatch

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker
    from tidings.protocol.session import Session

TAKEN_AT_ONCE = 256
"""Stored events that are looked at in one step."""
HANDED_AHEAD = 1_000
"""Positions by which `handed` is moved at once: fewer writes, and at most so many events marked in vain."""


class Stream(Outlet):
    """A place in the stored stream, with or without a client.

    `record` is what the store keeps of a durable subscription; None for history and for what was spilled,
    which end with their session. `keeps_all` has even transient events stored while it is behind.
    """

    session: Session | None  # type: ignore[assignment]  # a durable subscription outlives its sessions

    def __init__(
        self,
        broker: Broker,
        filter: Filter,
        start: int,
        record: Durable | None = None,
        keeps_all: bool = False,
        passive: bool = False,
    ) -> None:
        super().__init__(None, 0, 0)  # type: ignore[arg-type]
        self.broker = broker
        self.subscription = Subscription(filter, self, passive, owner=record and record.owner)
        self.next = start
        self.record = record
        self.keeps_all = keeps_all
        self.is_abreast = False
        self.is_reading = False
        self.since_us: int | None = None  # begin at this time instead of at `next`: see `begin`
        self._asked = 0  # where the reading that is under way began
        self._readable = 0  # up to here everything was on disk when it was asked for
        self._last = start - 1  # the last position that was sent
        self._seen = 0 if record is None else record.handed  # up to here it may have been delivered before

    @property
    def cursor(self) -> int:
        """The position up to which nothing is needed any more."""
        if self.is_abreast and (self.record is None or self.record.cursor >= self._last):
            return self.broker.position
        return self.next - 1 if self.record is None else self.record.cursor

    # Its client

    def attach(self, session: Session, number: int, credit: int) -> None:
        """A client is there, and gets what it has not acknowledged."""
        self.broker.places.attach(self)
        self.session, self.number, self.total, self.sent, self.lost = session, number, credit, 0, 0
        self._head = None
        if self.record is not None:
            self._rewind(self.record.cursor)
            self._seen = self.record.handed
        self.is_abreast = False
        self.read_on()

    def _rewind(self, cursor: int) -> None:
        """Begin behind what was acknowledged."""
        self._last = cursor
        self.next = cursor + 1

    def begin(self, position: int) -> None:
        """The position that `since_us` stands for; called by whoever drives the broker, before reading."""
        self.since_us = None
        self.next = self._asked = position
        if self.record is not None:
            self._last = position - 1
            self.record = replace(self.record, cursor=position - 1, handed=position - 1)
            self.broker.places.keep(self.record)

    def detach(self) -> None:
        """The client has gone; the store goes on for it."""
        self.broker.places.detach(self)
        self.session = None
        self.is_abreast = False

    def grant(self, total: int) -> None:
        """Read on with more credit."""
        super().grant(total)
        self.read_on()

    def acknowledge(self, position: int) -> None:
        """The client has dealt with everything up to the position; what was never sent can't be meant."""
        if self.record is not None and self.record.cursor < position < self.next:
            self.record = replace(self.record, cursor=position)
            self.broker.places.keep(self.record)

    # New events

    def need(self, count: int) -> Need:
        """What must be stored for it: everything while it spills, else what asks for it if it is durable."""
        if self.keeps_all and self.is_abreast and self.credit < count:
            self.is_abreast = False
        if self.keeps_all and not self.is_abreast:
            return Need.EVERYTHING
        return Need.NOTHING if self.record is None else Need.RELIABLE

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Send what is new, if the client is abreast and can take it; otherwise it stays in the store."""
        if self.session is None:
            self.broker.count("dropped", _unstored(rows, positions), "away")
            return
        sent = min(len(rows), self.credit) if self.is_abreast else 0
        if sent:
            self._send_new(batch, rows[:sent], positions)
        if sent < len(rows):
            self.is_abreast = False
            self.lose(_unstored(rows[sent:], positions), "behind")

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
            if self.next > self.broker.position:
                self.is_abreast = True
                self.since_us = None
                self.tell_gap()
            else:
                self.is_reading = True
                self._asked = self.next
                self._readable = self.broker.position_durable
                self.broker.reads.append(self)

    @property
    def _is_idle(self) -> bool:
        """Whether there is someone to read for, and nothing on its way to him."""
        return self.session is not None and not (self.is_abreast or self.is_reading) and self.credit > 0

    @property
    def is_backward(self) -> bool:
        """Whether the next reading is of what lies before its place."""
        return False

    @property
    def place(self) -> int:
        """Where the next reading begins."""
        return self.next

    def take(self, stored: Sequence[StoredBatch]) -> None:
        """Stored events have been read, from `place` on; called by whoever drives the broker."""
        if self.session is None:
            self.is_reading = False
        else:
            self.session.do(self._taking(stored, self.session))

    def _taking(self, stored: Sequence[StoredBatch], session: Session) -> Steps[None]:
        """Send what is wanted of what was read, for as long as it is this client who wants it."""
        is_same = self._asked == self.next  # otherwise another client has come meanwhile
        if is_same:
            yield from self._take(stored, session)
        self.is_reading = False
        is_other = self.session is not session or not is_same
        # What is stored but not on disk yet is asked for when it is.
        if is_other or not self.broker.position_durable < self.next <= self.broker.position:
            self.read_on()

    def _take(self, stored: Sequence[StoredBatch], session: Session) -> Steps[None]:
        for one in stored:
            batch, row = self.batch_of(one), max(0, self.next - one.first)
            while row < one.count:
                if self.credit <= 0 or self.session is not session or session.is_closed:
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
        events = batch.take(rows).events if len(rows) < len(batch) else batch.events
        return [row for row, event in zip(rows, events, strict=True) if self.is_wanted(event, stored)]

    def batch_of(self, stored: StoredBatch) -> Batch:
        """The events of a stored batch."""
        return Batch(stored.raw, Origin(stored.system, stored.epoch, stored.source))

    def is_wanted(self, event: Event, stored: StoredBatch) -> bool:
        """Whether a stored event matches, and has not outlived its time."""
        subscription = self.subscription
        return (
            subscription.filter.matches(event)
            and hears(subscription.user, event)
            and not _is_expired(event.ttl_s, stored, self.broker.wall)
        )

    def _hand_out(self, position: int) -> None:
        """Have it stored that events up to the position may have been delivered, before they are."""
        if self.record is not None and position > self.record.handed:
            self.record = replace(self.record, handed=position + HANDED_AHEAD)
            self.broker.places.keep(self.record)


def _is_expired(ttl_s: float | None, stored: StoredBatch, wall: float) -> bool:
    return ttl_s is not None and stored.stored_us / 1e6 + ttl_s <= wall


def _unstored(rows: Rows, positions: Positions) -> int:
    """How many of the rows are not stored."""
    return len(rows) if positions is None else sum(positions[row] is None for row in rows)


def _runs(rows: Rows, positions: Sequence[int | None]) -> list[tuple[list[int], bool]]:
    """The rows in runs that are stored or not, in order."""
    runs: list[tuple[list[int], bool]] = []
    for row in rows:
        is_stored = positions[row] is not None
        if not runs or runs[-1][1] is not is_stored:
            runs.append(([], is_stored))
        runs[-1][0].append(row)
    return runs
