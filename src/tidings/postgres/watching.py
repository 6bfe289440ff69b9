"""Watching: copies of all puts into a queue, also of messages that are taken at once.

While a queue is watched, each put writes a copy beside the message. Nodes read the copies when they are
notified of a put, and delete them after a while. A node that was away for longer misses some.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidings.postgres.catalog import Known
from tidings.postgres.putting import lock
from tidings.postgres.settling import message_of
from tidings.postgres.unit_of_work import UnitOfWork
from tidings.queues.message import QueuedMessage

COPIES = 500
COPIES_BYTES = 4 << 20
"""Copies that are read at a time, and their bytes."""
KEPT_S = 60
"""How long copies can be read."""


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
