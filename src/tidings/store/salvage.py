"""Rebuilding of a damaged database from every row in it that is still as it was written.

The new database is made beside the old one and takes its place when it is complete; the old one is kept under
another name. A crash at any moment leaves the old one or the new one in place: once the file called `rebuilt`
exists it is complete, and the next opening finishes the exchange.

Afterwards a row is there if its own bytes are good and its leaf still says where it lies, or the row before
it in the leaf is good; the rest of the tree is not needed. So a flipped bit in the file costs one row at
most: of messages one run. A row that is not as it was written is never there. Lost positions are reported,
and no new event gets one of them. The loss of whole commits at the very end of the log (cut off, or a bad bit
in the last one) can't be seen: it looks like a crash before they were made.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tidings.ids import new_system
from tidings.store.commit_sql import SUMS
from tidings.store.database import connect, making, too_new
from tidings.store.directory import sync_directory, trouble
from tidings.store.pages import Pages, RowPlace, log_of
from tidings.store.records import (
    COUNTER,
    DURABLE,
    FORMAT,
    HEAD,
    HEAD_BEFORE,
    META,
    QUEUE,
    RECORD,
    RUN,
    SETTLED,
    STREAM,
    SUM_MASK,
    TABLES,
    Meta,
    RecordKey,
    Row,
    StoreHead,
    StreamLink,
    TableSchema,
    changed_in,
    checksum_of,
    durable_of,
    head_of,
    head_row,
    is_gap,
    is_sound,
    is_whole,
    key_of,
    link_of,
    meta_of,
    sealed,
    stream_row,
    tables_of,
)
from tidings.store.runs import gone_of, run_of, spans

# More events than can have been lost unseen: no position of a lost event is ever used again.
POSITION_LEAP = 2**32


class _SalvagedRecord(Struct, frozen=True, gc=False):
    """Place of a run's sound row."""

    checksum: int
    changed: int
    is_whole: bool  # its content is good too
    place: RowPlace

    @property
    def rank(self) -> tuple[int, bool, bool, bool]:
        """Sort key by which the right one of several rows with the same key is the greatest."""
        return self.changed, self.is_whole, self.place.is_in_tree, not self.place.is_free


class FoundRuns:
    """Remains of the messages of queues: sound rows of runs, and the newest sound rows of SETTLED.

    A removed run does not come back as long as its row is known to be old: by the tree, by SQLite's list of
    free pages, and by the sum in the head, which decides where those two contradict. If the row is lost that
    says which messages of a run are gone, these come back, and that is reported.
    """

    def __init__(self) -> None:
        self._runs: dict[int, _SalvagedRecord] = {}
        self._settled: dict[int, Row] = {}

    def keep(self, row: Row, place: RowPlace) -> None:
        """Add a sound row of RUN."""
        key, found = (
            cast(int, row[0]),
            _SalvagedRecord(checksum_of(row), changed_in(row), is_whole(row), place),
        )
        known = self._runs.get(key)
        if known is None or known.rank < found.rank:
            self._runs[key] = found

    def keep_settled(self, row: Row) -> None:
        """Add a sound row of SETTLED."""
        key = cast(int, row[0])
        known = self._settled.get(key)
        if known is None or changed_in(known) < changed_in(row):
            self._settled[key] = row

    def copy(
        self, pages: Pages, head: StoreHead, connection: sqlite3.Connection, problems: list[str]
    ) -> StoreHead:
        """Write the remains, report messages that are lost or may be back, and return the matching head."""
        chosen = self._chosen(head.runs)
        whole = {key: found for key, found in chosen.items() if found.is_whole}
        left = 0
        for key, found in chosen.items():
            row = pages.row(found.place)
            assert row is not None
            numbers = self._left(row)
            if found.is_whole:
                left += len(numbers)
                connection.execute(RUN.put, row)
                connection.executemany(SETTLED.put, [self._settled[key]] if key in self._settled else [])
            else:
                problems.append(f"message {spans(numbers)}: run {key} is not as it was written")
        if _total(chosen.values()) != head.runs:
            problems.append(f"message: {left} are left, others are lost or some have come back")
        if self._total_settled(chosen) != head.settled:
            problems.append("settled: rows are lost, some messages may be there that were taken away before")
        last = max(head.run, *chosen, 0)
        return replace(head, run=last, runs=_total(whole.values()), settled=self._total_settled(whole))

    def _chosen(self, total: int) -> dict[int, _SalvagedRecord]:
        """Return the runs in the trees, or else those not listed as free, whichever have the right sum.

        If neither do, return all: better some that are gone than one too few.
        """
        found = {key: self._runs[key] for key in sorted(self._runs)}
        by_trees = {key: one for key, one in found.items() if one.place.is_in_tree}
        by_list = {key: one for key, one in found.items() if not one.place.is_free}
        return next((some for some in (by_trees, by_list) if _total(some.values()) == total), found)

    def _left(self, row: Row) -> list[int]:
        run = run_of(row)
        settled = self._settled.get(run.key)
        run.gone = 0 if settled is None else gone_of(settled)
        return run.left

    def _total_settled(self, keys: Iterable[int]) -> int:
        rows = (self._settled[key] for key in keys if key in self._settled)
        return sum(map(checksum_of, rows)) & SUM_MASK


def _total(runs: Iterable[_SalvagedRecord]) -> int:
    return sum(run.checksum for run in runs) & SUM_MASK


class _Finds(Struct):
    """Sound rows of a database."""

    format: int = FORMAT - 1  # ours if anything shows that: a database taken for older is only migrated again
    metas: list[Meta] = []
    heads: list[StoreHead] = []
    records: dict[RecordKey, tuple[TableSchema, Row]] = {}  # the newest of each
    stream: dict[int, RowPlace] = {}
    runs: FoundRuns = msgspec.field(default_factory=FoundRuns)


def refuse_newer(database: Path) -> None:
    """Raise StoreTooNew if a later tidings made it; tables of other formats are left alone."""
    if database.stat().st_size == 0:
        return
    # SQLite may quote a damaged schema in an error that is no valid text.
    unreadable = suppress(sqlite3.Error, UnicodeDecodeError)
    with unreadable, closing(connect(database, read_only=True)) as connection:
        row: Row = connection.execute("SELECT * FROM meta").fetchone() or ()
        if is_sound(META, row) and meta_of(row).format > FORMAT:
            raise too_new(database, meta_of(row).format)


def rebuild(database: Path, head: StoreHead | None) -> list[str]:
    """Replace a damaged database, which no process has open, by a sound one; return what is lost.

    `head` is the state of the store, if known; otherwise the one found in the database.
    """
    refuse_newer(database)
    new = database.with_name(database.name + ".new")
    with trouble(database), Pages(database) as pages:
        finds = _survey(pages)
        problems = [] if finds.heads or head else ["head: is lost"]
        is_certain = head is not None or (bool(finds.heads) and not pages.has_log_damage)
        head = head or _head(finds, problems)
        with making(new, Meta(head.node, head.boot, finds.format)) as connection:
            head = _copy_stream(pages, finds, head, connection, problems)
            head = _copy_records(finds, head, connection, problems)
            head = finds.runs.copy(pages, head, connection, problems)
            if not is_certain:
                head = replace(head, position=head.position + POSITION_LEAP)
            table = tables_of(finds.format)[1]
            connection.execute(table.put, head_row(head, table))
        sync_directory(database.parent)
        new.rename(_rebuilt(database))
        finish_rebuild(database)
    return problems


def finish_rebuild(database: Path) -> None:
    """If a rebuilt database is complete, keep the damaged one under another name and move the new one in."""
    rebuilt = _rebuilt(database)
    if not rebuilt.exists():
        return
    sync_directory(database.parent)
    aside = _free_name(database)
    for damaged, name in ((log_of(database), log_of(aside)), (database, aside)):
        if damaged.exists():
            damaged.rename(name)
    database.with_name(database.name + "-shm").unlink(missing_ok=True)
    rebuilt.rename(database)
    sync_directory(database.parent)


def make(database: Path, head: StoreHead) -> None:
    """Create a new database; after a crash it is there and whole, or not there."""
    new = database.with_name(database.name + ".new")
    with trouble(database):
        with making(new, Meta(head.node, head.boot)) as connection:
            connection.execute(HEAD.put, head_row(head))
        new.rename(database)
        sync_directory(database.parent)


def _rebuilt(database: Path) -> Path:
    return database.with_name(database.name + ".rebuilt")


def _free_name(database: Path) -> Path:
    number = 1
    while True:
        path = database.with_name(f"{database.name}.damaged-{number}")
        if not path.exists() and not log_of(path).exists():
            return path
        number += 1


def _survey(pages: Pages) -> _Finds:
    finds = _Finds()
    for place in pages.places():
        row = pages.row(place)
        if row is None:
            continue
        # A batch never changes, so an older page is as good; of all other rows only the newest counts.
        for table in (STREAM,) if place.is_old else (*TABLES, HEAD_BEFORE):
            if is_sound(table, row):
                _KEEP[table.name](finds, row, place)
                if table in (HEAD, RECORD):
                    finds.format = FORMAT
    return finds


def _keep_meta(finds: _Finds, row: Row, _: RowPlace) -> None:
    finds.metas.append(meta_of(row))
    finds.format = max(finds.format, meta_of(row).format)


def _keep_newest(table: TableSchema, finds: _Finds, row: Row, _: RowPlace) -> None:
    key = key_of(table, row)
    known = finds.records.get(key)
    if known is None or changed_in(known[1]) < changed_in(row):
        finds.records[key] = table, row


_KEEP: dict[str, Callable[[_Finds, Row, RowPlace], object]] = {
    META.name: _keep_meta,
    HEAD.name: lambda finds, row, _: finds.heads.append(head_of(row)),
    STREAM.name: lambda finds, row, place: finds.stream.setdefault(link_of(row).batch.first, place),
    RUN.name: lambda finds, row, place: finds.runs.keep(row, place),
    SETTLED.name: lambda finds, row, _: finds.runs.keep_settled(row),
    **{table.name: partial(_keep_newest, table) for table in (DURABLE, COUNTER, QUEUE, RECORD)},
}


def _head(finds: _Finds, problems: list[str]) -> StoreHead:
    """Return the newest head; without one, a head made of what else is known of the node."""
    if finds.heads:
        newest = max(finds.heads, key=lambda head: head.commits)
        return replace(newest, boot=max(newest.boot, *(meta.boot for meta in finds.metas), 0))
    if finds.metas:
        meta = max(finds.metas, key=lambda meta: meta.boot)
        return StoreHead(meta.node, meta.boot)
    problems.append("meta: the name of the node is lost, it has a new one")
    return StoreHead(new_system(os.urandom), 0)


def _copy_stream(
    pages: Pages, finds: _Finds, head: StoreHead, connection: sqlite3.Connection, problems: list[str]
) -> StoreHead:
    """Write the batches that are left, each linked to the one before it that is left."""
    after = replace(head, last=0, kept=0, latest_us=0)
    for link in _links(pages, finds, head):
        if is_gap(link, after.last, head.trimmed):
            problems.append(f"stream {after.last + 1}: lost up to {max(link.previous, link.kept)}")
        latest_us = max(after.latest_us, link.batch.stored_us)
        linked = StreamLink(link.batch, previous=after.last, kept=after.kept, latest_us=latest_us)
        connection.execute(STREAM.put, stream_row(linked))
        kept = link.last if link.batch.persistent else after.kept
        after = replace(after, last=link.last, kept=kept, latest_us=latest_us)
    if is_gap(head, after.last, head.trimmed):
        problems.append(f"stream {after.last + 1}: lost up to {head.last}")
    return replace(after, position=max(head.position, after.last))


def _links(pages: Pages, finds: _Finds, head: StoreHead) -> Iterator[StreamLink]:
    """Yield the batches in order, without trimmed ones whose pages are only not yet used again."""
    last = 0
    for first in sorted(finds.stream):
        row = pages.row(finds.stream[first])
        assert row is not None
        link = link_of(row)
        if first > last and (link.batch.persistent or link.last > head.trimmed):
            last = link.last
            yield link


def _copy_records(
    finds: _Finds, head: StoreHead, connection: sqlite3.Connection, problems: list[str]
) -> StoreHead:
    """Write the durables, counters, queues and records that are left; report if some are missing or old."""
    before = dict.fromkeys(SUMS, 0)
    after = dict.fromkeys(SUMS, 0)
    position = head.position
    for key, (table, row) in enumerate(finds.records.values(), start=1):
        copy = row if table is QUEUE else sealed(table, key, row[2:])  # the others' keys are only ours
        connection.execute(table.put, copy)
        before[table.name] += checksum_of(row)
        after[table.name] += checksum_of(copy)
        if table is DURABLE:
            durable = durable_of(row)
            position = max(position, durable.cursor, durable.handed)
    for name, field in SUMS.items():
        if before[name] & SUM_MASK != getattr(head, field):
            problems.append(f"{name}: records are lost or older than they were")
    sums = {field: after[name] & SUM_MASK for name, field in SUMS.items()}
    return replace(head, position=position, **sums)
