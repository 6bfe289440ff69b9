"""Limits on waits: futures that end with OutOfTime when their moment has come.

All waits of a connection share one timer of the loop, since calls are many and nearly all of them are
answered in time: a call costs an entry in `Timers`, and no timer of its own.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

from tidings.timers import Timers


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
