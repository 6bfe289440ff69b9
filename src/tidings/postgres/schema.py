"""Tables: one schema with a version, created by whichever node comes first.

A message is a row from its put until it is settled; `place` is its place in the queue, as in a queue of a
node, and its number the microsecond at which it came by the clock of the server. Numbers are given while the
row of the queue is locked, so they grow in the order of the commits, and a reader that has seen a number has
seen all before it. `holder` is the life of the node that holds a message, with the turn in which it took it,
and `owner` the client, if that may have more messages of the same group.
A message that is not due yet is held by no life, DELAYED, until it is: so it goes back as any other.

Statements that find a message by its number, or by its time, use `coalesce(holder, 0)`: so the server can't
use an index for them that is made for messages not in flight, and read all of these.

Rows of a queue have no foreign key to it, as each new row would be checked; a put holds the lock of the
queue's row, and so does the deletion of a queue with all its rows.
"""

from __future__ import annotations

from typing import Any, LiteralString

from psycopg import Connection, Cursor

from tidings.errors import StoreTooNew

VERSION = 1
DELAYED = -1
"""Holder of messages that are not due yet: no life has this number."""
LOCK = 0x7469646E
"""Class of all advisory locks of tidings; the lock 0 is for the schema, the others for lives."""

SESSION = (
    "SET default_transaction_isolation = 'read committed'",
    # A node that was stopped in the middle of a turn must not hold up the others.
    "SET idle_in_transaction_session_timeout = '10s'",
    "SET lock_timeout = '10s'",
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 2",
    "SET tcp_keepalives_count = 3",
    # Rows live for seconds, so the planner's statistics are always old; the indexes are right.
    "SET enable_seqscan = off",
    "SET enable_bitmapscan = off",
)

TABLES = (
    "CREATE SCHEMA IF NOT EXISTS tidings",
    "CREATE TABLE tidings.format (version int NOT NULL)",
    f"INSERT INTO tidings.format VALUES ({VERSION})",
    """
    CREATE FUNCTION tidings.now_us() RETURNS bigint LANGUAGE sql VOLATILE
    AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$
    """,
    """
    CREATE TABLE tidings.lives (
        life int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        node text NOT NULL
    )
    """,
    """
    CREATE TABLE tidings.queues (
        key int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text NOT NULL UNIQUE,
        id text NOT NULL UNIQUE,
        description bytea NOT NULL,
        last bigint NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE TABLE tidings.messages (
        queue int NOT NULL,
        number bigint NOT NULL,
        place bigint NOT NULL,
        raw bytea NOT NULL,
        packing smallint NOT NULL,
        size int NOT NULL,
        system text,
        epoch bigint NOT NULL,
        source text,
        expires_at bigint,
        deliveries int NOT NULL DEFAULT 0,
        doubted boolean NOT NULL DEFAULT false,
        holder int,
        turn bigint,
        held_until bigint,
        PRIMARY KEY (queue, number)
    ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000)
    """,
    "CREATE INDEX messages_shelf ON tidings.messages (queue, place) WHERE holder IS NULL",
    "CREATE INDEX messages_held ON tidings.messages (holder) WHERE holder IS NOT NULL",
    "CREATE INDEX messages_due ON tidings.messages (held_until) WHERE held_until IS NOT NULL",
    "CREATE INDEX messages_expiry ON tidings.messages (expires_at) WHERE expires_at IS NOT NULL",
    """
    CREATE TABLE tidings.counted (
        queue int NOT NULL,
        system text NOT NULL,
        epoch bigint NOT NULL,
        counter bigint NOT NULL,
        refused bigint[] NOT NULL,
        seen_us bigint NOT NULL,
        PRIMARY KEY (queue, system, epoch)
    )
    """,
    """
    CREATE TABLE tidings.watchers (
        queue int NOT NULL REFERENCES tidings.queues ON DELETE CASCADE,
        life int NOT NULL REFERENCES tidings.lives ON DELETE CASCADE,
        PRIMARY KEY (queue, life)
    )
    """,
    """
    CREATE TABLE tidings.copies (
        queue int NOT NULL,
        number bigint NOT NULL,
        raw bytea NOT NULL,
        packing smallint NOT NULL,
        size int NOT NULL,
        system text,
        epoch bigint NOT NULL,
        source text,
        PRIMARY KEY (queue, number)
    )
    """,
)


GROUPS = (
    "ALTER TABLE tidings.messages ADD COLUMN queue_group text",
    """
    CREATE INDEX messages_group ON tidings.messages (queue, queue_group, place) WHERE queue_group IS NOT NULL
    """,
)
OWNERS = ("ALTER TABLE tidings.messages ADD COLUMN owner text",)
RATES = (
    """
    CREATE TABLE tidings.rates (
        queue int PRIMARY KEY REFERENCES tidings.queues ON DELETE CASCADE,
        tokens double precision NOT NULL,
        counted_us bigint NOT NULL
    ) WITH (fillfactor = 50)
    """,
)
_HAS_OWNERS = """
SELECT 1 FROM pg_attribute
WHERE attrelid = 'tidings.messages'::regclass AND attname = 'owner' AND NOT attisdropped
"""
ADDITIONS: dict[LiteralString, tuple[LiteralString, ...]] = {
    "SELECT 1 WHERE to_regclass('tidings.messages_group') IS NOT NULL": GROUPS,
    "SELECT 1 WHERE to_regclass('tidings.rates') IS NOT NULL": RATES,
    _HAS_OWNERS: OWNERS,
}
"""Additions to the tables of earlier nodes, which go on using them, by the query that finds each."""


def prepare(connection: Connection[tuple[Any, ...]], shown: str) -> None:
    """Create the tables if they do not exist; StoreTooNew if a newer tidings has created them."""
    with connection.transaction(), connection.cursor() as cursor:
        for setting in SESSION:
            cursor.execute(setting)
        cursor.execute("SELECT pg_advisory_xact_lock(%s, 0)", (LOCK,))
        version = _version(cursor)
        if version is None:
            for statement in TABLES:
                cursor.execute(statement)
        elif version > VERSION:
            raise StoreTooNew(shown, f"its tables have format {version}; this tidings knows {VERSION}")
        for query, statements in ADDITIONS.items():
            for statement in statements if cursor.execute(query).fetchone() is None else ():
                cursor.execute(statement)


def _version(cursor: Cursor[tuple[Any, ...]]) -> int | None:
    cursor.execute("SELECT to_regclass('tidings.format') IS NOT NULL")
    found = cursor.fetchone()
    if found is None or not found[0]:
        return None
    cursor.execute("SELECT version FROM tidings.format")
    row = cursor.fetchone()
    return None if row is None else int(row[0])
