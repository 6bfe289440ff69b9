"""Taking: all readers of one queue are served together, in the order in which they came.

The messages are visited in their order, page by page; each goes to the first reader in line that wants it,
and copies to those that only read. Then exactly the chosen ones are locked: messages that another node has
taken in the meantime are skipped. If no reader has a filter, the pages are locked as they are read, and only
the sizes are read of messages that are not taken.

A reader that may have several messages of a group has an owner; see `together.py`.

A reader with a filter that has seen everything is woken for new messages, and visits only these; if a message
comes back, it visits everything again. A long search pauses so that others have their turn.

The tokens of a queue with a rate are in one row, from which all nodes take them. It is locked from the count
of the tokens until the turn is committed, so no token is taken twice. It is not the row of the queue: so a
put does not wait for readers. The clock is that of the server. Nothing else is locked after such a row but
messages that no other turn has locked, and the rows of several queues are locked in the order of their keys:
so no two nodes wait for each other. One that deletes a queue may wait for one that settles there, and the
server ends that: then one of the two turns is done anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import LiteralString

from msgspec.structs import replace

from tidings.errors import QueueNotFound
from tidings.postgres import together
from tidings.postgres.catalog import Known
from tidings.postgres.connection import Row, UnitOfWork
from tidings.postgres.putting import message_of
from tidings.postgres.readers import CandidateRow, PostgresReader
from tidings.queues.backend import NOTHING, Delivered, GetReply
from tidings.queues.message import BYTES_EACH, QueuedMessage, event_bytes
from tidings.queues.schedule import TokenBucket
from tidings.queues.waiting import ANSWER_SIZE_MAX

PAGE = 500
"""Messages that are read at a time, if a reader has a filter."""
PAGE_BYTES = 4 << 20
PAGES_MAX = 20
"""Pages after which a search pauses."""
TAKEN_BYTES_MAX = 32 << 20
"""Bytes that are taken out of one queue in one turn, about."""
FIRST_MAX = 2 * ANSWER_SIZE_MAX // BYTES_EACH
"""Messages that are locked at a time, if no reader has a filter."""
REST_S_MIN = 0.02
"""Shortest pause of readers that wait for tokens: each look is a transaction, and a bucket holds more."""
UNLIMITED = 2**63
"""Messages that may be taken from a queue without a rate."""

_IN_TURN: LiteralString = """
(queue_group IS NULL OR NOT EXISTS (
    SELECT 1 FROM tidings.messages AS other
    WHERE other.queue = messages.queue AND other.queue_group = messages.queue_group
    AND other.number <> messages.number
    AND (other.holder > 0 OR (other.holder IS NULL AND other.place < messages.place)
        OR (other.holder < 0 AND other.deliveries > 0))
))
"""
"""Whether no other message of the group is in flight, pauses before its next delivery, or comes first."""
_FIRST: LiteralString = f"""
SELECT number, place, size FROM tidings.messages
WHERE queue = %s AND holder IS NULL AND place > %s AND (expires_at IS NULL OR expires_at > tidings.now_us())
AND {_IN_TURN}
ORDER BY place LIMIT %s FOR UPDATE SKIP LOCKED
"""
_IN_ORDER: LiteralString = f"""
SELECT number, place, size, in_turn, raw, packing, system, epoch, source FROM (
    SELECT *, sum(size) OVER (ORDER BY place) - size AS before FROM (
        SELECT *, {_IN_TURN} AS in_turn FROM tidings.messages
        WHERE queue = %s AND holder IS NULL AND place > %s
        AND (expires_at IS NULL OR expires_at > tidings.now_us())
        ORDER BY place LIMIT %s
    ) AS page
) AS page WHERE before < %s ORDER BY place
"""
_NEW: LiteralString = f"""
SELECT number, place, size, in_turn, raw, packing, system, epoch, source FROM (
    SELECT *, sum(size) OVER (ORDER BY number) - size AS before FROM (
        SELECT *, {_IN_TURN} AS in_turn FROM tidings.messages
        WHERE queue = %s AND coalesce(holder, 0) = 0 AND number > %s
        AND (expires_at IS NULL OR expires_at > tidings.now_us())
        ORDER BY number LIMIT %s
    ) AS page
) AS page WHERE before < %s ORDER BY place
"""
_LOCK = """
SELECT number FROM tidings.messages
WHERE queue = %s AND number = ANY(%b::bigint[]) AND coalesce(holder, 0) = 0
FOR UPDATE SKIP LOCKED
"""
_TAKE = """
UPDATE tidings.messages SET holder = %s, turn = %s, deliveries = deliveries + 1,
    held_until = tidings.now_us() + %s::bigint, owner = NULL
WHERE queue = %s AND number = ANY(%b::bigint[])
RETURNING number, raw, packing, system, epoch, source, deliveries, doubted
"""


class QueueWalk:
    """One walk over a queue on behalf of a line of readers, which may take `room` messages."""

    def __init__(self, turn: UnitOfWork, known: Known, line: Sequence[PostgresReader], room: int) -> None:
        self.room = room
        self._turn = turn
        self._known = known
        self._readers = line
        self._line = list(line)
        self._is_over = False  # everything was visited
        self._place = min(reader.place for reader in line)
        self._is_together = any(one.owner is not None for one in line) and together.has_groups(turn, known)
        self._is_choosy = self._is_together or any(reader.is_choosy for reader in line)
        self._seen = min(reader.seen for reader in line)
        self._taken_bytes = 0

    def run(self, last: int) -> None:
        """Visit page after page while a reader wants more; `last` is the last number there is."""
        for _ in range(PAGES_MAX):
            self._line = [one for one in self._line if not (one.is_content or self._is_throttled(one))]
            if not self._line or self._is_over or self._taken_bytes >= TAKEN_BYTES_MAX:
                break
            self._look_on()
        self._pause(last)

    def _is_throttled(self, reader: PostgresReader) -> bool:
        """Whether the rate of the queue lets a reader have no more."""
        return not (self.room or reader.is_copier)

    def _look_on(self) -> None:
        if not self._is_choosy:
            page = self._first()
        elif self._seen:
            page = self._new()
        else:
            page = self._in_order()
        if self._is_together:
            page = together.joined(self._turn, self._known, page)
        promised = self._promise(page)
        if promised:
            self._take(promised)

    def _first(self) -> list[CandidateRow]:
        wanted = sum(reader.wanted.count - len(reader.taken) for reader in self._line)
        limit = min(wanted, FIRST_MAX, self.room)
        rows = self._turn.rows(_FIRST, self._known.key, self._place, limit)
        self._is_over = len(rows) < limit
        return [CandidateRow(*row) for row in rows]

    def _in_order(self) -> list[CandidateRow]:
        page = look_in_order(self._turn, self._known, self._place)
        self._is_over = not page
        return page

    def _new(self) -> list[CandidateRow]:
        """Return new messages; more than a page of them must be visited in the order of the queue."""
        page = _page(self._turn.rows(_NEW, self._known.key, self._seen, PAGE, PAGE_BYTES))
        self._seen = 0
        if len(page) == PAGE or sum(one.length for one in page) >= PAGE_BYTES:
            return []
        self._is_over = True
        return page

    def _promise(self, page: list[CandidateRow]) -> dict[int, PostgresReader]:
        """Assign the messages of a page to readers."""
        promised: dict[int, PostgresReader] = {}
        line = list(self._line)
        for candidate in page:
            if self._taken_bytes >= TAKEN_BYTES_MAX or not line:
                self._is_over = False
                break
            self._place = candidate.place
            taker = self._offer(candidate, line)
            if taker is not None:
                promised[candidate.number] = taker
                if taker.is_content:
                    line.remove(taker)
        return promised

    def _offer(self, candidate: CandidateRow, line: list[PostgresReader]) -> PostgresReader | None:
        """Return the first in line that takes a message; those before it that only read get a copy."""
        for reader in line:
            if not self._is_throttled(reader) and reader.wants(candidate):
                self._taken_bytes += candidate.size
                if not reader.is_copier:
                    self.room -= 1
                    reader.take(candidate)
                    return reader
                reader.take(candidate, _hand(candidate.message, 0, False, reader))
        return None

    def _take(self, promised: dict[int, PostgresReader]) -> None:
        """Take promised messages, as far as no other node has."""
        key, wait_s = self._known.key, self._known.description.redelivery_s
        wait_us = None if wait_s is None else int(wait_s * 1e6)
        turn, numbers = self._turn, list(promised)
        if self._is_choosy:
            locked = {number for (number,) in turn.rows(_LOCK, key, numbers)}
            numbers = together.unbroken(promised, locked) if self._is_together else list(locked)
        rows = turn.rows(_TAKE, turn.life, turn.number, wait_us, key, numbers)
        for number, raw, packing, system, epoch, source, delivery, doubted in rows:
            reader = promised.pop(number)
            message = message_of(number, raw, packing, system, epoch, source)
            hand = _hand(message, delivery, delivery > 1 or doubted, reader)
            reader.taken[number] = reader.taken[number][0], hand
        for number, reader in promised.items():
            self.room += 1
            reader.lose(number)
        if self._is_together:
            together.own(turn, self._known, self._line)

    def _pause(self, last: int) -> None:
        """Let readers that want more go on from here later, or note that they have seen everything.

        Those that the rate lets have no more have not seen the rest: they stay where they were.
        """
        for reader in self._readers:
            if reader.is_content:
                continue
            if self._is_throttled(reader):
                reader.is_searching = reader.is_searching and reader.waits
            elif self._is_over:
                reader.look_again(last)
            else:
                reader.is_searching = True
                reader.place = max(reader.place, self._place)
                reader.seen = 0


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


def look_in_order(turn: UnitOfWork, known: Known, place: int) -> list[CandidateRow]:
    """Return the next messages after a place that are not in flight; none if there are no more."""
    return _page(turn.rows(_IN_ORDER, known.key, place, PAGE, PAGE_BYTES))


def _page(rows: list[Row]) -> list[CandidateRow]:
    return [
        CandidateRow(number, place, size, in_turn, tuple(columns))
        for number, place, size, in_turn, *columns in rows
    ]


def serve(turn: UnitOfWork, known: Known, readers: Sequence[PostgresReader]) -> float:
    """Serve readers with available messages, and reply to those that got some or do not wait.

    Return the seconds until the rate of the queue allows more messages, 0 if it does now. QueueNotFound if
    the queue is deleted.
    """
    row = turn.row("SELECT last FROM tidings.queues WHERE key = %s", known.key)
    if row is None:
        raise QueueNotFound(known.name, "it was deleted")
    rest_s = _walk(turn, known, readers, row[0])
    for reader in readers:
        if is_served(reader):
            answer(turn, known, reader, row[0])
    return rest_s


def _walk(turn: UnitOfWork, known: Known, readers: Sequence[PostgresReader], last: int) -> float:
    """Let readers take what they want, as far as the rate allows it; return the seconds until it does."""
    rate = known.description.rate
    if rate is None or all(reader.is_copier for reader in readers):
        QueueWalk(turn, known, readers, UNLIMITED).run(last)
        return 0.0
    tokens = SharedTokens(turn, known, rate)
    walk = QueueWalk(turn, known, readers, tokens.available)
    walk.run(last)
    return tokens.spend(tokens.available - walk.room)


def is_served(reader: PostgresReader) -> bool:
    """Whether a reader is neither to wait nor to search on."""
    return bool(reader.taken) or not (reader.waits or reader.is_searching)


def answer(turn: UnitOfWork, known: Known, reader: PostgresReader, last: int) -> None:
    """Reply to a reader with its messages, when this is committed."""
    hands = [hand for _, hand in reader.taken.values() if hand is not None]
    place = None
    if reader.is_copier and reader.is_content:
        place = next(reversed(reader.taken.values()))[0].place
    handed = GetReply(hands, last, place, known.description.redelivery_s)
    turn.tell(partial(reader.reply.resolve, handed))


def tell_nothing(reader: PostgresReader) -> None:
    """Reply without messages to a reader that has waited for long enough."""
    reader.reply.resolve(replace(NOTHING, last=reader.seen))


def _hand(message: QueuedMessage, delivery: int, redelivered: bool, reader: PostgresReader) -> Delivered:
    """Return a message as it is delivered."""
    origin = message.origin
    sender = (None, 0, None) if origin is None else (origin.system, origin.epoch, origin.source)
    raw = message.raw if reader.wanted.bodies else event_bytes(replace(message.event, body=None))
    return Delivered(message.number, delivery, redelivered, *sender, 0, raw)
