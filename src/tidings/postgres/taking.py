"""Taking: all readers of one queue are served together, in the order in which they came.

The messages are visited in their order, page by page; each goes to the first reader in line that wants it,
and copies to those that only read. Then exactly the chosen ones are locked: messages that another node has
taken in the meantime are skipped. If no reader has a filter, the pages are locked as they are read, and only
the sizes are read of messages that are not taken.

A client that takes all there is may have several messages of a group. It is the *owner* of these then, and
its name is stored with them. It may have a message that is not the first of its group if it gets the one
before that too, or if it owns all messages of the group that are in flight. If another node has taken one of
them in the meantime, those that follow stay where they are.

A reader with a filter that has seen everything is woken for new messages, and visits only these; if a message
comes back, it visits everything again. A long search pauses so that others have their turn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import LiteralString

from msgspec.structs import replace

from tidings.errors import QueueNotFound
from tidings.postgres.catalog import Known, SharedTokens
from tidings.postgres.connection import Row, UnitOfWork
from tidings.postgres.putting import message_of
from tidings.postgres.readers import CandidateRow, PostgresReader
from tidings.queues.backend import NOTHING, Delivered, GetReply
from tidings.queues.message import BYTES_EACH, QueuedMessage, event_bytes
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


_HAS_GROUPS = "SELECT 1 FROM tidings.messages WHERE queue = %s AND queue_group IS NOT NULL LIMIT 1"
_FOLLOWED = """
SELECT number, (
    SELECT number FROM tidings.messages AS other
    WHERE other.queue = messages.queue AND other.queue_group = messages.queue_group
    AND other.holder IS NULL AND other.place < messages.place
    ORDER BY place DESC LIMIT 1
) FROM tidings.messages WHERE queue = %s AND number = ANY(%b::bigint[])
"""
_OWNERS = """
SELECT here.number, min(other.owner) FROM tidings.messages AS here JOIN tidings.messages AS other
ON other.queue = here.queue AND other.queue_group = here.queue_group AND other.number <> here.number
WHERE here.queue = %s AND here.number = ANY(%b::bigint[])
AND (other.holder > 0 OR (other.holder < 0 AND other.deliveries > 0))
GROUP BY here.number
HAVING bool_and(other.holder > 0 AND other.owner IS NOT NULL) AND min(other.owner) = max(other.owner)
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
        is_owned = any(one.owner is not None for one in line)
        self._is_together = is_owned and turn.row(_HAS_GROUPS, known.key) is not None
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
            page = look_in_order(self._turn, self._known, self._place)
            self._is_over = not page
        if self._is_together:
            page = _joined(self._turn, self._known, page)
        promised = self._promise(page)
        if promised:
            self._take(promised)

    def _first(self) -> list[CandidateRow]:
        wanted = sum(reader.wanted.count - len(reader.taken) for reader in self._line)
        limit = min(wanted, FIRST_MAX, self.room)
        rows = self._turn.rows(_FIRST, self._known.key, self._place, limit)
        self._is_over = len(rows) < limit
        return [CandidateRow(*row) for row in rows]

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
            numbers = unbroken(promised, locked) if self._is_together else list(locked)
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
            _own(turn, self._known, self._line)

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


def _joined(turn: UnitOfWork, known: Known, page: Sequence[CandidateRow]) -> list[CandidateRow]:
    """Return a page in which messages of a group name the one before them, or the owner of those before."""
    behind = [one.number for one in page if not one.is_in_turn]
    if not behind:
        return list(page)
    followed: dict[int, int | None] = dict(turn.rows(_FOLLOWED, known.key, behind))
    first = [number for number, before in followed.items() if before is None]
    owners: dict[int, str] = dict(turn.rows(_OWNERS, known.key, first)) if first else {}
    return [one._replace(follows=followed.get(one.number), owner=owners.get(one.number)) for one in page]


def unbroken(promised: Mapping[int, PostgresReader], locked: Collection[int]) -> list[int]:
    """Return those of the promised messages, in their order, that are locked and follow no lost one."""
    lost: set[int | None] = set()  # never None: the first of a group follows no other
    for number, reader in promised.items():
        candidate, _ = reader.taken[number]
        if number not in locked or candidate.follows in lost:
            lost.add(number)
    return [number for number in promised if number not in lost]


def _own(turn: UnitOfWork, known: Known, readers: Sequence[PostgresReader]) -> None:
    """Make clients the owners of the messages that they have taken."""
    for reader in readers:
        if reader.owner is not None and reader.taken:
            turn.do(
                "UPDATE tidings.messages SET owner = %s WHERE queue = %s AND number = ANY(%b::bigint[])"
                " AND queue_group IS NOT NULL AND owner IS NULL",
                reader.owner,
                known.key,
                list(reader.taken),
            )


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
    turn.after_commit(partial(reader.reply.resolve, handed))


def answer_nobody(reader: PostgresReader) -> None:
    """Reply without messages to a reader that has waited for long enough."""
    reader.reply.resolve(replace(NOTHING, last=reader.seen))


def _hand(message: QueuedMessage, delivery: int, redelivered: bool, reader: PostgresReader) -> Delivered:
    """Return a message as it is delivered."""
    origin = message.origin
    sender = (None, 0, None) if origin is None else (origin.system, origin.epoch, origin.source)
    raw = message.raw if reader.wanted.bodies else event_bytes(replace(message.event, body=None))
    return Delivered(message.number, delivery, redelivered, *sender, 0, raw)
