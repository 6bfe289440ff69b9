"""Settlement of messages in flight: acknowledged, given back, or put among the dead letters.

Readers settle what they got. Periodic upkeep is done by whichever node comes first, as none is in charge: it
gives back messages that were held for too long, or by a node that is gone, and deletes expired messages,
copies for watchers and counters of clients long gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct, field

from tidings.errors import MessageNotHeld, QueueNotFound, TidingsError
from tidings.ids import Origin
from tidings.postgres.catalog import Catalog, Known
from tidings.postgres.connection import RETURNED, Lives, Row, UnitOfWork, claim, end
from tidings.postgres.putting import COPIES_KEPT_S, insert, lock, message_of
from tidings.postgres.schema import DELAYED
from tidings.protocol.messages import DONE, GIVE_BACK, REJECT
from tidings.queues.dead_letters import DEAD_MAX, letter_of
from tidings.queues.description import DEAD
from tidings.queues.message import QueuedMessage
from tidings.queues.schedule import pause_s
from tidings.replies import Deferred

REASON_REJECTED = "rejected"
BATCH = 1_000
"""Messages that are processed in one turn."""
UPKEEP_S = 1.0
"""Time between two checks for due messages."""
TIDY_S = 60.0
"""Time between two deletions of old rows."""
COUNTED_KEPT_S = 30 * 86_400
"""How long the counter of a client that puts nothing into a queue is kept there."""

_HELD = (
    "SELECT queue, number, deliveries, coalesce(expires_at <= tidings.now_us(), false) FROM tidings.messages"
)


class SettleJob(Struct, eq=False):
    """Settlement of one message by one reader."""

    address: str
    number: int
    delivery: int
    outcome: int
    text: str
    delay_s: float | None = None
    reply: Deferred[None] = field(default_factory=Deferred)
    deadline: float | None = None
    life: int | None = None  # in which it was tried before, and may have been done

    def fail(self, error: TidingsError) -> None:
        """Give it an error instead of a reply."""
        self.reply.fail(error)


class LockedMessage(NamedTuple):
    """Message in flight, locked by this turn."""

    number: int
    delivery: int
    is_expired: bool


def settle_all(turn: UnitOfWork, catalog: Catalog, known: Known, settles: Sequence[SettleJob]) -> None:
    """Settle messages that our own readers have got from one queue."""
    done = [one for one in settles if one.outcome == DONE]
    held = _finish(turn, known, done) if done else set()
    for one in (one for one in settles if one.outcome != DONE):
        hand = _held(turn, known, one)
        if hand is not None:
            held.add((one.number, one.delivery))
            _conclude(turn, catalog, known, one, hand)
    verdicts = [(one.reply, _verdict(turn, known, one, held)) for one in settles]
    for reply, error in verdicts:
        turn.after_commit(partial(reply.take, None, error))


def _finish(turn: UnitOfWork, known: Known, settles: Sequence[SettleJob]) -> set[tuple[int, int]]:
    """Delete acknowledged messages; return those that were ours."""
    rows = turn.rows(
        "DELETE FROM tidings.messages USING unnest(%b::bigint[], %b::int[]) AS done (number, delivery)"
        " WHERE queue = %s AND messages.number = done.number AND deliveries = done.delivery"
        " AND coalesce(holder, 0) = %s RETURNING messages.number, deliveries, queue_group IS NOT NULL",
        [one.number for one in settles],
        [one.delivery for one in settles],
        known.key,
        turn.life,
    )
    if any(is_grouped for _, _, is_grouped in rows):
        turn.notice(RETURNED, known.key)  # the next of the group is available
    return {(number, delivery) for number, delivery, _ in rows}


def _held(turn: UnitOfWork, known: Known, settle: SettleJob) -> LockedMessage | None:
    row = turn.row(
        "SELECT number, deliveries, coalesce(expires_at <= tidings.now_us(), false) FROM tidings.messages"
        " WHERE queue = %s AND number = %s AND deliveries = %s AND coalesce(holder, 0) = %s FOR UPDATE",
        known.key,
        settle.number,
        settle.delivery,
        turn.life,
    )
    return None if row is None else LockedMessage(*row)


def _conclude(
    turn: UnitOfWork, catalog: Catalog, known: Known, settle: SettleJob, hand: LockedMessage
) -> None:
    if settle.outcome == REJECT:
        bury(turn, catalog, known, hand, settle.text or REASON_REJECTED)
    else:
        counts = settle.outcome == GIVE_BACK
        give_back(turn, catalog, known, [hand], counts, settle.text, delay_s=settle.delay_s)


def _verdict(
    turn: UnitOfWork, known: Known, settle: SettleJob, held: set[tuple[int, int]]
) -> TidingsError | None:
    if (settle.number, settle.delivery) in held:
        return None
    if settle.life == turn.life:
        return None  # no other node has ended that life, so it was done when the connection was lost
    return MessageNotHeld(known.name, "the message is not in flight to this client, or not any more")


def give_back(
    turn: UnitOfWork,
    catalog: Catalog,
    known: Known,
    hands: Sequence[LockedMessage],
    counts: bool,
    reason: str = "",
    is_doubted: bool = False,
    delay_s: float | None = None,
) -> None:
    """Return messages to their old places, or after too many deliveries to the dead letters.

    They wait for `delay_s` before; None: for the pause of the queue after so many deliveries.
    """
    most, pauses = known.description.deliveries_max, known.description.retry_s
    back: list[int] = []
    waits_us: list[int] = []
    for hand in hands:
        if hand.is_expired:
            _delete(turn, known, hand.number)
        elif counts and most is not None and hand.delivery >= most:
            bury(turn, catalog, known, hand, reason or f"was handed out {hand.delivery} times")
        else:
            wait_s = delay_s
            if wait_s is None:
                wait_s = pause_s(pauses, hand.number, hand.delivery) if counts and pauses else 0.0
            back.append(hand.number)
            waits_us.append(int(wait_s * 1e6))
    if back:
        turn.do(
            "UPDATE tidings.messages SET holder = CASE WHEN wait > 0 THEN %s END, turn = NULL,"
            " held_until = CASE WHEN wait > 0 THEN tidings.now_us() + wait END,"
            " deliveries = deliveries - %s, doubted = doubted OR %s"
            " FROM unnest(%b::bigint[], %b::bigint[]) AS back (number, wait)"
            " WHERE queue = %s AND messages.number = back.number",
            DELAYED,
            0 if counts else 1,
            is_doubted,
            back,
            waits_us,
            known.key,
        )
        turn.notice(RETURNED, known.key)


def bury(turn: UnitOfWork, catalog: Catalog, known: Known, hand: LockedMessage, reason: str) -> None:
    """Move a message to the dead letters of the database; a duplicate there is dropped."""
    if known.name != DEAD:
        row = turn.row(
            "SELECT number, raw, packing, system, epoch, source FROM tidings.messages"
            " WHERE queue = %s AND number = %s",
            known.key,
            hand.number,
        )
        assert row is not None  # it is locked
        message = message_of(*row)
        _send_letter(turn, catalog, letter_of(message, known.name, reason, hand.delivery), message.origin)
    _delete(turn, known, hand.number)


def _send_letter(turn: UnitOfWork, catalog: Catalog, letter: bytes, origin: Origin | None) -> None:
    dead = catalog.dead(turn)
    try:
        numbers = lock(turn, dead)
    except QueueNotFound:  # another node has just deleted it
        catalog.forget(dead.key)
        dead = catalog.dead(turn)
        numbers = lock(turn, dead)
    insert(turn, dead, [QueuedMessage(numbers.next(0), letter, origin)])


def _delete(turn: UnitOfWork, known: Known, number: int) -> None:
    row = turn.row(
        "DELETE FROM tidings.messages WHERE queue = %s AND number = %s RETURNING queue_group IS NOT NULL",
        known.key,
        number,
    )
    if row is not None and row[0]:
        turn.notice(RETURNED, known.key)  # the next of the group is available


def _return_rows(
    turn: UnitOfWork,
    catalog: Catalog,
    rows: Sequence[Row],
    counts: bool,
    reason: str,
    is_doubted: bool = False,
    delay_s: float | None = None,
) -> None:
    """Give back messages of any queues: rows of queue, number, deliveries, and whether they have expired."""
    queues: dict[int, list[LockedMessage]] = {}
    for queue, *hand in rows:
        queues.setdefault(queue, []).append(LockedMessage(*hand))
    for queue, hands in queues.items():
        give_back(turn, catalog, catalog.of(turn, queue), hands, counts, reason, is_doubted, delay_s)


# Upkeep


def return_due(turn: UnitOfWork, catalog: Catalog) -> float:
    """Give back messages held for too long, and delayed ones that are due; return the seconds until the next.

    That is UPKEEP_S at most.
    """
    rows = turn.rows(
        "SELECT holder, queue, number, deliveries, coalesce(expires_at <= tidings.now_us(), false)"
        " FROM tidings.messages WHERE held_until <= tidings.now_us()"
        " ORDER BY held_until LIMIT %s FOR UPDATE SKIP LOCKED",
        BATCH,
    )
    late = [row[1:] for row in rows if row[0] != DELAYED]
    _return_rows(turn, catalog, late, True, "was held for too long")
    _return_rows(turn, catalog, [row[1:] for row in rows if row[0] == DELAYED], True, "", delay_s=0.0)
    due = turn.value("SELECT min(held_until) - tidings.now_us() FROM tidings.messages WHERE held_until > 0")
    return UPKEEP_S if due is None else min(max(due / 1e6, 0.0), UPKEEP_S)


def return_lost(turn: UnitOfWork, catalog: Catalog, lives: Lives, now: float) -> None:
    """Give back messages of nodes that are gone; that is no delivery, but they may have been read."""
    for life in lives.over(turn, now):
        if claim(turn, life):
            return_all(turn, catalog, life)
            end(turn, life)


def return_all(turn: UnitOfWork, catalog: Catalog, life: int) -> None:
    """Give back all messages of a life."""
    while rows := turn.rows(_HELD + " WHERE holder = %s LIMIT %s FOR UPDATE", life, BATCH):
        _return_rows(turn, catalog, rows, False, "", is_doubted=True)


def return_unconfirmed(turn: UnitOfWork, catalog: Catalog, number: int) -> None:
    """Give back messages taken in a turn of ours that was never answered, as if they had not been taken."""
    rows = turn.rows(_HELD + " WHERE holder = %s AND turn = %s FOR UPDATE", turn.life, number)
    _return_rows(turn, catalog, rows, False, "")


def drop_expired(turn: UnitOfWork) -> None:
    """Delete messages that have expired."""
    turn.do(
        "DELETE FROM tidings.messages WHERE (queue, number) IN (SELECT queue, number FROM tidings.messages"
        " WHERE expires_at <= tidings.now_us() AND coalesce(holder, 0) = 0 LIMIT %s FOR UPDATE SKIP LOCKED)",
        BATCH,
    )


def tidy(turn: UnitOfWork) -> None:
    """Delete rows that will not be needed any more."""
    turn.do(
        "DELETE FROM tidings.copies WHERE number < tidings.now_us() - %s::bigint", COPIES_KEPT_S * 1_000_000
    )
    turn.do(
        "DELETE FROM tidings.counted WHERE seen_us < tidings.now_us() - %s::bigint",
        COUNTED_KEPT_S * 1_000_000,
    )
    turn.do(
        "DELETE FROM tidings.messages WHERE holder IS NULL AND queue = (SELECT key FROM tidings.queues"
        " WHERE name = %s) AND place <= (SELECT place FROM tidings.messages WHERE holder IS NULL AND queue ="
        " (SELECT key FROM tidings.queues WHERE name = %s) ORDER BY place DESC OFFSET %s LIMIT 1)",
        DEAD,
        DEAD,
        DEAD_MAX,
    )
