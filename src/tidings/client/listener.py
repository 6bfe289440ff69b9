"""Listeners: a function that is called with each event of a subscription, for as long as a block lasts.

A handler that raises is reported three times over, since each of those concerned may be somewhere else: the
error is logged, a client that waits for an answer gets an error reply, and the application gets the error, by
its `on_error` or out of the block at once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Self

from tidings.client.subscription import Subscription
from tidings.errors import TidingsError
from tidings.event import Event

Callback = Callable[[Event], Awaitable[None] | None]
OnError = Callable[[Event, Exception], Awaitable[None] | None]
"""Called with an event and what its callback raised."""
AnswerError = Callable[[Event, Exception], Awaitable[None]]
"""Sends an error reply to a request."""

_logger = logging.getLogger("tidings")


class Listener:
    """Calls a function or coroutine function with each event, one after the other; made by `Bus.listen`.

    An exception of the callback is logged and goes to `on_error`. Without one it ends the listening, and is
    raised by `wait` or by the block, at once if that is possible. If the event was a request, its sender gets
    an error reply. An event of a durable subscription is acknowledged when the callback, or `on_error`, has
    returned.
    """

    def __init__(
        self,
        subscription: Subscription,
        callback: Callback,
        on_error: OnError | None,
        answer_error: AnswerError | None,
    ) -> None:
        self.subscription = subscription
        """The subscription that delivers the events and counts gaps."""
        self._callback = callback
        self._on_error = on_error
        self._answer_error = answer_error
        self._task: asyncio.Task[None] | None = None
        self._owner: asyncio.Task[object] | None = None  # the task of the block
        self._cancelling = 0  # its cancellations when the block began
        self._waits = 0  # calls of `wait`
        self._has_cancelled = False
        self._is_left = False

    async def __aenter__(self) -> Self:
        await self.subscription.__aenter__()
        self._owner = asyncio.current_task()
        assert self._owner is not None
        self._cancelling = self._owner.cancelling()
        self._task = asyncio.create_task(self._listen(), name="tidings listener")
        self._task.add_done_callback(self._ended)
        return self

    async def _listen(self) -> None:
        callback = self._callback
        async for event in self.subscription:
            try:
                result = callback(event)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                await self._report(event, error)
                if self._on_error is None:
                    raise
                handled = self._on_error(event, error)
                if inspect.isawaitable(handled):
                    await handled

    async def _report(self, event: Event, error: Exception) -> None:
        """Log the error of a callback, and send it to the client that waits for an answer."""
        _logger.error("a callback failed on an event of type %s", event.type, exc_info=error)
        if event.reply_to is not None and self._answer_error is not None:
            try:
                await self._answer_error(event, error)
            except TidingsError as problem:
                _logger.error("no error reply could be sent for %s: %s", event.type, problem)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End the block at once if the listening has failed, unless a caller of `wait` gets the error."""
        if task.cancelled() or task.exception() is None or self._waits or self._is_left:
            return
        assert self._owner is not None
        self._has_cancelled = self._owner.cancel()  # False in the blocking client, whose block has no task

    async def wait(self) -> None:
        """Wait until the listening ends: by an error, or with the subscription."""
        assert self._task is not None
        self._waits += 1
        try:
            await asyncio.wait([self._task])
        finally:
            self._waits -= 1
        self._task.result()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._task is not None
        self._is_left = True
        self._task.cancel()
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            if not self._take_back():
                raise
        # Processed events are acknowledged by now; one whose callback was cancelled must not be.
        await self.subscription.leave()
        is_own = self._take_back() and kind is asyncio.CancelledError
        if (kind is None or is_own) and not self._task.cancelled():
            self._task.result()

    def _take_back(self) -> bool:
        """Take back the cancellation of the block, if there was one; whether it was the only one."""
        if not self._has_cancelled:
            return False
        assert self._owner is not None
        self._has_cancelled = False
        return self._owner.uncancel() <= self._cancelling
