"""One transaction on behalf of many jobs: its changes, notifications, and the replies after it.

No reply is sent and no reader is woken before the commit; if that fails, all of it is done anew. Notices go
to all nodes by NOTIFY, in the same transaction, and to our own readers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple

from psycopg import Cursor

if TYPE_CHECKING:
    from tidings.postgres.catalog import Known

CHANNEL = "tidings"

Row = tuple[Any, ...]


class PostgresNotice(NamedTuple):
    """A notification to other nodes: a kind and the key of a queue."""

    kind: str
    queue: int

    @staticmethod
    def read(text: str) -> PostgresNotice | None:
        """Parse a notice; None for any other text on our channel."""
        kind, _, key = text.partition(" ")
        return PostgresNotice(kind, int(key)) if key.isascii() and key.isdigit() else None

    def __str__(self) -> str:
        return f"{self.kind} {self.queue}"


PUT, RETURNED, CREATED, DELETED = "put", "returned", "created", "deleted"
"""Kinds of notices about a queue: new messages, returned messages, created, deleted."""


class UnitOfWork:
    """Transaction on behalf of many jobs. `number` distinguishes this turn from others of the same life."""

    def __init__(self, cursor: Cursor[Row], life: int, number: int) -> None:
        self.cursor = cursor
        self.life = life
        self.number = number
        self.is_again = False  # the job was tried before, and may have been done
        self.notices: dict[PostgresNotice, None] = {}
        self.made: list[Known] = []  # new queues
        self.answers: list[Callable[[], None]] = []  # called on the loop, after the commit

    def do(self, statement: LiteralString, *arguments: Any) -> int:
        """Execute a statement; return the number of its rows."""
        return self.cursor.execute(statement, arguments).rowcount

    def rows(self, statement: LiteralString, *arguments: Any) -> list[Row]:
        """Return all rows of a statement."""
        return self.cursor.execute(statement, arguments).fetchall()

    def row(self, statement: LiteralString, *arguments: Any) -> Row | None:
        """Return the first row of a statement."""
        return self.cursor.execute(statement, arguments).fetchone()

    def value(self, statement: LiteralString, *arguments: Any) -> Any:
        """Return the one value that a statement always has."""
        row = self.row(statement, *arguments)
        assert row is not None
        return row[0]

    def notice(self, kind: str, queue: int) -> None:
        """Notify all nodes, when this is committed."""
        self.notices[PostgresNotice(kind, queue)] = None

    def tell(self, call: Callable[[], None]) -> None:
        """Call a function on the loop, when this is committed."""
        self.answers.append(call)

    def finish(self) -> None:
        """Send the notices to the server; the last action before the commit."""
        if self.notices:
            texts: Sequence[str] = [str(notice) for notice in self.notices]
            self.do("SELECT pg_notify(%s, text) FROM unnest(%s::text[]) AS text", CHANNEL, texts)
