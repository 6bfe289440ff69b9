"""A commit in SQL: the statements of one transaction, and the books as they are after it.

The books are the head, the row of every durable, counter, queue and record, and the stock of messages: with
them no index is needed on disk. A plan changes nothing by itself: a transaction that fails leaves the books
as true as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import InternalError
from tidings.store.interface import (
    Append,
    Counter,
    CountProducer,
    Dequeue,
    Discard,
    Drop,
    DropQueue,
    DropRecord,
    Enqueue,
    Operation,
    PutCursor,
    PutQueue,
    Revise,
    SetRecord,
    StoredBatch,
    Trim,
    check_record,
)
from tidings.store.message_commits import Fetch, MessageCommits
from tidings.store.records import (
    COUNTER,
    DURABLE,
    HEAD,
    QUEUE,
    RECORD,
    STREAM,
    SUM_MASK,
    Field,
    Meta,
    RecordKey,
    Row,
    StoreHead,
    StreamLink,
    TableSchema,
    checksum_of,
    counter_fields,
    durable_fields,
    elsewhere,
    head_row,
    key_of,
    queue_row,
    record_fields,
    sealed,
    stream_row,
)
from tidings.store.runs import Stock

# Rows trimmed before are not visited again: it starts with the batch that the last trim may have spared.
TRIM = """DELETE FROM stream WHERE first >= coalesce((SELECT max(first) FROM stream WHERE first <= ?), 0)
    AND first <= ? AND NOT persistent AND first + count - 1 <= ?"""

DISCARD = "DELETE FROM stream WHERE first <= ?"

_PUT_HEAD = HEAD.put

# Fields of the head with the sum of each table's checksums.
SUMS = {DURABLE.name: "durables", COUNTER.name: "counters", QUEUE.name: "queues", RECORD.name: "records"}


class KeptRecord(Struct, frozen=True, gc=False):
    """Key of a record's row, and its checksum."""

    row: int
    checksum: int


class Books:
    """Facts about a database that are known without reading its stream."""

    def __init__(self, meta: Meta, head: StoreHead) -> None:
        self.meta = meta
        self.head = head
        self.kept: dict[RecordKey, KeptRecord] = {}
        self.row_max = 0
        self.stock = Stock()

    def note(self, key: RecordKey, row: Row) -> None:
        """Add a row of the database."""
        assert isinstance(row[0], int)
        self.kept[key] = KeptRecord(row[0], checksum_of(row))
        if key[0] != QUEUE.name:  # those have keys of their own
            self.row_max = max(self.row_max, row[0])

    def adopt(self, plan: CommitPlan) -> None:
        """Apply a plan whose transaction is committed."""
        self.head = plan.head
        self.row_max = plan.row_max
        plan.turnover.apply()
        for key, kept in plan.changed.items():
            if kept is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = kept


class CommitPlan:
    """Statements of one transaction, each with its rows, and the books after it."""

    def __init__(
        self,
        books: Books,
        operations: Sequence[Operation],
        fetch: Fetch,
        unwanted: Iterable[Counter] = (),
    ) -> None:
        """`unwanted` are counters to delete first, which no operation does."""
        self.statements: list[tuple[str, list[Row]]] = []
        self.head = replace(books.head, commits=books.head.commits + 1)
        self.row_max = books.row_max
        self.changed: dict[RecordKey, KeptRecord | None] = {}
        self._books = books
        self.turnover = MessageCommits(books.stock, fetch)
        take = self._takers(self.turnover)
        for counter in unwanted:
            self._remove(COUNTER, counter.system.encode(), counter.epoch)
        for operation in operations:
            take[type(operation)](operation)
        self.head = self.turnover.conclude(self.head)
        self.statements += self.turnover.statements
        self._run(_PUT_HEAD, head_row(self.head))

    def _takers(self, turnover: MessageCommits) -> dict[type[Operation], Callable[[Any], None]]:
        """Return the handler of each kind of operation: faster than comparing with one after the other."""
        return {
            Enqueue: turnover.enqueue,
            Revise: turnover.revise,
            Dequeue: turnover.dequeue,
            Append: self._append,
            PutCursor: lambda one: self._keep(DURABLE, durable_fields(self.head.commits, one.durable)),
            Drop: lambda one: self._remove(DURABLE, one.owner.encode(), one.name.encode()),
            CountProducer: lambda one: self._keep(COUNTER, counter_fields(self.head.commits, one.counter)),
            Trim: self._trim,
            Discard: self._discard,
            PutQueue: self._put_queue,
            DropQueue: lambda one: self._remove(QUEUE, None, one.key),
            SetRecord: self._set_record,
            DropRecord: lambda one: self._remove(RECORD, one.kind.encode(), one.key.encode()),
        }

    def _run(self, statement: str, row: Row) -> None:
        if not self.statements or self.statements[-1][0] != statement:
            self.statements.append((statement, []))
        self.statements[-1][1].append(row)

    def _append(self, operation: Append) -> None:
        batch = operation.batch
        check_append(batch, self.head.position)
        head = self.head
        latest_us = max(head.latest_us, batch.stored_us)
        link = StreamLink(batch, previous=head.last, kept=head.kept, latest_us=latest_us)
        kept = link.last if batch.persistent else head.kept
        self.head = replace(head, position=link.last, last=link.last, kept=kept, latest_us=latest_us)
        self._run(STREAM.put, stream_row(link))

    def _set_record(self, record: SetRecord) -> None:
        check_record(record)
        self._keep(RECORD, record_fields(self.head.commits, record))

    def _keep(self, table: TableSchema, fields: Row) -> None:
        """Write a row with these fields, replacing the one with the same key."""
        key = table.name, fields[1], fields[2]
        self._write(table, key, sealed(table, self._row_of(key), fields))

    def _put_queue(self, operation: PutQueue) -> None:
        row = queue_row(self.head.commits, operation.queue)
        self._write(QUEUE, key_of(QUEUE, row), row)

    def _write(self, table: TableSchema, key: RecordKey, row: Row) -> None:
        self._run(table.put, row)
        self._set(key, row)

    def _remove(self, table: TableSchema, first: Field, second: Field) -> None:
        key = table.name, first, second
        kept = self._kept(key)
        if kept is not None:
            self._run(f"DELETE FROM {table.name} WHERE id = ?", (kept.row,))
            self._set(key, None)

    def _trim(self, operation: Trim) -> None:
        before, position = self.head.trimmed, min(operation.position, self.head.last)
        if position > before:
            self._run(TRIM, (before, position, position))
            self.head = replace(self.head, trimmed=position)

    def _discard(self, operation: Discard) -> None:
        """The position is the end of a stored batch, or 0: see `Database.commit`."""
        if operation.position:
            self._run(DISCARD, (operation.position,))
            self._run(STREAM.put, stream_row(elsewhere(operation.position)))

    def _kept(self, key: RecordKey) -> KeptRecord | None:
        return self.changed[key] if key in self.changed else self._books.kept.get(key)

    def _row_of(self, key: RecordKey) -> int:
        kept = self._kept(key)
        if kept is not None:
            return kept.row
        self.row_max += 1
        return self.row_max

    def _set(self, key: RecordKey, row: Row | None) -> None:
        """Set or drop a row, and keep the sum of the table's checksums in step."""
        before = self._kept(key)
        after = None if row is None or not isinstance(row[0], int) else KeptRecord(row[0], checksum_of(row))
        change = (after.checksum if after else 0) - (before.checksum if before else 0)
        field = SUMS[key[0]]
        self.head = replace(self.head, **{field: (getattr(self.head, field) + change) & SUM_MASK})
        self.changed[key] = after


def check_append(batch: StoredBatch, position: int) -> None:
    """Refuse a batch at a position that is or was in use."""
    if batch.first <= position or batch.count < 1:
        raise InternalError(f"{batch.count} events at {batch.first} can't follow position {position}")
