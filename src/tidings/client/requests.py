"""Requests over events, and the services that answer them.

A request is published like any event, so every subscriber may answer, and the first answer wins. Its
`reply_to` is the subject of a passive subscription that all requests of a client share, its `correlation_id`
names the request. Both are random, so that they can't be guessed.

A service calls a handler with each event of a subscription. The rule kept: a requester gets an answer or an
error reply, whatever the handler does, unless the service is cancelled before.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Any

from msgspec import structs

from tidings.client.crew import Crew, Stop
from tidings.client.handlers import Handler, watching
from tidings.client.subscription import Subscription
from tidings.errors import Disconnected, EventError, NoAnswer, RequestFailed, TidingsError, UserError
from tidings.event import Batch, Event
from tidings.event.header import EMPTY_HEADER
from tidings.event.typed import Typed
from tidings.filters import Filter
from tidings.protocol.arguments import INBOX, inbox_name
from tidings.protocol.subscriber import ClientSubscription, MissedNumbers, Wanted
from tidings.transport.link import Link, Wait

INBOX_PREFETCH = 1_000
"""Answers that may be on their way."""
FAILURE = "tidings.error"
"""The type of an error reply."""
FAILURE_LENGTH_MAX = 1_000
"""Characters of the text of an error that a requester is sent."""
SECRET_SIZE = 16
"""Random bytes in the name of an inbox, and in that of a request."""

Answer = Event | Typed | Mapping[str, object] | None
"""Answer of a service: an event, an instance of a class, attributes, or just that it is done."""
ServeHandler = Callable[[Event], Answer | Awaitable[Answer]]
"""Answers a request: a coroutine function runs in the event loop, a plain function in a thread."""
Process = Callable[[Event, Callable[[Event], Awaitable[Any]]], Awaitable[None]]
"""Processes an event with the handler of one task; raises nothing that the handler has raised."""


class Inbox:
    """Inbox for the answers to a client's requests; subscribed to with the first request.

    Its name says at which node it is, and since which start of that node. When the client is connected to
    another one, the next request opens a new inbox. The former goes on while requests wait for answers.
    """

    def __init__(self, link: Link, system: str) -> None:
        self._link = link
        # The system stands there so that logs can be read; nobody guesses what is behind it.
        self._own = f"{system}.{_unguessable()}"
        self._open: OpenInbox | None = None
        self._former: list[OpenInbox] = []
        self._waiting: dict[str, Wait] = {}

    @property
    def name(self) -> str:
        """The name to which answers are addressed; empty before the first request, as it is not known yet."""
        return "" if self._open is None else self._open.name

    async def ask(
        self, asked: Event, send: Callable[[Event], Awaitable[None]], timeout_s: float | None
    ) -> Event:
        """Send a request and return its first answer; NoAnswer or Disconnected if none comes in time.

        Without a limit of its own it has that of the bus.
        """
        self._link.check_loop()
        number = ""
        limit_s = self._link.limit_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(None if limit_s == inf else limit_s):
                await self.wait_open()
                addressed, number, answer = self.address(asked)
                await send(addressed)
                received: Event = await answer
                return received
        except TimeoutError:
            late = f"no answer to {asked.type} within {limit_s:g} s"
            error = NoAnswer(late) if self._link.core.is_up else Disconnected(late)
            error.may_be_accepted = bool(number)
            raise error from None
        finally:
            self.forget(number)

    async def wait_open(self) -> None:
        """Subscribe, unless that was done."""
        core = self._link.core
        if not core.is_up:
            await self._link.wait_connected(inf)
        name = f"{core.inbox}{self._own}" if core.inbox else inbox_name(core.user, self._own)
        if self._open is None or self._open.is_over or self._open.name != name:
            if self._open is not None and not self._open.is_over:
                self._former.append(self._open)
            self._open = OpenInbox(self._link, name, self._waiting)
            self._leave_former()
        # Others may wait for the same subscription: one who gives up must not end it for them.
        await asyncio.shield(self._open.opening)

    def address(self, event: Event) -> tuple[Event, str, Wait]:
        """Return the request as published, its number, and the future that its answer resolves."""
        number = _unguessable()
        header = structs.replace(event.header or EMPTY_HEADER, reply_to=self.name, correlation_id=number)
        wait = self._waiting[number] = self._link.future()
        return structs.replace(event, header=header), number, wait

    def forget(self, number: str) -> None:
        """Forget a request; its answer is not awaited any more."""
        self._waiting.pop(number, None)
        self._leave_former()

    def _leave_former(self) -> None:
        """Unsubscribe from former inboxes, unless an answer may come there."""
        if self._former and not self._waiting:
            former, self._former = self._former, []
            for one in former:
                one.leave()


class OpenInbox:
    """Subscription to one inbox, whose answers go to the callers that wait for them."""

    def __init__(self, link: Link, name: str, waiting: dict[str, Wait]) -> None:
        self.name = name
        self._link = link
        self._waiting = waiting
        self._has_ended = False
        wanted = Wanted(str(Filter("subject = :name", name=name)), passive=True)
        self._subscription: ClientSubscription = link.core.subscribe(wanted, self, INBOX_PREFETCH)
        self.opening = link.outcome(self._subscription.begun)
        self.opening.add_done_callback(_note_failure)  # when all who asked have given up
        link.flush_soon()

    @property
    def is_over(self) -> bool:
        """Whether it has failed to open, or was ended by the node."""
        return self._has_ended or (self.opening.done() and self.opening.exception() is not None)

    def leave(self) -> None:
        """Receive no more answers."""
        if not self.is_over:
            self._link.core.unsubscribe(self._subscription)
            self._link.flush_soon()

    # What the core calls

    def deliver(self, batch: Batch, _positions: Sequence[int] | None, _redelivered: bool) -> None:
        """Give each answer to the caller that waits for it; late and further ones are dropped."""
        for event in batch.events:
            wait = self._waiting.pop(event.correlation_id or "", None)
            if wait is None or wait.done():
                continue
            if event.type == FAILURE:
                wait.set_exception(failure_of(event))
            else:
                wait.set_result(event)
        self._link.core.consume(self._subscription, len(batch))

    def gap(self, dropped: int, reason: str, missed: MissedNumbers | None = None) -> None:
        """Ignore the gap: requests whose answers were dropped wait until their time is up."""

    def ended(self, _reason: str) -> None:
        """Let the next request begin anew; those under way fail if the connection has."""
        self._has_ended = True
        failure = self._link.core.failure
        for wait in list(self._waiting.values()):
            if failure is not None and not wait.done():
                wait.set_exception(failure)


def _unguessable() -> str:
    """Return a name that can't be guessed."""
    return os.urandom(SECRET_SIZE).hex()


def _note_failure(opening: Wait) -> None:
    """Retrieve the error of an inbox that nobody waits for."""
    if not opening.cancelled():
        opening.exception()


def answer_event(request: Event, answer: Event) -> Event:
    """Return the answer addressed to the requester; an inbox replaces its own subject, if it has one."""
    if request.reply_to is None:
        raise EventError("$.reply_to", "is not set: this event expects no answer")
    header = structs.replace(
        answer.header or EMPTY_HEADER, correlation_id=request.correlation_id or request.id
    )
    if request.reply_to.startswith(INBOX):
        header = structs.replace(header, subject=request.reply_to)
    return structs.replace(answer, header=header)


def failure_event(error: Exception) -> Event:
    """Return the answer to a request that has failed with this error."""
    problem = str(error).encode(errors="replace").decode()[:FAILURE_LENGTH_MAX]
    return Event(FAILURE, {"error": type(error).__name__, "problem": problem})


def failure_of(answer: Event) -> RequestFailed:
    """Return the error that an error reply stands for."""
    return RequestFailed(str(answer.get("error") or "error"), str(answer.get("problem") or ""))


# Services


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


async def respond(
    name: str,
    reply: Callable[[Event, Event], Awaitable[None]],
    request: Event,
    call: Callable[[Event], Awaitable[Answer]],
) -> None:
    """Answer a request, if it is one, with what its handler returns or with its error; log failures."""
    try:
        answer = answer_of(name, request, await call(request))
    except Exception as error:
        _log("handler %s failed with %s; the requester gets an error reply", name, request, error)
        answer = failure_event(error)
    if request.reply_to is None:
        return
    try:
        await reply(request, answer)
    except TidingsError as error:
        _log("the answer of handler %s to %s can't be sent", name, request, error)


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
