"""A subscription without await."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from tidings.client.runner import Block, Runner
from tidings.client.subscription import Gap
from tidings.client.subscription import Subscription as AsyncSubscription
from tidings.event import Event


class Subscription(Block):
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
