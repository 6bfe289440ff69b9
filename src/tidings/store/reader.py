"""Reads the stream and runs of messages, checking every row and that none is gone.

A row that is not as it was written is reported and left out. Rows that contradict each other, or that SQLite
can't reach, mean that the tree is damaged and not only a row in it: that raises Broken.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tidings.store.directory import Broken, trouble
from tidings.store.interface import StoredBatch, StoredMessage, within
from tidings.store.packing import PackingError
from tidings.store.records import (
    HEAD,
    HEAD_BEFORE,
    RUN,
    STREAM,
    Row,
    StoreHead,
    StreamLink,
    head_of,
    is_gap,
    is_sound,
    is_whole,
    link_of,
)
from tidings.store.runs import MessageRun, messages_of, spans

Report = Callable[[str], None]  # called with table, key and problem of each bad row that is read

_FROM = "SELECT * FROM stream WHERE first >= ? ORDER BY first"
_LAST_TO = "SELECT max(first) FROM stream WHERE first <= ?"
_DOWN_FROM = "SELECT * FROM stream WHERE first <= ? ORDER BY first DESC"
_RUN = "SELECT * FROM run WHERE id = ?"


class SnapshotReader:
    """Reads snapshots: commits meanwhile neither wait nor are seen. For one caller at a time."""

    def __init__(self, connection: sqlite3.Connection, path: Path, report: Report) -> None:
        self._connection = connection
        self._path = path
        self._report = report
        self.bad: set[int] = set()  # first positions of the damaged batches found so far

    def read(self, position: int, size_max: int) -> list[StoredBatch]:
        """As `Store.read`."""
        with self._snapshot() as head, closing(self._up(position, head)) as links:
            held = (link for link in links if link.last >= position and not link.is_elsewhere)
            return within((link.batch for link in held), size_max)

    def read_before(self, position: int, size_max: int) -> list[StoredBatch]:
        """As `Store.read_before`."""
        with self._snapshot() as head, closing(self._down(position, head)) as links:
            return within((link.batch for link in links if not link.is_elsewhere), size_max)

    def position_at(self, time_us: int) -> int:
        """As `Store.position_at`: bisects by the latest time so far, which grows whatever the clock did."""
        with self._snapshot() as head:
            low, high = 1, head.last + 1
            while low < high:
                middle = (low + high) // 2
                link = self._next(middle)
                if link is None or link.latest_us >= time_us:
                    high = middle
                else:
                    low = link.last + 1
            with closing(self._up(low, head)) as links:
                for link in links:
                    if link.is_elsewhere:
                        continue
                    if link.batch.stored_us >= time_us and link.batch.first >= low:
                        return link.batch.first
            return head.position + 1

    def messages_in(self, run: MessageRun) -> list[StoredMessage] | None:
        """Return the messages that are left in a run; None and a report if it is damaged."""
        if run.gone == run.all:  # later runs have its numbers
            return []
        with self._snapshot():
            row = run_row_of(self._connection, run)
        try:
            if is_whole(row):
                found = messages_of(row)
                return [one for index, one in enumerate(found) if not run.gone >> index & 1]
            problem = "is not as it was written"
        except PackingError as error:
            problem = str(error)
        self._report(f"message {spans(run.left)}: run {run.key} {problem}")
        return None

    def close(self) -> None:
        """Close the connection."""
        with suppress(sqlite3.Error):
            self._connection.close()

    @contextmanager
    def _snapshot(self) -> Iterator[StoreHead]:
        with trouble(self._path):
            self._connection.execute("BEGIN")
            try:
                row: Row = self._connection.execute("SELECT * FROM head").fetchone() or ()
                if not (is_sound(HEAD, row) or is_sound(HEAD_BEFORE, row)):
                    raise Broken("head: its row is not as it was written")
                yield head_of(row)
            finally:
                self._connection.execute("ROLLBACK")

    def _up(self, position: int, head: StoreHead) -> Generator[StreamLink, None, None]:
        """Yield the sound batches from the one that may hold the position on."""
        (start,) = self._connection.execute(_LAST_TO, (position,)).fetchone()
        last = 0 if start is None else None  # end of the batch before, None if that is unknown
        with closing(self._connection.execute(_FROM, (start or 0,))) as rows:
            for key, link in self._checked(rows):
                if start is not None and key != start:
                    raise Broken(f"stream {start}: is there and is not")
                start = None
                if link is not None and last is not None:
                    _check_step(last, link, head)
                last = None if link is None else link.last
                if link is not None:
                    yield link
        if last is not None and is_gap(head, last, head.trimmed):
            raise Broken(f"stream {last + 1}: rows are missing")

    def _down(self, position: int, head: StoreHead) -> Generator[StreamLink, None, None]:
        """Yield the sound batches that begin at or before the position, the last one first."""
        follower = self._follower(position, head)
        with closing(self._connection.execute(_DOWN_FROM, (position,))) as rows:
            for _, link in self._checked(rows, step=-1):
                if link is not None and follower is not None:
                    _check_step(link.last, follower, head)
                follower = link
                if link is not None:
                    yield link
        if follower is not None:
            _check_step(0, follower, head)

    def _follower(self, position: int, head: StoreHead) -> StreamLink | StoreHead | None:
        """Return what follows the batches that begin at or before the position; None if unknown."""
        with closing(self._connection.execute(_FROM, (position + 1,))) as rows:
            return next((link for _, link in self._checked(rows)), head)

    def _next(self, position: int) -> StreamLink | None:
        """Return the first sound batch that begins at the position or after it."""
        with closing(self._connection.execute(_FROM, (position,))) as rows:
            return next((link for _, link in self._checked(rows) if link is not None), None)

    def _checked(self, rows: sqlite3.Cursor, step: int = 1) -> Iterator[tuple[int, StreamLink | None]]:
        """Yield each key with its batch, or with None and a report if the row is not sound."""
        before: int | None = None
        for row in rows:
            key = row[0]
            if before is not None and (key - before) * step <= 0:
                raise Broken(f"stream {key}: stands after {before}")
            before = key
            if is_sound(STREAM, row):
                yield key, link_of(row)
            else:
                self.bad.add(key)
                self._report(f"stream {key}: is not as it was written")
                yield key, None


def run_row_of(connection: sqlite3.Connection, run: MessageRun) -> Row:
    """Return the row of a run, sound except for its content; raises Broken if it is missing."""
    row: Row | None = connection.execute(_RUN, (run.key,)).fetchone()
    if row is None or not is_sound(RUN, row):
        raise Broken(f"run {run.key}: is there and is not")
    return row


def _check_step(last: int, follower: StreamLink | StoreHead, head: StoreHead) -> None:
    if is_gap(follower, last, head.trimmed):
        raise Broken(f"stream {last + 1}: rows are missing")
    if isinstance(follower, StreamLink) and follower.batch.first <= last:
        raise Broken(f"stream {follower.batch.first}: begins before {last}, where the one before it ends")
