"""The directory of a node: made for its owner only, held by one process at a time; and errors of its files.

The lock is the kernel's (flock), so it ends with the process, however that ends; the number in the file only
names its holder.

A process goes on writing to files that were removed or replaced under it, and every sync succeeds; but the
next process that opens the store finds nothing of that. So before and after each commit the names must lead
to the open files: two calls of `stat` each, a few microseconds.

An error of SQLite means that the disk failed, or that the data on it can't be valid.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidings import locks
from tidings.errors import StoreError, StoreFailed, StoreInUse

LOCK = "lock"
DATABASE = "tidings.db"
FILES = "log"  # folder of sealed files, if they lie here: it survives when the database is restored
SECURITY = "security"  # the security directory of a node that has joined
_OURS = "tidings."  # prefix of all our file names, except the lock's

# Codes that say nothing about the content of the file.
_FAILURES = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOLFS,
}


class Directory:
    """Directory that this process holds until `release`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        locks.check_locks(f"{path}: a store")
        try:
            _make(path)
            refuse_foreign(path)
            self._lock = _take_lock(path)
            self._presence = Presence(path / LOCK)
        except OSError as error:
            raise StoreFailed(str(path), error.strerror or str(error)) from error

    @property
    def database(self) -> Path:
        """Path of the database."""
        return self.path / DATABASE

    def check(self) -> None:
        """Raise StoreFailed if the lock is gone: another process could have the directory too."""
        self._presence.check()

    def release(self) -> None:
        """Release the lock; does nothing the second time."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            # The file stays: removing it would let two processes each lock a file of that name.
            os.ftruncate(lock, 0)
            os.close(lock)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make(path: Path) -> None:
    """Create the directory and its missing parents, so that they survive a power cut.

    One without a database may have been created by a process that was killed before it synced the name.
    """
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (path / DATABASE).exists():
        for one in missing or [path]:
            sync_directory(one.parent)


def refuse_foreign(path: Path, *others: str) -> None:
    """Refuse a directory with other things in it than a node's, or than these."""
    names = {entry.name for entry in path.iterdir()}
    foreign = names - {LOCK, FILES, SECURITY, *others}
    if foreign and not any(name.startswith(_OURS) for name in names):
        example = min(foreign)
        raise StoreError(str(path), f"is not empty and not a tidings directory: {example!r} lies in it")


def _take_lock(path: Path) -> int:
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        locks.lock(lock)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
        os.close(lock)
        who = f"process {holder}" if holder else "another process"
        raise StoreInUse(str(path), f"{who} uses it; stop that one, or choose another directory") from None
    except OSError:
        os.close(lock)
        raise
    return lock


class Presence:
    """Files that must not be moved, removed or replaced."""

    def __init__(self, *paths: Path) -> None:
        """Raises OSError if one is missing."""
        self._files = [(str(path), _identity(str(path))) for path in paths]

    def check(self) -> None:
        """Raise StoreFailed if a file is not where it was, or another is there."""
        for path, identity in self._files:
            try:
                is_there = _identity(path) == identity
            except OSError:
                is_there = False
            if not is_there:
                raise StoreFailed(path, "was removed or replaced while the node runs; stop the node")


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)  # noqa: PTH116  # by name: a Path costs several times as much, at every commit
    return found.st_dev, found.st_ino


# Trouble with the files


class Broken(Exception):
    """The database contradicts itself; it has to be rebuilt. Never leaves the store."""


@contextmanager
def trouble(path: Path) -> Iterator[None]:
    """Turn an error of SQLite into StoreFailed or Broken, and one of the system into StoreFailed."""
    try:
        yield
    except sqlite3.Error as error:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        if code is None:  # a wrong use of the module
            raise
        if code & 0xFF in _FAILURES and code != sqlite3.SQLITE_IOERR_SHORT_READ:
            raise StoreFailed(str(path), str(error)) from error
        raise Broken(str(error)) from error
    except UnicodeDecodeError as error:  # SQLite quotes a damaged schema, which the module can't decode
        raise Broken("the schema can't be read") from error
    except OSError as error:
        raise StoreFailed(str(path), error.strerror or str(error)) from error
