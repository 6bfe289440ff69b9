"""A subscription that holds up its publishers while events wait for it, within limits that protect these.

Acceptances are cumulative, so what is held is the acceptance of the events that a publisher sent last and
that wait here. Whatever it does after them (a put, an acknowledgement, a commit, an event that this
subscription does not want) is accepted at once, and with it what came before. So a publisher that sends
nothing else is slowed down to the pace of the subscription; one that does other things as well is slowed down
less or not at all, and past the limits the oldest events that wait are dropped.

A hold is for those who make progress. A subscription that gives no credit for HOLD_S_MAX holds nobody any
more: it drops events as `drop-oldest` does, until it gives credit again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.event import Batch
from tidings.exchange import Positions, Rows
from tidings.ids import ForwardedOrigin
from tidings.protocol.consumer import DroppingConsumer

if TYPE_CHECKING:
    from tidings.protocol.session import Session

BLOCKED_MAX = 1_000_000
"""Events that wait for a subscription that holds its publishers: what their windows have room for."""
BLOCKED_SIZE_MAX = 64 << 20
"""Their bytes."""
HOLD_S_MAX = 5.0
"""How long a subscription may hold publishers without giving credit."""
NO_CREDIT = "no-credit"
"""The reason for which events are dropped, in metrics, once a hold has taken too long."""


class BlockingConsumer(DroppingConsumer):
    """Consumer of `on_slow='block'`: holds up publishers while events wait for it."""

    def __init__(self, session: Session, number: int, credit: int) -> None:
        super().__init__(session, number, credit)
        self.holding: dict[Session, None] = {}
        self.is_given_up = False  # it gives no credit, and holds nobody

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """As before, but note who published what waits."""
        super().deliver(batch, rows, positions)
        if self.waiting and not self.is_given_up:
            self._hold(batch, rows)

    def _hold(self, batch: Batch, rows: Rows) -> None:
        """Hold the publisher of a batch, if that ends with events that wait here."""
        broker = self.session.broker
        if broker.published is None or rows[-1] != len(batch) - 1:
            return
        handed, counters, publisher = broker.published
        if publisher is None:
            return
        is_numbered = batch.origin is publisher.origin or isinstance(batch.origin, ForwardedOrigin)
        if batch is not handed or not is_numbered:
            return  # what was put into a queue that is watched, or the rows of a sink
        first = _last_run(rows)
        publisher.hold(self, int(counters[first]), int(counters[-1]), goes_on=first == 0)
        self.holding[publisher] = None
        # One that held others before has no more time for that.
        broker.timers.by(broker.now + HOLD_S_MAX, self._give_up)

    def grant(self, total: int) -> None:
        """Send what waited; one that gives credit may hold publishers."""
        if total > self.total:
            self.is_given_up = False
            broker = self.session.broker
            if self._give_up in broker.timers:
                broker.timers.at(broker.now + HOLD_S_MAX, self._give_up)
        super().grant(total)

    def release(self) -> None:
        """Let the publishers go on when nothing waits any more."""
        super().release()
        if not self.waiting:
            self.close()

    def _give_up(self, _now: float) -> None:
        """No credit came for too long: nobody is held, and the oldest are dropped from now on."""
        self.is_given_up = True
        self.session.broker.count("holds_ended", reason=NO_CREDIT)
        self.close()
        self.trim()

    def close(self) -> None:
        """Release the publishers that wait for this subscription."""
        self.session.broker.timers.cancel(self._give_up)
        for publisher in self.holding:
            publisher.let_go(self)
        self.holding.clear()

    def lose(self, dropped: int, reason: str) -> None:
        """Count events that are dropped."""
        super().lose(dropped, NO_CREDIT if self.is_given_up else reason)

    @property
    def _limits(self) -> tuple[int, int]:
        """Room for what several publishers may have on its way before they are held."""
        return super()._limits if self.is_given_up else (BLOCKED_MAX, BLOCKED_SIZE_MAX)


def _last_run(rows: Rows) -> int:
    """The first of the rows that follow each other up to the last one."""
    place = len(rows) - 1
    while place and rows[place - 1] == rows[place] - 1:
        place -= 1
    return int(rows[place])
