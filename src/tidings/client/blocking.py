"""The bus without await, for programs that have no event loop: a thread of its own runs one.

    with tidings.blocking.connect("tidings://127.0.0.1:7300") as bus:
        bus.publish("air.pm10", value=41.2)
        for event in bus.subscribe("value > 40"): ...

Every call does what its namesake in `tidings.client.bus` does, and waits for it. A bus may be used by several
threads; a subscription by one at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tidings.client import bus as asynchronous
from tidings.client import opening
from tidings.client.interest import Interest as AsyncInterest
from tidings.client.listener import Listener as AsyncListener
from tidings.client.subscription import Gap
from tidings.client.subscription import Subscription as AsyncSubscription
from tidings.errors import UserError
from tidings.event import Event
from tidings.filters import Filter

T = TypeVar("T")


def connect(address: str | None = None, **options: Any) -> Bus:
    """A bus to the node at an address, or to the node of this machine; see `tidings.connect`."""
    return Bus(opening.connect(address, **options))


def open(path: str | Path | None = None, **options: Any) -> Bus:
    """A bus to a node in this process; see `tidings.open`."""
    return Bus(opening.open(path, **options))


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

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Bus:
    """See the module."""

    def __init__(self, bus: asynchronous.Bus) -> None:
        self._bus = bus
        self._runner: Runner | None = None

    def __enter__(self) -> Self:
        if self._runner is not None:
            raise UserError("a bus can be entered once; connect again")
        self._runner = Runner()
        try:
            self._runner.run(self._bus.__aenter__())
        except BaseException:
            self._runner.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._entered.run(self._bus.__aexit__(kind, error, trace))
        finally:
            self._entered.stop()

    @property
    def _entered(self) -> Runner:
        if self._runner is None:
            raise UserError("the bus is used inside `with`")
        return self._runner

    @property
    def is_connected(self) -> bool:
        """Whether the node is there just now."""
        return self._bus.is_connected

    def publish(
        self, event: Event | str, attributes: Mapping[str, object] | None = None, /, **fields: Any
    ) -> None:
        """Publish an event, or one made of a type, attributes and header fields."""
        self._entered.run(self._bus.publish(event, attributes, **fields))

    def publish_all(self, events: Iterable[Event], *, timeout_s: float | None = None) -> None:
        """Publish many events, and wait once for those that are not transient."""
        self._entered.run(self._bus.publish_all(list(events), timeout_s=timeout_s))

    def subscribe(self, filter: Filter | str = "", **options: Any) -> Subscription:
        """The events that match: to be iterated over as it is, or inside `with`."""
        return Subscription(self._entered, self._bus.subscribe(filter, **options))

    def listen(self, filter: Filter | str, callback: Callable[[Event], None], **options: Any) -> Listener:
        """Call a function with each event that matches, in another thread, inside `with`."""

        async def call(event: Event) -> None:
            await asyncio.to_thread(callback, event)

        return Listener(self._entered, self._bus.listen(filter, call, **options))

    def unsubscribe(self, durable: str, *, timeout_s: float | None = None) -> None:
        """End a durable subscription for good."""
        self._entered.run(self._bus.unsubscribe(durable, timeout_s=timeout_s))

    def advertise(self, filter: Filter | str = "", *, timeout_s: float | None = None) -> Interest:
        """Say which events may be published; inside `with` it tells whether anyone wants them."""
        return Interest(self._entered, self._bus.advertise(filter, timeout_s=timeout_s))

    def request(
        self, event: Event | str, attributes: Mapping[str, object] | None = None, /, **fields: Any
    ) -> Event:
        """Publish a request and wait for the first answer; NoAnswer if none comes in `timeout_s`."""
        return self._entered.run(self._bus.request(event, attributes, **fields))

    def reply(
        self,
        request: Event,
        answer: Event | str,
        attributes: Mapping[str, object] | None = None,
        /,
        **fields: Any,
    ) -> None:
        """Answer a request that came as an event."""
        self._entered.run(self._bus.reply(request, answer, attributes, **fields))

    def status(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """What the node says of itself."""
        return self._entered.run(self._bus.status(timeout_s=timeout_s))


class _Block:
    """Something that is entered with `with` here and with `async with` in the loop's thread."""

    def __init__(self, runner: Runner, inner: AsyncSubscription | AsyncListener | AsyncInterest) -> None:
        self._runner = runner
        self._block = inner

    def _enter(self) -> None:
        self._runner.run(self._block.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._block.__aexit__(kind, error, trace))


class Subscription(_Block):
    """Events as an iterator; without a `with` of its own it begins and ends with the `for`."""

    def __init__(self, runner: Runner, inner: AsyncSubscription) -> None:
        super().__init__(runner, inner)
        self._inner = inner
        self._is_entered = False

    def __enter__(self) -> Self:
        self._enter()
        self._is_entered = True
        return self

    def __iter__(self) -> Iterator[Event]:
        if self._is_entered:
            yield from self._events()
        else:
            with self:
                yield from self._events()

    def _events(self) -> Iterator[Event]:
        """Events that are stored are asked for one by one, so that each is acknowledged in its turn."""
        while events := self._runner.run(self._next()):
            yield from events

    async def _next(self) -> list[Event]:
        try:
            return [await anext(self._inner)] if self._inner.is_stored else await self._inner.take()
        except StopAsyncIteration:
            return []

    def acknowledge(self, event: Event) -> None:
        """This event and all before it were dealt with; for `acknowledge="client"`."""
        self._runner.run(self._inner.acknowledge(event))

    @property
    def gaps(self) -> list[Gap]:
        """The last gaps."""
        return list(self._inner.gaps)

    @property
    def dropped(self) -> int:
        """Events known to have been dropped."""
        return self._inner.dropped

    @property
    def position(self) -> int | None:
        """Where the last event is stored; None if it is not."""
        return self._inner.position

    @property
    def redelivered(self) -> bool:
        """Whether the last event may have been delivered before."""
        return self._inner.redelivered


class Listener(_Block):
    """A callback that is called in another thread while the block lasts."""

    def __init__(self, runner: Runner, inner: AsyncListener) -> None:
        super().__init__(runner, inner)
        self._inner = inner

    def __enter__(self) -> Self:
        self._enter()
        return self

    def wait(self) -> None:
        """Wait until the listening ends by itself."""
        self._runner.run(self._inner.wait())


class Interest(_Block):
    """Whether anyone wants what is advertised."""

    def __init__(self, runner: Runner, inner: AsyncInterest) -> None:
        super().__init__(runner, inner)
        self._inner = inner

    def __enter__(self) -> Self:
        self._enter()
        return self

    @property
    def wanted(self) -> bool:
        """Whether anyone wants it now."""
        return self._inner.wanted

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The filters of the subscriptions that want it now."""
        return self._inner.filters

    def wait_wanted(self) -> None:
        """Wait until someone wants it."""
        self._runner.run(self._inner.wait_wanted())

    def wait_unwanted(self) -> None:
        """Wait until nobody wants it."""
        self._runner.run(self._inner.wait_unwanted())

    def __iter__(self) -> Iterator[tuple[Filter, ...]]:
        while True:
            yield self._runner.run(self._inner.__anext__())
