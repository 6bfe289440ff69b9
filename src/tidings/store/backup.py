"""Backups: a copy of a store as it was at one moment, made while a node goes on with it; and restoring one.

The copy is made page by page from a snapshot, so commits do not wait for it and it holds whole commits only.
SQLite's log can't be truncated past the snapshot meanwhile, so it grows by every commit made during a backup.
A backup is one file. It is written in a folder beside its place, read through and checked as a store is when
it is opened, and takes its name when it is complete, so nothing half ever has that name.

A restored store is the node of the backup in a later life. It lacks everything that was done after the
backup, yet clients may know of it: so no boot and no position that was used then is used again. Both go on
from the clock, which is ahead of whatever the node has reached. And everything in it may have been delivered
after the backup, so it is marked `redelivered` when it is delivered.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import StoreDamaged, StoreError, StoreInUse
from tidings.ids import new_system
from tidings.store.database import StoreDatabase, connect
from tidings.store.directory import DATABASE, LOCK, Broken, Directory, sync_directory, trouble
from tidings.store.interface import Durable, Operation, PutCursor, PutQueue
from tidings.store.pages import PAGE_SIZE, log_of
from tidings.store.records import StoreHead
from tidings.store.salvage import POSITION_LEAP, rebuild, refuse_newer

STEP_PAGES = 256
"""Pages copied at once, 1 MB."""
SYNC_STEPS = 16
"""Steps after which the copy is synced: a node's own syncs would wait for one large one at the end."""
READ_SIZE = 1 << 20
"""Bytes of events read at once when a copy is checked."""

_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync

BackupProgress = Callable[[int, int], None]
"""Called after every step with the bytes done and the total; an exception that it raises ends the work."""


class BackupSummary(Struct, frozen=True):
    """Contents of a backup, or of a restored one."""

    node: str
    boot: int  # of the last opening; the next one is higher
    position: int
    size: int  # in bytes
    events: int
    messages: int
    queues: int
    durables: int
    records: int
    damage: list[str] = []  # records that are not as they were written, and are skipped when it is opened


def back_up(
    directory: Path, target: Path, replaces: bool = False, progress: BackupProgress | None = None
) -> BackupSummary:
    """Write a backup of the store in a directory to a file, whether or not a node runs on it.

    An existing file is left alone, unless it may be replaced; and a backup with damage replaces none. Raises
    StoreError, StoreDamaged if the store contradicts itself, StoreInUse if another backup to the same file is
    being made, StoreTooNew or StoreFailed; then the target is as it was.
    """
    database = directory / DATABASE
    if target.exists() and not replaces:
        raise StoreError(str(target), "exists already")
    if not database.exists():
        raise StoreError(str(directory), "there is no store in it")
    if not target.parent.is_dir():
        raise StoreError(str(target.parent), "there is no such directory")
    refuse_newer(database)
    with _unfinished(target) as copy, _broken_is_damage(database):
        with _snapshot(directory) as source, trouble(target):
            _copy_pages(source, copy, progress or (lambda _done, _total: None))
        summary = _checked(copy)
        if summary.damage and target.exists():
            raise StoreDamaged(str(database), f"{summary.damage[0]}; {target} was not replaced")
        with trouble(target):
            copy.rename(target)
            sync_directory(target.parent)
    return summary


def restore(
    file: Path, directory: Path, now: float, renames: bool = False, progress: BackupProgress | None = None
) -> BackupSummary:
    """Make the store of a directory out of a backup; `now` is the time, in seconds.

    With `renames` the node gets a new name, for a copy beside the original node. A backup that has been
    damaged since is restored as far as it is sound. Raises StoreError (if the directory has a store, for
    example), StoreInUse, StoreTooNew, StoreDamaged if nothing is sound, or StoreFailed; then there is still
    no store.
    """
    if not file.is_file():
        raise StoreError(str(file), "there is no such file")
    if log_of(file).exists() and log_of(file).stat().st_size:
        raise StoreError(str(file), "has a log beside it: it is a store, and no backup of one")
    home = Directory(directory)
    new = home.database.with_name(DATABASE + ".new")
    try:
        _refuse_store(home)
        with trouble(directory):
            _remove(new)
            _copy_file(file, new, progress or (lambda _done, _total: None))
        with _broken_is_damage(file):
            damage = _made_sound(new)
            _begin_later_life(new, now, renames)
            summary = _checked(new)
        kept = summary.queues, summary.durables, summary.records
        if damage and not (summary.events or summary.messages or any(kept)):
            raise StoreDamaged(str(file), "holds nothing that a node has written: is it a backup?")
        with trouble(directory):
            new.rename(home.database)
            sync_directory(directory)
    finally:
        with suppress(OSError):
            _remove(new)
        home.release()
    return replace(summary, damage=[*damage, *summary.damage])


@contextmanager
def _broken_is_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except Broken as broken:
        raise StoreDamaged(str(path), str(broken)) from broken


# Making a backup


@contextmanager
def _unfinished(target: Path) -> Iterator[Path]:
    """Yield the path to write a backup to, in a temporary folder; a leftover one is emptied first."""
    home = Directory(target.with_name(target.name + ".partial"))
    try:
        with trouble(target):
            _remove(home.database)
            home.database.touch(mode=0o600)
        yield home.database
    finally:
        with suppress(OSError):
            _remove(home.database)
            (home.path / LOCK).unlink()
            home.path.rmdir()
        home.release()


@contextmanager
def _snapshot(directory: Path) -> Iterator[sqlite3.Connection]:
    """Yield the store as it is now, for reading. If no node has it open, none can open it before the end."""
    path = directory / DATABASE
    try:
        home = Directory(directory)
    except StoreInUse:
        with _reading(path) as source:
            yield source
        return
    try:
        # A log that no process has open is checked first: SQLite would drop everything after a bad page.
        with closing(StoreDatabase(path, _unheard)), _reading(path) as source:
            yield source
    finally:
        home.release()


def _unheard(_problem: str) -> None:
    """Ignore damage here: it is found again in the copy."""


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    with trouble(path), closing(connect(path, read_only=True)) as source:
        # SQLite would start over after every commit of another process, but not within a transaction.
        source.execute("BEGIN")
        source.execute("SELECT * FROM head").fetchone()
        yield source


def _copy_pages(source: sqlite3.Connection, copy: Path, progress: BackupProgress) -> None:
    steps = 0

    with copy.open("rb") as file, closing(connect(copy)) as target:

        def step(_status: int, remaining: int, total: int) -> None:
            nonlocal steps
            steps += 1
            if steps % SYNC_STEPS == 0:
                _sync_data(file.fileno())
            progress((total - remaining) * PAGE_SIZE, total * PAGE_SIZE)

        # An incomplete copy is thrown away, and a complete one is synced before it counts.
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_spill = ON"):
            target.execute(f"PRAGMA {setting}")
        source.backup(target, pages=STEP_PAGES, progress=step, sleep=0.0)
    with copy.open("rb") as file:
        os.fsync(file.fileno())


# Checking


def _checked(path: Path) -> BackupSummary:
    """Read every row of a database and return a summary; raises Broken as an opening does. Sync it after."""
    damage: list[str] = []
    with closing(StoreDatabase(path, damage.append)) as database:
        stock = database.books.stock
        head = database.books.head
        with trouble(path):
            events = sum(_batch_sizes(database))
            found = (database.reader.messages_in(stock.runs[key]) for _, key in stock.in_order())
            messages = sum(len(some) for some in found if some is not None)
        kept = len(database.queues), len(database.durables), sum(map(len, database.records.values()))
    with trouble(path), path.open("rb") as file:
        os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
    return BackupSummary(head.node, head.boot, head.position, size, events, messages, *kept, damage)


def _batch_sizes(database: StoreDatabase) -> Iterator[int]:
    position = 0
    while found := database.reader.read(position, READ_SIZE):
        yield from (batch.count for batch in found)
        position = found[-1].first + found[-1].count


# Restoring


def _refuse_store(home: Directory) -> None:
    leftover = DATABASE + ".new"  # of a store whose creation was cut short
    names = {entry.name for entry in home.path.iterdir() if not entry.name.startswith(leftover)}
    there = sorted(name for name in names if name.startswith(DATABASE))
    if there:
        raise StoreError(str(home.path), f"has a store already: {there[0]!r} lies in it")


def _copy_file(file: Path, copy: Path, progress: BackupProgress) -> None:
    total = file.stat().st_size
    with (
        file.open("rb") as source,
        os.fdopen(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target,
    ):
        while piece := source.read(STEP_PAGES * PAGE_SIZE):
            target.write(piece)
            progress(target.tell(), total)


def _made_sound(copy: Path) -> list[str]:
    """Check that the copy can be opened; if it can't, rebuild it and return what is lost."""
    refuse_newer(copy)
    try:
        StoreDatabase(copy, _unheard).close()
    except Broken as broken:
        return [str(broken), *rebuild(copy, None)]
    return []


def _begin_later_life(copy: Path, now: float, renames: bool) -> None:
    """Skip every boot and position that the node may have used since the backup."""
    with closing(StoreDatabase(copy, _unheard)) as database:
        database.migrate()
        books, now_us = database.books, int(now * 1e6)
        name = new_system(os.urandom) if renames else books.head.node
        before = books.head
        # One boot per millisecond, one event per microsecond: no node is that fast for long.
        boot = max(before.boot, books.meta.boot, now_us // 1000)
        position = max(before.position + POSITION_LEAP, now_us)
        books.meta = replace(books.meta, node=name)
        books.head = replace(before, node=name, boot=boot, position=position)
        marked: list[Operation] = [PutCursor(_marked(one, before, position)) for one in database.durables]
        marked += [PutQueue(replace(one, handed=max(one.handed, now_us))) for one in database.queues]
        database.commit(marked)
        database.begin()


def _marked(durable: Durable, before: StoreHead, position: int) -> Durable:
    """Return the durable as one that may have had everything; if nothing waited for it, nothing does now."""
    cursor = position if durable.cursor >= before.last else durable.cursor
    return replace(durable, cursor=cursor, handed=position)


def _remove(database: Path) -> None:
    """Remove a database, with all files beside it under its name."""
    for path in database.parent.glob(database.name + "*"):
        path.unlink()
