"""Operations on a queue as a whole, and on messages that are not in flight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from msgspec.structs import replace

from tidings.errors import MessageNotHeld, QueueError
from tidings.event.header import EMPTY_HEADER
from tidings.filters import Filter
from tidings.postgres.catalog import Known
from tidings.postgres.connection import UnitOfWork
from tidings.postgres.putting import expires_at, message_of, packed
from tidings.postgres.readers import FIRST
from tidings.postgres.schema import DELAYED
from tidings.postgres.taking import PAGE, look_in_order
from tidings.queues.arguments import FindRequest
from tidings.queues.description import COUNTED, Description
from tidings.queues.message import QueuedMessage, event_bytes, sight
from tidings.timers import granted_s

_COUNTS = """
SELECT queue,
    count(*) FILTER (WHERE holder IS NULL AND (expires_at IS NULL OR expires_at > tidings.now_us())),
    count(*) FILTER (WHERE holder > 0),
    count(*) FILTER (WHERE holder < 0),
    count(DISTINCT queue_group)
FROM tidings.messages WHERE queue = ANY(%b::int[]) GROUP BY queue
"""


def describe(turn: UnitOfWork, queues: list[Known], waiting: dict[int, int]) -> list[Description]:
    """Return the descriptions and states of queues; `waiting` are the waiting readers of this node."""
    if not queues:
        return []
    counts = {row[0]: row[1:] for row in turn.rows(_COUNTS, [known.key for known in queues])}
    return [
        replace(
            known.description,
            **dict(zip(COUNTED, counts.get(known.key, (0, 0, 0, 0)), strict=False)),
            waiting=waiting.get(known.key, 0),
        )
        for known in queues
    ]


def agreeing(queues: Iterable[Known], sought: FindRequest) -> list[Known]:
    """Return the queues whose descriptions agree."""
    terms = sought.terms
    return [one for one in queues if one.description.agrees(terms)]


def purge(turn: UnitOfWork, known: Known, filter: Filter | None) -> int:
    """Purge all messages that match and are not in flight; return their number."""
    count = 0
    for page in chain(_pages(turn, known), _delayed_pages(turn, known)):
        numbers = [one.number for one in page if filter is None or filter.matches(sight(one))]
        if numbers:
            count += turn.do(
                "DELETE FROM tidings.messages WHERE queue = %s AND number IN (SELECT number"
                " FROM tidings.messages WHERE queue = %s AND number = ANY(%b::bigint[])"
                " AND coalesce(holder, 0) <= 0 FOR UPDATE SKIP LOCKED)",
                known.key,
                known.key,
                numbers,
            )
    return count


def renew(turn: UnitOfWork, known: Known, identity: str, lease_s: float) -> float:
    """Extend the lease of a message that is not in flight; return the granted lease. 0 ends it."""
    if lease_s and not known.description.expiry:
        raise QueueError(known.name, "its messages have no lease: it was made without expiry=True")
    message = _lock_message(turn, known, identity)
    granted = granted_s(lease_s, known.description.lease_s_max)
    if granted <= 0:
        turn.do("DELETE FROM tidings.messages WHERE queue = %s AND number = %s", known.key, message.number)
        return 0.0
    _prolong(turn, known, message, granted)
    return granted


def _lock_message(turn: UnitOfWork, known: Known, identity: str) -> QueuedMessage:
    filter = Filter("id = :id", id=identity)
    for page in _pages(turn, known):
        for message in page:
            if filter.matches(sight(message)) and turn.row(
                "SELECT 1 FROM tidings.messages WHERE queue = %s AND number = %s AND coalesce(holder, 0) = 0"
                " FOR UPDATE SKIP LOCKED",
                known.key,
                message.number,
            ):
                return message
    raise MessageNotHeld(known.name, f"there is no message {identity}, or it is in flight")


def _prolong(turn: UnitOfWork, known: Known, message: QueuedMessage, granted_s: float) -> None:
    now_us: int = turn.value("SELECT tidings.now_us()")
    event, ttl_s = message.event, (now_us - message.number) / 1e6 + granted_s
    event = replace(event, header=replace(event.header or EMPTY_HEADER, ttl_s=ttl_s))
    renewed = QueuedMessage(message.number, event_bytes(event), message.origin)
    packing, data = packed(known.description, renewed.raw)
    turn.do(
        "UPDATE tidings.messages SET raw = %s, packing = %s, size = %s, expires_at = %s"
        " WHERE queue = %s AND number = %s",
        data,
        packing,
        len(renewed.raw),
        expires_at(known.description, renewed),
        known.key,
        message.number,
    )


def _delayed_pages(turn: UnitOfWork, known: Known) -> Iterator[list[QueuedMessage]]:
    """Yield all messages that are not due yet."""
    last = 0
    while rows := turn.rows(
        "SELECT number, raw, packing, system, epoch, source FROM tidings.messages"
        " WHERE queue = %s AND number > %s AND coalesce(holder, 0) = %s ORDER BY number LIMIT %s",
        known.key,
        last,
        DELAYED,
        PAGE,
    ):
        yield [message_of(*row) for row in rows]
        last = rows[-1][0]


def _pages(turn: UnitOfWork, known: Known) -> Iterator[list[QueuedMessage]]:
    """Yield all messages that are not in flight, in their order."""
    place = FIRST
    while page := look_in_order(turn, known, place):
        yield [candidate.message for candidate in page]
        place = page[-1].place
