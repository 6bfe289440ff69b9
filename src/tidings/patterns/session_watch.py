"""Patterns of sessions: their events wait for the session's turn, and are used in its share of the time.

Publishers only put their events in here. While some wait, time stands still for the pattern: the watermark is
that of the moment when the oldest of them came, so nothing counts as late, or as absent, for having waited.
"""

from __future__ import annotations

from collections import Counter, deque

from tidings.event import Batch, Event
from tidings.patterns.matcher import TOO_MANY_WAITING, WAITING_MAX
from tidings.patterns.watching import UNUSED, Arrival, PatternWatch, UnusedRow
from tidings.protocol.consumer import MEMORY, Consumer
from tidings.protocol.frames import encode
from tidings.protocol.messages import Notice

STATE_SIZE_MAX = 128 << 20
"""Bytes of partial matches of all patterns of one session; past it, one that grows forgets its oldest."""


class SessionWatch(PatternWatch):
    """A pattern of a session, whose consumer gets the matches."""

    consumer: Consumer

    def begin(self, consumer: Consumer) -> None:
        """Have this consumer get the matches."""
        self.consumer, self.share = consumer, consumer.session.share
        self._waiting: deque[Arrival] = deque()
        self._row = 0  # of the first that waits, to go on with
        self.size = 0  # how many events wait
        self._lost: Counter[str] = Counter()  # events that were dropped, by reason
        self._weight = 0  # bytes of its state, as the session has been charged

    def arrive(self, arrival: Arrival) -> None:
        """Keep what has come for the session's turn; past a limit the oldest are dropped."""
        if arrival.positions is not None:
            self.consumer.depend()
        self._waiting.append(arrival)
        self.size += len(arrival.rows)
        self.consumer.session.hold_batch(arrival.batch)
        while self.size > WAITING_MAX:
            self._drop(TOO_MANY_WAITING)

    def step(self, most: int) -> bool:
        """Use about so many events, and find what is to be found in them; whether there are more."""
        self._use_waiting(most)
        now = self._waiting[0].now if self._waiting else self.consumer.session.broker.now
        is_left = self.advance(now, most) or bool(self._waiting)
        while self._weigh() > STATE_SIZE_MAX and self.matcher.partial:
            self._forget_match()
        return is_left

    def _use_waiting(self, most: float) -> None:
        while most > 0 and self._waiting:
            arrival, start = self._waiting[0], self._row
            rows = arrival.rows
            count = len(rows) - start
            if count > most:
                count = int(most)
                self._row = start + count
                rows = rows[start : self._row]
            else:
                self._forget_oldest()
                rows = rows[start:] if start else rows
            most -= count
            self.size -= count
            self.use(arrival, rows)

    def catch_up(self) -> None:
        """Use what has come so far, and report it: the state is about to move."""
        self._use_waiting(float("inf"))
        super().catch_up()

    def close(self) -> None:
        """Drop what has come, as the pattern has ended."""
        while self._waiting:
            self._forget_oldest()
        self.size = 0
        self.matcher.clear()
        self._weigh()

    def give_up(self) -> bool:
        """Part from the client whose pattern has failed, by a fault of the node; nothing is left."""
        self.close()
        self.consumer.session.give_up()
        return False

    def lose_oldest(self) -> bool:
        """Drop the oldest of what waits, or else of what is remembered; whether anything was dropped."""
        if self._drop(MEMORY):
            return True
        if not self.matcher.partial:
            return False
        self._forget_match()
        self._service.worked(self)
        return True

    def _drop(self, reason: str) -> bool:
        if not self._waiting:
            return False
        dropped = len(self._waiting[0].rows) - self._row
        self.size -= dropped
        self._lost[reason] += dropped
        self._forget_oldest()
        return True

    def _forget_oldest(self) -> None:
        self.consumer.session.holdings.remove(self._waiting.popleft().batch)
        self._row = 0

    def _forget_match(self) -> None:
        self._lost[MEMORY] += self.matcher.forget_oldest()
        self._weigh()

    def _weigh(self) -> int:
        """Have the session charged for the state; how many bytes those of all its patterns have."""
        session, size = self.consumer.session, self.matcher.size
        more = size - self._weight
        if more:
            self._weight = size
            session.holdings.size += more
            session.heavier()
        return self._service.charge(session, more)

    # What it has to say

    def finish(self) -> None:
        """Report what was found, and what was not used."""
        super().finish()
        if self._lost:
            lost, self._lost = self._lost, Counter()
            self._miss_all(lost)

    def report(self, matches: list[Event], unused: list[UnusedRow]) -> None:
        """Hand matches to the consumer; what was not used is a gap."""
        self.consumer.depend()
        if matches:
            batch = Batch.of(map(self.consumer.session.broker.own, matches))
            self.consumer.deliver(batch, range(len(batch)), None)
        self._miss_all(Counter(reason for _, reason in unused))
        self.changed.clear()

    def _miss_all(self, times: Counter[str]) -> None:
        for reason, number in times.items():
            self.consumer.session.broker.count(UNUSED, number, reason)
            self.miss(number, reason)

    def miss(self, times: int, reason: str) -> None:
        """Report a gap: so many events were not used, or an unknown number of matches is missing."""
        told = {"dropped": times, "reason": reason}
        self.consumer.session.post(encode(Notice("gap", self.consumer.number, told)), self.consumer.mark)
