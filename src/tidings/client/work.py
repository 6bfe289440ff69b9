"""Workers of a queue: a handler that is called with each message, and the settlement by its outcome.

A message is acknowledged when the handler has returned, released when it has raised, and rejected, as a dead
letter, when that error says that another try is useless. The rule kept: a message is acknowledged after its
handler has returned and never before; every other message goes back to the queue, whatever ends the worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import NamedTuple, TypedDict

from msgspec import Struct

from tidings.client.crew import CONCURRENCY_MAX, Crew, Stop
from tidings.client.encryption import QueueKeys
from tidings.client.get import PREFETCH, PREFETCH_MAX, Where, check_count, check_time
from tidings.client.handlers import Handler, watching
from tidings.client.message import Holder, Message, wait_handed
from tidings.client.worker import MessageLoop
from tidings.errors import DecryptionError, Disconnected, NoAnswer, QueueEmpty, UserError
from tidings.protocol.messages import DONE, GIVE_BACK, REJECT
from tidings.queues.description import REASON_LENGTH_MAX, SECONDS_MAX
from tidings.transport.link import Link, Wait

PAUSE_S = 1.0
"""Seconds that a worker pauses after a message that it has released, by default."""

MOST = 1 << 53
"""For numbers that have no limit of their own."""
WORDS = {DONE: "acknowledged", GIVE_BACK: "released", REJECT: "rejected", None: "not settled"}

WorkHandler = Callable[[Message], Awaitable[object] | object]
"""Processes a message: a coroutine function runs in the event loop, a plain function in a thread."""
Errors = type[Exception] | tuple[type[Exception], ...]
"""One or several classes of errors, as `except` takes them."""


class WorkOptions(TypedDict, total=False):
    """The options of `Queue.work` for a worker that has no end of its own, for callers that pass them on."""

    where: Where
    concurrency: int
    prefetch: int | None
    reject: Errors
    deliveries_max: int | None
    pause_s: float


class WorkPlan(Struct, frozen=True):
    """The options of a worker, with the condition as text."""

    where: str
    concurrency: int
    prefetch: int | None
    reject: Errors
    deliveries_max: int | None
    pause_s: float
    count: int | None
    timeout_s: float | None
    grace_s: float | None

    def check(self) -> None:
        """Raise UserError if no worker can have these."""
        check_count("concurrency", self.concurrency, 1, CONCURRENCY_MAX)
        for name, count, least, most in (
            ("prefetch", self.prefetch, 0, PREFETCH_MAX),
            ("deliveries_max", self.deliveries_max, 1, MOST),
            ("count", self.count, 1, MOST),
        ):
            if count is not None:
                check_count(name, count, least, most)
        if check_time(self.pause_s, "pause_s") is None:
            raise UserError(f"pause_s must be 0 to {SECONDS_MAX:g} seconds, not None")
        check_time(self.timeout_s)
        check_time(self.grace_s, "grace_s")
        check_errors("reject", self.reject)


class Outcomes(NamedTuple):
    """Messages that a worker has acknowledged, released and rejected."""

    done: int
    released: int
    rejected: int


class WorkLoop(MessageLoop):
    """Messages that are fetched ahead, for several tasks that settle them."""

    def __init__(self, link: Link, queue: str, keys: QueueKeys | None, where: str, prefetch: int) -> None:
        super().__init__(link, queue, keys, where, prefetch, "auto")
        self._others: deque[Wait] = deque()  # beside the one that waits as in any loop

    async def _wait_fetched(self) -> None:
        if self._waiting is None:
            await super()._wait_fetched()
            return
        wait = self.link.future()
        self._others.append(wait)
        await wait

    def _go_on(self) -> None:
        """Wake as many tasks as there are messages, but all if none will come."""
        super()._go_on()
        woken = len(self._others) if self._error is not None or self.is_over else len(self._fetched)
        while self._others and woken > 0:
            wait = self._others.popleft()
            if not wait.done():
                wait.set_result(None)
                woken -= 1

    def _leave_current(self) -> None:
        self._current = None

    def end(self, is_clean: bool = False) -> int:
        """Give back what was fetched ahead, and not what the tasks have."""
        self._current = None
        return super().end(is_clean)


class TimedIntake(Holder):
    """Messages one by one, until none has come for some time."""

    def __init__(self, link: Link, queue: str, keys: QueueKeys | None, where: str, timeout_s: float) -> None:
        super().__init__(link, queue, keys)
        self.gone_at = inf
        self._arguments = {"where": where, "action": "take"}
        self._timeout_s = timeout_s

    async def next(self) -> Message:
        """Wait for a message; raises QueueEmpty if none comes in time."""
        handed = await wait_handed(self.link, self.queue, self._arguments, self._timeout_s)
        (message,) = await self.open(handed.messages[:1])
        self.gone_at = self.link.now + (inf if handed.held_s is None else handed.held_s)
        return message

    def end(self) -> None:
        """Do nothing: nothing was fetched ahead."""


class QueueWorker:
    """Calls a handler with messages, several of them side by side."""

    def __init__(
        self, link: Link, queue: str, keys: QueueKeys | None, handler: WorkHandler, plan: WorkPlan
    ) -> None:
        plan.check()
        self._plan = plan
        self._handler: Handler[Message] = Handler(handler)
        self._crew = Crew(plan.grace_s)
        self._left = plan.count
        self._counts = dict.fromkeys((DONE, GIVE_BACK, REJECT), 0)
        self._intake = _intake(link, queue, keys, plan)

    @property
    def outcomes(self) -> Outcomes:
        """The outcomes of the messages so far."""
        return Outcomes(self._counts[DONE], self._counts[GIVE_BACK], self._counts[REJECT])

    async def run(self, stop: Stop | None) -> None:
        """Work until stopped or cancelled; on return the node has all settlements, unless it is away."""
        link = self._intake.link
        try:
            with watching(self._handler):
                await self._crew.run(self._labour, self._plan.concurrency, stop)
        finally:
            self._handler.close()
            self._intake.end()
        with suppress(NoAnswer, Disconnected):  # then the node redelivers
            await link.wait_accepted(link.core.publications.last, self._plan.grace_s)

    async def _labour(self) -> None:
        """Process one message after the other."""
        call, task, intake, crew = self._handler.caller(), asyncio.current_task(), self._intake, self._crew
        while not crew.is_stopping and self._may_begin():
            try:
                message = await intake.next()
            except (QueueEmpty, StopAsyncIteration):
                return
            except DecryptionError as error:
                await self._undecrypted(error)
                continue
            gone_at = intake.gone_at
            crew.busy.add(task)
            try:
                await call(message)
            except BaseException as error:
                self._failed(message, error)
                if not isinstance(error, Exception) and not _is_own(error):
                    raise
            else:
                self._settle(message, DONE)
            crew.busy.discard(task)
            if intake.link.now >= gone_at:
                self._warn_late(message)
            if message.outcome == GIVE_BACK and self._left != 0 and not crew.is_stopping:
                await asyncio.sleep(self._plan.pause_s)

    async def _undecrypted(self, error: DecryptionError) -> None:
        """Log a message that was given back since it can't be decrypted; in the end it is a dead letter."""
        logging.getLogger("tidings").warning("handler %s gets no message: %s", self._handler.name, error)
        self._counts[GIVE_BACK] += 1
        await asyncio.sleep(self._plan.pause_s)

    def _may_begin(self) -> bool:
        """Whether one more message is to be processed; counts it."""
        if not self._left:
            return self._left is None
        self._left -= 1
        return True

    def _settle(self, message: Message, outcome: int, text: str = "") -> None:
        """Settle a message, unless the handler has done so or there is no connection to do it with."""
        if message.outcome is None and self._intake.link.core.failure is None:
            self._intake.say(message, outcome, text)
        if message.outcome is not None:
            self._counts[message.outcome] += 1

    def _failed(self, message: Message, error: BaseException) -> None:
        """Release or reject a message, and log it with the error."""
        if not isinstance(error, Exception) and not _is_own(error):
            self._settle(message, GIVE_BACK)
            return
        self._settle(message, REJECT if self._is_final(message, error) else GIVE_BACK, reason_of(error))
        logging.getLogger("tidings").warning(
            "handler %s failed with message %d of queue %r in delivery %d; the message was %s",
            *(self._handler.name, message.number, self._intake.queue, message.deliveries),
            WORDS[message.outcome],
            exc_info=error,
        )

    def _is_final(self, message: Message, error: BaseException) -> bool:
        """Whether another delivery is useless."""
        most = self._plan.deliveries_max
        return isinstance(error, self._plan.reject) or (most is not None and message.deliveries >= most)

    def _warn_late(self, message: Message) -> None:
        """Log that the node has redelivered a message while the handler was at it."""
        logging.getLogger("tidings").warning(
            "handler %s took longer for message %d than queue %r lets a message be held, so the node "
            "delivers it again; raise the queue's redelivery_s",
            *(self._handler.name, message.number, self._intake.queue),
        )


def _intake(link: Link, queue: str, keys: QueueKeys | None, plan: WorkPlan) -> WorkLoop | TimedIntake:
    """Return what takes the messages; a worker that ends when none comes fetches nothing ahead."""
    if plan.timeout_s is not None:
        return TimedIntake(link, queue, keys, plan.where, plan.timeout_s)
    prefetch = plan.prefetch
    if prefetch is None:
        prefetch = min(PREFETCH * plan.concurrency, PREFETCH_MAX)
    return WorkLoop(link, queue, keys, plan.where, prefetch)


def check_errors(name: str, errors: Errors) -> None:
    """Raise UserError if these are not classes of errors."""
    for one in errors if isinstance(errors, tuple) else (errors,):
        if not _is_error_class(one):
            raise UserError(f"{name} must be a class of errors or a tuple of them, not {errors!r}")


def _is_error_class(given: object) -> bool:
    return isinstance(given, type) and issubclass(given, Exception)


def reason_of(error: BaseException) -> str:
    """Return an error as the reason that a dead letter carries."""
    text = f"{type(error).__name__}: {error}"
    return text.encode(errors="replace").decode()[:REASON_LENGTH_MAX]


def _is_own(error: BaseException) -> bool:
    """Whether a CancelledError comes from the handler itself, and nobody has cancelled the task."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling()
