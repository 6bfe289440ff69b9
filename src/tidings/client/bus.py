"""The bus: what an application has of tidings, on asyncio.

    async with tidings.connect("tidings://127.0.0.1:7300") as bus:
        await bus.publish("air.pm10", value=41.2)
        async with bus.subscribe("value > 40") as events:
            async for event in events: ...

A lost connection is waited out: calls go on when it is back, or raise Disconnected after their `timeout_s`
(None waits, 0 does not), or at once if the bus was made with `reconnect=False`. A call that is cancelled
leaves nothing behind; an event that was handed over before that may still be published.
"""

from __future__ import annotations

import os
import random as chance
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import Any, Self, Unpack

from tidings.client.advertisements import Interest, Offered, Offers, fetch_offers
from tidings.client.log import Log, Sink
from tidings.client.message import Message
from tidings.client.numbering import Numbering, ids_of
from tidings.client.put import event_of
from tidings.client.queue import Queue, check_name
from tidings.client.queues import BusQueues
from tidings.client.requests import Inbox, answer_event
from tidings.client.subscription import AcknowledgeBy, Callback, Listener, SubscribeOptions, Subscription
from tidings.errors import Disconnected, NoAnswer, UserError
from tidings.event import Event
from tidings.event.values import plain_moment
from tidings.filters import Filter
from tidings.ids import new_system
from tidings.peers.registry import ForwardOrder
from tidings.protocol.arguments import INBOX, OnSlow
from tidings.protocol.connection import Connection
from tidings.protocol.messages import error_of
from tidings.protocol.publications import SEND_BUFFER_MAX
from tidings.protocol.subscriber import Wanted
from tidings.transport.credentials import CredentialsProvider
from tidings.transport.dial import ConnectTo
from tidings.transport.link import CLOSE_S_MAX, TURN_EVENTS, Link

CONNECT_S = 10.0
"""How long the first connection may take, unless the caller says otherwise."""
PREFETCH = 16_384
"""Events that may be on their way to a subscription or wait in it."""
PREFETCH_DURABLE = 4_096
"""The same for durable ones: so many may come again to a client that has died."""

NodeFinder = Callable[[AsyncExitStack], Awaitable[ConnectTo]]
"""Finds, or makes, the node; what the stack holds ends with the bus."""


class Bus(BusQueues):
    """A connection to a node, entered once; made by `tidings.connect` and `tidings.open`.

    `name` is who the client says it is: the source of its events, and the owner of its durable subscriptions.
    """

    def __init__(
        self,
        find: NodeFinder,
        *,
        name: str = "",
        reconnect: bool = True,
        timeout_s: float | None = CONNECT_S,
        random: Callable[[], float] = chance.random,
        says: CredentialsProvider | None = None,
        ids: Numbering = "clock",
    ) -> None:
        """`says` gives the user and the secret of each connection, `ids` how events are numbered."""
        super().__init__()
        self._find = find
        self._timeout_s = timeout_s
        self._reconnect = reconnect
        self._random = random
        self._held = AsyncExitStack()
        self._system = new_system(os.urandom)
        self._core = Connection(ids_of(ids), name, says)
        self._publish = self._core.publish
        self._publications = self._core.publications
        self._entered: Link | None = None
        self._inbox: Inbox | None = None

    async def __aenter__(self) -> Self:
        if self._entered is not None:
            raise UserError("a bus can be entered once; connect again")
        link = self._entered = Link(self._core, self._reconnect, self._random)
        try:
            link.start(await self._find(self._held))
            await link.wait_connected(self._timeout_s)
        except BaseException:
            await self._close(link)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._link.end_loops()
            if kind is None and self._core.is_up:
                await self._drain(self._link)
        finally:
            await self._close(self._link)

    async def _drain(self, link: Link) -> None:
        """Wait until what was published is accepted, as far as that is to be had."""
        link.flush()
        try:
            await link.wait_accepted(self._core.publications.last, CLOSE_S_MAX)
        except (NoAnswer, Disconnected):
            return

    async def _close(self, link: Link) -> None:
        try:
            await link.close()
        finally:
            await self._held.aclose()

    @property
    def _link(self) -> Link:
        if self._entered is None:
            raise UserError("the bus is used inside `async with`")
        return self._entered

    @property
    def _asking(self) -> Inbox:
        if self._inbox is None:
            self._inbox = Inbox(self._link, self._system)
        return self._inbox

    @property
    def is_connected(self) -> bool:
        """Whether the node is there just now."""
        return self._core.is_up

    @property
    def refused(self) -> int:
        """How many transient events the node would not publish, of those it has answered for."""
        return self._publications.unasked

    # Publishing

    async def publish(
        self,
        event: Event | str,
        attributes: Mapping[str, object] | None = None,
        /,
        *,
        timeout_s: float | None = None,
        **fields: object,
    ) -> None:
        """Publish an event, or one made of a type, attributes and header fields.

        A transient event is in the bounded send buffer when this returns, a reliable or persistent one is on
        the node's disk; NotAllowed if the node would not have it. Of transient ones that it would not have,
        the log of Python is told, and `refused` counts them.
        """
        # This is on the hot path: a transient event costs no task, no future and no write.
        if event.__class__ is not Event or fields or attributes is not None:
            event = event_of(event, attributes, fields)
        link = self._entered or self._link
        if link.unflushed >= TURN_EVENTS or self._publications.size >= SEND_BUFFER_MAX:
            await link.wait_room(timeout_s)
        counter = self._publish(event)
        link.flush_soon()
        header = event.header
        if header is not None and header.delivery != "transient":
            await link.wait_done(counter, timeout_s)

    async def publish_all(self, events: Iterable[Event], *, timeout_s: float | None = None) -> None:
        """Publish many events, and wait once for those that are not transient."""
        link, publish = self._link, self._publish
        remaining = iter(events)
        kept: list[int] = []
        while turn := list(islice(remaining, TURN_EVENTS)):
            if link.unflushed:
                await link.wait_room(timeout_s)
            for event in turn:
                if self._publications.size >= SEND_BUFFER_MAX:
                    link.flush_soon()
                    await link.wait_room(timeout_s)
                counter = publish(event)
                if event.header is not None and event.header.delivery != "transient":
                    kept.append(counter)
            link.flush_soon()
        if kept:
            await link.wait_accepted(kept[-1], timeout_s)
            for failure in self._publications.refusals(kept).values():
                raise error_of(failure)

    # Subscribing

    def subscribe(
        self,
        filter: Filter | str = "",
        *,
        durable: str | None = None,
        since: int | datetime | None = None,
        last: bool = False,
        passive: bool = False,
        on_slow: OnSlow = "drop-oldest",
        slow_key: str | None = None,
        order: ForwardOrder = "oldest",
        acknowledge: AcknowledgeBy = "auto",
        prefetch: int | None = None,
        timeout_s: float | None = None,
    ) -> Subscription:
        """The events that match, as an async iterator inside `async with`.

        `durable`: a name under which the node keeps it, and what it has not acknowledged. `since`: stored
        events from this position or time on come first. `last`: the newest event of each thing comes first.
        `passive`: take what flows without asking for it to be made. `on_slow`: what happens to events that
        this client is too slow for; `latest` keeps the newest for each value of the attribute `slow_key`.
        `order`: whether a durable subscription that comes back gets the oldest or the newest events first.
        """
        if acknowledge not in ("auto", "client") or (acknowledge == "client" and durable is None):
            raise UserError("acknowledge is 'auto', or 'client' on a durable subscription")
        if prefetch is None:
            prefetch = PREFETCH if durable is None else PREFETCH_DURABLE
        if prefetch < 1:
            raise UserError(f"prefetch={prefetch}: at least one event must be on its way")
        time_us = plain_moment(since, "since") if isinstance(since, datetime) else None
        position = None if isinstance(since, datetime) else since
        wanted = Wanted(str(filter), durable, position, time_us, last, passive, on_slow, slow_key, order)
        return Subscription(self._link, wanted, prefetch, acknowledge, timeout_s)

    def listen(
        self, filter: Filter | str, callback: Callback, **options: Unpack[SubscribeOptions]
    ) -> Listener:
        """Call a function or coroutine function with each event that matches, inside `async with`.

        The options are those of `subscribe`.
        """
        return Listener(self.subscribe(filter, **options), callback)

    async def unsubscribe(self, durable: str, *, timeout_s: float | None = None) -> None:
        """End a durable subscription for good; Refused with the code `not-found` if there is none."""
        await self._link.call("unsubscribe", {"durable": durable}, timeout_s, "again")

    def advertise(self, filter: Filter | str = "", *, timeout_s: float | None = None) -> Interest:
        """Say which events may be published; inside `async with` it tells whether anyone wants them."""
        return Interest(self._link, str(filter), timeout_s)

    async def advertisements(
        self, where: Filter | str = "", *, timeout_s: float | None = None
    ) -> list[Offered]:
        """What others advertise and this client may subscribe to, as far as it overlaps a filter."""
        return (await fetch_offers(self._link, str(where), timeout_s))[1]

    def watch_advertisements(self, where: Filter | str = "") -> Offers:
        """The same as an async iterator: the list as it is, and again after each change."""
        return Offers(self._link, str(where))

    # Asking and answering

    async def request(
        self,
        event: Event | str,
        attributes: Mapping[str, object] | None = None,
        /,
        *,
        timeout_s: float | None = None,
        **fields: object,
    ) -> Event:
        """Publish a request and wait for the first answer, whoever it comes from; NoAnswer if none does."""
        return await self._asking.ask(event_of(event, attributes, fields), self.publish, timeout_s)

    async def reply(
        self,
        request: Event | Message,
        answer: Event | str,
        attributes: Mapping[str, object] | None = None,
        /,
        **fields: object,
    ) -> None:
        """Answer a request that came as an event or in a queue, where it wants the answer to go.

        That is whoever asked, or a queue; EventError if its sender does not wait for an answer.
        """
        asked = request.event if isinstance(request, Message) else request
        answered = answer_event(asked, event_of(answer, attributes, fields))
        address = asked.reply_to or ""
        if address.startswith(INBOX):
            await self.publish(answered)
        else:
            await Queue(self._link, self._asking, check_name(address)).put(answered)

    @property
    def log(self) -> Log:
        """The log of the node: events that were kept, and who reads them there."""
        return Log(self._link)

    def sink(self, name: str) -> Sink:
        """Where a job of many tasks publishes all its rows at once, or none."""
        return Sink(self._link, name)

    async def status(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """What the node says of itself: counters and depths."""
        status: dict[str, Any] = await self._link.call("status", {}, timeout_s, "again")
        return status
