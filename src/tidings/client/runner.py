"""Coroutines run for threads that have no event loop: what the blocking front is made of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

from tidings.errors import UserError

T = TypeVar("T")


class Runner:
    """A thread with an event loop, in which coroutines are run for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidings", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises; it is cancelled if the wait is interrupted."""
        if threading.current_thread() is self._thread:
            work.close()
            raise UserError("a blocking call inside the thread that would have to carry it out")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def is_running(self) -> bool:
        """Whether it can run anything any more."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Block:
    """Something that is entered with `with` here and with `async with` in the loop's thread."""

    def __init__(self, runner: Runner, inner: AbstractAsyncContextManager[Any]) -> None:
        self._runner = runner
        self._block = inner

    def _enter(self) -> None:
        self._runner.run(self._block.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._block.__aexit__(kind, error, trace))
