"""Events that wait to be matched with filters of one session that must be tried on every event.

A publisher does not pay for such filters: it only puts its batch in here, and the batch is matched and
delivered in the turn of the subscriber, in its share of the time. So a subscription gets its events in the
order in which they were published, perhaps later than others do. A backlog that grows past BACKLOG_SIZE_MAX,
or past what its session may hold, drops the oldest events and reports that to its client: as they were not
matched, each subscription that was there for any counts all of them.

Only what is not stored for its subscriber, and holds nobody up, waits here: what must be known when an event
is accepted is matched while it is published.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, cast

from tidings.event import Batch
from tidings.exchange import ROWS_AT_ONCE, NodeSubscription, Positions, Rows
from tidings.matching import Index
from tidings.protocol.consumer import MEMORY, Consumer
from tidings.protocol.last_values import LastValuesSink
from tidings.protocol.memory import ENTRY_SIZE
from tidings.turns import SLICE_S, adapted

if TYPE_CHECKING:
    from tidings.protocol.session import Session

BACKLOG_SIZE_MAX = 64 << 20
"""Bytes of events that wait to be matched for one session."""
LOST_AT_ONCE = 1 << 20
"""Bytes that are dropped at once when there is no room, so that not each event is reported."""
ROWS_AT_FIRST = 8
"""Events that are matched in one step, until it is known how long that takes."""
UNTRIED = "untried"
"""The reason for which events are dropped, in metrics, that were not even matched."""


class _Put(NamedTuple):
    """A batch that waits, its number, and whether it waits for a commit."""

    number: int
    batch: Batch
    is_stored: bool


class Backlog:
    """A worker beside its session, in the same share, that matches what waits; it is a `Later`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._index: Index[NodeSubscription] = Index(patient=True)
        self._first: dict[NodeSubscription, int] = {}  # the number of the first batch that each may get
        self._waiting: deque[_Put] = deque()
        self._number = 0  # of the last batch
        self._row = 0  # of the first batch that waits, to go on with
        self._rows = ROWS_AT_FIRST
        self._untried = 0  # events that were dropped and are not reported yet
        self._number_lost = 0  # of the last batch of which any were
        self._why = UNTRIED
        self.size = 0  # bytes of what waits
        self.mark = 0  # of the last commit that anything put in here depends on

    def add(self, subscription: NodeSubscription) -> None:
        """Match what is put in from now on with this one, too."""
        self._report_lost()
        self._first[subscription] = self._number + 1
        self._index.add(subscription, subscription.filter)

    def remove(self, subscription: NodeSubscription) -> None:
        """Match nothing with this one any more."""
        self._index.remove(subscription)
        del self._first[subscription]

    def put(self, batch: Batch, positions: Positions) -> None:
        """Events were published, and stand at these positions. Called while someone publishes."""
        session = self._session
        if positions is not None:
            self.mark = session.broker.promise
        self._number += 1
        self._waiting.append(_Put(self._number, batch, positions is not None))
        self.size += ENTRY_SIZE + len(batch.raw)
        session.hold_batch(batch)
        session.broker.turns.add(self, session.share)
        if self.size > BACKLOG_SIZE_MAX:
            self._lose(UNTRIED)

    # What waits

    def lose_oldest(self) -> bool:
        """Drop the oldest of what waits, as memory is short; whether anything was dropped."""
        return self._lose(MEMORY)

    def _lose(self, why: str) -> bool:
        goal, before, self._why = self.size - LOST_AT_ONCE, self._untried, why
        while self._waiting and self.size > goal:
            self._number_lost, batch, _ = self._waiting[0]
            self._untried += len(batch) - self._row
            self._drop()
        self._session.broker.count("dropped", self._untried - before, why)
        return self._untried > before

    def _drop(self) -> None:
        batch = self._waiting.popleft().batch
        self._row = 0
        self.size -= ENTRY_SIZE + len(batch.raw)
        self._session.holdings.remove(batch)

    def _report_lost(self) -> None:
        """Report to the subscriptions that were there what was dropped, as each may have wanted it."""
        untried, self._untried = self._untried, 0
        if untried:
            for subscription, first in self._first.items():
                if first <= self._number_lost:
                    assert isinstance(subscription.sink, Consumer | LastValuesSink)
                    subscription.sink.miss(untried, self._why)

    # Its turn

    def work(self, until: float) -> bool:
        """Go on until this moment of the turns' clock; whether more is left. Called when it is its turn."""
        self._report_lost()
        clock = self._session.broker.turns.clock
        begun = clock()
        while self._waiting:
            self._step()
            now = clock()
            self._rows = adapted(self._rows, now - begun, SLICE_S / 4, SLICE_S / 2, ROWS_AT_ONCE)
            if now >= until:
                break
            begun = now
        return bool(self._waiting)

    def give_up(self) -> bool:
        """Part from the client for whom matching has failed, by a fault of the node; nothing is left."""
        self._session.give_up()
        while self._waiting:
            self._drop()
        return False

    def _step(self) -> None:
        """Match and deliver some rows of the first batch."""
        if not self._first or self._session.is_closed:
            self._drop()
            return
        number, batch, is_stored = self._waiting[0]
        start, end = self._row, min(self._row + self._rows, len(batch))
        self._row = end
        if end == len(batch):
            self._drop()
        part = batch if start == 0 and end == len(batch) else batch.slice(start, end)
        positions = [None] * len(part) if is_stored else None
        for subscription, rows in self._matches(part, number):
            subscription.sink.deliver(part, rows, positions)
        part.forget()

    def _matches(self, part: Batch, number: int) -> list[tuple[NodeSubscription, Rows]]:
        """Return the subscriptions that want some of these rows and were there when they were published."""
        broker = self._session.broker
        found = [
            (subscription, cast("Rows", rows))
            for subscription, rows in self._index.match_items(part)
            if self._first[subscription] <= number
        ]
        return found if self._session.bound is None else broker.answers.heard(part, found)
