"""Tasks that process items until they are stopped: the common part of workers and services.

A stop is graceful: no further item is taken, and calls that run may end within their time. Cancelling the
crew cancels the calls. Signals are those two, one after the other: the first stops, the second cancels, and
a third does what it did before.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tidings.errors import UserError

GRACE_S = 30.0
"""Seconds that a running handler may take after a stop, by default."""
STOP_CHECK_S = 0.1
"""Seconds between two looks at an event of `threading`, which can't be awaited."""
CONCURRENCY_MAX = 10_000
"""Calls of a handler that may run side by side."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Stop = asyncio.Event | threading.Event
"""Ends a worker or service when it is set."""


class Crew:
    """Tasks that each take an item and process it, again and again."""

    def __init__(self, grace_s: float | None) -> None:
        self.busy: set[asyncio.Task[Any] | None] = set()
        """The tasks that process an item, which they note themselves; a graceful stop lets them finish."""
        self._grace_s = grace_s
        self._stop: Stop | None = None
        self._is_over = False

    @property
    def is_stopping(self) -> bool:
        """Whether no further item may be taken."""
        return self._is_over or (self._stop is not None and self._stop.is_set())

    async def run(
        self, labour: Callable[[], Coroutine[Any, Any, None]], size: int, stop: Stop | None
    ) -> None:
        """Run so many tasks until all have ended, one has failed, or `stop` is set; raise the failure."""
        self._stop = stop
        tasks = [asyncio.create_task(labour(), name="tidings worker") for _ in range(size)]
        stopped = asyncio.create_task(wait_stop(stop), name="tidings stop")
        try:
            await self._until_over(set(tasks), stopped)
        finally:
            await cancel_all([*tasks, stopped])
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _until_over(self, running: set[asyncio.Task[None]], stopped: asyncio.Task[None]) -> None:
        is_failed = False
        while running and not stopped.done() and not is_failed:
            done, _ = await asyncio.wait({*running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            running -= done
            is_failed = any(task.cancelled() or task.exception() is not None for task in done)
        self._is_over = True
        for task in running - self.busy:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=self._grace_s)


async def cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def wait_stop(stop: Stop | None) -> None:
    """Wait until it is set; without end if there is none."""
    if stop is None:
        await asyncio.get_running_loop().create_future()
    elif isinstance(stop, asyncio.Event):
        await stop.wait()
    else:
        while not stop.is_set():
            await asyncio.sleep(STOP_CHECK_S)


async def until_signalled(run: Callable[[Stop | None], Coroutine[Any, Any, None]], stop: Stop | None) -> bool:
    """Run until it ends; SIGTERM or SIGINT sets `stop`, another one cancels it. False if it was cancelled."""
    stop = asyncio.Event() if stop is None else stop
    loop = asyncio.get_running_loop()
    with on_signals(lambda: _soon(loop, stop.set), lambda: _soon(loop, task.cancel)):
        task = asyncio.create_task(run(stop))
        try:
            await asyncio.wait([task])
        finally:
            if not task.done():
                await cancel_all([task])
    if not task.cancelled():
        task.result()
    return not task.cancelled()


def _soon(loop: asyncio.AbstractEventLoop, act: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop was closed
        loop.call_soon_threadsafe(act)


@contextmanager
def on_signals(first: Callable[[], object], second: Callable[[], object]) -> Iterator[None]:
    """Call the one with the first signal and the other with the second, both in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        raise UserError("only the main thread receives signals; use signals=False and stop= in this one")
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    kept = {number: act for number, act in before.items() if act not in (signal.SIG_IGN, None)}
    waiting = [second, first]

    def restore() -> None:
        for number, act in kept.items():
            signal.signal(number, act)

    def received(_number: int, _frame: object) -> None:
        act = waiting.pop()
        if not waiting:
            restore()
        act()

    for number in kept:  # not those that are ignored, as with nohup
        signal.signal(number, received)
    try:
        yield
    finally:
        restore()
