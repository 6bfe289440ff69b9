"""Store of a node that has a directory: one SQLite database, verified as it is read.

A commit is one transaction and one fdatasync. Readers have a connection of their own, so neither side waits
for the other. Damage is never served. A bad row is reported and skipped; when the file contradicts itself, it
is rebuilt at once from all good rows in it (see `salvage`), while commits and reads wait.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from tidings.errors import StoreDamaged, StoreError, StoreFailed
from tidings.ids import new_system
from tidings.store.database import StoreDatabase
from tidings.store.directory import Broken, Directory, trouble
from tidings.store.interface import Operation, StoredBatch, StoredMessage, StoreState
from tidings.store.reader import SnapshotReader
from tidings.store.records import StoreHead
from tidings.store.salvage import finish_rebuild, make, rebuild, refuse_newer

REBUILDS_MAX = 3  # in one run: a disk that damages the file this fast is broken
DAMAGE_MAX = 1000  # reports that are kept
SQLITE_MIN = (3, 37)  # the first with STRICT tables

Answer = TypeVar("Answer")

_number = attrgetter("number")


class SqliteStore:
    """Store in a directory, which is created if missing, and held by this process until `close`."""

    def __init__(self, path: Path) -> None:
        """Raises StoreInUse, StoreTooNew, StoreFailed, or StoreError if the directory is not a node's."""
        if sqlite3.sqlite_version_info < SQLITE_MIN:
            raise StoreError(str(path), f"needs SQLite 3.37, this Python has {sqlite3.sqlite_version}")
        self.damage: list[StoreDamaged] = []
        self._reported: set[str] = set()
        self._rebuilds = 0
        self._why_closed = "is closed"
        self._writing, self._reading = threading.RLock(), threading.RLock()  # taken in this order
        self._directory = Directory(path)
        self._path = self._directory.database
        self._database: StoreDatabase | None = None
        try:
            self.state = self._open()
        except BaseException:
            self.close()
            raise

    def commit(self, operations: Sequence[Operation]) -> None:
        """Do all of these, or raise StoreFailed and have done none; durable on return."""
        with self._writing:
            self._directory.check()
            while True:
                database = self._open_database()
                try:
                    return database.commit(operations)
                except Broken as broken:
                    self._rebuild(database, broken)

    def read(self, position: int, size_max: int) -> list[StoredBatch]:
        """Return the batches with positions from this one on: at least one, then as many as fit the size."""
        return self._ask(lambda reader: reader.read(position, size_max))

    def read_before(self, position: int, size_max: int) -> list[StoredBatch]:
        """Return the batches that begin at or before the position, the last first, with that limit."""
        return self._ask(lambda reader: reader.read_before(position, size_max))

    def position_at(self, time_us: int) -> int:
        """Return the position of the first event stored at or after that time, or one past the last."""
        return self._ask(lambda reader: reader.position_at(time_us))

    @property
    def discarded(self) -> int:
        """Position up to which persistent batches were deleted too."""
        return self._open_database().discarded

    def corrupt(self, first: int, end: int) -> list[int]:
        """Return the first positions of the damaged batches that were read, from `first` on, before `end`."""
        with self._reading:
            return sorted(one for one in self._open_database().reader.bad if first <= one < end)

    def messages(self) -> Iterator[StoredMessage]:
        """Yield all messages by number; raises MissingExtra at one that needs it to be decompressed.

        Messages added meanwhile are left out; those removed or changed meanwhile may be included or not.
        """
        with self._writing:
            runs = self._open_database().books.stock.in_order()
        waiting: list[StoredMessage] = []  # messages of the next run may come between them
        for first, key in runs:
            ready = bisect_left(waiting, first, key=_number)
            yield from waiting[:ready]
            waiting = sorted([*waiting[ready:], *self._messages_in(key)], key=_number)
        yield from waiting

    def close(self) -> None:
        """Close the store; committed data stays."""
        with self._writing, self._reading:
            database, self._database = self._database, None
            self._why_closed = "is closed"
            if database is not None:
                database.close()
            self._directory.release()

    def _open(self) -> StoreState:
        with trouble(self._path):
            finish_rebuild(self._path)
            if not self._path.exists():
                make(self._path, StoreHead(new_system(os.urandom), boot=0))
            refuse_newer(self._path)
        try:
            database = StoreDatabase(self._path, self._report)
            self._database = database
            database.begin()
        except Broken as broken:
            database = self._rebuild(self._database, broken)
            database.begin()
        head, lists = database.books.head, (database.durables, database.counters, database.queues)
        return StoreState(head.node, head.boot, head.position, *lists, database.records)

    def _open_database(self) -> StoreDatabase:
        if self._database is None:
            raise StoreFailed(str(self._path), self._why_closed)
        return self._database

    def _ask(self, question: Callable[[SnapshotReader], Answer]) -> Answer:
        while True:
            with self._reading:
                database = self._open_database()
                try:
                    return question(database.reader)
                except Broken as error:
                    broken = error
            self._rebuild(database, broken)

    def _messages_in(self, key: int) -> list[StoredMessage]:
        """Return the messages of a run; none if it is gone, or is bad: then its numbers count as free."""

        def ask(reader: SnapshotReader) -> list[StoredMessage]:
            stock = self._open_database().books.stock  # another one after a rebuild, with the same keys
            run = stock.runs.get(key)
            found = None if run is None else reader.messages_in(run)
            if run is not None and found is None:
                stock.remove(run)
            return found or []

        with self._writing:  # commits change the stock
            return self._ask(ask)

    def _rebuild(self, damaged: StoreDatabase | None, broken: Broken) -> StoreDatabase:
        """Replace this database by a sound one, unless another thread has done so already."""
        with self._writing, self._reading:
            if self._database is not damaged:
                return self._open_database()
            self._report(str(broken))
            if self._rebuilds == REBUILDS_MAX:
                raise StoreFailed(str(self._path), f"damaged after {REBUILDS_MAX} rebuilds: {broken}")
            self._rebuilds += 1
            self._database = None
            if damaged is not None:
                damaged.close()
            self._why_closed = f"is damaged and could not be rebuilt: {broken}"
            for problem in rebuild(self._path, None if damaged is None else damaged.books.head):
                self._report(problem)
            self._database = StoreDatabase(self._path, self._report)
            self._database.migrate()
            return self._database

    def _report(self, problem: str) -> None:
        """Keep the report of a damaged place once, however often it is read."""
        if problem not in self._reported and len(self.damage) < DAMAGE_MAX:
            self._reported.add(problem)
            self.damage.append(StoreDamaged(str(self._path), problem))
