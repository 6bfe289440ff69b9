"""Functions of the application, as the tasks of a worker or service call them.

A coroutine function runs in the event loop. A plain function runs in a thread, since it may block: each task
has a thread of its own, so as many calls run side by side as there are tasks. The threads are daemons: a
function that never returns does not keep the program from ending, though nothing can interrupt it.

A handler that blocks the event loop is logged: a thread asks the loop for a sign of life now and then. If
none comes, it looks for a handler on the stack of the loop's thread. So a block that never ends is reported
too, and a call of a handler costs nothing. The thread runs while there are handlers to watch, one for each
loop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from types import CodeType
from typing import Any, Generic, TypeVar

from tidings.errors import UserError

T = TypeVar("T")
Call = tuple[Context, Any, "asyncio.Future[Any]"]

BLOCKED_S = 0.5
"""Seconds without a sign of life after which a handler is reported; a block of twice that always is."""

_watches: dict[asyncio.AbstractEventLoop, LoopWatch] = {}


class Handler(Generic[T]):
    """A function or coroutine function that is called with each item."""

    def __init__(self, function: Callable[[T], Any]) -> None:
        if not callable(function):
            raise UserError(f"the handler must be a function or coroutine function, not {function!r}")
        self.name = name_of(function)
        self.is_async = any(map(inspect.iscoroutinefunction, (function, _plain(function))))
        self._function = function
        self._threads: list[HandlerThread] = []

    @property
    def code(self) -> CodeType | None:
        """The compiled code by which its frames are recognised; None if it is not written in Python."""
        plain = _plain(self._function)
        code = getattr(plain, "__code__", None)
        return code if isinstance(code, CodeType) else None

    def caller(self) -> Callable[[T], Awaitable[Any]]:
        """Return a coroutine function for one task, which awaits one call after the other."""
        if self.is_async:
            return self._function
        thread = HandlerThread(self._function, self.name)
        self._threads.append(thread)
        return thread.call

    def close(self) -> None:
        """End the threads, each when its call has returned."""
        for thread in self._threads:
            thread.close()


class HandlerThread:
    """A thread that calls a plain function for one task; it is started with the first call."""

    def __init__(self, function: Callable[[Any], Any], name: str) -> None:
        self._function = function
        self._name = name
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, item: Any) -> Any:
        """Return what the function returns; if this is cancelled, that is not awaited any more."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"tidings {self._name}", daemon=True)
            self._thread.start()
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.put((copy_context(), item, done))
        result = await done
        return await result if inspect.isawaitable(result) else result

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            context, item, done = call
            try:
                settle = partial(_succeed, done, context.run(self._function, item))
            except BaseException as error:
                settle = partial(_fail, done, error)
            with suppress(RuntimeError):  # the loop was closed while the function ran
                done.get_loop().call_soon_threadsafe(settle)
            del call, item, done, settle  # nothing is kept while it waits

    def close(self) -> None:
        """End it when the current call has returned."""
        self._calls.put(None)


def _succeed(done: asyncio.Future[Any], result: Any) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[Any], error: BaseException) -> None:
    if isinstance(error, StopIteration):  # which a future can't hold
        error = RuntimeError(f"the handler raised {error!r}")
    if not done.done():
        done.set_exception(error)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name by which logs and errors speak of a handler."""
    plain = function.func if isinstance(function, partial) else function
    name = getattr(plain, "__qualname__", None) or type(plain).__qualname__
    return str(name).rpartition("<locals>.")[2]


def _plain(function: Callable[..., Any]) -> Any:
    """The function that is called in the end: not the partial, method or object that stands for it."""
    while isinstance(function, partial):
        function = function.func
    if hasattr(function, "__code__") or inspect.ismethod(function):
        return inspect.unwrap(function)
    return type(function).__call__


# Warnings about handlers that block the event loop


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
