"""A Unix socket at which a node listens, put back if it is removed, and temporary folders for it.

Programs that clean up temporary folders remove sockets too: then no client would find the node.

Temporary folders go with their node, or are removed by the next one if it was killed. A folder `tidings-*`
has a lock file that its process holds (flock), which shows whether the process still runs. Folders that other
programs of ours make, or older versions made, have no such file: of these only one that holds nothing but a
socket without a listener is removed.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from tidings.errors import UserError
from tidings.locks import lock
from tidings.node import logs
from tidings.node.ports import Port, answers, close_server, listen_unix

PREFIX = "tidings-"
LOCK = "owner.lock"
SOCKET = "node.sock"
SWEPT_MAX = 1_000
"""Folders that are looked at for one start."""


class UnixServer:
    """Listens at a path; `look` is to be called now and then."""

    def __init__(self, make: Callable[[], Port], path: Path) -> None:
        self.path = path
        self.address = ""
        self._make = make
        self._server: asyncio.Server | None = None
        self._inode = 0
        self._restoring: asyncio.Task[None] | None = None
        self._has_failed = False  # to put it back, and that was logged
        self._is_closed = False

    async def listen(self) -> None:
        """Make the socket, and take connections; UserError if that can't be."""
        server, self.address = await listen_unix(self._make, self.path)
        self._inode = self.path.stat().st_ino
        await server.start_serving()
        before, self._server = self._server, server
        if before is not None:
            await close_server(before)  # those who came by it stay

    def look(self) -> None:
        """Put the socket back if it is gone, unless it was closed: the end of a node takes a while."""
        is_restoring = self._restoring is not None and not self._restoring.done()
        if not (self._is_closed or is_restoring or self._is_there()):
            self._restoring = asyncio.get_running_loop().create_task(self._restore())

    async def _restore(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            await self.listen()
        except (UserError, OSError) as error:
            if not self._has_failed:
                logs.error("the socket was removed and can't be put back", problem=str(error))
            self._has_failed = True
            return
        self._has_failed = False
        logs.warning("the socket was removed and is put back", path=self.path)

    async def close(self) -> None:
        """Take no more connections, and remove the socket, unless another node has put its own there."""
        self._is_closed = True
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
        if self._server is not None:
            await close_server(self._server)
        if self._is_there():
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _is_there(self) -> bool:
        with contextlib.suppress(OSError):
            return self.path.stat().st_ino == self._inode
        return False


class Temporary:
    """A folder that only this user can open, until `close` or the end of the process."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        lock(self._lock, wait=True)  # another that looks whether it is free has it for a moment
        os.write(self._lock, f"{os.getpid()}\n".encode())  # from now on it shows its owner
        atexit.register(self.close)

    def close(self) -> None:
        """Remove it with all that is in it; does nothing the second time."""
        atexit.unregister(self.close)
        handle, self._lock = self._lock, -1
        if handle >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(handle)


def sweep() -> list[Path]:
    """Remove the folders of processes that are gone, and name them."""
    return [folder for folder in islice(_folders(), SWEPT_MAX) if _is_stale(folder) and _remove(folder)]


def _folders() -> Iterator[Path]:
    """Return the folders with our prefix that are this user's and that no one else can open."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
                yield path


def _is_stale(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        names = {path.name for path in folder.iterdir()}
        if LOCK in names:
            return is_free(folder / LOCK)
        return names == {SOCKET} and not answers(folder / SOCKET)
    return False


def is_free(path: Path) -> bool:
    """Whether nobody holds a lock that someone has held: it is empty before."""
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        lock(handle, shared=True)  # others may look at the same time
        return os.fstat(handle).st_size > 0
    except BlockingIOError:
        return False
    finally:
        os.close(handle)


def _remove(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
