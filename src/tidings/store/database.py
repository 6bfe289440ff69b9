"""One SQLite file: made, opened and checked, and written one transaction at a time.

Settings, and why:
- WAL with synchronous=FULL: a commit is one write and one fdatasync of the log. Every `CHECKPOINT_PAGES`
  pages the log is moved into the file, which costs the commit that fills it a few more.
- Pages of 4 KiB, as the disk has them: larger ones would be written whole for every small commit.
- The cache stays at SQLite's 2 MB: a commit touches the right edge of the stream, a reader goes over it once.
- mmap off: a broken disk would be a signal instead of an error.
- No spilling: a transaction leaves nothing in the log unless it commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from tidings.errors import StoreFailed, StoreTooNew
from tidings.store.commit_sql import COUNTED, SUMS, Books, CommitPlan
from tidings.store.directory import Broken, Presence, trouble
from tidings.store.interface import Discard, Operation, StoredMessage
from tidings.store.migration import SCHEMA, converted
from tidings.store.packing import PackingError
from tidings.store.pages import PAGE_SIZE, log_of, read_log
from tidings.store.reader import Report, SnapshotReader, run_row_of
from tidings.store.records import (
    COUNTER,
    DURABLE,
    FORMAT,
    HEAD,
    META,
    QUEUE,
    RECORD,
    RUN,
    SETTLED,
    STREAM,
    SUM_MASK,
    Meta,
    Row,
    StoreHead,
    TableSchema,
    checksum_of,
    counter_of,
    durable_of,
    head_of,
    head_row,
    is_gap,
    is_sound,
    is_whole,
    key_of,
    link_of,
    meta_of,
    meta_row,
    queue_of,
    record_of,
    tables_of,
)
from tidings.store.runs import FRONTS, MessageRun, gone_of, messages_of, run_of

CHECKPOINT_PAGES = 2000  # 8 MB, which a restart reads once more
LOG_BYTES_MAX = 64 * 2**20  # a log that one huge commit made longer is cut back to this
_ENDS = "SELECT first + count - 1 FROM stream WHERE first <= ? ORDER BY first DESC LIMIT 2"
_MAGIC = b"SQLite format 3\0"


class StoreDatabase:
    """Open database that was found sound; stream and content of runs are checked when read."""

    def __init__(self, path: Path, report: Report) -> None:
        """Raises Broken if it is damaged, StoreTooNew, or StoreFailed."""
        self.path = path
        self.discarded = 0  # the position up to which persistent batches were given up too
        self._report = report
        self._lost: StoreFailed | None = None  # set when the files were gone after a commit
        with trouble(path):
            _check_files(path, report)
            self._writer = connect(path)
            try:
                self.books = self._load(report)
                self._presence = Presence(path, log_of(path))
                self.reader = SnapshotReader(connect(path, read_only=True), path, report)
            except BaseException:
                self._writer.close()
                raise

    def begin(self) -> None:
        """Count one more opening, and write it into the file itself: an epoch must never be used twice."""
        self.migrate()
        boot = max(self.books.meta.boot, self.books.head.boot) + 1
        meta = replace(self.books.meta, boot=boot)
        head = replace(self.books.head, boot=meta.boot)
        self._transact([(META.put, [meta_row(meta)]), (HEAD.put, [head_row(head)])])
        self.books.meta, self.books.head = meta, head
        with trouble(self.path):
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def migrate(self) -> None:
        """Convert a database of an earlier format to ours, all of it or nothing; it can be read without that.

        Raises Broken, and as `Store.commit`.
        """
        meta = replace(self.books.meta, format=FORMAT)
        if meta == self.books.meta:
            return
        unwanted, operations = converted(self.counters, self.durables, self.queues)
        plan = CommitPlan(self.books, operations, self._fetch, unwanted)
        self._transact([(META.put, [meta_row(meta)]), *plan.statements], SCHEMA)
        with trouble(self.path):
            self.books = self._load(self._report)

    def commit(self, operations: Sequence[Operation]) -> None:
        """Do all of these, or nothing; durable on return. Raises Broken, and as `Store.commit`."""
        settled = [self._settled(one) for one in operations]
        plan = CommitPlan(self.books, settled, self._fetch)
        self._transact(plan.statements)
        self.books.adopt(plan)
        ends = (one.position for one in settled if isinstance(one, Discard))
        self.discarded = max(self.discarded, *ends, 0)

    def _settled(self, operation: Operation) -> Operation:
        """Return the operation as far as it can be done: a discard ends where a batch does."""
        if not isinstance(operation, Discard):
            return operation
        limit = min(operation.position, self.books.head.trimmed)
        with trouble(self.path):
            found = self._writer.execute(_ENDS, (limit,)).fetchall()
        return Discard(max((end for (end,) in found if end <= limit), default=0))

    def close(self) -> None:
        """Close the file; committed data is moved into it."""
        self.reader.close()
        with suppress(sqlite3.Error):
            self._writer.close()

    def _transact(self, statements: list[tuple[str, list[Row]]], schema: Sequence[str] = ()) -> None:
        if self._lost is not None:
            raise self._lost
        self._presence.check()
        self._write(statements, schema)
        try:
            self._presence.check()
        except StoreFailed as error:
            self._lost = error  # the file contradicts the books, so nothing may follow
            raise

    def _write(self, statements: list[tuple[str, list[Row]]], schema: Sequence[str]) -> None:
        with trouble(self.path):
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                for change in schema:
                    self._writer.execute(change)
                for statement, rows in statements:
                    changed = self._writer.executemany(statement, rows).rowcount
                    if statement in COUNTED and changed != len(rows):
                        raise Broken("run: rows that are there can't be found")
                self._writer.execute("COMMIT")
            except BaseException:
                self._undo()
                raise

    def _undo(self) -> None:
        with suppress(sqlite3.Error):
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            # Remains of the failed commit at the end of the log must not be taken for a commit later.
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _fetch(self, run: MessageRun) -> list[StoredMessage]:
        with trouble(self.path):
            row = run_row_of(self._writer, run)
        try:
            if is_whole(row):
                return messages_of(row)
        except PackingError as error:
            raise Broken(f"run {run.key}: {error}") from error
        raise Broken(f"run {run.key}: its content is not as it was written")

    def _load(self, report: Report) -> Books:
        meta = meta_of(self._only_row(META))
        if meta.format > FORMAT:
            raise too_new(self.path, meta.format)
        tables = tables_of(meta.format)
        schema = self._writer.execute("SELECT name, sql FROM sqlite_schema").fetchall()
        if schema != [(table.name.encode(), table.schema.encode()) for table in tables]:
            raise Broken("the schema is not as it was written")
        books = Books(meta, head_of(self._only_row(tables[1])))
        self._load_records(books, report)
        self._load_stock(books, report)
        self._check_end(books.head)
        self.discarded = self._discarded()
        return books

    def _discarded(self) -> int:
        row = self._writer.execute("SELECT * FROM stream ORDER BY first LIMIT 1").fetchone()
        link = link_of(row) if row is not None and is_sound(STREAM, row) else None
        return link.last if link is not None and link.is_elsewhere else 0

    def _load_records(self, books: Books, report: Report) -> None:
        def rows(table: TableSchema) -> list[Row]:
            if table not in tables_of(books.meta.format):
                return []
            found = self._sound_rows(table, getattr(books.head, SUMS[table.name]), report)
            for row in found:
                books.note(key_of(table, row), row)
            return found

        self.durables = list(map(durable_of, rows(DURABLE)))
        self.counters = list(map(counter_of, rows(COUNTER)))
        self.queues = list(map(queue_of, rows(QUEUE)))
        self.records: dict[str, dict[str, bytes]] = {}
        for record in map(record_of, rows(RECORD)):
            self.records.setdefault(record.kind, {})[record.key] = record.value

    def _load_stock(self, books: Books, report: Report) -> None:
        settled = {row[0]: row for row in self._sound_rows(SETTLED, books.head.settled, report)}
        for row in self._sound_rows(RUN, books.head.runs, report, FRONTS):
            run = run_of(row)
            known = settled.pop(run.key, None)
            if known is not None:
                run.gone, run.settled = gone_of(known) & run.all, checksum_of(known)
            books.stock.add(run)
        if settled:
            raise Broken(f"settled {list(settled)}: there are no such runs")

    def _only_row(self, table: TableSchema) -> Row:
        rows: list[Row] = self._writer.execute(f"SELECT * FROM {table.name}").fetchmany(2)
        if len(rows) != 1 or not is_sound(table, rows[0]):
            raise Broken(f"{table.name}: its row is not as it was written")
        return rows[0]

    def _sound_rows(self, table: TableSchema, total: int, report: Report, select: str = "") -> list[Row]:
        rows: list[Row] = self._writer.execute(select or f"SELECT * FROM {table.name}").fetchall()
        bad = [row for row in rows if not is_sound(table, row)]
        for row in bad:
            report(f"{table.name} {row[0]!r}: is not as it was written")
        if bad or sum(map(checksum_of, rows)) & SUM_MASK != total:
            raise Broken(f"{table.name}: rows are missing or not as they were written")
        return rows

    def _check_end(self, head: StoreHead) -> None:
        """Check that the stream ends where the head says; a bad last row is left to the reader."""
        row = self._writer.execute("SELECT * FROM stream ORDER BY first DESC LIMIT 1").fetchone()
        if row is not None and not is_sound(STREAM, row):
            return
        last = 0 if row is None else link_of(row).last
        if last > head.last or is_gap(head, last, head.trimmed):
            raise Broken(f"stream {last + 1}: the stream ends before {head.last}")


def connect(path: Path, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection that any thread may use, one at a time."""
    mode = "ro" if read_only else "rw"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    connection.text_factory = bytes  # we write no text but the schema, and damage need not be UTF-8
    settings = ["mmap_size = 0"]
    if not read_only:
        settings += ["synchronous = FULL", "cache_spill = OFF", "secure_delete = FAST"]
        settings += [f"wal_autocheckpoint = {CHECKPOINT_PAGES}", f"journal_size_limit = {LOG_BYTES_MAX}"]
    try:
        for setting in settings:
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def making(path: Path, meta: Meta) -> Iterator[sqlite3.Connection]:
    """Create a database with nothing in it but its tables and `meta`; on leaving it is durable and closed."""
    for leftover in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))):
        leftover.unlink(missing_ok=True)
    path.touch(mode=0o600)
    connection = connect(path)
    try:
        # Each table's root is the page after the last one's: auto_vacuum would put others between them.
        # After a crash the file is made anew, so there is nothing to undo, and it need not fit into memory.
        settings = f"page_size = {PAGE_SIZE}", "auto_vacuum = NONE", "journal_mode = OFF", "cache_spill = ON"
        for setting in settings:
            connection.execute(f"PRAGMA {setting}")
        connection.execute("BEGIN")
        for table in tables_of(meta.format):
            connection.execute(table.schema)
        connection.execute(META.put, meta_row(meta))
        yield connection
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


def too_new(path: Path, version: int) -> StoreTooNew:
    """Return the error for a database of a later format than ours."""
    return StoreTooNew(str(path), f"has format {version}, this tidings knows formats up to {FORMAT}")


def _check_files(path: Path, report: Report) -> None:
    """Check the files for damage that SQLite would ignore or delete: a bad header, a damaged log."""
    with path.open("rb") as file:
        header = file.read(100)
    size = path.stat().st_size
    page_size = int.from_bytes(header[16:18], "big")
    if header[:16] != _MAGIC or page_size != PAGE_SIZE or size % PAGE_SIZE:
        raise Broken(f"{size} bytes: the file is cut or its header is not as it was written")
    log = read_log(path)
    if log.is_damaged:
        raise Broken("the log holds pages that are not as they were written")
    if log.ends_in_zeros:
        report("the log ends in zeros: the power failed in a commit, or commits are lost")
