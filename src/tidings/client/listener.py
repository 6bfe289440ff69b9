"""Callbacks: a function that is called with each event, for as long as a block lasts."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from tidings.client.subscription import Subscription
from tidings.event import Event

Callback = Callable[[Event], Awaitable[None] | None]


class Listener:
    """Calls a function or coroutine function with each event, one after the other; made by `Bus.listen`.

    What the callback raises ends the listening, and is raised where the block ends or by `wait`. An event of
    a durable subscription is acknowledged when the callback has returned.
    """

    def __init__(self, subscription: Subscription, callback: Callback) -> None:
        self.subscription = subscription
        """The subscription that the events come by, which knows of gaps."""
        self._callback = callback
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.subscription.__aenter__()
        self._task = asyncio.create_task(self._listen(), name="tidings listener")
        return self

    async def _listen(self) -> None:
        callback = self._callback
        async for event in self.subscription:
            result = callback(event)
            if inspect.isawaitable(result):
                await result

    async def wait(self) -> None:
        """Wait until the listening ends by itself: by an error, or with the subscription."""
        assert self._task is not None
        await asyncio.wait([self._task])
        self._task.result()

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        # Events that were dealt with are acknowledged by now; one that was being dealt with must not be.
        await self.subscription.leave()
        if kind is None and not self._task.cancelled():
            self._task.result()
