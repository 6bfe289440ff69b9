"""A commit in SQL: the statements of one transaction, and the books as they are after it.

The books are the head, the row of every durable, counter, queue and record, and the stock of messages: with
them no index is needed on disk. A plan changes nothing by itself: a transaction that fails leaves the books
as true as they were.

Whatever the order of its operations, a commit writes each message once or not at all: it adds a few runs,
writes for each other run that it touches which messages are gone, and drops runs that have none left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
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
    StoredMessage,
    Trim,
    check_record,
)
from tidings.store.records import (
    COUNTER,
    DURABLE,
    HEAD,
    QUEUE,
    RECORD,
    RUN,
    SETTLED,
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
from tidings.store.runs import MessageRun, Stock, run_of, run_row, runs_of, settled_row

# Rows trimmed before are not visited again: it starts with the batch that the last trim may have spared.
TRIM = """DELETE FROM stream WHERE first >= coalesce((SELECT max(first) FROM stream WHERE first <= ?), 0)
    AND first <= ? AND NOT persistent AND first + count - 1 <= ?"""

DISCARD = "DELETE FROM stream WHERE first <= ?"

_PUT_HEAD = HEAD.put

ADD = f"INSERT INTO run VALUES ({', '.join('?' * RUN.width)})"
SETTLE = SETTLED.put
DROP = "DELETE FROM run WHERE id = ?"
DROP_SETTLED = "DELETE FROM settled WHERE id = ?"
COUNTED = frozenset((DROP, DROP_SETTLED))  # each changes as many rows as it is given
# No run is sparse before four of its messages are gone: a commit that may rewrite one run for every four
# messages that it removes keeps up with the rate, and never works long for earlier commits.
TAKEN_PER_REWRITING = 4

Fetch = Callable[[MessageRun], list[StoredMessage]]  # reads the messages of a run, gone or not

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


# Messages of queues


class SettledRun(Struct, gc=False):
    """Run, the set of its messages that are gone, and the checksum of the row that says so."""

    run: MessageRun
    gone: int
    checksum: int


class MessageCommits:
    """Collects the operations on messages; speed is its contract, as every put and every get comes here.

    The stock does not change before `apply`.
    """

    def __init__(self, stock: Stock, fetch: Fetch) -> None:
        self.statements: list[tuple[str, list[Row]]] = []
        self._stock = stock
        self._fetch = fetch
        self._highest = stock.last
        self._written: dict[int, StoredMessage] = {}
        self._taken: set[int] = set()  # from existing runs; some may be in none
        self._added: list[MessageRun] = []
        self._settled: list[SettledRun] = []
        self._dropped: list[MessageRun] = []

    def enqueue(self, operation: Enqueue) -> None:
        """Add a message; InternalError if its number is in use."""
        message = operation.message
        number = message.number
        if number > self._highest:
            self._highest = number
        else:
            check_enqueue(message, self._has(number))
        self._written[number] = message

    def revise(self, operation: Revise) -> None:
        """Change a message, if it exists."""
        number = operation.message.number
        if self._has(number):
            self._taken.add(number)
            self._written[number] = operation.message

    def dequeue(self, operation: Dequeue) -> None:
        """Remove a message; one that was added in the same commit never gets to the disk."""
        number = operation.number
        if number in self._written:
            del self._written[number]
        self._taken.add(number)

    def conclude(self, head: StoreHead) -> StoreHead:
        """Make the rows and statements, and return the head that goes with them."""
        if not (self._written or self._taken):
            return head
        taken = self._stock.locate(sorted(self._taken))
        moved = self._move(taken)
        self._take(taken, head.commits)
        self._add(moved, head)
        runs = sum([run.checksum for run in self._added]) - sum([run.checksum for run in self._dropped])
        before = [self._stock.runs[key].settled or 0 for key in taken]
        settled = sum([one.checksum for one in self._settled]) - sum(before)
        return replace(
            head,
            run=head.run + len(self._added),
            runs=(head.runs + runs) & SUM_MASK,
            settled=(head.settled + settled) & SUM_MASK,
        )

    def apply(self) -> None:
        """Update the stock, now that the statements are committed."""
        for run in self._dropped:
            self._stock.remove(run)
        for one in self._settled:
            self._stock.settle(one.run, one.gone, one.checksum)
        for run in self._added:
            self._stock.add(run)

    def _has(self, number: int) -> bool:
        return number in self._written or (number not in self._taken and self._stock.has(number))

    def _move(self, taken: dict[int, int]) -> list[StoredMessage]:
        """Empty the sparse runs that are overdue; return the messages that remain, to be written again."""
        moved: list[StoredMessage] = []
        for run in self._stock.overdue(1 + len(self._taken) // TAKEN_PER_REWRITING):
            gone = run.gone | taken.get(run.key, 0)
            taken[run.key] = run.all & ~run.gone
            if gone != run.all:
                moved += (one for index, one in enumerate(self._fetch(run)) if not gone >> index & 1)
        return sorted(moved, key=attrgetter("number"))

    def _take(self, taken: dict[int, int], commit: int) -> None:
        rows: list[Row] = []
        for key, bits in taken.items():
            run = self._stock.runs[key]
            gone = run.gone | bits
            if gone == run.all:
                self._dropped.append(run)
            else:
                row = settled_row(key, commit, gone)
                rows.append(row)
                self._settled.append(SettledRun(run, gone, checksum_of(row)))
        self._run(DROP, [(run.key,) for run in self._dropped])
        self._run(DROP_SETTLED, [(run.key,) for run in self._dropped if run.settled is not None])
        self._run(SETTLE, rows)

    def _add(self, moved: list[StoredMessage], head: StoreHead) -> None:
        rows: list[Row] = []
        for key, messages in enumerate(self._runs(moved), start=head.run + 1):
            row = run_row(key, head.commits, messages)
            rows.append(row)
            self._added.append(run_of(row))
        self._run(ADD, rows)

    def _runs(self, moved: list[StoredMessage]) -> Iterator[list[StoredMessage]]:
        """Yield the new runs: messages among the old numbers stay apart from those above them all."""
        numbers = sorted(self._written)
        written = [self._written[number] for number in numbers]
        end = bisect_right(numbers, self._stock.last)
        for messages in filter(None, (moved, written[:end], written[end:])):
            compressed = [one for one in messages if one.compress]
            if compressed:
                yield from runs_of(compressed)
                messages = [one for one in messages if not one.compress]
            yield from runs_of(messages)

    def _run(self, statement: str, rows: list[Row]) -> None:
        if rows:
            self.statements.append((statement, rows))


def check_enqueue(message: StoredMessage, is_there: bool) -> None:
    """Refuse a message whose number is in use."""
    if is_there or message.number < 1:
        raise InternalError(f"message {message.number} can't be new")
