"""Applications: handlers of events, messages and requests, which are run together.

    app = tidings.App()

    @app.work("jobs", concurrency=4, reject=ValueError)
    async def paint(message): ...

    @app.on("type = 'air.pm10' AND value > 40")
    async def warn(event): ...

    @app.serve("div")
    async def divide(request):
        return {"value": request["a"] / request["b"]}

    asyncio.run(app.run("tidings://127.0.0.1:7300"))

An app is a list of calls on a bus: `Queue.work`, `Bus.subscribe` and `Bus.serve`. It adds the common stop.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar, Unpack

from msgspec import Struct

from tidings.client.bus import Bus
from tidings.client.crew import CONCURRENCY_MAX, GRACE_S, Stop, cancel_all, until_signalled, wait_stop
from tidings.client.get import check_count, check_time
from tidings.client.handlers import Handler
from tidings.client.opening import connect
from tidings.client.requests import EventWorker
from tidings.client.subscription import SubscribeOptions
from tidings.client.typed import filter_for
from tidings.client.work import MOST, PAUSE_S, Errors, WorkHandler, WorkOptions, check_errors, reason_of
from tidings.errors import QueueNotFound, UserError
from tidings.event import Event
from tidings.event.typed import Typed
from tidings.filters import Filter

REASON = "dead.reason"
"""The attribute that says why an event was given up, where it is put into a queue."""

OnHandler = Callable[[Any], Awaitable[object] | object]
"""Processes an event, or an instance of a class of events."""


class AppPart(Struct, frozen=True):
    """A handler of an app: what it is called with, and how many calls may run side by side."""

    kind: str
    handler: str
    target: str
    concurrency: int


class HandlerPart(ABC):
    """A handler of an app, and the call on a bus that runs it."""

    kind: ClassVar[str]

    def __init__(
        self, target: str, handler: Callable[..., Any], concurrency: int, needs: str | None = None
    ) -> None:
        """`needs` is a queue that must be there."""
        check_count("concurrency", concurrency, 1, CONCURRENCY_MAX)
        self.name = Handler(handler).name
        self.target = target
        self.handler = handler
        self.concurrency = concurrency
        self._needs = needs

    @property
    def shown(self) -> AppPart:
        """The part as a list shows it."""
        return AppPart(self.kind, self.name, self.target, self.concurrency)

    async def check(self, bus: Bus) -> None:
        """Raise QueueNotFound, with what to do, if its queue is not there."""
        if self._needs is None:
            return
        try:
            await bus.queue(self._needs)
        except QueueNotFound:
            make = f"'tidings queue create {self._needs}' or 'await bus.create_queue({self._needs!r})'"
            problem = f"there is no such queue for handler {self.name}; create it with {make}"
            raise QueueNotFound(self._needs, problem) from None

    @abstractmethod
    async def run(self, bus: Bus, stop: Stop, grace_s: float | None) -> None:
        """Run it until stopped."""


class WorkPart(HandlerPart):
    """A handler of the messages of a queue."""

    kind = "work"

    def __init__(self, queue: str, handler: WorkHandler, options: WorkOptions) -> None:
        super().__init__(queue, handler, options.get("concurrency", 1), needs=queue)
        check_options(options, WorkOptions.__annotations__)
        self._options = options

    async def run(self, bus: Bus, stop: Stop, grace_s: float | None) -> None:
        """Work on the queue until stopped."""
        queue = await bus.queue(self.target)
        await queue.work(self.handler, stop=stop, grace_s=grace_s, **self._options)


class ServePart(HandlerPart):
    """A handler of requests."""

    kind = "serve"

    async def run(self, bus: Bus, stop: Stop, grace_s: float | None) -> None:
        """Answer requests until stopped."""
        await bus.serve(self.target, self.handler, concurrency=self.concurrency, stop=stop, grace_s=grace_s)


class OnPart(HandlerPart):
    """A handler of events, which tries an event some times and then gives it up."""

    kind = "on"

    def __init__(
        self,
        filter: Filter | str | type[Typed],
        where: Filter | str,
        handler: OnHandler,
        concurrency: int,
        attempts: int,
        pause_s: float,
        skip: Errors,
        dead: str | None,
        options: SubscribeOptions,
    ) -> None:
        super().__init__(_filter_text(filter, where), handler, concurrency, needs=dead)
        check_count("attempts", attempts, 1, MOST)
        check_time(pause_s, "pause_s")
        check_errors("skip", skip)
        check_options(options, SubscribeOptions.__annotations__)
        if concurrency > 1 and options.get("durable") is not None:
            raise UserError("a durable subscription is acknowledged in order; use concurrency=1, or a queue")
        self._model = filter if isinstance(filter, type) else None
        self._attempts = attempts
        self._pause_s = pause_s
        self._skip = skip
        self._dead = dead
        self._options = options

    async def run(self, bus: Bus, stop: Stop, grace_s: float | None) -> None:
        """Process events until stopped."""
        subscription = bus.subscribe(self.target, **self._options)
        process = partial(self._process, bus)
        await EventWorker(subscription, Handler(self.handler), process, self.concurrency, grace_s).run(stop)

    async def _process(self, bus: Bus, event: Event, call: Callable[[Any], Awaitable[Any]]) -> None:
        for attempt in range(1, self._attempts + 1):
            item: object = None
            try:
                item = event if self._model is None else self._model.from_event(event)
                await call(item)
                return
            except Exception as error:
                is_last = attempt == self._attempts or item is None or isinstance(error, self._skip)
                self._log(event, attempt, error, is_last)
                if is_last:
                    await self._give_up(bus, event, error)
                    return
            await asyncio.sleep(self._pause_s)

    async def _give_up(self, bus: Bus, event: Event, error: Exception) -> None:
        if self._dead is not None:
            dead = Event(event.type, {**event.attributes, REASON: reason_of(error)}, body=event.body)
            await (await bus.queue(self._dead)).put(dead)

    def _log(self, event: Event, attempt: int, error: Exception, is_last: bool) -> None:
        put = "it is skipped" if self._dead is None else f"it goes to queue {self._dead!r}"
        logging.getLogger("tidings").warning(
            "handler %s failed with %s in attempt %d; %s",
            *(self.name, event.type, attempt, put if is_last else "it is tried again"),
            exc_info=error,
        )


def _filter_text(filter: Filter | str | type[Typed], where: Filter | str) -> str:
    """Return the filter of a subscription as text, so that mistakes are reported where it is written."""
    if isinstance(filter, type):
        return str(filter_for(filter, where))
    if where != "":
        raise UserError("where goes with a class of events; join two filters with &")
    return str(Filter(str(filter)))


def check_options(given: Mapping[str, object], known: Mapping[str, object]) -> None:
    """Raise UserError if an option is unknown."""
    for name in given:
        if name not in known:
            raise UserError(f"unknown option {name}; the options are {', '.join(sorted(known))}")


Function = TypeVar("Function", bound=Callable[..., Any])


class App:
    """Handlers of events, messages and requests, which `run` calls until it is stopped.

    Coroutine functions run in the event loop, plain functions in threads.
    """

    def __init__(self) -> None:
        self._parts: list[HandlerPart] = []
        self._bus: Bus | None = None

    @property
    def bus(self) -> Bus:
        """The bus on which the app runs, for its handlers."""
        if self._bus is None:
            raise UserError("an app has a bus while it runs; use it in a handler")
        return self._bus

    @property
    def parts(self) -> list[AppPart]:
        """The handlers, and what they are called with."""
        return [part.shown for part in self._parts]

    def on(
        self,
        filter: Filter | str | type[Typed] = "",
        *,
        where: Filter | str = "",
        concurrency: int = 1,
        attempts: int = 1,
        pause_s: float = PAUSE_S,
        skip: Errors = (),
        dead: str | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Callable[[Function], Function]:
        """Have a function called with each event that matches; the options are those of `Bus.subscribe`.

        For a class of events (`tidings.Typed`) it gets instances; `where` is a filter on their attributes.
        If it raises, it is called up to `attempts` times, `pause_s` apart, unless the error is of a class in
        `skip`. Then the event is skipped, or put into the queue `dead`; so is an event that does not fit the
        class. `concurrency` calls run side by side.
        """
        return self._adds(
            lambda handler: OnPart(
                *(filter, where, handler, concurrency, attempts, pause_s, skip, dead),
                options=options,
            )
        )

    def work(self, queue: str, **options: Unpack[WorkOptions]) -> Callable[[Function], Function]:
        """Have a function called with each message of a queue; the options are those of `Queue.work`."""
        return self._adds(lambda handler: WorkPart(queue, handler, options))

    def serve(self, type: str, *, concurrency: int = 1) -> Callable[[Function], Function]:
        """Have a function answer the requests of a type, as with `Bus.serve`."""
        return self._adds(lambda handler: ServePart(type, handler, concurrency))

    def _adds(self, make: Callable[[Any], HandlerPart]) -> Callable[[Function], Function]:
        def add(handler: Function) -> Function:
            self._parts.append(make(handler))
            return handler

        return add

    async def run(
        self,
        bus: Bus | str | None = None,
        *,
        stop: Stop | None = None,
        signals: bool = True,
        grace_s: float | None = GRACE_S,
    ) -> None:
        """Run all handlers on a bus, or one to the node at an address, until stopped.

        The app ends when `stop` is set or, with `signals`, at SIGTERM or SIGINT: running handlers may finish
        for `grace_s`; after that, or with a second signal, they are cancelled and their messages released.
        If one part fails, the others are stopped and its error is raised.
        """
        if isinstance(bus, Bus):
            run = partial(self._run, bus, grace_s)
            await (until_signalled(run, stop) if signals else run(stop))
            return
        async with connect(bus) as opened:
            await self.run(opened, stop=stop, signals=signals, grace_s=grace_s)

    async def _run(self, bus: Bus, grace_s: float | None, stop: Stop | None) -> None:
        if self._bus is not None or not self._parts:
            raise UserError("the app runs already" if self._parts else "the app has no handler yet")
        self._bus, halt = bus, asyncio.Event()
        try:
            for part in self._parts:
                await part.check(bus)
            parts = [part.run(bus, halt, grace_s) for part in self._parts]
            await _until_one_ends(parts, halt, stop)
        finally:
            self._bus = None


async def _until_one_ends(
    parts: list[Coroutine[Any, Any, None]], halt: asyncio.Event, stop: Stop | None
) -> None:
    """Run all until `stop` is set or one has ended, then stop the others; raise the first error."""
    tasks = [asyncio.create_task(part) for part in parts]
    stopped = asyncio.create_task(wait_stop(stop))
    try:
        await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        halt.set()
        await asyncio.wait(tasks)
    finally:
        await cancel_all([*tasks, stopped])
    for task in tasks:
        task.result()
