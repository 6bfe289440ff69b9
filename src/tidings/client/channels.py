"""Channels, as their members use them.

    async with bus.create_channel("trip", delivery="reliable") as trip:
        await trip.send("position", lat=52.5, lon=13.4)
        async for event in trip: ...

A member gets what all members send, its own events too, from when its block begins until it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Self, get_args

from msgspec import ValidationError, convert, structs

from tidings.channels.changes import ChannelChanges
from tidings.channels.description import (
    ChannelDelivery,
    ChannelDescription,
    ChannelInfo,
    ChannelOrder,
    ChannelProtocol,
    ChannelStatus,
    ExpectedGroup,
    protocol_of,
)
from tidings.channels.merging import TakenEvents
from tidings.client.bus_part import BusPart
from tidings.client.channel_proxies import ChannelProxies
from tidings.client.enterable import enterable
from tidings.client.get import Where, check_time, condition
from tidings.client.put import event_of
from tidings.client.sessions import read_as
from tidings.client.subscription import Subscription
from tidings.errors import UserError
from tidings.event import Event
from tidings.event.header import EMPTY_HEADER
from tidings.event.typed import Typed
from tidings.event.values import plain_moment
from tidings.protocol.arguments import OnSlow
from tidings.protocol.channels import EXPEDITED, MARK, UPDATE
from tidings.protocol.subscriber import Wanted
from tidings.transport.link import Link

LOOK_S = 1.0
"""How often nodes are asked for the members of a channel whose changes are watched."""
PREFETCH = 4_096
"""Events of a channel that may be on their way to a member or wait there."""


class Channel(ChannelProxies):
    """A channel; inside `async with` this client is a member, and can send and iterate over its events.

    Made by `Bus.channel` and `Bus.create_channel`.
    """

    def __init__(
        self,
        link: Link,
        description: ChannelDescription,
        where: str,
        durable: str | None,
        timeout_s: float | None,
        since_us: int | None = None,
        archive: bool | None = None,
    ) -> None:
        self._link = link
        self._description = description
        self._timeout_s = timeout_s
        self._where = where
        self._since_us = since_us
        self._archive = archive
        self._past: AsyncIterator[Event] | None = None  # what was stored before the block
        self._taken = TakenEvents()  # of that
        on_slow: OnSlow = "drop-oldest" if since_us is None else "spill"
        wanted = Wanted(
            where, durable, channel=description.id, reference=description.reference, on_slow=on_slow
        )
        self._events = Subscription(link, wanted, PREFETCH, "auto", timeout_s)
        self.missing: list[str] = []
        """Nodes that could not be asked for what they have stored, when that was read last."""

    @property
    def name(self) -> str:
        """The name of the channel."""
        return self._description.name

    @property
    def id(self) -> str:
        """The id of the channel, which no other has."""
        return self._description.id

    @property
    def node(self) -> str:
        """The name of the node at which the channel was created."""
        return self._description.node

    @property
    def delivery(self) -> ChannelDelivery:
        """How its events are delivered."""
        return self._description.delivery

    @property
    def order(self) -> ChannelOrder:
        """In which order members get its events."""
        return self._description.order

    @property
    def protocol(self) -> ChannelProtocol:
        """How nodes that join find those that take part."""
        return protocol_of(self.id)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of events that it takes; all if there are none."""
        return self._description.types

    @property
    def reference(self) -> str:
        """By what a private channel is found and joined, as far as is known here; empty for others."""
        return self._description.reference

    @property
    def dropped(self) -> int:
        """Transient events that were dropped since the block began, as this member was too slow."""
        return self._events.dropped

    def __repr__(self) -> str:
        return f"<Channel {self.name!r} of node {self.node!r}, {self.delivery}, {self.order}>"

    async def __aenter__(self) -> Self:
        await self._events.__aenter__()
        if self._archive is not None:
            asked = {"channel": self.id, "kept": self._archive}
            await self._link.call("channel.archive", asked, self._timeout_s, "again")
        if self._since_us is not None:
            self._past = self._read(self._since_us, self._where, self._taken)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._stop_pulling()
        await self._events.__aexit__(kind, *rest)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self._take()

    async def _next(self) -> Event:
        if self._past is not None:
            async for event in self._past:
                return event
            self._past = None
        while True:
            event = await self._events.__anext__()
            if self._since_us is None or self._taken.take(event):
                return event

    def _named(self, event: Event) -> Event:
        header = structs.replace(event.header or EMPTY_HEADER, channel=self.name)
        return structs.replace(event, header=header)

    async def send(
        self,
        event: Event | Typed | str,
        attributes: Mapping[str, object] | None = None,
        /,
        *,
        expedited: bool = False,
        update: str | None = None,
        timeout_s: float | None = None,
        **fields: object,
    ) -> None:
        """Send an event, or one made of a type, attributes and header fields, to all members.

        It is delivered as the channel says. On return a transient event is in the bounded send buffer, a
        reliable one on the node's disk, and its place agreed if the order is total. Raises NotAllowed outside
        the block, and Refused if the channel does not take events of this type.

        An `expedited` event skips the order of the channel: members get it as soon as it comes, before what
        waits there, and what its sender sends after it does not overtake it. An `update` supersedes older
        ones of that key, the subject of the event, at each member that has not got them yet.
        """
        made = event_of(event, attributes, fields)
        about = {"channel": MARK + self.id, "delivery": self.delivery}
        if expedited:
            about["channel"] += EXPEDITED
        if update is not None:
            about["channel"] += UPDATE
            about["subject"] = _key(made, update, expedited)
        made = structs.replace(made, header=structs.replace(made.header or EMPTY_HEADER, **about))
        await self._link.wait_room(timeout_s)
        counter = self._link.core.publish(made)
        self._link.flush_soon()
        if self.delivery != "transient":
            await self._link.wait_done(counter, timeout_s, "send", made)

    async def history(
        self, *, since: datetime | None = None, where: Where = None, timeout_s: float | None = None
    ) -> AsyncIterator[Event]:
        """Read the stored events of a persistent or archived channel, from all nodes that have some.

        They come in the order of the channel: of each sender, causally, or as agreed. `since`: from when they
        were stored on. `missing` names the nodes that could not be asked.
        """
        since_us = 0 if since is None else plain_moment(since, "since")
        text = condition(where) or ""
        async for event in self._read(since_us, text, TakenEvents(), timeout_s):
            yield self._named(event)

    async def _read(
        self, since_us: int, where: str, taken: TakenEvents, timeout_s: float | None = None
    ) -> AsyncIterator[Event]:
        limit_s = check_time(self._timeout_s if timeout_s is None else timeout_s)
        from tidings.client.rereading import HistoryReader  # few clients read it

        reader = HistoryReader(self._link, self.reference or self.id, self.order, where, limit_s)
        async for event in reader.read(since_us or None, taken):
            yield event
        self.missing = reader.missing

    async def status(self, *, timeout_s: float | None = None) -> ChannelStatus:
        """Return what the nodes that take part have measured: size, extent, activity and fluctuation."""
        limit_s = check_time(self._timeout_s if timeout_s is None else timeout_s)
        reply = await self._link.call("channel.show", self._known_by, limit_s, "again")
        return read_as(reply, ChannelStatus, "$.channel")

    async def changes(self) -> AsyncIterator[Event]:
        """Yield `channel.joined`, `channel.left` and `channel.lost` events, first for present members.

        Each has the `node`, the `count` of members that have joined, left, or are lost with their node, and
        how many `members` it has now. Nodes are asked every LOOK_S; who comes and goes between is not seen.
        """
        changes = ChannelChanges()
        while True:
            for event in changes.seen(await self.status()):
                yield event
            await asyncio.sleep(LOOK_S)

    async def delete(self, *, timeout_s: float | None = None) -> None:
        """Delete the channel, with the subscriptions of all members."""
        limit_s = check_time(self._timeout_s if timeout_s is None else timeout_s)
        await self._link.call("channel.delete", self._known_by, limit_s, "again")

    async def renew(self, *, timeout_s: float | None = None) -> str:
        """Give a private channel a new `reference`, and return it: nobody joins by the former one any more.

        Members stay: durable ones until they leave, others as long as they are connected. Only a member may
        do this, and it takes the right to `manage`. A node that can't be reached learns of it when it can.
        """
        limit_s = check_time(self._timeout_s if timeout_s is None else timeout_s)
        reply = await self._link.call("channel.renew", {"channel": self.id}, limit_s)
        reference = read_as(reply, str, "$.reference")
        self._description = structs.replace(self._description, reference=reference)
        self._events.rejoin_by(reference)
        return reference

    @property
    def _known_by(self) -> dict[str, str]:
        """What shows a node that this client may know of the channel."""
        return {"channel": self.id, "reference": self.reference}


class BusChannels(BusPart):
    """The part of a bus for channels."""

    @enterable
    async def create_channel(
        self,
        name: str,
        *,
        order: ChannelOrder = "fifo",
        delivery: ChannelDelivery = "transient",
        types: tuple[str, ...] = (),
        private: bool = False,
        protocol: ChannelProtocol | None = None,
        expect: Mapping[str, float] | None = None,
        timeout_s: float | None = None,
    ) -> Channel:
        """Create a channel; raises ChannelExists if there is one of that name at any node in reach.

        `order`: "fifo", each sender's events in the order in which they were sent; "causal", also no event
        before another that its sender may have known; "total", all events in one order for all members.
        `delivery`: whether its events are stored until all members have them. `types`: the types of events
        that it takes. A `private` one is in no list, and found by its `reference` alone. It exists until it
        is deleted, also without members.

        `protocol`: how joining nodes find it, "broadcast", "insertion" or "rendezvous". `expect` has the node
        choose the one of the fewest messages: by the `size`, how many nodes have members, and the
        `fluctuation`, joins and leaves for each event.
        """
        _check(order, ChannelOrder, "order")
        _check(delivery, ChannelDelivery, "delivery")
        asked = {"name": name, "delivery": delivery, "types": list(types), "private": private}
        asked["order"] = order
        if expect is not None:
            if protocol is not None:
                raise UserError("what is expected of a channel chooses its protocol: give one of both")
            asked["expect"] = _expected(expect)
        elif protocol is not None:
            _check(protocol, ChannelProtocol, "protocol")
            asked["protocol"] = protocol
        reply = await self._link.call("channel.create", asked, check_time(timeout_s))
        return Channel(self._link, read_as(reply, ChannelDescription, "$.channel"), "", None, timeout_s)

    @enterable
    async def channel(
        self,
        name: str | None = None,
        *,
        reference: str | None = None,
        where: Where = None,
        durable: str | None = None,
        since: datetime | None = None,
        archive: bool | None = None,
        timeout_s: float | None = None,
    ) -> Channel:
        """Return the channel of this name or `name@node`, or of a `reference`, wherever it is.

        Raises ChannelNotFound if there is none, and ChannelAmbiguous if there are several. `where`: of its
        events, those that match. `durable`: a name under which the node keeps reliable events while this
        member is away, until it leaves with `Bus.unsubscribe`. `since`: begin with what was stored from then
        on, wherever it is. `archive`: from when the block begins, this node keeps all events as copies, which
        others can read if the nodes that have the originals can't be reached; False ends that.
        """
        if since is not None and durable is not None:
            raise UserError("a durable member gets what it has missed: it excludes since")
        since_us = None if since is None else max(1, plain_moment(since, "since"))
        if (name is None) is (reference is None):
            raise UserError("a channel is found by its name, or else by its reference")
        query = {"name": name} if reference is None else {"reference": reference}
        reply = await self._link.call("channel.find", query, check_time(timeout_s), "again")
        found = read_as(reply, ChannelDescription, "$.channel")
        about = condition(where) or "", durable, timeout_s, since_us, archive
        return Channel(self._link, found, *about)

    async def channels(self, name: str = "", *, timeout_s: float | None = None) -> list[ChannelInfo]:
        """Return all channels that are not private, or those of a name, at all nodes in reach."""
        reply = await self._link.call("channel.list", {"name": name}, check_time(timeout_s), "again")
        return read_as(reply, list[ChannelInfo], "$.channel")


def _key(event: Event, update: str, is_expedited: bool) -> str:
    """Return the key of an update; UserError if it can't be one."""
    if is_expedited:
        raise UserError("an expedited event overtakes others, and an update supersedes them: choose one")
    if not update or event.subject not in (None, update):
        raise UserError(
            f"the key of an update is the subject of its event: {event.subject!r}, not {update!r}"
        )
    return update


def _expected(expect: Mapping[str, float]) -> dict[str, float]:
    """Return what is expected of a channel as it travels; UserError if it can't be that."""
    try:
        return structs.asdict(convert(dict(expect), ExpectedGroup))
    except ValidationError as error:
        raise UserError(f"expect: {error}; it has size, a number of nodes, and fluctuation") from None


def _check(value: str, allowed: Any, what: str) -> None:
    if value not in get_args(allowed):
        raise UserError(f"{what} is {' or '.join(map(repr, get_args(allowed)))}, not {value!r}")
