"""The bus: the asyncio client of a node.

    async with tidings.connect("tidings://127.0.0.1:7300") as bus:
        await bus.publish("air.pm10", value=41.2)
        async with bus.subscribe("value > 40") as events:
            async for event in events: ...

The bus reconnects when the connection is lost: a call goes on when it is back. A call that the node does not
answer within its `timeout_s` raises NoAnswer, or Disconnected if the connection is lost then; without a
`timeout_s` the limit is the `call_timeout_s` of the bus. If the bus was made with `reconnect=False`, a lost
connection ends all calls with Disconnected. A cancelled call leaves nothing behind; an event that was handed
over before may still be published.
"""

from __future__ import annotations

import os
import random as chance
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from functools import partial
from itertools import islice
from math import inf
from typing import Any, Literal, Self, Unpack, get_args, overload

from tidings.client.adhoc import BusAdhoc
from tidings.client.advertisements import Interest, OfferList, Offers, fetch_offers
from tidings.client.bus_administration import BusAdministration
from tidings.client.bus_groups import BusGroups
from tidings.client.channels import BusChannels
from tidings.client.crew import CONCURRENCY_MAX, GRACE_S, Stop, until_signalled
from tidings.client.get import check_count, check_time
from tidings.client.handlers import Handler
from tidings.client.listener import Callback, Listener, OnError
from tidings.client.log import Log, Sink
from tidings.client.message import Message
from tidings.client.numbering import Numbering, ids_of
from tidings.client.put import GIVEN_UP, SentEvents, event_of, give_up
from tidings.client.queue import Queue, check_name
from tidings.client.queues import BusQueues
from tidings.client.requests import EventWorker, Inbox, ServeHandler, answer_event, failure_event, respond
from tidings.client.subscription import AcknowledgeBy, SubscribeOptions, Subscription, noted
from tidings.client.typed import TypedSubscription, filter_for
from tidings.errors import Disconnected, NoAnswer, UserError
from tidings.event import Event
from tidings.event.typed import Typed, TypedModel
from tidings.event.values import plain_moment
from tidings.filters import Converter, Filter
from tidings.ids import new_system
from tidings.patterns import Pattern
from tidings.peers.registry import ForwardOrder
from tidings.protocol.arguments import INBOX, OnSlow
from tidings.protocol.connection import Connection
from tidings.protocol.publications import SEND_BUFFER_MAX
from tidings.protocol.subscriber import Wanted
from tidings.transport.credentials import CredentialsProvider
from tidings.transport.dial import ConnectTo
from tidings.transport.link import CLOSE_S_MAX, TURN_EVENTS, Link

CONNECT_S = 10.0
"""Seconds that the first connection may take by default."""
CALL_S = 30.0
"""Seconds that the node may take to answer a call by default."""
PREFETCH = 16_384
"""Events that may be on their way to a subscription or wait in it."""
PREFETCH_DURABLE = 4_096
"""The same for durable subscriptions: up to so many are redelivered after a client has died."""

Safety = Literal["stored", "held"]
"""Disks on which an event is when `publish` returns: that of its node, or those of its neighbours, too."""
NodeFinder = Callable[[AsyncExitStack], Awaitable[ConnectTo]]
"""Finds or starts the node; the bus closes the stack when it ends."""


class Bus(BusQueues, BusChannels, BusAdhoc, BusGroups, BusAdministration):
    """A connection to a node, entered once; made by `tidings.connect` and `tidings.open`.

    `name` is the client's name: the source of its events and the owner of its durable subscriptions. A bus is
    used in the event loop in which it was entered.
    """

    _entered: Link | None = None
    _is_closed = False

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
        call_timeout_s: float | None = CALL_S,
        place: str = "the node",
        reach: Callable[[str], ConnectTo] | None = None,
        is_inside: bool = False,
        elsewhere_s: float | None = None,
    ) -> None:
        """`says` returns the user and secret for each connection; `ids` says how events are numbered.

        `call_timeout_s` is the limit of calls without one of their own; `place` is the node in error texts.
        `reach` returns how to connect to another node, if this one is drained, or gone for `elsewhere_s`.
        `is_inside`: the node runs in this process, with the bus.
        """
        super().__init__()
        if check_time(call_timeout_s, "call_timeout_s") == 0:
            raise UserError("call_timeout_s must be more than 0; None waits without a limit")
        self._call_timeout_s = call_timeout_s
        self._place = place
        self._reach = reach
        self._elsewhere_s = check_time(elsewhere_s, "elsewhere_s")
        self._name = name
        self._find = find
        self._timeout_s = timeout_s
        self._reconnect = reconnect
        self._random = random
        self._held = AsyncExitStack()
        self._system = new_system(os.urandom)
        self._core = Connection(ids_of(ids), name, says)
        self._publish = self._core.publish
        self._publications = self._core.publications
        self._inbox: Inbox | None = None
        self._says = says
        self._is_inside = is_inside

    def _bus(self) -> Bus:
        return self

    def _twin(self) -> Bus | None:
        """Return another bus to the same node, for another loop; None if the node is in this one."""
        if self._is_inside:
            return None
        names = {"name": f"{self._name}/leases"} if self._name else {}
        options: dict[str, Any] = {"says": self._says, "place": self._place, "reach": self._reach, **names}
        return Bus(self._find, timeout_s=None, call_timeout_s=self._call_timeout_s, **options)

    async def __aenter__(self) -> Self:
        if self._entered is not None:
            raise UserError("a bus can be entered once; connect again")
        limit_s, place = self._call_timeout_s, self._place
        link = self._entered = Link(self._core, self._reconnect, self._random, limit_s, place)
        try:
            link.start(await self._find(self._held), self._reach, self._elsewhere_s)
            await link.wait_connected(inf if self._timeout_s is None else self._timeout_s)
        except BaseException:
            await self._close(link)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._link.check_loop()
        try:
            self._link.end_loops()
            if kind is None and self._core.is_up:  # wait until the node has accepted what was published
                self._link.flush()
                with suppress(NoAnswer, Disconnected):
                    await self._link.wait_accepted(self._core.publications.last, CLOSE_S_MAX)
        finally:
            await self._close(self._link)

    async def _close(self, link: Link) -> None:
        self._is_closed = True
        if self._held_renewals is not None:
            await self._held_renewals.close()
        try:
            await link.close()
        finally:
            await self._held.aclose()

    def __repr__(self) -> str:
        name = f" {self._name!r}" if self._name else ""
        if self._is_closed:
            state = "closed"
        elif self._entered is None:
            state = "not entered"
        else:
            state = "connected" if self._core.is_up else "not connected"
        return f"<Bus{name} to {self._place}, {state}>"

    def __del__(self) -> None:
        link = self._entered
        if link is not None and not self._is_closed and not link.belonging.is_disowned:
            text = f"unclosed {self!r}: use it inside `async with`"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

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
        """Whether the client is connected to the node now."""
        return self._core.is_up

    @property
    def refused(self) -> int:
        """Transient events that the node has refused, of those it has answered for."""
        return self._publications.unasked

    async def move(self, node: str, *, timeout_s: float | None = None) -> None:
        """Move to another node of the network, given by its name or id, and go on there.

        What is published meanwhile is sent there, behind what this node has. Subscriptions get each event
        once; a durable one takes along what waits for it. Calls that wait for their answers are waited for.
        MoveRefused if there is no such node, or it will not have this client: then it stays where it is.
        """
        link = self._link
        link.flush_soon()
        moved = self._core.move(node)
        await link.within(link.outcome(moved), timeout_s, "move", "done")

    # Publishing

    async def publish(
        self,
        event: Event | Typed | str,
        attributes: Mapping[str, object] | None = None,
        /,
        *,
        timeout_s: float | None = None,
        safe: Safety = "stored",
        **fields: object,
    ) -> None:
        """Publish an event, or one made of a type, attributes and header fields.

        `data=` puts a model into the event, which `Event.data` returns.
        On return a transient event is in the bounded send buffer, a reliable or persistent one on the node's
        disk; if the node refuses it, `publish` raises NotAllowed. Refused transient events are logged with
        `logging` and counted by `refused`. With `safe="held"` a reliable or persistent event is also on the
        disks of the neighbour nodes that want it: it then survives the loss of this node.

        A reliable or persistent event that is not accepted in time, or whose call is cancelled, is withdrawn
        if it was not sent; otherwise the error has `may_be_accepted`. The same Event can be published again
        after an error: it keeps its number, so the node takes it once.
        """
        # This is on the hot path: a transient event costs no task, no future and no write.
        if event.__class__ is not Event or fields or attributes is not None:
            event = event_of(event, attributes, fields)
        link = self._entered or self._link
        if link.unflushed >= TURN_EVENTS or self._publications.size >= SEND_BUFFER_MAX:
            await link.wait_room(timeout_s)
        header = event.header
        if header is None or header.delivery == "transient":
            link.flush_soon()
            self._publish(event)
            return
        if safe not in get_args(Safety):
            raise UserError(f"safe is {' or '.join(map(repr, get_args(Safety)))}, not {safe!r}")
        counter = self._core.unsure.take(event, "", 0) if self._core.unsure.known else 0
        if not counter:
            link.flush_soon()
            counter = self._publish(event)
        await link.wait_done(counter, timeout_s, "publish", event)
        if safe == "held":
            await link.call("held", {}, timeout_s, "again")

    async def publish_all(self, events: Iterable[Event], *, timeout_s: float | None = None) -> None:
        """Publish many events, and wait once for those that are not transient.

        If that fails, `left` of the error lists those that the node may not have; see `publish`.
        """
        sent = SentEvents(self._core)
        try:
            await self._publish_turns(iter(events), sent, timeout_s)
        except GIVEN_UP as error:
            raise give_up(self._link, "", 0, sent.waiting, error) from None
        if sent.failure is not None:
            raise sent.failure

    async def _publish_turns(
        self, remaining: Iterator[Event], sent: SentEvents, timeout_s: float | None
    ) -> None:
        """Publish events turn by turn, and wait until the node has all that it must accept."""
        link, publish = self._link, self._publish
        link.check_loop()
        while turn := list(islice(remaining, TURN_EVENTS)):
            if link.unflushed:
                await link.wait_room(timeout_s)
            for event in turn:
                if self._publications.size >= SEND_BUFFER_MAX:
                    link.flush_soon()
                    await link.wait_room(timeout_s)
                header = event.header
                if header is None or header.delivery == "transient":
                    publish(event)
                else:
                    sent.publish(event)
            link.flush_soon()
            sent.look()
        if sent.waiting:
            await link.wait_accepted(max(sent.waiting), timeout_s)
            sent.look()

    # Subscribing

    @overload
    def subscribe(
        self, filter: Filter | Pattern | str = "", **options: Unpack[SubscribeOptions]
    ) -> Subscription: ...
    @overload
    def subscribe(
        self, filter: type[TypedModel], *, where: Filter | str = "", **options: Unpack[SubscribeOptions]
    ) -> TypedSubscription[TypedModel]: ...
    def subscribe(
        self,
        filter: Filter | Pattern | str | type[TypedModel] = "",
        *,
        where: Filter | str = "",
        durable: str | None = None,
        since: int | datetime | None = None,
        last: bool = False,
        passive: bool = False,
        on_slow: OnSlow = "drop-oldest",
        slow_key: str | None = None,
        order: ForwardOrder = "oldest",
        acknowledge: AcknowledgeBy = "auto",
        prefetch: int | None = None,
        convert: Converter | Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Subscription | TypedSubscription[TypedModel]:
        """Subscribe to the events that match: an async iterator inside `async with`.

        A class of events (`tidings.Typed`) in the place of the filter stands for its type: the iterator
        returns instances, and `where` is a filter on its attributes; one that it has not raises FilterError.
        `durable`: a name under which the node keeps the subscription and its unacknowledged events. `since`:
        deliver stored events from this position on first, or from a time on those of all nodes. `last`:
        deliver the newest event of each source, type and subject first. `passive`: receive events without
        creating demand for them.
        A `Pattern` in the place of the filter: the iterator returns its matches as events; a durable one goes
        on while no client is there, and publishes its matches.
        `on_slow`: what the node does with events when this client is too slow; `latest` keeps the newest for
        each value of the attribute `slow_key`. `order`: whether a durable subscription that resumes gets the
        oldest or newest first. `convert`: units that attributes are converted to, such as
        `{"value": "µg/m³"}`, where events have others; `original.value` is what the event had.
        Notes on the filter (`Filter.notes`) are logged as warnings of `tidings.notes`.
        """
        if acknowledge not in ("auto", "client") or (acknowledge == "client" and durable is None):
            raise UserError("acknowledge must be 'auto', or 'client' on a durable subscription")
        if prefetch is None:
            prefetch = PREFETCH if durable is None else PREFETCH_DURABLE
        if prefetch < 1:
            raise UserError(f"prefetch must be at least 1, not {prefetch}")
        time_us = plain_moment(since, "since") if isinstance(since, datetime) else None
        position = None if isinstance(since, datetime) else since
        pattern = None
        if isinstance(filter, type):
            text = str(filter_for(filter, where))
        elif where == "":
            pattern = str(filter) if isinstance(filter, Pattern) else None
            text = "" if isinstance(filter, Pattern) else noted(filter)
        else:
            raise UserError("where goes with a class of events; join two filters with &")
        rules = durable, position, time_us, last, passive, on_slow, slow_key, order
        wanted = Wanted(text, *rules, pattern=pattern)
        converter = Converter(convert) if isinstance(convert, Mapping) else convert
        made = Subscription(self._link, wanted, prefetch, acknowledge, timeout_s, converter)
        return TypedSubscription(made, filter) if isinstance(filter, type) else made

    def listen(
        self,
        filter: Filter | str,
        callback: Callback,
        *,
        on_error: OnError | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Listener:
        """Call a function or coroutine function with each event that matches, inside `async with`.

        An exception of the callback is logged. `on_error` is called with the event and the exception, and
        the listening goes on; without it the exception ends the block. A client that waits for an
        answer gets an error reply, so its `request` raises RequestFailed; a `passive` listener sends none.
        The other options are those of `subscribe`.
        """
        answer = None if options.get("passive") else self._answer_error
        return Listener(self.subscribe(filter, **options), callback, on_error, answer)

    async def _answer_error(self, request: Event, error: Exception) -> None:
        await self.reply(request, failure_event(error))

    async def unsubscribe(
        self, durable: str, *, owner: str | None = None, timeout_s: float | None = None
    ) -> None:
        """Delete a durable subscription; raises Refused with the code `not-found` if there is none.

        A client with the right to manage everything may delete that of another client, the `owner`.
        """
        if owner is None:
            await self._link.call("unsubscribe", {"durable": durable}, timeout_s, "again")
        else:
            await self._link.call("durable.end", {"name": durable, "owner": owner}, timeout_s, "again")

    def advertise(self, filter: Filter | str = "", *, timeout_s: float | None = None) -> Interest:
        """Advertise the events that this client may publish, and learn of the demand inside `async with`."""
        return Interest(self._link, str(filter), timeout_s)

    async def advertisements(self, where: Filter | str = "", *, timeout_s: float | None = None) -> OfferList:
        """Return others' advertisements that overlap the filter and that this client may subscribe to.

        They are those of all nodes; a node that could not be asked is in the `missing` of the list.
        """
        return (await fetch_offers(self._link, str(where), timeout_s))[1]

    def watch_advertisements(self, where: Filter | str = "") -> Offers:
        """Return the same as an async iterator: the current list, and the new one after each change."""
        return Offers(self._link, str(where))

    # Asking and answering

    async def request(
        self,
        event: Event | Typed | str,
        attributes: Mapping[str, object] | None = None,
        /,
        *,
        timeout_s: float | None = None,
        **fields: object,
    ) -> Event:
        """Publish a request and return the first answer; raises NoAnswer if none comes in time.

        Without a `timeout_s` the limit is the `call_timeout_s` of the bus. Raises RequestFailed if the
        service that answers first has failed.
        """
        return await self._asking.ask(event_of(event, attributes, fields), self.publish, timeout_s)

    async def serve(
        self,
        type: Filter | str,
        handler: ServeHandler,
        *,
        concurrency: int = 1,
        stop: Stop | None = None,
        signals: bool = False,
        grace_s: float | None = GRACE_S,
    ) -> None:
        """Answer requests of a type, or those that match a filter, by calling a handler, until stopped.

        A coroutine function runs in the event loop, a plain function in a thread. It returns an event, the
        attributes of one, or None. If it raises, the error is logged and `request` raises RequestFailed.

        The service ends when `stop` is set or, with `signals`, at SIGTERM or SIGINT. It takes no further
        request then, and lets running handlers finish for `grace_s`; after that, or with a second signal,
        it cancels them.
        """
        check_count("concurrency", concurrency, 1, CONCURRENCY_MAX)
        called: Handler[Event] = Handler(handler)
        filter = Filter("type = :type", type=type) if isinstance(type, str) else type
        answer = partial(respond, called.name, self.reply)
        grace_s = check_time(grace_s, "grace_s")
        service = EventWorker(self.subscribe(filter), called, answer, concurrency, grace_s)
        await (until_signalled(service.run, stop) if signals else service.run(stop))

    async def reply(
        self,
        request: Event | Message,
        answer: Event | Typed | str,
        attributes: Mapping[str, object] | None = None,
        /,
        **fields: object,
    ) -> None:
        """Answer a request that came as an event or in a queue, at its `reply_to`.

        That is the requesting client or a queue; raises EventError if the request expects no answer.
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
        """The log of the node: its stored events and their readers."""
        return Log(self._link)

    def sink(self, name: str) -> Sink:
        """Return the sink of that name, by which a job of many tasks publishes all its rows or none."""
        return Sink(self._link, name)
