"""Locks between processes: `flock` on an open file, which ends with the process, however that ends.

Windows has no `flock`. A client over TCP and a node in memory need no lock and work there; everything that
needs one raises UserError, which says so. This is the only place that asks what the system has.
"""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType

from tidings.errors import UserError

fcntl: ModuleType | None = None
with suppress(ModuleNotFoundError):
    import fcntl


def has_locks() -> bool:
    """Whether this system has such locks."""
    return fcntl is not None


def check_locks(what: str) -> None:
    """Raise UserError if this system has no locks, with what would need them."""
    if not has_locks():
        raise UserError(f"{what} needs file locks (flock), which this system lacks; use Linux or macOS")


def lock(handle: int, *, wait: bool = False, shared: bool = False) -> None:
    """Lock an open file for this process; raises BlockingIOError if another has it, unless it is to wait.

    Several processes can have a shared lock.
    """
    check_locks("this")
    assert fcntl is not None
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(handle, kind if wait else kind | fcntl.LOCK_NB)
