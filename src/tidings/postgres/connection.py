"""The one connection to the database: it does the work, hears notices, and is the life of this node there."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg import Connection, Notify

from tidings.postgres.conninfo import Conninfo
from tidings.postgres.lives import enter
from tidings.postgres.schema import prepare
from tidings.postgres.turn import CHANNEL, Notice, Row, Turn


class Link:
    """See the module; used by one thread."""

    def __init__(self, conninfo: Conninfo, node: str) -> None:
        self.conninfo = conninfo
        self.untold: set[int] = set()  # turns of which it is not known whether they were committed
        self._node = node
        self._connection: Connection[Row] | None = None
        self._life: int | None = None
        self._turns = 0
        self._heard: dict[Notice, None] = {}

    def connect(self) -> None:
        """Connect, make the tables if need be, and go on with the life that this node had, or begin one."""
        connection = self._connection = self.conninfo.connect()
        connection.add_notify_handler(self._hear)
        prepare(connection, self.conninfo.shown)
        connection.execute(f"LISTEN {CHANNEL}")
        life = enter(connection, self._node, self._life)
        if life != self._life:
            self._life = life
            self.untold.clear()  # all that the last one held was given back

    @property
    def life(self) -> int | None:
        """The life that this node has in the database, or had when it was last there."""
        return self._life

    def disconnect(self) -> None:
        """Let go of a connection, whatever its state."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
        self._heard.clear()

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """One transaction, committed at the end of the block."""
        assert self._connection is not None
        assert self._life is not None
        self._turns += 1
        number = self._turns
        self.untold.add(number)
        try:
            with self._connection.transaction(), self._connection.cursor(binary=True) as cursor:
                turn = Turn(cursor, self._life, number)
                yield turn
                turn.finish()
        finally:
            if not self._connection.broken:
                self.untold.discard(number)

    def wait(self, wake_fd: int, timeout_s: float) -> None:
        """Wait until the server says something, there is something to read from `wake_fd`, or time is up."""
        assert self._connection is not None
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        poll.register(wake_fd, select.POLLIN)
        poll.poll(max(timeout_s, 0.0) * 1000)

    def take_heard(self) -> list[Notice]:
        """What other nodes have noticed since the last time."""
        assert self._connection is not None
        low = self._connection.pgconn
        low.consume_input()
        while (heard := low.notifies()) is not None:
            self._hear(Notify(heard.relname.decode(), heard.extra.decode(), heard.be_pid))
        notices, self._heard = list(self._heard), {}
        return notices

    def _hear(self, notify: Notify) -> None:
        """Called by psycopg whenever a notice comes in between; our own we know already."""
        assert self._connection is not None
        notice = Notice.read(notify.payload)
        if notice is not None and notify.pid != self._connection.pgconn.backend_pid:
            self._heard[notice] = None
