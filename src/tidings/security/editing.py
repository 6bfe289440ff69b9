"""Changes of the files of a security directory, by commands, while a node reads them.

A file is written anew beside the old one and takes its place when it is on the disk, so whoever reads it sees
the old or the new. One command at a time changes a directory.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidings.errors import ConfigError
from tidings.security.directory import SecurityDirectory, check_directory, read_text
from tidings.security.users import UserLines
from tidings.store.directory import sync_directory

SECRET, OPEN = 0o600, 0o644
"""Modes of files."""


@contextmanager
def edited(directory: SecurityDirectory) -> Iterator[UserLines]:
    """The users file, to be changed in the block and written at its end; not if it raises."""
    with alone(directory.path):
        before = read_text(directory.users)
        lines = UserLines(before, str(directory.users))
        yield lines
        if lines.text != before:
            write_file(directory.users, lines.text)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """No other command changes the directory meanwhile; waits for one that does."""
    check_directory(path)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_file(path: Path, text: str, mode: int = SECRET) -> None:
    """Write a file, in the place of the one that is there: all of it or nothing."""
    path = path.resolve()  # a link stays one
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write(beside, path, text, mode)
        beside.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(str(path), "", f"can't be written: {error.strerror}") from None


def write_new(path: Path, text: str, mode: int = SECRET) -> None:
    """Write a file that must not be there yet."""
    if path.exists() or path.is_symlink():
        raise ConfigError(str(path), "", "is there already, and is not written over")
    write_file(path, text, mode)


def _write(beside: Path, path: Path, text: str, mode: int) -> None:
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
        _keep_owner(handle, path)
        os.fchmod(handle, mode)
        file.write(text)
        file.flush()
        os.fsync(handle)


def _keep_owner(handle: int, path: Path) -> None:
    """What root writes belongs to whom the old file, or else its directory, does: the node must read it."""
    whose = (path if path.exists() else path.parent).stat()
    if os.geteuid() == 0 and whose.st_uid != 0:
        os.fchown(handle, whose.st_uid, whose.st_gid)
