"""The one connection to the database: it does the work, receives notices, and is the life of this node there.

A conninfo is the address of the database. It stands in settings, environments and lists of processes, and is
shown in errors and logs: so it may have no password. libpq finds that in a file (`PGPASSFILE`, `~/.pgpass`),
or needs none with a certificate.

Each node that is alive has a *life*: a row, and a lock on its number, which the server releases when the
connection ends. A node whose connection was lost has the same life again, if it comes back before another
node has seen the lock free for long; else its life is over, its messages were given back, and it begins
another.

A *unit of work* is one transaction on behalf of many jobs. No reply is sent and no reader is woken before the
commit; if that fails, all of it is done anew. Notices go to all nodes by NOTIFY, in the same transaction, and
to our own readers at once.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple

import psycopg
from psycopg import Connection, Cursor, Notify, OperationalError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tidings.errors import ConfigError
from tidings.postgres.schema import LOCK, prepare
from tidings.timers import Timers

if TYPE_CHECKING:
    from tidings.postgres.catalog import Known

CONNECT_S = 3
"""Longest duration of an attempt to connect."""
# So a server that has vanished is noticed within some ten seconds, by us and by itself.
WAYS: dict[str, Any] = {
    "connect_timeout": CONNECT_S,
    "application_name": "tidings",
    "client_encoding": "utf8",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_SECRETS = ("password", "sslpassword")

RESUME_S = 3.0
"""How long the lock of a life may be free, by the clock of a watching node, before that life is over."""
CHANNEL = "tidings"
PUT, RETURNED, CREATED, DELETED = "put", "returned", "created", "deleted"
"""Kinds of notices about a queue: new messages, returned messages, created, deleted."""

Row = tuple[Any, ...]


class Conninfo:
    """A conninfo string, or a URI, as libpq reads it; ConfigError if it does not."""

    def __init__(self, text: str) -> None:
        try:
            self._parts = conninfo_to_dict(text)
        except psycopg.ProgrammingError:  # its text may contain the password
            problem = "is neither a conninfo string nor a URI of PostgreSQL"
            raise ConfigError("the settings", "postgres", problem) from None
        if any(self._parts.get(secret) for secret in _SECRETS):
            problem = "has a password in it, which others may see: put that into a file, see PGPASSFILE"
            raise ConfigError("the settings", "postgres", problem)

    @property
    def shown(self) -> str:
        """Return the database as shown in texts."""
        parts = self._parts
        user = f"{parts['user']}@" if "user" in parts else ""
        port = f":{parts['port']}" if "port" in parts else ""
        host = parts.get("host") or parts.get("hostaddr") or ""
        return f"postgresql://{user}{host}{port}/{parts.get('dbname', '')}"

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Open a new connection."""
        return psycopg.connect(make_conninfo("", **{**WAYS, **self._parts}), autocommit=True)

    def __repr__(self) -> str:
        return f"Conninfo({self.shown!r})"


def problem_of(error: Exception) -> str:
    """Return the text of a database error, in one line; libpq never repeats a password."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines) or type(error).__name__


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

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call a function on the loop, when this is committed."""
        self.answers.append(call)

    def finish(self) -> None:
        """Send the notices to the server; the last action before the commit."""
        if self.notices:
            texts: Sequence[str] = [str(notice) for notice in self.notices]
            self.do("SELECT pg_notify(%s, text) FROM unnest(%s::text[]) AS text", CHANNEL, texts)


class PostgresConnection:
    """Connection; used by one thread."""

    def __init__(self, conninfo: Conninfo, node: str) -> None:
        self.conninfo = conninfo
        self.unconfirmed: set[int] = set()  # turns that may or may not have been committed
        self._node = node
        self._connection: Connection[Row] | None = None
        self.life: int | None = None  # of this node in the database, the last one while it is away
        self._turns = 0
        self._heard: dict[PostgresNotice, None] = {}

    def connect(self) -> None:
        """Connect, create the tables if need be, and resume the life of this node, or begin one."""
        connection = self._connection = self.conninfo.connect()
        connection.add_notify_handler(self._hear)
        prepare(connection, self.conninfo.shown)
        connection.execute(f"LISTEN {CHANNEL}")
        life = enter(connection, self._node, self.life)
        if life != self.life:
            self.life = life
            self.unconfirmed.clear()  # all messages of the last one were given back

    def disconnect(self) -> None:
        """Close a connection, whatever its state."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
        self._heard.clear()

    @contextmanager
    def turn(self) -> Iterator[UnitOfWork]:
        """Run one transaction, committed at the end of the block."""
        assert self._connection is not None
        assert self.life is not None
        self._turns += 1
        number = self._turns
        self.unconfirmed.add(number)
        try:
            with self._connection.transaction(), self._connection.cursor(binary=True) as cursor:
                turn = UnitOfWork(cursor, self.life, number)
                yield turn
                turn.finish()
        finally:
            if not self._connection.broken:
                self.unconfirmed.discard(number)

    def wait(self, wake_fd: int, timeout_s: float) -> None:
        """Wait until the server sends something, `wake_fd` can be read, or time is up."""
        assert self._connection is not None
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        poll.register(wake_fd, select.POLLIN)
        poll.poll(max(timeout_s, 0.0) * 1000)

    def take_heard(self) -> list[PostgresNotice]:
        """Return the notices of other nodes since the last call."""
        assert self._connection is not None
        low = self._connection.pgconn
        low.consume_input()
        while (heard := low.notifies()) is not None:
            self._hear(Notify(heard.relname.decode(), heard.extra.decode(), heard.be_pid))
        notices, self._heard = list(self._heard), {}
        return notices

    def _hear(self, notify: Notify) -> None:
        """Called by psycopg whenever a notice comes in between; our own are ignored."""
        assert self._connection is not None
        notice = PostgresNotice.read(notify.payload)
        if notice is not None and notify.pid != self._connection.pgconn.backend_pid:
            self._heard[notice] = None


def enter(connection: Connection[tuple[Any, ...]], node: str, life: int | None) -> int:
    """Return the life of a node on a new connection: its last one, or another."""
    with connection.transaction(), connection.cursor() as cursor:
        turn = UnitOfWork(cursor, 0, 0)
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
    """Lives whose locks are free, and until when their nodes may come back."""

    def __init__(self) -> None:
        self._missed: Timers[int] = Timers()

    def over(self, turn: UnitOfWork, now: float) -> list[int]:
        """Return the lives that have been gone for too long."""
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
        """Forget all, as the connection was lost: all locks were free while the server was away."""
        self._missed = Timers()


def end(turn: UnitOfWork, life: int) -> bool:
    """End a life, unless its node has come back just now; all its messages must be given back first."""
    return bool(turn.do("DELETE FROM tidings.lives WHERE life = %s", life))


def claim(turn: UnitOfWork, life: int) -> bool:
    """Whether the lock of a life is free; it is ours until the end of the turn then."""
    return bool(turn.value("SELECT pg_try_advisory_xact_lock(%s, %s)", LOCK, life))
