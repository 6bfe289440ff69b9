"""Queues in a PostgreSQL database, which several nodes share: a message goes to one reader of any of them.

The database is asked by a thread of its own, with one connection. Calls come in on the loop of the node and
are answered there; what waits together is done in one transaction, so a thousand puts are one commit. What
was put is accepted when it is committed, and what is taken is handed out when that is.

    shared.py      the queues as the node sees them, on its loop
    worker.py      the thread: takes turns while there is a connection, and finds it again when it is lost
    jobs.py        what it is to do, many jobs in one turn
    turn.py        one transaction on behalf of many
    putting.py readers.py taking.py settling.py watching.py managing.py     what is done in a turn
    catalog.py     the queues and their descriptions
    upkeep.py      what is due now and then
    schema.py      the tables
    connection.py  the way to them, and which nodes are alive
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidings.errors import MissingExtra

if TYPE_CHECKING:
    from tidings.postgres.backend import SharedQueues

__all__ = ["open_postgres"]


def open_postgres(
    conninfo: str,
    node: str,
    call: Callable[[Callable[[], None]], None],
    tell: Callable[[str | None], None] | None = None,
) -> SharedQueues:
    """The queues in a database, for the node of this id; MissingExtra, ConfigError for what is no conninfo.

    `call` is called in another thread, and has what it is given called on the loop of the node and a tick
    finished. `tell` is called on the loop, with why the database is away, and with None when it is there.
    """
    try:
        import psycopg  # noqa: F401 - only to see whether it is there
    except ImportError as error:
        raise MissingExtra("queues in PostgreSQL", "postgres") from error
    from tidings.postgres.backend import SharedQueues

    return SharedQueues(conninfo, node, call, tell)
