"""Where callers of a connection may wait, and how long: futures that end with OutOfTime at their moment.

A connection is at home in one process, thread and event loop; calls from elsewhere raise UserError.

All waits of a connection share one timer of the loop, since calls are many and nearly all of them are
answered in time: a call costs an entry in `Timers`, and no timer of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from math import inf
from typing import Any
from weakref import WeakSet

from tidings.errors import TidingsError, UserError
from tidings.protocol.connection import Connection
from tidings.timers import Timers

running_loop = asyncio._get_running_loop
"""Return the loop that runs in this thread, or None; it costs little enough for every call that waits."""


class OutOfTime(Exception):
    """The end of a wait that has reached its limit; callers get NoAnswer or Disconnected instead."""


class Limits(Timers[asyncio.Future[Any]]):
    """Waits with the moments, on the clock of the loop, at which they end."""

    __slots__ = ("_loop", "_sweep", "_sweep_at")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = inf

    def limit(self, wait: asyncio.Future[Any], moment: float) -> None:
        """Let a wait end at a moment, never if that is inf; `cancel` it when it is over."""
        self.at(moment, wait)
        if moment < self._sweep_at:
            self._sweep_by(moment)

    def close(self) -> None:
        """Let no wait end any more."""
        self._sweep_by(inf)

    def _sweep_by(self, moment: float) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_at = moment
        self._sweep = self._loop.call_at(moment, self._end_late) if moment < inf else None

    def _end_late(self) -> None:
        """End the waits whose moment has come."""
        for wait in self.due(self._loop.time()):
            if not wait.done():
                wait.set_exception(OutOfTime)
        self._sweep_by(self.wake_at)


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
