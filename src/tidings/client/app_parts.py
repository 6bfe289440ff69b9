"""The handlers of an app, each with the call on a bus that runs it."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from msgspec import Struct

from tidings.client.bus import Bus
from tidings.client.crew import CONCURRENCY_MAX, Stop
from tidings.client.get import check_count, check_time
from tidings.client.handlers import Handler
from tidings.client.requests import EventWorker
from tidings.client.subscription import SubscribeOptions
from tidings.client.typed import filter_for
from tidings.client.work import MOST, Errors, WorkHandler, WorkOptions, check_errors, reason_of
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


class Part(ABC):
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


class WorkPart(Part):
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


class ServePart(Part):
    """A handler of requests."""

    kind = "serve"

    async def run(self, bus: Bus, stop: Stop, grace_s: float | None) -> None:
        """Answer requests until stopped."""
        await bus.serve(self.target, self.handler, concurrency=self.concurrency, stop=stop, grace_s=grace_s)


class OnPart(Part):
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
