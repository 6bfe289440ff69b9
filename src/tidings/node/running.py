"""PID files of the nodes that this user runs on this machine, by which commands find and end them.

Each node has such a file in the user's runtime directory, which nobody else can open, and holds a lock
on it (flock) until it ends, in whatever way. So the process in a file whose lock is held is that node, and no
other that got its number later. The files of nodes that were killed are removed by those who list them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from tidings.errors import TidingsError
from tidings.locks import lock
from tidings.node import logs
from tidings.node.local import runtime_directory
from tidings.node.unix import is_free

FOLDER = "running"
SIZE_MAX = 64 << 10
FILES_MAX = 1_000
"""Files that are looked at for one list."""


class RunningNode(Struct, frozen=True):
    """A node process of this user."""

    pid: int
    node: str
    name: str
    started: float  # seconds since 1970
    version: str
    dir: str | None
    addresses: list[str]
    metrics: str | None

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        path = _folder() / str(self.pid)
        return path.exists() and not is_free(path) and _read(path) == self

    def terminate(self) -> bool:
        """Have it stop in good order; whether it was there."""
        if not self.is_running:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
            return True
        return False


@contextlib.contextmanager
def pid_file(node: RunningNode) -> Iterator[None]:
    """Keep a PID file as long as the block lasts; what keeps the process from that is logged."""
    try:
        path = _folder() / str(node.pid)
        path.unlink(missing_ok=True)  # of a process that had this number before
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        lock(handle, wait=True)
        os.write(handle, msgspec.json.encode(node))
    except (OSError, TidingsError) as error:
        logs.warning("the node can't be listed", problem=str(error))
        yield
        return
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def list_running() -> list[RunningNode]:
    """Return the nodes of this user, the oldest first."""
    found = (_look(path) for path in islice(_folder().iterdir(), FILES_MAX))
    return sorted((node for node in found if node is not None), key=lambda node: node.started)


def _look(path: Path) -> RunningNode | None:
    """Return the node of a PID file; None if it is gone, and then the file is removed."""
    with contextlib.suppress(FileNotFoundError):  # it has ended just now
        if is_free(path):
            path.unlink(missing_ok=True)
        else:
            return _read(path)
    return None


def _read(path: Path) -> RunningNode | None:
    """Return what a PID file says; None if it is not written yet, or by another version."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(SIZE_MAX), type=RunningNode)
    except (OSError, msgspec.DecodeError):
        return None


def _folder() -> Path:
    folder = runtime_directory() / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
