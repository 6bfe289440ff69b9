"""Periodic upkeep, done by whichever node comes first: none is in charge.

Messages that were held for too long, or by a node that is gone, are given back; expired messages, copies for
watchers and counters of clients long gone are deleted.
"""

from __future__ import annotations

from tidings.postgres.catalog import Catalog
from tidings.postgres.connection import Lives, claim, end
from tidings.postgres.schema import DELAYED
from tidings.postgres.settling import return_rows
from tidings.postgres.unit_of_work import UnitOfWork
from tidings.postgres.watching import KEPT_S
from tidings.queues.dead_letters import DEAD_MAX
from tidings.queues.description import DEAD

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
    return_rows(turn, catalog, late, True, "was held for too long")
    return_rows(turn, catalog, [row[1:] for row in rows if row[0] == DELAYED], True, "", delay_s=0.0)
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
        return_rows(turn, catalog, rows, False, "", is_doubted=True)


def return_untold(turn: UnitOfWork, catalog: Catalog, number: int) -> None:
    """Give back messages taken in a turn of ours that was never answered, as if they had not been taken."""
    rows = turn.rows(_HELD + " WHERE holder = %s AND turn = %s FOR UPDATE", turn.life, number)
    return_rows(turn, catalog, rows, False, "")


def drop_expired(turn: UnitOfWork) -> None:
    """Delete messages that have expired."""
    turn.do(
        "DELETE FROM tidings.messages WHERE (queue, number) IN (SELECT queue, number FROM tidings.messages"
        " WHERE expires_at <= tidings.now_us() AND coalesce(holder, 0) = 0 LIMIT %s FOR UPDATE SKIP LOCKED)",
        BATCH,
    )


def tidy(turn: UnitOfWork) -> None:
    """Delete rows that will not be needed any more."""
    turn.do("DELETE FROM tidings.copies WHERE number < tidings.now_us() - %s::bigint", KEPT_S * 1_000_000)
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
