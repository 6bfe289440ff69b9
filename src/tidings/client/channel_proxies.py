"""Push and pull at both ends of a channel, and channels that feed others.

    event = await trip.pull(timeout_s=1.0)             a consumer that pulls
    await trip.push(show)                              one that is pushed to, until the block ends
    await trip.supply(read_sensor, every_s=1.0)        a supplier that is pulled; `send` pushes
    await trip.feed(diary, where="type = 'position'")  what comes in one channel goes into another

All kinds may be mixed in one channel. Between two pulls events wait here, up to PREFETCH of them, and then at
the node, as for any subscriber that is slow. Channels that feed each other in a circle are refused. As two
feeds may begin at once, or while nodes can't reach each other, a fed event also names the channels that it
has passed, in its attribute VIA, and enters none of them again.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from msgspec import structs

from tidings.client.get import Where, condition
from tidings.client.handlers import Handler, watching
from tidings.client.subscription import Subscription
from tidings.errors import UserError
from tidings.event import Event
from tidings.filters import Filter
from tidings.transport.link import Link

VIA = "via"
"""Attribute of fed events: the ids of the channels that they have passed, with spaces between."""
TURNS = 3
"""Turns of the loop that an event needs which is here already."""
PASSED_MAX = 100
"""Channels that an event passes before it is fed into no more."""

Supplied = Event | Iterable[Event] | None
Supplier = Callable[[], Supplied | Awaitable[Supplied]]
"""A source that is asked: it returns an event, several, or None."""


class FedChannel(Protocol):
    """A channel that is fed by another."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def name(self) -> str:
        """Its name."""

    async def send(self, event: Event, /) -> None:
        """Send an event to its members."""


class ChannelProxies(ABC):
    """The ends of a channel, beside sending and iterating; a channel inside its block."""

    _link: Link
    _events: Subscription
    _coming: asyncio.Future[Event | None] | None = None  # what a pull has waited for

    @property
    @abstractmethod
    def id(self) -> str:
        """The id of the channel, which no other has."""

    @abstractmethod
    async def _next(self) -> Event:
        """Return the next event as it came."""

    @abstractmethod
    def _named(self, event: Event) -> Event:
        """Return it as members see it."""

    @abstractmethod
    async def send(self, event: Event, /) -> None:
        """Send an event to all members."""

    @property
    def waiting(self) -> int:
        """Events that have come and were not pulled yet; more may wait at the node."""
        return self._events.pending

    async def pull(self, *, timeout_s: float | None = None) -> Event | None:
        """Return the next event; None if none comes within `timeout_s`. With 0 it does not wait."""
        if timeout_s is not None and timeout_s < 0:
            raise UserError(f"timeout_s is 0 or more, not {timeout_s}")
        if self._coming is None:
            self._coming = asyncio.ensure_future(self._advance())
        for _ in range(TURNS):  # what is here already is returned in any case
            await asyncio.sleep(0)
        done, _ = await asyncio.wait([self._coming], timeout=timeout_s)
        if not done:
            return None  # the next call waits on
        coming, self._coming = self._coming, None
        event = coming.result()
        return None if event is None else self._named(event)

    async def _advance(self) -> Event | None:
        """Return the next event; None at the end."""
        try:
            return await self._next()
        except StopAsyncIteration:
            return None

    async def _take(self) -> Event:
        """Return the next event, also one that a pull has waited for in vain."""
        if self._coming is None:
            return self._named(await self._next())
        event = await self.pull()
        if event is None:
            raise StopAsyncIteration
        return event

    def _stop_pulling(self) -> None:
        """The block ends."""
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None

    async def push(self, consumer: Callable[[Event], Any]) -> None:
        """Call a function or coroutine function with each event, one after the other, until the block ends.

        A plain function runs in a thread. What it raises ends this, and is raised here.
        """
        handler: Handler[Event] = Handler(consumer)
        call = handler.caller()
        try:
            with watching(handler):
                while True:
                    await call(await self._take())
        except StopAsyncIteration:
            return
        finally:
            handler.close()

    async def supply(self, source: Supplier, *, every_s: float) -> None:
        """Ask a source every `every_s` seconds, and send what it returns, until the block ends.

        A source that takes longer is asked again when it has answered. What it raises is raised here.
        """
        if not every_s > 0:
            raise UserError(f"every_s is more than 0, not {every_s}")
        loop = asyncio.get_running_loop()
        while not self._events.is_over:
            asked_at = loop.time()
            found = source()
            supplied = await found if inspect.isawaitable(found) else found
            for event in _events(supplied):
                await self.send(event)
            await asyncio.sleep(max(0.0, asked_at + every_s - loop.time()))

    async def feed(self, other: FedChannel, *, where: Where = None) -> None:
        """Send what comes in this channel into another one, until the block of one of them ends.

        `where`: of its events, those that match. Raises Refused if the other one feeds this one, by whichever
        channels. The events are new ones, of this client; `via` names the channels that they have passed.
        """
        chosen = Filter(condition(where) or "")
        asked = {"channel": self.id, "into": other.id}
        await self._link.call("channel.feed", asked, None, "again")
        try:
            while True:
                event = await self._take()
                passed = str(event.values.get(VIA, "")).split()
                if chosen.matches(event) and other.id not in passed and len(passed) < PASSED_MAX:
                    await other.send(_fed(event, [*passed, self.id]))
        except StopAsyncIteration:
            return
        finally:
            await self._link.call("channel.feed", {**asked, "ends": True}, None, "again")


def _fed(event: Event, passed: list[str]) -> Event:
    """Return an event as a new one of this client that says where it comes from."""
    header = event.header
    if header is not None:
        header = structs.replace(header, channel=None, id=None, received_us=None)
    values = {**event.values, VIA: " ".join(passed)}
    return Event.unchecked(0, event.type, event.time_us, values, header, event.body)


def _events(supplied: Supplied) -> Iterable[Event]:
    if supplied is None:
        return ()
    return (supplied,) if isinstance(supplied, Event) else supplied
