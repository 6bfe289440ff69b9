"""Warnings about handlers that block the event loop.

A thread asks the loop for a sign of life now and then. If none comes, it looks for a handler on the stack of
the loop's thread and logs its name and line. So a block that never ends is reported too, and a call of a
handler costs nothing. The thread runs while there are handlers to watch, one for each loop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from tidings.client.handlers import Handler

BLOCKED_S = 0.5
"""Seconds without a sign of life after which a handler is reported; a block of twice that always is."""

_watches: dict[asyncio.AbstractEventLoop, LoopWatch] = {}


class LoopWatch:
    """Thread that reports the handlers which block one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.names: dict[CodeType, str] = {}
        self.users = 0
        self._loop = loop
        self._looped = threading.get_ident()
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="tidings watch", daemon=True).start()

    def end(self) -> None:
        """Have the thread end."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(BLOCKED_S):
            alive = threading.Event()
            try:
                self._loop.call_soon_threadsafe(alive.set)
            except RuntimeError:  # it was closed
                return
            if not alive.wait(BLOCKED_S):
                self._report()
            while not alive.wait(BLOCKED_S) and not self._over.is_set():
                pass  # one warning for one block

    def _report(self) -> None:
        frame = sys._current_frames().get(self._looped)
        while frame is not None and frame.f_code not in self.names:
            frame = frame.f_back
        if frame is not None and not self._over.is_set():
            logging.getLogger("tidings").warning(
                "handler %s blocks the event loop, in line %d of %s; await what it waits for, or make it a "
                "plain function, which runs in a thread",
                *(self.names[frame.f_code], frame.f_lineno, frame.f_code.co_filename),
            )


@contextmanager
def watching(handler: Handler[Any]) -> Iterator[None]:
    """Have a handler reported if it blocks the running loop, until the end of the block."""
    code = handler.code
    if code is None or not handler.is_async:
        yield
        return
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = LoopWatch(loop)
    watch.names[code] = handler.name
    watch.users += 1
    try:
        yield
    finally:
        watch.users -= 1
        if not watch.users:
            del _watches[loop]
            watch.end()
