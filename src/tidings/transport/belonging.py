"""Home of a connection: one process, thread and event loop. Calls from elsewhere raise UserError."""

from __future__ import annotations

import asyncio
import os
import threading
from weakref import WeakSet

from tidings.errors import TidingsError, UserError
from tidings.protocol.connection import Connection

running_loop = asyncio._get_running_loop
"""Return the loop that runs in this thread, or None; it costs little enough for every call that waits."""


class Belonging:
    """The process, thread and loop in which a connection was made; `place` is the node in error texts."""

    def __init__(self, core: Connection, place: str) -> None:
        self.is_disowned = False
        """Whether this process was forked from the one that has the connection."""
        self._core = core
        self._place = place
        self._thread = threading.get_ident()
        _known.add(self)

    def elsewhere(self) -> TidingsError:
        """Return the error of a call in another process, thread or loop."""
        if self.is_disowned and self._core.failure is not None:
            return self._core.failure
        if threading.get_ident() != self._thread:
            return UserError(
                f"the bus to {self._place} belongs to another thread: use asyncio.run_coroutine_threadsafe, "
                "tidings.blocking, or a bus for each thread"
            )
        return UserError(
            f"the bus to {self._place} belongs to another event loop: connect in the loop that uses it, "
            "or use tidings.blocking"
        )

    def disown(self) -> None:
        """Let all calls fail in a process that was forked: the connection is that of its parent."""
        self.is_disowned = True
        self._core.failure = UserError(
            f"the bus to {self._place} belongs to the process that has forked this one: connect again here"
        )


_known: WeakSet[Belonging] = WeakSet()


def _disown_all() -> None:
    """Called in every process that is forked from this one."""
    for belonging in list(_known):
        belonging.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
