"""Putting: the events of many clients in one statement, each of them once.

The last counter of each client is stored for each queue, with the refused counters, in the same transaction
as the messages. So an event that comes again, to this node or another, is not put again, though its message
was taken long ago; and one that was refused without its sender's knowledge is tried again.

While a queue is watched, each put writes a copy beside the message, so watchers see also messages that are
taken at once. Nodes read the copies when they are notified of a put, and delete them after a while. A node
that was away for longer misses some.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import LiteralString

from tidings.errors import QueueError, QueueFull, QueueNotFound, Refused, TidingsError
from tidings.ids import Origin
from tidings.postgres.catalog import Known
from tidings.postgres.connection import PUT, UnitOfWork
from tidings.postgres.schema import DELAYED
from tidings.protocol.ledger import ProducerKey, identity_of
from tidings.queues.description import DEAD, Description
from tidings.queues.message import MessageNumbers, QueuedMessage, check_length, completed, counter_of, sight
from tidings.queues.schedule import MARK, DeliveryPlan, check_plan, plan_of
from tidings.replies import Deferred
from tidings.seen import NumberGap, SeenNumbers
from tidings.store.packing import PLAIN, pack, unpack

REFUSED_MAX = 1_000
"""Refused counters that are stored for one client; the oldest are forgotten, and count as done."""
COPIES = 500
COPIES_BYTES = 4 << 20
"""Copies that are read at a time, and their bytes."""
COPIES_KEPT_S = 60
"""How long copies can be read."""

PutReply = tuple[Deferred[None], TidingsError | None]


class PutJob:
    """Events that one client puts into one queue, in their order."""

    __slots__ = ("address", "deadline", "origin", "raws", "replies", "size")

    def __init__(self, address: str, raws: list[bytes], origin: Origin | None) -> None:
        self.address = address
        self.raws = raws
        self.origin = origin
        self.replies: list[Deferred[None]] = [Deferred() for _ in raws]
        self.size = sum(map(len, raws))
        self.deadline: float | None = None  # it waits until the database is there

    def fail(self, error: TidingsError) -> None:
        """Fail all of them."""
        for reply in self.replies:
            reply.fail(error)


class ClientCounts:
    """Counters of the clients that put something in this turn."""

    def __init__(self, turn: UnitOfWork, queue: int, clients: Iterable[ProducerKey]) -> None:
        self._queue = queue
        self._seen = {client: SeenNumbers() for client in clients}
        self._changed: dict[ProducerKey, None] = {}
        wanted = list(self._seen)
        if wanted:
            found = turn.rows(
                "SELECT system, epoch, counter, refused FROM tidings.counted"
                " JOIN unnest(%b::text[], %b::bigint[]) AS wanted (system, epoch) USING (system, epoch)"
                " WHERE queue = %s",
                [system for system, _ in wanted],
                [epoch for _, epoch in wanted],
                queue,
            )
            for system, epoch, counter, refused in found:
                self._seen[system, epoch] = SeenNumbers(counter, map(NumberGap, refused, refused))

    def has(self, client: ProducerKey | None, counter: int) -> bool:
        """Whether an event was put before."""
        return client is not None and counter in self._seen[client]

    def count(self, client: ProducerKey | None, counter: int, is_refused: bool) -> None:
        """Note that it is put now, or is refused."""
        if client is None:
            return
        self._changed[client] = None
        seen = self._seen[client]
        if is_refused:
            seen.reopen(counter)
        elif counter <= seen.count_up(counter):
            seen.add(counter)

    def keep(self, turn: UnitOfWork) -> None:
        """Store the changes; most clients have no refused counters, and are stored together."""
        plain = [client for client in self._changed if not self._seen[client].gaps]
        if plain:
            turn.do(
                "INSERT INTO tidings.counted SELECT %s, system, epoch, counter, '{}', tidings.now_us()"
                " FROM unnest(%b::text[], %b::bigint[], %b::bigint[]) AS counted (system, epoch, counter)"
                + _RECOUNT,
                self._queue,
                [system for system, _ in plain],
                [epoch for _, epoch in plain],
                [self._seen[client].last for client in plain],
            )
        for client in self._changed:
            seen = self._seen[client]
            if seen.gaps:
                turn.do(
                    "INSERT INTO tidings.counted VALUES (%s, %s, %s, %s, %s::bigint[], tidings.now_us())"
                    + _RECOUNT,
                    self._queue,
                    *client,
                    seen.last,
                    [one for gap in seen.gaps for one in range(gap.first, gap.last + 1)][-REFUSED_MAX:],
                )


_RECOUNT: LiteralString = """
ON CONFLICT (queue, system, epoch) DO UPDATE
SET counter = excluded.counter, refused = excluded.refused, seen_us = excluded.seen_us
"""


def put_all(turn: UnitOfWork, known: Known, puts: Sequence[PutJob]) -> None:
    """Put events of several clients into one queue; QueueNotFound if that is deleted."""
    numbers = lock(turn, known)
    clients = {client for put in puts if (client := _client(put.origin)) is not None}
    counted = ClientCounts(turn, known.key, clients)
    room = _room(turn, known)
    messages: list[QueuedMessage] = []
    replies: list[PutReply] = []
    for put in puts:
        client, error = _client(put.origin), None
        for reply, raw in zip(put.replies, put.raws, strict=True):
            counter = counter_of(raw)
            if not counted.has(client, counter):
                error = error or _objection(known, raw, room - len(messages), numbers.last / 1e6)
                counted.count(client, counter, error is not None)
                if error is None:
                    messages.append(
                        QueuedMessage(numbers.next(0), completed(known.description, raw), put.origin)
                    )
                replies.append((reply, error))
            else:
                replies.append((reply, None))
    insert(turn, known, messages)
    counted.keep(turn)
    turn.after_commit(lambda: _reply(replies))


def _reply(replies: list[PutReply]) -> None:
    for reply, error in replies:
        reply.take(None, error)


def _client(origin: Origin | None) -> ProducerKey | None:
    return None if origin is None or origin.system is None else identity_of(origin)


def _objection(known: Known, raw: bytes, room: float, wall: float) -> TidingsError | None:
    """Return why an event can't be put; later ones of its sender can't be either, to keep their order."""
    try:
        check_length(raw)
        if MARK in raw:
            check_plan(plan_of(raw) or DeliveryPlan(), known.name, wall)
    except (Refused, QueueError) as error:
        return error
    if room > 0:
        return None
    most = known.description.max_messages
    return QueueFull(known.name, f"it holds {most} of at most {most} messages")


def lock(turn: UnitOfWork, known: Known) -> MessageNumbers:
    """Lock a queue against other puts until the turn is over; return the numbers of new messages."""
    row = turn.row("SELECT last, tidings.now_us() FROM tidings.queues WHERE key = %s FOR UPDATE", known.key)
    if row is None:
        raise QueueNotFound(known.name, "it was deleted")
    return MessageNumbers(max(row[0], row[1] - 1))


def _room(turn: UnitOfWork, known: Known) -> float:
    """Return how many more messages a locked queue may hold: others may take some away in the meantime."""
    most = known.description.max_messages
    if most is None:
        return float("inf")
    if known.description.expiry:
        turn.do(
            "DELETE FROM tidings.messages WHERE queue = %s AND number IN (SELECT number FROM tidings.messages"
            " WHERE queue = %s AND coalesce(holder, 0) = 0 AND expires_at <= tidings.now_us()"
            " FOR UPDATE SKIP LOCKED)",
            known.key,
            known.key,
        )
    # Counted each time: a count stored in a row would be one more row that all takers must wait for.
    held = turn.value(
        "SELECT count(*) FROM (SELECT 1 FROM tidings.messages WHERE queue = %s LIMIT %s) AS held",
        known.key,
        most,
    )
    return float(most - held)


def insert(turn: UnitOfWork, known: Known, messages: Sequence[QueuedMessage]) -> None:
    """Add messages, which have their numbers, to a locked queue."""
    if not messages:
        return
    description = known.description
    packings = [packed(description, one.raw) for one in messages]
    has_plans = known.name != DEAD
    plans = [plan_of(one.raw) if has_plans and MARK in one.raw else None for one in messages]
    origins = [one.origin or _NOBODY for one in messages]
    turn.do(
        "INSERT INTO tidings.messages"
        " (queue, number, place, raw, packing, size, system, epoch, source, expires_at, queue_group)"
        " SELECT %s, * FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[], %b::smallint[], %b::int[],"
        " %b::text[], %b::bigint[], %b::text[], %b::bigint[], %b::text[])",
        known.key,
        [one.number for one in messages],
        [known.kind.place(one) for one in messages],
        [data for _, data in packings],
        [packing for packing, _ in packings],
        [len(one.raw) for one in messages],
        [origin.system for origin in origins],
        [origin.epoch for origin in origins],
        [origin.source for origin in origins],
        [expires_at(description, one) for one in messages],
        [None if plan is None else plan.queue_group for plan in plans],
    )
    _delay(turn, known, [(one.number, plan) for one, plan in zip(messages, plans, strict=True) if plan])
    first, last = messages[0].number, messages[-1].number
    turn.do("UPDATE tidings.queues SET last = %s WHERE key = %s", last, known.key)
    if turn.row("SELECT 1 FROM tidings.watchers WHERE queue = %s LIMIT 1", known.key):
        turn.do(
            "INSERT INTO tidings.copies SELECT queue, number, raw, packing, size, system, epoch, source"
            " FROM tidings.messages WHERE queue = %s AND number >= %s",
            known.key,
            first,
        )
    turn.notice(PUT, known.key)


def _delay(turn: UnitOfWork, known: Known, planned: Sequence[tuple[int, DeliveryPlan]]) -> None:
    """Hold back new messages that are not due yet."""
    dues = {number: int(plan.due(number) * 1e6) for number, plan in planned}
    if dues:
        turn.do(
            "UPDATE tidings.messages SET holder = %s, held_until = due"
            " FROM unnest(%b::bigint[], %b::bigint[]) AS delayed (number, due)"
            " WHERE queue = %s AND messages.number = delayed.number AND due > tidings.now_us()",
            DELAYED,
            list(dues),
            list(dues.values()),
            known.key,
        )


_NOBODY = Origin()


def packed(description: Description, raw: bytes) -> tuple[int, bytes]:
    """Return the form of an event in the database, and its bytes there."""
    return pack(raw) if description.compress else (PLAIN, raw)


def expires_at(description: Description, message: QueuedMessage) -> int | None:
    """Return the microsecond at which a message expires."""
    ttl_s = sight(message).ttl_s if description.expiry else None
    return None if ttl_s is None else min(message.number + int(ttl_s * 1e6), 2**63 - 1)


def message_of(
    number: int, data: bytes, packing: int, system: str | None, epoch: int, source: str | None
) -> QueuedMessage:
    """Return the message of a row."""
    origin = None if system is None and source is None and not epoch else Origin(system, epoch, source)
    return QueuedMessage(number, unpack(packing, data), origin)


class Watched:
    """Queues that clients of this node watch, and the number up to which copies were read."""

    def __init__(self) -> None:
        self._read: dict[int, int] = {}

    def __contains__(self, queue: int) -> bool:
        return queue in self._read

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._read))

    def begin(self, turn: UnitOfWork, known: Known) -> int:
        """Begin a watch of a queue; return the last number that it will get no copy of."""
        lock(turn, known)  # a put in progress is either seen by now or copied
        last: int = turn.value("SELECT last FROM tidings.queues WHERE key = %s", known.key)
        self._enter(turn, known.key)
        self._read.setdefault(known.key, last)
        return last

    def _enter(self, turn: UnitOfWork, queue: int) -> None:
        turn.do(
            "INSERT INTO tidings.watchers SELECT key, %s FROM tidings.queues WHERE key = %s"
            " ON CONFLICT DO NOTHING",
            turn.life,
            queue,
        )

    def end(self, turn: UnitOfWork, queue: int) -> None:
        """End the watch of a queue here."""
        self._read.pop(queue, None)
        turn.do("DELETE FROM tidings.watchers WHERE queue = %s AND life = %s", queue, turn.life)

    def forget(self, queue: int) -> None:
        """Forget a deleted queue."""
        self._read.pop(queue, None)

    def resume(self, turn: UnitOfWork) -> None:
        """Begin the watches again on a new connection, and maybe in a new life."""
        for queue in list(self._read):
            self._enter(turn, queue)

    def read(self, turn: UnitOfWork, queue: int) -> list[QueuedMessage]:
        """Return the next copies that were not read; none if there are no more."""
        rows = turn.rows(
            """
            SELECT number, raw, packing, system, epoch, source FROM (
                SELECT *, sum(size) OVER (ORDER BY number) - size AS before FROM (
                    SELECT * FROM tidings.copies WHERE queue = %s AND number > %s ORDER BY number LIMIT %s
                ) AS page
            ) AS page WHERE before < %s ORDER BY number
            """,
            queue,
            self._read[queue],
            COPIES,
            COPIES_BYTES,
        )
        if rows:
            self._read[queue] = rows[-1][0]
        return [message_of(*row) for row in rows]
