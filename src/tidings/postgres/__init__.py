"""Queues in a PostgreSQL database, which several nodes share: a message goes to one consumer of any of them.

A thread of its own uses the database, with one connection. Calls come in on the loop of the node and are
answered there; jobs that wait together are done in one transaction, so a thousand puts are one commit. A put
is accepted when it is committed, and a message is delivered when its taking is.

    backend.py     the queues as the node sees them, on its loop
        worker.py      the thread: takes turns while there is a connection, and reconnects when it is lost
        jobs.py        its jobs, many in one turn
        putting.py readers.py taking.py settling.py managing.py     the parts of a turn
    catalog.py     the queues and their descriptions
    schema.py      the tables
        connection.py  the connection, a transaction on behalf of many, and which nodes are alive
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
    report: Callable[[str | None], None] | None = None,
) -> SharedQueues:
    """Open the queues in a database, for the node of this id; MissingExtra, ConfigError for a bad conninfo.

    `call` is called in another thread, and runs a function on the loop of the node and finishes a tick.
    `report` is called on the loop, with the reason why the database is away, and with None when it is back.
    """
    try:
        import psycopg  # noqa: F401 - only to see whether it is there
    except ImportError as error:
        raise MissingExtra("queues in PostgreSQL", "postgres") from error
    from tidings.postgres.backend import SharedQueues

    return SharedQueues(conninfo, node, call, report)
