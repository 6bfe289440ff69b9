"""Numbering of published and put events; their ids are made of these numbers.

Within an epoch a client counts 1, 2, 3; every start of the same system needs an epoch of its own. By default
that is the time of the start. A device with an unreliable clock uses a new random system for each start, or
an epoch that is kept in a file.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

from tidings.errors import ConfigError, EventError, UserError
from tidings.ids import ClockIds, Ids, StoredIds, new_system
from tidings.locks import check_locks, lock

FILE_SIZE_MAX = 256
"""Bytes of a file that keeps a system and its epoch."""

Numbering = Ids | Path | Literal["clock", "random"]
"""`clock`, `random`, the file of an epoch, or an object of your own."""


def ids_of(chosen: Numbering) -> Ids:
    """Return the chosen ids; UserError for an invalid choice, ConfigError for a file that can't be used."""
    if isinstance(chosen, Path):
        return kept_ids(chosen)
    if chosen == "clock":
        return ClockIds(new_system(os.urandom), time.time())
    if chosen == "random":
        return StoredIds(new_system(os.urandom), 0)
    if isinstance(chosen, str) or not hasattr(chosen, "origin") or not hasattr(chosen, "next_counter"):
        raise UserError(f"ids={chosen!r}: 'clock', 'random', a Path, or an object as tidings.ids.StoredIds")
    return chosen


def kept_ids(path: Path) -> StoredIds:
    """Return ids of the system that a file names, with the next epoch, which is on disk on return.

    The file is made if there is none. Several processes may share it: each has an epoch of its own.
    """
    check_locks(f"{path}: a file of epochs")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock(handle, wait=True)
            ids = _next(path, os.read(handle, FILE_SIZE_MAX + 1))
            line = f"{ids.origin.system} {ids.origin.epoch:019d}\n".encode()
            os.pwrite(handle, line, 0)  # as long as the line before it, so it is that one or this
            os.ftruncate(handle, len(line))  # what somebody has written may be longer
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise ConfigError(str(path), "", error.strerror or str(error)) from None
    return ids


def _next(path: Path, content: bytes) -> StoredIds:
    if not content:
        return StoredIds(new_system(os.urandom), 1)
    try:
        if len(content) > FILE_SIZE_MAX:
            raise ValueError
        system, epoch = content.decode("ascii").split()
        return StoredIds(system, int(epoch) + 1)
    except (ValueError, EventError):
        problem = "holds no system and epoch; remove it to begin with a new system"
        raise ConfigError(str(path), "", problem) from None
