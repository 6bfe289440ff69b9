"""The service of a node that has channels: what clients ask for, and what neighbour nodes tell."""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, structs

from tidings.channels.description import (
    CHANNELS,
    TYPES_MAX,
    ChannelDelivery,
    ChannelDescription,
    ChannelOrder,
    ChannelPlace,
    ChannelQuery,
    FoundChannels,
    StoredChannel,
)
from tidings.channels.ordering import Ordering
from tidings.channels.trees import AGAIN_S, ChannelTrees
from tidings.errors import (
    ChannelAmbiguous,
    ChannelExists,
    ChannelNotFound,
    Disconnected,
    NotAllowed,
    Refused,
    TidingsError,
)
from tidings.event import Batch
from tidings.event.header import DELIVERIES
from tidings.event.relayed import FirstNode, RelayedBatch
from tidings.event.wire import Checked
from tidings.exchange import NodeSubscription, Rows
from tidings.filters import Filter
from tidings.overlay.neighbours import Neighbour
from tidings.overlay.relaying import LinkCursor
from tidings.overlay.service import Overlay
from tidings.protocol.arguments import NAME_LENGTH_MAX, check_readable
from tidings.protocol.broker import Broker
from tidings.protocol.channels import MARK, JoiningClient, OneChannel
from tidings.protocol.consumer import Consumer
from tidings.protocol.cursors import Cursor
from tidings.protocol.incoming import IncomingStream
from tidings.protocol.service import IncomingRequest, Service
from tidings.protocol.session import Session
from tidings.protocol.stored_consumer import StoredConsumer
from tidings.replies import Deferred, failed, gathered, ignore, resolved

FIND_S = 10.0
"""How long a neighbour may take to answer for all nodes behind it; then they are missing."""
ID_SIZE = 15
"""Random bytes in the id of a channel, and in a reference: none can be guessed."""
TOLD_HOPS_MAX = 100
"""Links over which a message to another node of a channel goes."""
CHANNELS_MAX = 100_000
"""Channels in which a node takes part."""

MatchedRows = list[tuple[NodeSubscription, Rows]]


class CreateChannel(Struct, frozen=True):
    """The arguments of `channel.create`."""

    name: str
    delivery: ChannelDelivery = "transient"
    types: tuple[str, ...] = ()
    private: bool = False
    order: ChannelOrder = "fifo"


class NamedChannel(Struct, frozen=True):
    """The arguments of operations on one channel."""

    channel: str


class JoinChannel(Struct, frozen=True):
    """The arguments of `link.channel.join`: the nodes that lie behind the one asked, and take part.

    `marks`: how far an ordered channel has come at the caller; `sequencer`: a node that may know it.
    """

    channel: ChannelDescription
    towards: tuple[str, ...]
    through: bool = False
    marks: bytes = b""
    sequencer: str = ""


class TellChannel(Struct, frozen=True):
    """The arguments of `link.channel.tell`: a message of a node to another that takes part in a channel."""

    channel: str
    sender: str
    to: str
    body: bytes
    hops: int = 0


class FindChannels(Struct, frozen=True):
    """The arguments of `link.channel.find`; `hops` are the links that lie between who asks and the caller."""

    query: ChannelQuery
    hops: int = 0


class ChannelService(Service):
    """The channels of a node; `entropy` returns random bytes."""

    def __init__(self, broker: Broker, overlay: Overlay, entropy: Callable[[int], bytes]) -> None:
        self._broker = broker
        self._overlay = overlay
        self._entropy = entropy
        self._reached: set[str] = set()  # nodes of the network's tree
        self._members_of: dict[NodeSubscription, str] = {}
        self._watched: dict[str, NodeSubscription] = {}
        self.ordering = Ordering(broker, _Order(self, overlay, broker))
        self.trees = ChannelTrees(broker.node, _Links(self, overlay, broker), self._keep)
        for stored in CHANNELS.known(broker.state).values():
            self.trees.restore(stored)
        for member in broker.exchange.members:
            self.entered(member)
        self.ordering.restore()
        broker.channels = broker.exchange.channels = self
        overlay.routing.on_tree = self._follow_tree
        overlay.routing.wholeness.is_waiting = lambda: self.trees.is_awaited
        self._follow_tree()
        self.operations = {
            "channel.create": (CreateChannel, self._create),
            "channel.find": (ChannelQuery, self._find),
            "channel.list": (ChannelQuery, self._list),
            "channel.delete": (NamedChannel, self._delete),
            "link.channel.find": (FindChannels, self._find_behind),
            "link.channel.join": (JoinChannel, self._joined_by),
            "link.channel.leave": (NamedChannel, self._left_by),
            "link.channel.delete": (NamedChannel, self._deleted_by),
            "link.channel.tell": (TellChannel, self._told_by),
        }

    def _keep(self, channel: str, stored: StoredChannel | None) -> None:
        key = (channel,)
        if stored is None:
            self.ordering.forget(channel)
        self._broker.store(CHANNELS.drop(key) if stored is None else CHANNELS.set(key, stored))

    def _follow_tree(self) -> None:
        reached = {node for edge in self._overlay.topology.tree.edges for node in edge[1:]}
        self.trees.follow_tree(has_grown=not reached <= self._reached)
        self._reached = reached

    def finish_tick(self) -> None:
        """Have stored how far ordered channels have come."""
        self.ordering.finish_tick()

    def durable(self, mark: int) -> None:
        """Tell other nodes what waited for the disk."""
        self.ordering.durable(mark)

    def status(self) -> dict[str, Any]:
        """Return the channels in which this node takes part."""
        return {"channels": len(self.trees)}

    # What clients ask for

    def _create(self, asked: IncomingRequest, request: CreateChannel) -> Deferred[Any]:
        asked.session.principal.check_manage()
        name = request.name
        if not 0 < len(name) <= NAME_LENGTH_MAX or "@" in name:
            raise Refused("protocol", f"a channel's name has 1 to {NAME_LENGTH_MAX} characters and no @")
        check_readable(name, "the name of a channel")
        if len(request.types) > TYPES_MAX:
            raise Refused("limit", f"a channel has at most {TYPES_MAX} types")
        if len(self.trees) >= CHANNELS_MAX:
            raise Refused("limit", f"a node takes part in at most {CHANNELS_MAX} channels")
        if request.private:
            return resolved(self._begin(request))

        def found(channels: FoundChannels) -> Any:
            if channels.places:
                raise ChannelExists(name, f"it exists at node {channels.places[0].channel.node!r}")
            return self._begin(request)

        return self.find(ChannelQuery(name)).map(found)

    def _begin(self, request: CreateChannel) -> Any:
        reference = self._token() if request.private else ""
        about = request.delivery, request.types, reference, request.order
        channel = ChannelDescription(self._token(), request.name, self._broker.name, *about)
        self.trees.create(channel)
        self.ordering.create(channel.id, channel.order)
        return msgspec.to_builtins(channel)

    def chance(self) -> float:
        """Return a number from 0 to 1."""
        return int.from_bytes(self._entropy(4), "big") / 2**32

    def _token(self) -> str:
        return b32encode(self._entropy(ID_SIZE)).decode().lower()

    def _find(self, _asked: IncomingRequest, query: ChannelQuery) -> Deferred[Any]:
        """Return the one channel of a name, or of a reference."""

        def one(found: FoundChannels) -> Any:
            channels = {place.channel.id: place.channel for place in found.places}
            name = query.name or query.reference or query.id
            if not channels:
                names = sorted(map(self._named, found.missing))
                missing = f"; not reached: {', '.join(names)}" if names else ""
                raise ChannelNotFound(name, f"there is no such channel{missing}")
            if len(channels) > 1:
                nodes = ", ".join(sorted(f"{one.name}@{one.node}" for one in channels.values()))
                raise ChannelAmbiguous(name, f"several channels have this name: {nodes}")
            (channel,) = channels.values()
            return msgspec.to_builtins(channel)

        return self.find(query).map(one)

    def _list(self, _asked: IncomingRequest, query: ChannelQuery) -> Deferred[Any]:
        """Return all channels that a search finds, with the nodes that take part and their members."""

        def listed(found: FoundChannels) -> list[Any]:
            channels: dict[str, dict[str, Any]] = {}
            for place in found.places:
                about = msgspec.to_builtins(place.channel)
                del about["reference"]
                one = channels.setdefault(place.channel.id, {**about, "members": {}})
                one["members"][self._named(place.node)] = place.members
            return sorted(channels.values(), key=lambda one: (one["name"], one["id"]))

        return self.find(query).map(listed)

    def _named(self, node: str) -> str:
        """Return the name of a node, its id if it has none."""
        if node == self._broker.node:
            return self._broker.name
        return self._overlay.topology.name_of(node) or node

    def _delete(self, asked: IncomingRequest, request: NamedChannel) -> Deferred[None]:
        """Delete a channel in which this node takes part, or another."""
        asked.session.principal.check_manage()
        if self.trees.get(request.channel) is not None:
            self._end(request.channel, None)
            return resolved(None)

        def found(channels: FoundChannels) -> None:
            if not channels.places:
                raise ChannelNotFound(request.channel, "there is no such channel")
            step = self._overlay.topology.way(channels.places[0].node)
            if step is not None:
                self.ask(step, "link.channel.delete", {"channel": request.channel})

        return self.find(ChannelQuery(id=request.channel)).map(found)

    # Members

    def join(self, client: JoiningClient, channel: str) -> Deferred[None]:
        """Return a reply that comes when events of a channel come to this node; a member follows."""
        reply: Deferred[None] = Deferred()

        def found(channels: FoundChannels) -> None:
            part = self.trees.get(channel)
            if part is None and not channels.places:
                reply.fail(ChannelNotFound(channel, "there is no such channel"))
                return
            about = channels.places[0].channel if part is None else part.channel
            self.trees.enter(about, channels.places).then(joined, again)

        def joined(_none: None) -> None:
            self.ordering.enter(channel).then(entered, ignore)

        def entered(_none: None) -> None:
            if client.is_closed:
                reply.fail(Refused("away", "the client has gone"))
            elif self.trees.get(channel) is None:
                reply.fail(ChannelNotFound(channel, "it was deleted"))
            reply.resolve(None)  # the member begins in this call
            self.trees.arrived(channel)

        def again(error: TidingsError) -> None:
            if isinstance(error, Refused) and error.code in ("busy", "no-way") and not client.is_closed:
                self._overlay.later(AGAIN_S, search)  # channel or network change their shape just now
            else:
                reply.fail(error)

        def search() -> None:
            self.find(ChannelQuery(id=channel)).then(found, reply.fail)

        if self.trees.get(channel) is None:
            search()
        else:
            found(FoundChannels())
        return reply

    def entered(self, member: NodeSubscription) -> None:
        """A member has begun to get events."""
        self._watch(member.channel)
        self.trees.entered(member.channel)

    def left(self, member: NodeSubscription) -> None:
        """A member gets no more events."""
        part = self.trees.get(member.channel)
        if part is None or part.members <= 1:
            self._unwatch(member.channel)
        self.trees.left(member.channel)
        self.ordering.left(member.channel)

    def _watch(self, channel: str) -> None:
        """Have the index find the events of a channel that has members here."""
        if channel not in self._watched:
            name = Filter("channel = :name", name=MARK + channel)
            self._watched[channel] = granted = self._broker.exchange.grant(name)
            self._members_of[granted] = channel

    def _unwatch(self, channel: str) -> None:
        granted = self._watched.pop(channel, None)
        if granted is not None:
            del self._members_of[granted]
            self._broker.exchange.revoke(granted)

    # Events

    @property
    def members_of(self) -> Mapping[NodeSubscription, str]:
        """Subscriptions to all events of channels with members here; they take nothing, a match is all."""
        return self._members_of

    def refusals(
        self, session: Session, batch: Batch, channels: Mapping[int, str], deliveries: bytes
    ) -> dict[int, TidingsError]:
        """Return the rows of a publication that a client may not publish, and why not."""
        if isinstance(channels, OneChannel) and self._takes_all(session, channels.channel, deliveries):
            return {}
        refused = ((row, self._refusal(session, batch, row, channels[row], deliveries)) for row in channels)
        return {row: error for row, error in refused if error is not None}

    def _takes_all(self, session: Session, channel: str, deliveries: bytes) -> bool:
        """Whether a channel takes all events of these deliveries, of whichever type, from a client."""
        part = self.trees.get(channel)
        if part is None or part.channel.types or channel not in session.channels:
            return False
        return max(deliveries) <= DELIVERIES.index(part.channel.delivery)

    def _refusal(
        self, session: Session, batch: Batch, row: int, channel: str, deliveries: bytes
    ) -> TidingsError | None:
        part = self.trees.get(channel)
        if part is None or channel not in session.channels:
            return NotAllowed("only a member of a channel may send to it")
        about = part.channel
        if about.types and (kind := batch[row].type) not in about.types:
            return Refused("type", f"channel {about.name!r} takes no events of the type {kind!r}")
        if deliveries[row] > DELIVERIES.index(about.delivery):
            asked = DELIVERIES[deliveries[row]]
            return Refused(
                "delivery", f"channel {about.name!r} takes no {asked} events: it is {about.delivery}"
            )
        return None

    def routed(self, channels: Mapping[int, str], matches: MatchedRows) -> MatchedRows:
        """Return the matches of a batch, with the events of channels for their members and on their ways."""
        if isinstance(channels, OneChannel):
            return [one for one in matches if self._is_for(one[0], channels.channel)]
        routed: MatchedRows = []
        for subscription, rows in matches:
            kept = [row for row in map(int, rows) if self._is_for(subscription, channels.get(row))]
            if kept:
                routed.append((subscription, kept))
        return routed

    def _is_for(self, subscription: NodeSubscription, channel: str | None) -> bool:
        if channel is None or subscription.channel == channel:
            return True
        cursor, part = subscription.owner, self.trees.get(channel)
        return isinstance(cursor, LinkCursor) and part is not None and part.is_shared_with(cursor.name)

    # Order

    def is_ordered(self, channel: str) -> bool:
        """Whether the events of a channel have an order beyond that of each sender."""
        part = self.trees.get(channel)
        return part is not None and part.channel.order != "fifo"

    def sent(self, batch: Batch, channel: str) -> Batch:
        """Return events of an ordered channel that a client has sent with what comes before them."""
        return self.ordering.sent(batch, channel)

    def was_sent(
        self, batch: Batch, channel: str, position: int, stream: IncomingStream | None, checked: Checked
    ) -> None:
        """Events of an ordered channel that a client has sent were handed on."""
        self.ordering.was_sent(batch, channel, position, stream, checked)

    def expedited(self, batch: RelayedBatch, channel: str) -> None:
        """Members of an ordered channel get events at once that a neighbour has handed on."""
        self.ordering.expedited(batch, channel)

    def arrived(self, batch: RelayedBatch, channel: str) -> bool:
        """Whether members of an ordered channel get events now that a neighbour has handed on."""
        return self.ordering.arrived(batch, channel)

    def settle(self, channel: str) -> None:
        """Let members of an ordered channel have what has waited for what they got last."""
        self.ordering.settle(channel)

    def missed(self, node: str, epoch: int, last: int) -> None:
        """Events of a first node up to a number were reported as missed."""
        self.ordering.missed(node, epoch, last)

    # Searching

    def find(self, query: ChannelQuery) -> Deferred[FoundChannels]:
        """Search this node and all others that can be reached."""
        return self._search(query, None, 0).map(self._compared)

    def _compared(self, found: FoundChannels) -> FoundChannels:
        """Name the nodes that were not asked: behind cut links, or as the tree was changing its shape."""
        topology, asked = self._overlay.topology, set(found.nodes)
        missing = [node for node in topology.tree.nodes if node not in asked]
        return structs.replace(found, missing=sorted(missing))

    def _find_behind(self, asked: IncomingRequest, request: FindChannels) -> Deferred[Any]:
        """The same for a neighbour: at this node, and at those behind it."""
        node = self._overlay.linking.caller(asked.session).node
        return self._search(request.query, node, request.hops + 1).map(msgspec.to_builtins)

    def _search(self, query: ChannelQuery, asking: str | None, hops: int) -> Deferred[FoundChannels]:
        own = self._broker.node
        here = [
            ChannelPlace(part.channel, own, hops, part.members)
            for part in self.trees
            if part.is_begun and query.agrees(part.channel)
        ]
        others = [one for one in self._overlay.neighbours.in_tree if one.node != asking]
        arguments = msgspec.to_builtins(FindChannels(query, hops))
        replies = [self._ask_behind(one, arguments) for one in others]

        def join(found: list[FoundChannels]) -> FoundChannels:
            places = here + [place for one in found for place in one.places]
            return FoundChannels(places, [own, *(node for one in found for node in one.nodes)])

        return gathered(replies).map(join)

    def _ask_behind(self, neighbour: Neighbour, arguments: dict[str, Any]) -> Deferred[FoundChannels]:
        """Ask a neighbour for what it and the nodes behind it know; without an answer that is nothing."""
        reply: Deferred[FoundChannels] = Deferred()

        def answered(answer: Any) -> None:
            try:
                reply.resolve(msgspec.convert(answer, FoundChannels))
            except msgspec.ValidationError:
                reply.resolve(FoundChannels())

        asked = self.ask(neighbour.node, "link.channel.find", arguments)
        asked.then(answered, lambda _error: reply.resolve(FoundChannels()))
        self._overlay.later(FIND_S, lambda: reply.resolve(FoundChannels()))
        return reply

    def ask(self, node: str, operation: str, arguments: dict[str, Any]) -> Deferred[Any]:
        """Send a request to a neighbour."""
        neighbour = self._overlay.neighbours.get(node)
        if neighbour is None or neighbour.link is None or not neighbour.is_up:
            return failed(Disconnected(f"the link to {node!r} is not there"))
        asked = neighbour.link.connection.request(operation, arguments, "fail")
        neighbour.link.flush()
        return asked

    # What neighbours tell

    def _joined_by(self, asked: IncomingRequest, request: JoinChannel) -> Deferred[Any]:
        node = self._overlay.linking.caller(asked.session).node
        if len(self.trees) >= CHANNELS_MAX:
            raise Refused("limit", f"a node takes part in at most {CHANNELS_MAX} channels")
        if self.trees.get(request.channel.id) is None and request.channel.order != "fifo":
            told = {"marks": request.marks, "sequencer": request.sequencer}
            self.ordering.learn(request.channel.id, told, request.channel.order)
        joined = self.trees.joined_by(node, request.channel, request.towards, request.through)
        return joined.map(
            lambda _none: self.ordering.marks(request.channel.id) or None,
            partial(self._not_joined, request.channel.id),
        )

    def _not_joined(self, channel: str, error: TidingsError) -> TidingsError:
        if self.trees.get(channel) is None:
            self.ordering.forget(channel)
        return error

    def _left_by(self, asked: IncomingRequest, request: NamedChannel) -> None:
        self.trees.left_by(self._overlay.linking.caller(asked.session).node, request.channel)

    def _deleted_by(self, asked: IncomingRequest, request: NamedChannel) -> None:
        self._end(request.channel, self._overlay.linking.caller(asked.session).node)

    def tell(self, request: TellChannel) -> None:
        """Send a message on the way to a node, or take it; it may be lost."""
        if request.to == self._broker.node:
            self.ordering.hear(request.channel, request.sender, request.body)
            return
        step = self._overlay.topology.way(request.to)
        if step is not None and request.hops < TOLD_HOPS_MAX:
            passed = structs.replace(request, hops=request.hops + 1)
            self.ask(step, "link.channel.tell", structs.asdict(passed)).then(ignore, ignore)

    def _told_by(self, asked: IncomingRequest, request: TellChannel) -> None:
        self._overlay.linking.caller(asked.session)
        self.tell(request)

    def _end(self, channel: str, told_by: str | None) -> None:
        """End a channel here, and tell the others."""
        part = self.trees.get(channel)
        if part is None:
            return
        for node in part.neighbours:
            if node != told_by:
                self.ask(node, "link.channel.delete", {"channel": channel})
        self.trees.drop(channel)
        for member in [one for one in self._broker.exchange.members if one.channel == channel]:
            self._expel(member)

    def _expel(self, member: NodeSubscription) -> None:
        """End the subscription of a member, and tell its client."""
        sink = member.sink
        if isinstance(sink, Consumer):
            sink.session.end(sink.number, "the channel was deleted")
        cursor = sink.cursor if isinstance(sink, StoredConsumer) else sink
        if isinstance(cursor, Cursor):
            self._broker.cursors.end(cursor)


class _Order:
    """The channels of a node, as their order is kept."""

    def __init__(self, service: ChannelService, overlay: Overlay, broker: Broker) -> None:
        self._service = service
        self._overlay = overlay
        self._broker = broker
        self.later = overlay.later

    def order_of(self, channel: str) -> ChannelOrder:
        """Return the order of a channel in which this node takes part."""
        part = self._service.trees.get(channel)
        return "fifo" if part is None else part.channel.order

    def has_members(self, channel: str) -> bool:
        """Whether it has members here, or will have."""
        part = self._service.trees.get(channel)
        return part is not None and part.members + part.arriving > 0

    def own_numbers(self, batch: Batch, position: int) -> tuple[FirstNode, int]:
        """Return this node, and the number of the first event of a batch; a volatile one without position."""
        numbers = self._overlay.numbers
        return (numbers.stored(position), position) if position else numbers.volatile(batch)

    def chance(self) -> float:
        """Return a number from 0 to 1."""
        return self._service.chance()

    def tell(self, channel: str, node: str, body: bytes) -> None:
        """Send a message to another node that takes part, which may be lost."""
        message = TellChannel(channel, self._broker.node, node, body)
        self._overlay.later(0.0, lambda: self._service.tell(message))

    def unbound(self, channel: str) -> None:
        """This node need not take part any more for the order of a channel."""
        self._service.trees.review(channel)

    def is_whole(self, channel: str) -> bool:
        """Whether all nodes that may take part in it can be reached."""
        part = self._service.trees.get(channel)
        return part is None or not part.is_torn

    def own_epochs(self) -> list[tuple[str, int]]:
        """Return this node with each epoch of its numbers."""
        return [(self._broker.node, epoch) for epoch in self._overlay.numbers.epochs]

    def report_gap(self, channel: str, count: int) -> None:
        """Report to its members that events were not waited for."""
        for member in self._broker.exchange.members:
            if member.channel == channel and isinstance(member.sink, Consumer):
                member.sink.lose(count, "order")
                member.sink.report_gap()


class _Links:
    """The links of a node, as its channels use them."""

    def __init__(self, service: ChannelService, overlay: Overlay, broker: Broker) -> None:
        self._overlay = overlay
        self._broker = broker
        self.find = service.find
        self.ask = service.ask
        self.later = overlay.later
        self.learn = service.ordering.learn
        self.marks = service.ordering.marks
        self.is_bound = service.ordering.is_bound

    def way(self, node: str) -> str | None:
        """Return the neighbour through which a node is reached."""
        return self._overlay.topology.way(node)

    def is_near(self, node: str) -> bool:
        """Whether events go over the link to a neighbour, now or when it is there again."""
        neighbour = self._overlay.neighbours.get(node)
        return neighbour is not None and neighbour.is_in_tree

    def is_kept(self, node: str) -> bool:
        """Whether events are stored for a neighbour, whose link may be lost."""
        neighbour = self._overlay.neighbours.get(node)
        return neighbour is not None and neighbour.is_active

    @property
    def position(self) -> int:
        """The position of the last event that is stored here."""
        return self._broker.position

    def confirmed(self, node: str) -> int:
        """Return the position up to which a neighbour has stored all that it wants."""
        neighbour = self._overlay.neighbours.get(node)
        cursor = None if neighbour is None else neighbour.cursor
        return self._broker.position if cursor is None else cursor.confirmed(0)

    def is_up(self, node: str) -> bool:
        """Whether a neighbour can be asked."""
        neighbour = self._overlay.neighbours.get(node)
        return neighbour is not None and neighbour.is_up

    def lend(self, node: str, channel: ChannelDescription) -> None:
        """Have the events of a channel stored for a neighbour that can't be asked."""
        neighbour = self._overlay.neighbours.get(node)
        if neighbour is not None:
            self._overlay.routing.lend(neighbour, str(channel.filter), passive=True)

    def want(self, node: str, channel: ChannelDescription) -> Deferred[None]:
        """Want the events of a channel from a neighbour; the reply comes when it knows that."""
        neighbour = self._overlay.neighbours.get(node)
        if neighbour is None or not neighbour.is_in_tree:
            return failed(Refused("no-way", "the link stands by"))
        neighbour.announcer.add((MARK, channel.id), channel.filter, passive=True)
        if neighbour.announcer.state == "down":
            return failed(Disconnected("the link is lost"))
        return neighbour.announcer.barrier()

    def unwant(self, node: str, channel: ChannelDescription) -> None:
        """Want them no longer."""
        neighbour = self._overlay.neighbours.get(node)
        if neighbour is not None:
            with suppress(KeyError):  # all is forgotten of a neighbour whose link is not in the tree any more
                neighbour.announcer.remove((MARK, channel.id))
