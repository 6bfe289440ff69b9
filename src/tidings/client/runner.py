"""Base classes of the blocking client: a thread with an event loop, and objects that use it from others.

`blocking.py` is generated (`scripts/blocking_client.py`): each of its classes has an object of the async
client, its `inner`, and runs that one's coroutines in the thread of the bus.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from tidings.client.crew import on_signals
from tidings.client.handlers import name_of
from tidings.errors import UserError
from tidings.event import Event

T = TypeVar("T")
P = ParamSpec("P")
Inner = TypeVar("Inner")
Plain = TypeVar("Plain", Event, str, None)
Entered = TypeVar("Entered", bound=AbstractAsyncContextManager[Any])


class Runner:
    """A thread with an event loop, in which coroutines are run for other threads."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidings", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result, or raise its error; cancel it if the wait is interrupted."""
        if threading.current_thread() is self._thread or self._is_elsewhere:
            work.close()
            raise UserError(
                "the bus belongs to the process that has forked this one: connect again here"
                if self._is_elsewhere
                else "a blocking call in the bus's own thread would never return; make it in another thread"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def _is_elsewhere(self) -> bool:
        """Whether the thread is in another process, from which this one was forked."""
        return os.getpid() != self._process

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the thread."""
        return self._loop

    @property
    def is_running(self) -> bool:
        """Whether it can still run coroutines."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread, unless it is in another process."""
        if self._is_elsewhere:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Front(Generic[Inner]):
    """An object of the async client, for threads that have no event loop."""

    def __init__(self, runner: Runner, inner: Inner) -> None:
        self._runner = runner
        self._inner = inner


@overload
def inner_of(given: Front[Inner]) -> Inner: ...
@overload
def inner_of(given: Plain) -> Plain: ...
def inner_of(given: Front[Any] | Event | str | None) -> Any:
    """Return the async object of a blocking one; any other value as it is."""
    return given._inner if isinstance(given, Front) else given


def front_of(runner: Runner, inner: object, fronts: Mapping[type, type[Front[Any]]]) -> Any:
    """Return an async object in the blocking class for its kind, of several that a call may return."""
    return fronts[type(inner)](runner, inner)


class BlockingContext(Front[Entered]):
    """A context that is entered with `with` here and with `async with` in the loop's thread."""

    _is_entered = False

    def _enter(self) -> Any:
        entered = self._runner.run(self._inner.__aenter__())
        self._is_entered = True
        return entered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._inner.__aexit__(kind, error, trace))

    @contextmanager
    def _loop(self) -> Iterator[None]:
        """The block of a `for`, which ends with it, unless it stands in a `with` of its own."""
        if self._is_entered:
            yield
            return
        self._enter()
        try:
            yield
        except BaseException as error:
            if self._runner.is_running:  # a loop that was left may be forgotten until the bus has ended
                self.__exit__(type(error), error, error.__traceback__)
            raise
        self.__exit__(None, None, None)


class Root(Generic[Entered]):
    """The bus, which has the thread for all that is made with it."""

    def __init__(self, inner: Entered) -> None:
        self._inner = inner
        self._own: Runner | None = None

    @property
    def _runner(self) -> Runner:
        if self._own is None:
            raise UserError("the bus is used inside `with`")
        return self._own

    def __enter__(self) -> Self:
        if self._own is not None:
            raise UserError("a bus can be entered once; connect again")
        self._own = Runner()
        try:
            self._own.run(self._inner.__aenter__())
        except BaseException:
            self._own.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self._inner.__aexit__(kind, error, trace))
        finally:
            self._runner.stop()


class Following(Generic[T]):
    """Iterator over an async iterator, one item after the other; some may be fetched ahead of the caller."""

    def __init__(self, runner: Runner, inner: AsyncIterator[T]) -> None:
        self._runner = runner
        self._inner = inner
        self._fetched: deque[T] = deque()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if not self._fetched:
            self._fetched.extend(self._runner.run(self._fetch()))
        if not self._fetched:
            raise StopIteration
        return self._fetched.popleft()

    async def _fetch(self) -> list[T]:
        """The next ones: all that have arrived, unless each is to be acknowledged in its turn."""
        take = getattr(self._inner, "take", None)
        try:
            if take is None or getattr(self._inner, "is_stored", False):
                return [await anext(self._inner)]
            several: list[T] = await take()
            return several
        except StopAsyncIteration:
            return []


def each(runner: Runner, found: AsyncIterator[T]) -> Iterator[T]:
    """Yield the items of an async generator, one after the other; it is closed when this is."""
    try:
        yield from Following(runner, found)
    finally:
        if runner.is_running:
            runner.run(_close(found))


async def _close(found: AsyncIterator[Any]) -> None:
    await found.aclose()  # type: ignore[attr-defined]  # these are generators


def in_thread(callback: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """A callback that may call the bus, as the loop's thread awaits it: it is called in another one."""

    async def call(*arguments: P.args, **named: P.kwargs) -> T:
        return await asyncio.to_thread(callback, *arguments, **named)

    return call


def with_front(handler: Any, runner: Runner, front: Callable[[Runner, Any], Any]) -> Any:
    """A handler that is called with the blocking object in the place of the async one."""
    if not callable(handler):
        return handler  # the async client says so

    def call(inner: Any) -> Any:
        return handler(front(runner, inner))

    call.__qualname__ = name_of(handler)
    return call


@contextmanager
def stopped_by(stop: threading.Event | None, signals: bool) -> Iterator[threading.Event | None]:
    """An event that the first signal sets, if signals are wanted; the second raises KeyboardInterrupt."""
    if not signals:
        yield stop
        return
    ending = threading.Event() if stop is None else stop
    with on_signals(ending.set, _interrupt):
        yield ending


def _interrupt() -> None:
    raise KeyboardInterrupt
