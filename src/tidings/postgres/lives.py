"""Which nodes are alive: each has a life, a row and a lock on its number, which ends with the connection.

A node whose connection was lost has the same life again, if it comes back before anybody has noticed that for
long; else its life is over, what it held was given back, and it begins another.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection, OperationalError

from tidings.postgres.schema import LOCK
from tidings.postgres.turn import Turn
from tidings.timers import Timers

RESUME_S = 3.0
"""How long the lock of a life may be free, by the clock of whoever watches, before that life is over."""


def enter(connection: Connection[tuple[Any, ...]], node: str, life: int | None) -> int:
    """The life of a node on a new connection: the one that it had, or another."""
    with connection.transaction(), connection.cursor() as cursor:
        turn = Turn(cursor, 0, 0)
        if life is not None:
            if not turn.value("SELECT pg_try_advisory_lock(%s, %s)", LOCK, life):
                raise OperationalError("the server has not noticed yet that the last connection is over")
            if turn.row("SELECT 1 FROM tidings.lives WHERE life = %s", life):
                return life
        # Locked before anybody can see it.
        begun: int = turn.value("INSERT INTO tidings.lives (node) VALUES (%s) RETURNING life", node)
        turn.value("SELECT pg_try_advisory_lock(%s, %s)", LOCK, begun)
        return begun


class Lives:
    """The lives whose locks are free, and until when their nodes may come back."""

    def __init__(self) -> None:
        self._missed: Timers[int] = Timers()

    def over(self, turn: Turn, now: float) -> list[int]:
        """Those that have been gone for too long."""
        rows = turn.rows(
            """
            SELECT life FROM tidings.lives WHERE life NOT IN (
                SELECT objid::int FROM pg_locks
                WHERE locktype = 'advisory' AND classid = %s AND objsubid = 2
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            )
            """,
            LOCK,
        )
        free = {life for (life,) in rows}
        for life in set(self._missed) - free:
            self._missed.cancel(life)
        for life in free:
            self._missed.by(now + RESUME_S, life)
        return list(self._missed.due(now))

    def forget(self) -> None:
        """The connection was lost: all locks were free when the server was away."""
        self._missed = Timers()


def end(turn: Turn, life: int) -> bool:
    """A life is over, unless its node has come back just now; all that it held must be given back first."""
    return bool(turn.do("DELETE FROM tidings.lives WHERE life = %s", life))


def claim(turn: Turn, life: int) -> bool:
    """Whether the lock of a life is free; it is ours until the end of the turn then."""
    return bool(turn.value("SELECT pg_try_advisory_xact_lock(%s, %s)", LOCK, life))
