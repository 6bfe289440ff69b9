"""Consumers: the events of a subscription leave the node at the pace its client can take.

A client gives each subscription credit, a number of events. What exceeds it waits here, within a limit, and
`on_slow` says what happens then:

| on_slow | what exceeds the limit |
| --- | --- |
| drop-oldest | the oldest that wait are dropped, and their number is reported to the client |
| latest | only the newest event for each value of one attribute waits |
| block | publishers get no acceptance until there is room again, so their windows fill |
| spill | events are stored and read back when there is credit (`stored_consumer.py`) |

`deliver` is on the hot path: it works on batches and plain calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Sequence, Sized
from operator import add
from typing import TYPE_CHECKING, Any

from tidings.event import Batch
from tidings.event.model import HEADER_READERS
from tidings.event.wire import HEAD_SIZE
from tidings.exchange import Need, Positions, Rows
from tidings.ids import ForwardedOrigin, Origin
from tidings.protocol.frames import encode, encode_head
from tidings.protocol.messages import Deliver, Notice
from tidings.protocol.outbox import ROOM

if TYPE_CHECKING:
    from tidings.protocol.incoming import IncomingStream
    from tidings.protocol.session import Session

WAITING_MAX = 10_000
"""Events that wait for the credit of one subscription."""
WAITING_SIZE_MAX = 8 << 20
"""Their bytes."""
CREDITED_SIZE_MAX = 64 << 20
"""Bytes that wait for a subscription that has credit, and whose client is slow to read."""
SHARED_SIZE_MIN = 16 << 10
"""Bytes of events from which on they are not copied for each subscription that gets all of a batch."""
MEMORY = "memory"
"""The reason for which events are dropped past a budget."""
BLOCKED_MAX = 1_000_000
"""Events that wait for a subscription that holds its publishers: what their windows have room for."""
BLOCKED_SIZE_MAX = 64 << 20
"""Their bytes."""
HOLD_S_MAX = 5.0
"""How long a subscription may hold publishers without giving credit."""
NO_CREDIT = "no-credit"
"""The reason for which events are dropped, in metrics, once a hold has taken too long."""

_NOTHING = Need.NOTHING


class Consumer(ABC):
    """A subscription's way to its client: numbers, credit and frames; each kind builds on it."""

    def __init__(self, session: Session, number: int, credit: int) -> None:
        self.session = session
        self.number = number
        self.total = credit
        self.sent = 0
        self._origin: Origin | None = None  # of the last plain delivery
        self._head: bytes | None = None  # kind and header of it, with the number
        self.lost = 0  # dropped and not reported yet
        self.size = 0  # bytes of what waits here
        self._why_lost = "slow"
        self.mark = 0  # of the last commit that anything taken depends on

    @property
    def credit(self) -> int:
        """Number of events that may be sent now."""
        return self.total - self.sent

    def grant(self, total: int) -> None:
        """The client can take so many events, counted from the beginning."""
        self.total = max(self.total, total)

    def need(self, count: int) -> Need:  # noqa: ARG002
        """Have nothing stored; see Sink."""
        return _NOTHING

    @abstractmethod
    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Take rows of a batch; see Sink."""

    def send(
        self, batch: Batch, rows: Rows, positions: Sequence[int] | None = None, redelivered: bool = False
    ) -> None:
        """Put rows into the outbox, in one frame; they are within the credit."""
        self.sent += len(rows)
        session = self.session
        if session.bound is not None:
            session.broker.answers.deliver(session.bound, batch, rows, session.broker.now)
        raw = batch.raw if len(rows) == len(batch) else batch.raw_of(rows)
        if batch.is_late:
            self._announce_late(len(rows), positions is not None)
        if positions is None and not redelivered and len(raw) < SHARED_SIZE_MIN:  # most often
            session.post(self._framed(batch.origin, raw), self.mark)
        else:
            self._send_whole(batch.origin, raw, positions, redelivered)

    def _announce_late(self, count: int, are_stored: bool) -> None:
        """Notify the client that the next delivery has events that were reported as missed."""
        mark = self.session.broker.promise if are_stored else self.mark
        self.session.post(encode(Notice("late", self.number, {"count": count})), mark)

    def report_missed(self, details: dict[str, Any]) -> None:
        """Report to the client a gap in the numbers of a node, at this node."""
        self.session.post(encode(Notice("gap", self.number, details)))

    def _send_whole(
        self, origin: Origin | None, raw: bytes, positions: Sequence[int] | None, redelivered: bool
    ) -> None:
        """Send with a header of its own what is stored, comes again, or is too large to be copied."""
        stored = None if positions is None else b"".join(p.to_bytes(8, "big") for p in positions)
        mark = self.mark if positions is None else self.session.broker.promise
        message = self._message(origin, stored, redelivered)
        if len(raw) >= SHARED_SIZE_MIN:
            self.session.post(encode_head(message, len(raw)), mark)
            self.session.post(raw, mark)
        else:
            self.session.post(encode(message, raw), mark)

    def _message(
        self, origin: Origin | None, stored: bytes | None = None, redelivered: bool = False
    ) -> Deliver:
        if origin is None:
            return Deliver(self.number, positions=stored, redelivered=redelivered)
        return Deliver(self.number, origin.system, origin.epoch, origin.source, stored, redelivered)

    def _framed(self, origin: Origin | None, raw: bytes) -> bytes:
        """A plain delivery; its header is the same from one to the next, and kept."""
        head = self._head
        if head is None or origin is not self._origin:
            head = self._head = encode(self._message(origin))[4:]
            self._origin = origin
        return b"%b%b%b" % ((len(head) + len(raw)).to_bytes(4, "big"), head, raw)

    def release(self) -> None:  # noqa: B027 - most kinds of it have something that waits
        """Go on with what waited for room in the outbox."""

    def lose_oldest(self) -> bool:
        """Drop the older half of what waits, as memory is short; whether anything was dropped."""
        return False

    def depend(self) -> None:
        """Let frames from now on wait for the commit of all that was done so far."""
        self.mark = self.session.broker.promise

    def lose(self, dropped: int, reason: str) -> None:
        """Count dropped events, to be reported when the client can take more."""
        self.lost += dropped
        self._why_lost = MEMORY if reason == MEMORY else "slow"
        self.session.broker.count("dropped", dropped, reason)

    def miss(self, dropped: int, reason: str) -> None:
        """Report that so many events were dropped before it was known which of them are wanted."""
        self.lost += dropped
        self._why_lost = MEMORY if reason == MEMORY else "slow"
        self.release()

    def report_gap(self) -> None:
        """Report to the client how many events were dropped since the last report, if any were."""
        if self.lost:
            notice = Notice("gap", self.number, {"dropped": self.lost, "reason": self._why_lost})
            self.session.post(encode(notice))
            self.lost = 0

    def end(self) -> None:  # noqa: B027 - most kinds of it have something that waits
        """The subscription ends, and what waits for it goes."""


class WaitingConsumer(Consumer):
    """Lets events wait for credit, and for room in the outbox."""

    waiting: Sized
    spare = 0, 0  # events that may wait beside those of the limits, and their bytes

    def expect(self, count: int, size: int) -> None:
        """Let so many events and bytes more wait than the limits say, until nothing waits."""
        self.spare = self.spare[0] + count, self.spare[1] + size

    @abstractmethod
    def _send_next(self) -> None:
        """Send the next of what waits, within the credit."""

    def grant(self, total: int) -> None:
        """Send what waited."""
        super().grant(total)
        self.release()

    def release(self) -> None:
        """Send as much of what waits as the credit allows and the outbox has room for."""
        if self.credit > 0:
            self.report_gap()
        while self.waiting and self.credit > 0:
            if not self.session.has_room:
                self.session.await_room(self)
                return
            self._send_next()
        if not self.waiting:
            self.spare = 0, 0


class DroppingConsumer(WaitingConsumer):
    """Lets go of the oldest events when too many wait."""

    def __init__(self, session: Session, number: int, credit: int) -> None:
        super().__init__(session, number, credit)
        self.waiting: deque[Batch] = deque()
        self.count = 0  # events that wait
        self._gone = 0  # events of the first batch that wait no longer

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Send what the credit allows and the outbox has room for, let the rest wait."""
        if positions is not None:
            self.depend()
        if not self.waiting and len(rows) <= self.total - self.sent and self.session.outbox.size < ROOM:
            self.send(batch, rows)
            return
        self._wait(batch.part(rows))  # a copy: one row must not keep a whole batch in memory
        self.release()
        self.trim()

    def trim(self) -> None:
        """Drop the oldest of what waits, as far as there is no room for it."""
        count_max, size_max = map(add, self._limits, self.spare)
        while self.count > count_max or self.size > size_max:
            _, gone = self._next(self._excess(count_max, size_max))
            self.lose(len(gone), "slow")

    def _send_next(self) -> None:
        self.send(*self._next(self.credit))

    def lose_oldest(self) -> bool:
        left = self.size // 2
        if not self.waiting:
            return False
        while self.waiting and self.size > left:
            _, gone = self._next(len(self.waiting[0]))
            self.lose(len(gone), MEMORY)
        return True

    def end(self) -> None:
        for part in self.waiting:
            self.session.holdings.remove(part)
        self.waiting.clear()

    def _wait(self, part: Batch) -> None:
        self.waiting.append(part)
        self.count += len(part)
        self.size += len(part.raw) - HEAD_SIZE
        self.session.hold_batch(part)

    def _next(self, most: int) -> tuple[Batch, range]:
        """The oldest events that wait, at most so many of them, out of the line."""
        part = self.waiting[0]
        rows = range(self._gone, min(self._gone + most, len(part)))
        self.count -= len(rows)
        if len(rows) == len(part):  # nobody has to know where each event begins
            self.size -= len(part.raw) - HEAD_SIZE
        else:
            self.size -= part.offsets[rows.stop] - part.offsets[rows.start]
        self._gone = rows.stop
        if self._gone == len(part):
            self.waiting.popleft()
            self._gone = 0
            self.session.holdings.remove(part)
        return part, rows

    def _excess(self, count_max: int, size_max: int) -> int:
        """Return how many of the oldest events must go, maybe more than the first batch has."""
        if self.count > count_max:
            return self.count - count_max
        offsets = self.waiting[0].offsets
        return bisect_left(offsets, offsets[self._gone] + self.size - size_max) - self._gone

    @property
    def _limits(self) -> tuple[int, int]:
        """Return how many events and bytes may wait: for room in the outbox, or else for credit."""
        credit = self.credit
        return (WAITING_MAX + credit, CREDITED_SIZE_MAX) if credit > 0 else (WAITING_MAX, WAITING_SIZE_MAX)


class BlockingConsumer(DroppingConsumer):
    """Consumer of `on_slow='block'`: holds up publishers while events wait for it, within limits.

    Acceptances are cumulative, so what is held is the acceptance of the events that a publisher sent last and
    that wait here. Whatever it does after them (a put, an acknowledgement, a commit, an event that this
    subscription does not want) is accepted at once, and with it what came before. So a publisher that sends
    nothing else is slowed down to the pace of the subscription; one that does other things as well is slowed
    down less or not at all, and past the limits the oldest events that wait are dropped.

    A hold is for those who make progress. A subscription that gives no credit for HOLD_S_MAX holds nobody any
    more: it drops events as `drop-oldest` does, until it gives credit again.

    Links hold publishers by the same means and by rules of their own: see `overlay/relaying.py`.
    """

    hold_reason = NO_CREDIT  # why a hold has ended, in metrics

    def __init__(self, session: Session, number: int, credit: int) -> None:
        super().__init__(session, number, credit)
        self.holding: dict[IncomingStream, None] = {}
        self.is_given_up = False  # it gives no credit, and holds nobody

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """As before, but note who published what waits."""
        super().deliver(batch, rows, positions)
        self.hold_back(batch, rows)

    def hold_back(self, batch: Batch, rows: Rows) -> None:
        """Hold the publisher of what was delivered, if too much waits."""
        if self._is_full and not self.is_given_up:
            self._hold(batch, rows)

    @property
    def _is_full(self) -> bool:
        """Whether publishers are to be held."""
        return bool(self.waiting)

    @property
    def _is_eased(self) -> bool:
        """Whether those that are held may go on."""
        return not self.waiting

    def _hold(self, batch: Batch, rows: Rows) -> None:
        """Hold the publisher of a batch, if that ends with events that wait here."""
        broker = self.session.broker
        published = broker.published
        if published is None or published.publisher is None or rows[-1] != len(batch) - 1:
            return
        publisher, counters = published.publisher, published.counters
        is_numbered = batch.origin is publisher.origin or isinstance(batch.origin, ForwardedOrigin)
        if batch is not published.batch or not is_numbered:
            return  # what was put into a queue that is watched, or the rows of a sink
        first = _last_run(rows)
        publisher.hold(self, int(counters[first]), int(counters[-1]), goes_on=first == 0)
        self.holding[publisher] = None
        # One that held others before has no more time for that.
        broker.timers.by(broker.now + HOLD_S_MAX, self._give_up)

    def grant(self, total: int) -> None:
        """Send what waited; one that gives credit may hold publishers."""
        if total > self.total:
            self._get_on()
        super().grant(total)

    def _get_on(self) -> None:
        """Note credit from the client, which may hold publishers for as long again."""
        self.is_given_up = False
        broker = self.session.broker
        if self._give_up in broker.timers:
            broker.timers.at(broker.now + HOLD_S_MAX, self._give_up)

    def release(self) -> None:
        """Let the publishers go on when nothing waits any more."""
        super().release()
        if self._is_eased:
            self._let_go()

    def _give_up(self, _now: float) -> None:
        """No credit came for too long: nobody is held, and the oldest are dropped from now on."""
        self.is_given_up = True
        self.session.broker.count("holds_ended", reason=self.hold_reason)
        self._let_go()
        self.trim()

    def end(self) -> None:
        super().end()
        self._let_go()

    def _let_go(self) -> None:
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
    if rows[-1] - rows[0] == len(rows) - 1:
        return int(rows[0])  # all of them, most often
    place = len(rows) - 1
    while place and rows[place - 1] == rows[place] - 1:
        place -= 1
    return int(rows[place])


class LatestConsumer(WaitingConsumer):
    """Keeps only the newest event for each value of one attribute."""

    def __init__(self, session: Session, number: int, credit: int, key: str) -> None:
        super().__init__(session, number, credit)
        self.waiting: dict[Hashable, Batch] = {}
        self._read: Callable[[Any], Any] = HEADER_READERS.get(key) or (lambda event: event.values.get(key))

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Send what the credit allows; what waits gives way to what is newer."""
        if positions is not None:
            self.depend()
        if not self.waiting and len(rows) <= self.credit and self.session.has_room:
            self.send(batch, rows)
            return
        events, read = batch.events, self._read
        for row in rows:
            self._wait(read(events[row]), batch.part((int(row),)))
        self.session.heavier()
        self.release()
        count, size = self.spare
        while len(self.waiting) > WAITING_MAX + count or self.size > WAITING_SIZE_MAX + size:
            self._next()
            self.lose(1, "slow")

    def _send_next(self) -> None:
        self.send(self._next(), (0,))

    def lose_oldest(self) -> bool:
        dropped = -(-len(self.waiting) // 2)
        for _ in range(dropped):
            self._next()
        self.lose(dropped, MEMORY)
        return dropped > 0

    def end(self) -> None:
        while self.waiting:
            self._next()

    def _wait(self, key: Hashable, newest: Batch) -> None:
        older = self.waiting.pop(key, None)  # taken out, so that the newest stands last
        if older is not None:
            self.size -= len(older.raw)
            self.session.holdings.remove(older)
        self.size += len(newest.raw)
        self.waiting[key] = newest
        self.session.holdings.add(newest)

    def _next(self) -> Batch:
        oldest = self.waiting.pop(next(iter(self.waiting)))
        self.size -= len(oldest.raw)
        self.session.holdings.remove(oldest)
        return oldest
