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
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar, Unpack

from tidings.client.app_parts import AppPart, OnPart, Part, ServePart, WorkPart
from tidings.client.bus import Bus
from tidings.client.crew import GRACE_S, Stop, cancel_all, until_signalled, wait_stop
from tidings.client.opening import connect
from tidings.client.subscription import SubscribeOptions
from tidings.client.work import PAUSE_S, Errors, WorkOptions
from tidings.errors import UserError
from tidings.event.typed import Typed
from tidings.filters import Filter

Function = TypeVar("Function", bound=Callable[..., Any])


class App:
    """Handlers of events, messages and requests, which `run` calls until it is stopped.

    Coroutine functions run in the event loop, plain functions in threads.
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []
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

    def _adds(self, make: Callable[[Any], Part]) -> Callable[[Function], Function]:
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
