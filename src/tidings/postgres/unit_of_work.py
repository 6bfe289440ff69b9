"""One transaction on behalf of many jobs: its changes, notifications, and the answers after it.

Nothing is answered and no reader is woken before the commit; if that fails, all of it is done anew. Notices
go to all nodes by NOTIFY, in the same transaction, and to our own readers at once.
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
        """The notice that a text is, or None for what others have said on our channel."""
        kind, _, key = text.partition(" ")
        return PostgresNotice(kind, int(key)) if key.isascii() and key.isdigit() else None

    def __str__(self) -> str:
        return f"{self.kind} {self.queue}"


PUT, RETURNED, CREATED, DELETED = "put", "returned", "created", "deleted"
"""What is noticed of a queue: new messages, some that have come back, that it is there, or not any more."""


class UnitOfWork:
    """Transaction on behalf of many jobs. `number` distinguishes this turn from others of the same life."""

    def __init__(self, cursor: Cursor[Row], life: int, number: int) -> None:
        self.cursor = cursor
        self.life = life
        self.number = number
        self.is_again = False  # what is asked for was tried before, and may have been done
        self.notices: dict[PostgresNotice, None] = {}
        self.made: list[Known] = []  # queues
        self.answers: list[Callable[[], None]] = []  # to be called on the loop, after the commit

    def do(self, statement: LiteralString, *arguments: Any) -> int:
        """Carry out a statement; how many rows it was about."""
        return self.cursor.execute(statement, arguments).rowcount

    def rows(self, statement: LiteralString, *arguments: Any) -> list[Row]:
        """All rows that a statement gives."""
        return self.cursor.execute(statement, arguments).fetchall()

    def row(self, statement: LiteralString, *arguments: Any) -> Row | None:
        """The first row that a statement gives."""
        return self.cursor.execute(statement, arguments).fetchone()

    def value(self, statement: LiteralString, *arguments: Any) -> Any:
        """The one value that a statement always gives."""
        row = self.row(statement, *arguments)
        assert row is not None
        return row[0]

    def notice(self, kind: str, queue: int) -> None:
        """Tell everyone, when this is committed."""
        self.notices[PostgresNotice(kind, queue)] = None

    def tell(self, call: Callable[[], None]) -> None:
        """Have something called on the loop, when this is committed."""
        self.answers.append(call)

    def finish(self) -> None:
        """The last thing before the commit: hand the notices to the server."""
        if self.notices:
            texts: Sequence[str] = [str(notice) for notice in self.notices]
            self.do("SELECT pg_notify(%s, text) FROM unnest(%s::text[]) AS text", CHANNEL, texts)
