"""Rates: the tokens of a queue are in one row, from which all nodes take them.

The row is locked from the count of the tokens until the turn is committed, so no token is taken twice. It is
not the row of the queue: so a put does not wait for readers. Only a queue with a rate has one. The clock is
that of the server.

Nothing else is locked after such a row but messages that no other turn has locked, and the rows of several
queues are locked in the order of their keys: so no two nodes wait for each other. One that deletes a queue
may wait for one that settles there, and the server ends that: then one of the two turns is done anew.
"""

from __future__ import annotations

from tidings.errors import QueueNotFound
from tidings.postgres.catalog import Known
from tidings.postgres.unit_of_work import UnitOfWork
from tidings.queues.rate import TokenBucket

REST_S_MIN = 0.02
"""Shortest pause of readers that wait for tokens: each look is a transaction, and a bucket holds more."""


class SharedTokens:
    """Tokens of a queue with a rate, locked by a turn."""

    def __init__(self, turn: UnitOfWork, known: Known, rate: float) -> None:
        row = turn.row(
            "SELECT tokens, counted_us, tidings.now_us() FROM tidings.rates WHERE queue = %s FOR UPDATE",
            known.key,
        )
        if row is None:
            raise QueueNotFound(known.name, "it was deleted")
        tokens, counted_us, self._now_us = row
        self._turn = turn
        self._key = known.key
        self._elapsed_s: float = max(0.0, (self._now_us - counted_us) / 1e6)
        self._is_set_back = self._now_us < counted_us
        self._bucket = TokenBucket(rate, 0.0, tokens)
        self.available = self._bucket.available(self._elapsed_s)

    def spend(self, count: int) -> float:
        """Take tokens; return the seconds for which readers have to wait, 0 if tokens are left."""
        self._bucket.take(count)
        if count or self._is_set_back:
            self._turn.do(
                "UPDATE tidings.rates SET tokens = %s, counted_us = %s WHERE queue = %s",
                self._bucket.tokens,
                self._now_us,
                self._key,
            )
        if count < self.available:
            return 0.0
        return max(self._bucket.wake_at - self._elapsed_s, REST_S_MIN)
