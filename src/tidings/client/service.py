"""Services: a handler that is called with each event of a subscription, and the answers to requests.

The rule kept: a requester gets an answer or an error reply, whatever the handler does, unless the service is
cancelled before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tidings.client.crew import Crew, Stop
from tidings.client.handlers import Handler, watching
from tidings.client.requests import failure_event
from tidings.client.subscription import Subscription
from tidings.errors import TidingsError, UserError
from tidings.event import Event
from tidings.event.typed import Typed

Answer = Event | Typed | Mapping[str, object] | None
"""What a service answers with: an event, an instance of a class, attributes, or just that it is done."""
ServeHandler = Callable[[Event], Answer | Awaitable[Answer]]
"""Answers a request: a coroutine function runs in the event loop, a plain function in a thread."""
Process = Callable[[Event, Callable[[Event], Awaitable[Any]]], Awaitable[None]]
"""Processes an event with the handler of one task; raises nothing that the handler has raised."""


class _Unfinished(Exception):
    """Ends the block of a subscription whose last event was not processed to the end."""


class EventWorker:
    """Processes the events of a subscription, several of them side by side."""

    def __init__(
        self,
        subscription: Subscription,
        handler: Handler[Event],
        process: Process,
        concurrency: int,
        grace_s: float | None,
    ) -> None:
        self._subscription = subscription
        self._handler = handler
        self._process = process
        self._concurrency = concurrency
        self._crew = Crew(grace_s)
        self._turn = asyncio.Lock()

    async def run(self, stop: Stop | None) -> None:
        """Subscribe, and work until stopped or cancelled, or until the subscription ends."""
        try:
            async with self._subscription:
                with watching(self._handler):
                    await self._crew.run(self._labour, self._concurrency, stop)
                if self._crew.busy:
                    raise _Unfinished  # or else the block would acknowledge the last event
        except _Unfinished:
            return
        finally:
            self._handler.close()

    async def _labour(self) -> None:
        call, task, crew = self._handler.caller(), asyncio.current_task(), self._crew
        while not crew.is_stopping:
            try:
                async with self._turn:
                    event = await anext(self._subscription)
            except StopAsyncIteration:
                return
            crew.busy.add(task)
            await self._process(event, call)
            crew.busy.discard(task)


class Responder:
    """Answers requests with what a handler returns, or with its error."""

    def __init__(self, name: str, reply: Callable[[Event, Event], Awaitable[None]]) -> None:
        self._name = name
        self._reply = reply

    async def answer(self, request: Event, call: Callable[[Event], Awaitable[Answer]]) -> None:
        """Call the handler and reply, if the event expects that; log what fails."""
        try:
            answer = answer_of(self._name, request, await call(request))
        except Exception as error:
            _log("handler %s failed with %s; the requester gets an error reply", self._name, request, error)
            answer = failure_event(error)
        if request.reply_to is None:
            return
        try:
            await self._reply(request, answer)
        except TidingsError as error:
            _log("the answer of handler %s to %s can't be sent", self._name, request, error)


def answer_of(name: str, request: Event, answer: object) -> Event:
    """Return a handler's result as the event that answers a request."""
    if isinstance(answer, Event | Typed):
        return answer.to_event() if isinstance(answer, Typed) else answer
    if answer is None or isinstance(answer, Mapping):
        return Event(f"{request.type}.answer", answer)
    shown = type(answer).__name__
    raise UserError(f"handler {name} returned {shown}; it must return an Event, a mapping or None")


def _log(text: str, name: str, request: Event, error: Exception) -> None:
    logging.getLogger("tidings").warning(text, name, request.type, exc_info=error)
