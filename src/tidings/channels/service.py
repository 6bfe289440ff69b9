"""The service of a node that has channels: what clients ask for, and what neighbour nodes tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from tidings.channels.calls import FIND_S, ChannelCalls
from tidings.channels.clients import ChannelRequests
from tidings.channels.description import (
    CHANNELS,
    CHANNELS_MAX,
    ChannelCounts,
    ChannelPlace,
    ChannelQuery,
    FoundChannels,
    StoredChannel,
    newest,
)
from tidings.channels.events import ChannelEvents
from tidings.channels.feeds import ChannelFeeds
from tidings.channels.history import KeptHistory
from tidings.channels.links import OverlayLinks
from tidings.channels.logged import LoggedChannels
from tidings.channels.ordering import Ordering
from tidings.channels.orders import NodeOrders
from tidings.channels.participation import Participation
from tidings.channels.protocols import ChannelProtocols
from tidings.channels.reaching import beyond
from tidings.channels.requests import DeleteChannel, JoinChannel, NamedChannel, RenewedChannel
from tidings.channels.rereading import ChannelReading
from tidings.channels.trees import AGAIN_S, ChannelTrees
from tidings.errors import (
    ChannelNotFound,
    Disconnected,
    Refused,
    TidingsError,
)
from tidings.event import Batch
from tidings.event.relayed import RelayedBatch
from tidings.event.wire import Checked
from tidings.exchange import NodeSubscription, Positions, Rows
from tidings.log.history import LogHistory
from tidings.overlay.service import Overlay
from tidings.protocol.broker import Broker
from tidings.protocol.channels import JoiningClient
from tidings.protocol.consumer import Consumer
from tidings.protocol.cursor import Cursor
from tidings.protocol.incoming import IncomingStream
from tidings.protocol.service import IncomingRequest, Service
from tidings.protocol.session import Session
from tidings.protocol.stored_consumer import StoredConsumer
from tidings.replies import Deferred, ignore

MatchedRows = list[tuple[NodeSubscription, Rows]]


class ChannelService(Service):
    """The channels of a node; `entropy` returns random bytes."""

    def __init__(
        self, broker: Broker, overlay: Overlay, history: LogHistory, entropy: Callable[[int], bytes]
    ) -> None:
        self._broker = broker
        self._overlay = overlay
        self._entropy = entropy
        self._reached: set[str] = set()  # nodes of the network's tree
        topology = overlay.topology
        protocols = ChannelProtocols(lambda: topology.tree, lambda: set(topology.subnets.leaves))
        self.calls = ChannelCalls(broker, overlay, protocols, self._look, self._hear)
        orders = NodeOrders(broker, overlay, self._chance, self.calls.tell)
        self.ordering = Ordering(broker, orders)
        links = OverlayLinks(broker, overlay, self.calls, self.ordering, protocols)
        self.trees = orders.trees = ChannelTrees(broker.node, links, self._keep)
        self.logged = LoggedChannels(broker)
        self._history = history
        self._events = ChannelEvents(broker, self.trees, self.logged)
        about = self.calls, self.trees, self.ordering, self.logged, protocols, entropy
        requests = ChannelRequests(broker, overlay, *about, lambda channel: self._end(channel, None))
        kept = KeptHistory(broker.node, history, overlay.numbers.stored)
        stored = self.trees, self.logged, kept, requests.name_of
        self._reading = ChannelReading(broker, overlay, self.calls, *stored)
        self._feeds = ChannelFeeds(self.calls)
        self._restore()
        self.operations = {
            **self._feeds.operations,
            **requests.operations,
            **self._reading.operations,
            **self.calls.operations,
            "link.channel.join": (JoinChannel, self._joined_by),
            "link.channel.leave": (NamedChannel, self._left_by),
            "link.channel.renew": (RenewedChannel, self._renewed_by),
            "link.channel.delete": (DeleteChannel, self._deleted_by),
        }

    def _restore(self) -> None:
        """Go on with what was stored, and take part in what the broker does."""
        broker, overlay = self._broker, self._overlay
        for stored in CHANNELS.known(broker.state).values():
            self.trees.restore(stored)
        for member in broker.exchange.members:
            self.entered(member)
        self.ordering.restore()
        broker.channels = broker.exchange.channels = self
        overlay.routing.on_tree = self._follow_tree
        overlay.routing.wholeness.is_waiting = lambda: self.trees.is_awaited
        self._follow_tree(())

    def _chance(self) -> float:
        """Return a number from 0 to 1."""
        return int.from_bytes(self._entropy(4), "big") / 2**32

    def _look(self, query: ChannelQuery, hops: int) -> FoundChannels:
        """Return what of a search is here."""
        places = [self._place(part, query, hops) for part in self.trees.find(query)]
        first = self._history.first
        logs = self.logged.places(query.id, first) if query.logs else []
        return FoundChannels(places, logs=logs, feeds=self._feeds.all if query.feeds else [])

    def _place(self, part: Participation, query: ChannelQuery, hops: int) -> ChannelPlace:
        about = part.channel, self._broker.node, hops, part.members
        if not query.measured:
            return ChannelPlace(*about)
        return ChannelPlace(*about, tuple(part.neighbours), part.meter.counts(self._broker.now))

    def _hear(self, channel: str, node: str, body: bytes) -> None:
        """Take a message of another node that takes part in a channel."""
        self.ordering.hear(channel, node, body)

    def _keep(self, channel: str, stored: StoredChannel | None) -> None:
        key = (channel,)
        if stored is None:
            self.ordering.forget(channel)
        self._broker.store(CHANNELS.drop(key) if stored is None else CHANNELS.set(key, stored))

    def _follow_tree(self, left: Collection[str]) -> None:
        reached = {node for edge in self._overlay.topology.tree.edges for node in edge[1:]}
        self.trees.follow_tree(has_grown=not reached <= self._reached, left=left)
        self._reached = reached

    def finish_tick(self) -> None:
        """Have stored how far ordered channels have come."""
        self.ordering.finish_tick()
        self.logged.trim()

    def parted(self, session: Session, is_clean: bool) -> None:  # noqa: ARG002
        """Forget a session that has ended."""
        self._reading.parted(session)
        self._feeds.parted(session)

    @property
    def are_logged(self) -> bool:
        """Whether the log of this node has events of channels."""
        return self.logged.are_any

    def admit_reader(self, session: Session, token: str) -> Deferred[str]:
        """Return the id of the channel whose stored events a client may read: as a member, or by a token."""
        return self._reading.admit(session, token)

    def durable(self, mark: int) -> None:
        """Tell other nodes what waited for the disk."""
        self.ordering.durable(mark)

    def measured(self) -> Iterator[tuple[str, int, ChannelCounts]]:
        """Yield `name@node`, members here and counts of each channel; private ones have no name."""
        for part in self.trees:
            label = "" if part.channel.is_private else f"{part.channel.name}@{part.channel.node}"
            yield label, part.members, part.meter.counts(self._broker.now)

    def status(self) -> dict[str, Any]:
        """Return the channels in which this node takes part."""
        return {"channels": len(self.trees)}

    # Members

    def join(self, client: JoiningClient, channel: str, reference: str | None) -> Deferred[None]:
        """Return a reply that comes when events of a channel come to this node; a member follows."""
        reply: Deferred[None] = Deferred()
        until = self._broker.now + FIND_S

        def found(channels: FoundChannels) -> None:
            part = self.trees.get(channel)
            if part is None and not channels.places and channels.missing and self._broker.now < until:
                self._overlay.later(AGAIN_S, search)
                return
            about = newest(channels.places) if part is None else part.channel
            if about is None or not (reference is None or about.admits(reference)):
                reply.fail(ChannelNotFound(channel, "there is no such channel"))
                return
            if about.order == "total":
                self.ordering.hint(channel, [place.node for place in channels.places if place.members])
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
            is_changing = isinstance(error, Refused) and error.code in ("busy", "no-way")
            if (is_changing or isinstance(error, Disconnected)) and not client.is_closed:
                self._overlay.later(AGAIN_S, search)  # channel or network change their shape just now
            else:
                reply.fail(error)

        def search() -> None:
            self.calls.find_near(channel).then(found, reply.fail)

        if self.trees.get(channel) is None or not self.ordering.is_in_order(channel):
            search()
        else:
            found(FoundChannels())
        return reply

    def entered(self, member: NodeSubscription) -> None:
        """A member has begun to get events."""
        self._events.watch(member.channel)
        self.trees.entered(member.channel)

    def left(self, member: NodeSubscription) -> None:
        """A member gets no more events."""
        part = self.trees.get(member.channel)
        if part is None or part.members <= 1:
            self._events.unwatch(member.channel)
        self.trees.left(member.channel)
        self.ordering.left(member.channel)

    # Events

    @property
    def members_of(self) -> Mapping[NodeSubscription, str]:
        """Subscriptions to all events of channels with members here; they take nothing, a match is all."""
        return self._events.members_of

    def refusals(
        self, session: Session, batch: Batch, channels: Mapping[int, str], deliveries: bytes
    ) -> dict[int, TidingsError]:
        """Return the rows of a publication that a client may not publish, and why not."""
        return self._events.refusals(session, batch, channels, deliveries)

    def routed(self, channels: Mapping[int, str], matches: MatchedRows) -> MatchedRows:
        """Return the matches of a batch, with the events of channels for their members and on their ways."""
        return self._events.routed(channels, matches)

    # Order

    def is_ordered(self, channel: str) -> bool:
        """Whether the events of a channel have an order beyond that of each sender."""
        part = self.trees.get(channel)
        return part is not None and part.channel.order != "fifo"

    def numbered(self, batch: Batch, positions: Positions, rows: Rows) -> RelayedBatch:
        """Return rows of events that are being handed on as other nodes know them."""
        return self._overlay.numbers.numbered(batch, positions, rows)

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

    def was_expedited(self, batch: Batch, channel: str, position: int) -> None:
        """Events of an ordered channel that a client has sent, and that skip the order, were handed on."""
        self.ordering.was_expedited(batch, channel, position)

    def arrived(self, batch: RelayedBatch, channel: str) -> bool:
        """Whether members of an ordered channel get events now that a neighbour has handed on."""
        return self.ordering.arrived(batch, channel)

    def settle(self, channel: str) -> None:
        """Let members of an ordered channel have what has waited for what they got last."""
        self.ordering.settle(channel)

    def missed(self, node: str, epoch: int, last: int) -> None:
        """Events of a first node up to a number were reported as missed."""
        self.ordering.missed(node, epoch, last)

    # Members that move

    def progress(self, channel: str) -> bytes:
        """Return how far the members of an ordered channel have come here."""
        return self.ordering.progress(channel)

    def reach(self, channel: str, told: bytes, is_coming: bool) -> Deferred[None]:
        """Return a reply that comes when the members of an ordered channel have come so far here."""
        return self.ordering.reach(channel, told, is_coming)

    def beyond(self, told: bytes, batch: RelayedBatch) -> list[int]:
        """Return the rows of a batch that a member had not got when it had come so far."""
        return beyond(told, batch)

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

    def _renewed_by(self, asked: IncomingRequest, request: RenewedChannel) -> None:
        self.trees.renew(request.channel, self._overlay.linking.caller(asked.session).node)

    def _deleted_by(self, asked: IncomingRequest, request: DeleteChannel) -> None:
        node = self._overlay.linking.caller(asked.session).node
        if self.trees.get(request.channel) is None and request.towards:
            self.calls.delete(request.channel, request.towards, but=node)
        self._end(request.channel, node)

    def _end(self, channel: str, told_by: str | None) -> None:
        """End a channel here, and tell the others."""
        part = self.trees.get(channel)
        if part is None:
            return
        for node in part.neighbours:
            if node != told_by:
                self.calls.ask(node, "link.channel.delete", {"channel": channel})
        self.trees.drop(part)
        self.logged.forget(channel)
        self._reading.forget(channel)
        self.logged.end_archive(channel)
        for member in [one for one in self._broker.exchange.members if one.channel == channel]:
            self._expel(member)

    def _expel(self, member: NodeSubscription) -> None:
        """End the subscription of a member, and tell its client."""
        sink = member.sink
        if isinstance(sink, Consumer):
            sink.session.subscriptions.end(sink.number, "the channel was deleted")
        cursor = sink.cursor if isinstance(sink, StoredConsumer) else sink
        if isinstance(cursor, Cursor):
            self._broker.cursors.end(cursor)
