"""SQLite's errors as a store's: the disk failed, or the data on it can't be valid."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidings.errors import StoreFailed

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
