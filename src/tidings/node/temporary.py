"""Temporary folders of a node, which go with it, or are removed by the next one if it was killed.

A folder `tidings-*` has a lock file that its process holds (flock), so it can be told whether that is still
there. Folders that other programs of ours make, or older versions made, have no such file: of these only one
that holds nothing but a socket at which nobody listens is removed.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tidings.node.ports import answers

PREFIX = "tidings-"
LOCK = "owner.lock"
SOCKET = "node.sock"
SWEPT_MAX = 1_000
"""Folders that are looked at for one start."""


class Temporary:
    """A folder that only this user can open, until `close` or the end of the process."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # another that looks whether it is free has it for a moment
        os.write(self._lock, f"{os.getpid()}\n".encode())  # from now on it can be told whose it is
        atexit.register(self.close)

    def close(self) -> None:
        """Remove it with all that is in it; does nothing the second time."""
        atexit.unregister(self.close)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)


def sweep() -> list[Path]:
    """Remove the folders of processes that are gone, and name them."""
    return [folder for folder in islice(_folders(), SWEPT_MAX) if _is_stale(folder) and _remove(folder)]


def _folders() -> Iterator[Path]:
    """What begins with our prefix and is a folder of this user's that nobody else can open."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
                yield path


def _is_stale(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        names = {path.name for path in folder.iterdir()}
        if LOCK in names:
            return _is_free(folder / LOCK)
        return names == {SOCKET} and not answers(folder / SOCKET)
    return False


def _is_free(lock: Path) -> bool:
    """Whether nobody holds a lock that someone has held: it is empty before."""
    handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(handle).st_size > 0
    except BlockingIOError:
        return False
    finally:
        os.close(handle)


def _remove(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
