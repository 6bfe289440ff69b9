"""Arrivals: clients that are on their way to this node, and what waits here for them.

A client that moves is announced by the node that it leaves. From then on this node *gathers* what its
subscriptions match, in memory. The cookie is the name of the arrival: the client shows it in its HELLO, once,
and as the user for whom it was made. A subscription that it makes again gets what was gathered for it first.

A durable subscription brings along what waits for it: events that its former node had stored and it has not
acknowledged. These are stored here for its cursor only, in their order, then what was gathered, less what
they had already. Positions differ between nodes, so an event is known by its first node and its number there:
the cursor keeps up to which number of each first node it has had everything. From the *cut* on it reads what
this node stores for all.

The rule kept: until `finish` nothing is promised. If it does not come, the former node goes on as before, and
an arrival that is not finished leaves nothing behind. If the former node does not hear that it was finished,
it goes on as well, and has this node forget the client as soon as it can be reached.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from tidings.errors import MoveRefused, NotAllowed, Refused
from tidings.event import Batch
from tidings.event.relayed import FirstNode, Had, RelayedBatch
from tidings.exchange import EventSink, Need, NodeSubscription, Positions, Rows
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.protocol.access import NOBODY, OpenAuthenticator, Principal
from tidings.protocol.announced import ClientAnnouncement, MovedBatch, MovedCursor
from tidings.protocol.answers import hears
from tidings.protocol.arguments import SubscribeRequest
from tidings.protocol.channels import Channels, filter_of
from tidings.protocol.cursor import Cursor, Options, options_in
from tidings.replies import Deferred, all_of, failed, resolved
from tidings.store.interface import Durable

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker
    from tidings.protocol.consumer import WaitingConsumer

ARRIVALS_MAX = 10_000
"""Clients that may be on their way to a node."""
ARRIVAL_S = 60.0
"""How long a client may take to come after its last sign; then what waits for it is given up."""
GATHERED_SIZE_MAX = 64 << 20
"""Bytes of events that are gathered for one subscription of a client that is on its way."""


class Gathering(EventSink):
    """What a subscription matches before its client is here; past the limit the oldest are dropped."""

    def __init__(self, node: str, ordered: Channels | None = None) -> None:
        """`ordered` numbers the events of an ordered channel as other nodes know them."""
        self.batches: deque[RelayedBatch] = deque()
        self.size = 0
        self.lost = 0
        self._node = node
        self._ordered = ordered

    def need(self, count: int) -> Need:  # noqa: ARG002
        """Have nothing stored: its former node has it stored until it is here."""
        return Need.NOTHING

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Keep these rows; those that were taken in here are known by their positions, as at other nodes."""
        part = batch.part(rows)
        if not isinstance(part, RelayedBatch) and self._ordered is not None:
            part = self._ordered.numbered(batch, positions, rows)
        elif not isinstance(part, RelayedBatch):
            numbers = array("Q", [0 if positions is None else positions[row] or 0 for row in rows])
            part = RelayedBatch(part.raw, part.origin, FirstNode(self._node, 0), numbers)
        self.batches.append(part)
        self.size += len(part.raw)
        while self.size > GATHERED_SIZE_MAX:
            gone = self.batches.popleft()
            self.size -= len(gone.raw)
            self.lost += len(gone)


class _Gatherer:
    """A subscription, or a cursor, that gathers until its client, or all that it brings, is here."""

    def __init__(
        self, broker: Broker, asked: Filter, principal: Principal, is_passive: bool, channel: str = ""
    ) -> None:
        self._broker = broker
        self.ordered = ordered_channels(broker, channel)
        self.gathering = Gathering(broker.node, self.ordered)
        self.marks: bytes | None = None
        """How far it has come in its channel, if that is ordered."""
        self.subscription = NodeSubscription(
            principal.reach(asked),
            self.gathering,
            is_passive,
            user=principal.bound,
            owner=self,
            asked=asked,
        )
        self.subscription.channel = channel
        broker.exchange.subscribe(self.subscription)
        self._is_open = True

    def close(self) -> None:
        """Gather no more."""
        if self._is_open:
            self._is_open = False
            self._broker.exchange.unsubscribe(self.subscription)

    def unhad(self, batch: RelayedBatch) -> Sequence[int]:
        """Return the rows of gathered events that it had not got in the order of its channel."""
        if self.ordered is None or self.marks is None:
            return range(len(batch))
        return self.ordered.beyond(self.marks, batch)


class _WaitingCursor(_Gatherer):
    """A durable subscription on its way here."""

    def __init__(
        self, broker: Broker, moved: MovedCursor, owner: str, token: str, principal: Principal
    ) -> None:
        asked, options = Filter(moved.filter), _options_of(moved)
        super().__init__(broker, asked, principal, options.passive, options.channel)
        stored = structs.replace(options, arriving=token).encode()
        position = broker.position
        record = Durable(moved.name, owner, moved.filter, position, position, stored)
        self._options = structs.replace(options, came=token)
        self.cursor = _Reserved(broker, record, asked)
        self.cursor.allow(principal.reach(asked), principal.bound)
        broker.cursors.open(self.cursor)

    def bring(self, batches: Iterable[MovedBatch]) -> None:
        """Store events that waited for it at its former node."""
        for moved in batches:
            last = self._broker.appending.bring(moved.batch(self.cursor.reader))
            if moved.was_handed:
                self.cursor.handed = last

    def finish(self, had: Mapping[str, Had]) -> None:
        """Store what was gathered behind that, less what it has had; from now on it is like any other."""
        broker = self._broker
        for batch in self.gathering.batches:
            self._add(batch, had)
        broker.cursors.end(self.cursor)
        is_exact = self.marks is not None  # all that it had has come here
        known = {} if is_exact else {node: one for node, one in had.items() if node != broker.node}
        options = structs.replace(self._options, cut=broker.position, had=known).encode()
        about = self.cursor.name, self.cursor.owner, str(self.cursor.filter)
        places = self.cursor.acknowledged, self.cursor.handed
        cursor = Cursor(broker, Durable(*about, *places, options), self.cursor.filter)
        cursor.allow(self.subscription.filter, self.subscription.user)
        broker.cursors.open(cursor)
        self.close()  # only now: without a member, this node would leave its channel

    def _add(self, batch: RelayedBatch, had: Mapping[str, Had]) -> None:
        known, is_own = had.get(batch.first.node), batch.first.node == self._broker.node
        is_exact = self.marks is not None

        def was_had(number: int) -> bool:
            if is_exact or known is None:
                return False
            # Positions of this node grow from epoch to epoch; what has none is at no other node.
            return 0 < number <= known.number if is_own else known.has(batch.first, number)

        events = batch.events
        rows = [
            row
            for row in self.unhad(batch)
            if events[row].delivery != "transient" and not was_had(batch.numbers[row])
        ]
        if rows:
            part = batch.take(rows)
            part.only = self.cursor.reader
            self._broker.appending.bring(part)


class _Reserved(Cursor):
    """The place of a durable subscription that is on its way: what is brought is stored for it."""

    def enter(self) -> None:
        """Match nothing: what comes is gathered."""

    def leave(self) -> None:
        """The same."""


class _WaitingSubscription(_Gatherer):
    """A subscription whose client is on its way here."""

    def __init__(self, broker: Broker, wanted: SubscribeRequest, principal: Principal) -> None:
        asked, channel = Filter(wanted.filter), wanted.channel or ""
        if channel:
            asked &= filter_of(channel)
        super().__init__(broker, asked, principal, wanted.passive or bool(channel), channel)
        self.wanted = wanted

    def pass_on(self, subscription: NodeSubscription, consumer: WaitingConsumer) -> None:
        """Let the client have what was gathered, as far as it may; its subscription has begun."""
        gathering, node = self.gathering, self._broker.node
        self.close()
        consumer.depend()
        consumer.expect(sum(map(len, gathering.batches)), gathering.size)
        for batch in gathering.batches:
            events = batch.events
            rows = [
                row
                for row in self.unhad(batch)
                if subscription.filter.matches(events[row]) and hears(node, subscription.user, events[row])
            ]
            if rows:
                consumer.deliver(batch, rows, None)
        if gathering.lost:
            consumer.miss(gathering.lost, "slow")


class ClientArrival:
    """A client that is on its way to this node."""

    def __init__(
        self, broker: Broker, about: ClientAnnouncement, principal: Principal, end: Callable[[str], None]
    ) -> None:
        """`end` is called with its name, if the client does not come in time."""
        self._broker = broker
        self._end = end
        self.about = about
        self.is_finished = False
        self.subscriptions: dict[int, _WaitingSubscription] = {}
        self.cursors: dict[str, _WaitingCursor] = {}
        self.is_closed = False
        members = [self._take_in(moved, principal) for moved in about.cursors]
        members += [self._take_in(wanted, principal) for wanted in about.subscriptions]
        self.joined = all_of(members)
        """Comes when events come here of all channels of which the client is a member."""

    @property
    def _ordered(self) -> dict[str, Channels]:
        """The ordered channels of which the client is a member."""
        gatherers = (*self.subscriptions.values(), *self.cursors.values())
        return {one.subscription.channel: one.ordered for one in gatherers if one.ordered is not None}

    @property
    def progress(self) -> dict[str, bytes]:
        """How far those have come here that are gathered from now on."""
        return {channel: known.progress(channel) for channel, known in self._ordered.items()}

    def reach(self, marks: Mapping[str, bytes]) -> Deferred[None]:
        """Return a reply that comes when the ordered channels have come as far here as the client has."""
        known = self._ordered
        if set(known) != set(marks):
            raise Refused("protocol", "it was not said how far the client has come in its channels")
        return all_of([one.reach(name, marks[name], is_coming=True) for name, one in known.items()])

    def is_of(self, channel: str) -> bool:
        """Whether the client was a member of a channel at the node that it comes from."""
        return channel in self.about.channels

    def _take_in(self, wanted: MovedCursor | SubscribeRequest, principal: Principal) -> Deferred[None]:
        """Gather for a subscription: that of a member begins when events of its channel come here."""
        channel = _options_of(wanted).channel if isinstance(wanted, MovedCursor) else wanted.channel

        def begin(_joined: None) -> None:
            about = self.about
            if self.is_closed:
                raise Refused("away", "the client does not come")
            if isinstance(wanted, MovedCursor):
                owner = about.source or ""
                cursor = _WaitingCursor(self._broker, wanted, owner, about.token, principal)
                self.cursors[wanted.name] = cursor
            else:
                waiting = _WaitingSubscription(self._broker, wanted, principal)
                self.subscriptions[wanted.number] = waiting

        if not channel:
            begin(None)
            return resolved(None)
        if self._broker.channels is None:
            return failed(Refused("not-found", "this node has no channels"))
        reference = None
        if isinstance(wanted, SubscribeRequest) and not self.is_of(channel):
            reference = wanted.reference
        return self._broker.channels.join(self, channel, reference).map(begin)

    def bring(self, name: str, batches: Iterable[MovedBatch]) -> None:
        """Store events that waited for one of its durable subscriptions."""
        self.cursors[name].bring(batches)

    def finish(self, had: Mapping[str, Had], marks: Mapping[str, bytes]) -> None:
        """All has come: count on from where the client was, and keep its durable subscriptions.

        `marks` say how far it has come in ordered channels.
        """
        if self.is_closed:
            raise Refused("away", "the client does not come")
        for gatherer in (*self.subscriptions.values(), *self.cursors.values()):
            gatherer.marks = marks.get(gatherer.subscription.channel)
        if any(one.gathering.lost for one in self.cursors.values()):
            raise Refused("limit", "too many events came while a durable subscription moved")
        for cursor in self.cursors.values():
            cursor.finish(had)
        ledger, origin = self._broker.ledger, self.about.origin
        ledger.count_up(origin, self.about.counter)
        ledger.keep(origin)
        self.is_finished = True

    def take(self, wanted: SubscribeRequest) -> _WaitingSubscription | None:
        """Return the subscription that a client makes again, if something was gathered for it."""
        waiting = self.subscriptions.get(wanted.number)
        if waiting is None or _alike(waiting.wanted) != _alike(wanted):
            return None
        return self.subscriptions.pop(wanted.number)

    def give_up(self, _now: float) -> None:
        """Wait no longer: the client has not come, or has not asked for what waits."""
        self._broker.count("arrivals_given_up")
        self._end(self.about.token)
        self.close()

    def close(self) -> None:
        """Give up what waits: the client is here, or does not come."""
        self.is_closed = True
        self._broker.timers.cancel(self.give_up)
        for waiting in self.subscriptions.values():
            waiting.close()
        self.subscriptions.clear()
        if not self.is_finished:
            for cursor in self.cursors.values():
                cursor.close()
                self._broker.cursors.end(cursor.cursor)
        self.cursors.clear()


class Arrivals:
    """All clients that are on their way to a node, by their cookies."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._arrivals: dict[str, ClientArrival] = {}
        self.on_redeemed: Callable[[ClientAnnouncement], None] | None = None
        """Called when a client has come that was announced."""

    def __len__(self) -> int:
        return len(self._arrivals)

    def open(self, about: ClientAnnouncement) -> ClientArrival:
        """Expect a client; MoveRefused or NotAllowed if this node will not have it."""
        name, broker = self._broker.name, self._broker
        if len(self._arrivals) >= ARRIVALS_MAX:
            raise MoveRefused(name, f"at most {ARRIVALS_MAX} clients may be on their way to it")
        if about.token in self._arrivals:
            raise MoveRefused(name, "this move was announced before")
        principal = self._principal(about.user)
        former = [(moved, broker.cursors.find(about.source or "", moved.name)) for moved in about.cursors]
        for moved, cursor in former:
            if cursor is not None and not moved.replaces(cursor):
                raise MoveRefused(name, f"it has a durable subscription {moved.name!r} of this client")
        for _, cursor in former:
            if isinstance(cursor, _Reserved):
                self.end(options_in(cursor.options).arriving)  # of an attempt that was interrupted
            elif cursor is not None:
                broker.cursors.end(cursor)
        arrival = self._arrivals[about.token] = ClientArrival(broker, about, principal, self.end)
        self._prolong(arrival)
        broker.count("arrivals")
        return arrival

    def _principal(self, user: str) -> Principal:
        """Return the rights of a user here; the owner of another node is nobody at one that has users."""
        authenticator = self._broker.authenticator
        if not user and not isinstance(authenticator, OpenAuthenticator):
            raise NotAllowed("a client without a user can't move to a node that has users")
        principal = authenticator.principal_of(user)
        if principal is None or principal == NOBODY:
            raise NotAllowed(f"there is no user {user!r} at node {self._broker.name!r}")
        return principal

    def get(self, token: str) -> ClientArrival:
        """Return the arrival of this name; MoveRefused if there is none."""
        arrival = self._arrivals.get(token)
        if arrival is None:
            raise MoveRefused(self._broker.name, "this move is not known, or was given up")
        self._prolong(arrival)
        return arrival

    def _prolong(self, arrival: ClientArrival) -> None:
        """Give a client more time to come."""
        self._broker.timers.at(self._broker.now + ARRIVAL_S, arrival.give_up)

    def end(self, token: str) -> None:
        """Expect a client no longer."""
        arrival = self._arrivals.pop(token, None)
        if arrival is not None:
            arrival.close()

    def forget(self, token: str, owner: str, names: Sequence[str]) -> None:
        """Keep nothing of a client that stays: not even what its former node does not know to have come."""
        self.end(token)
        for name in names:
            cursor = self._broker.cursors.find(owner, name)
            if cursor is not None and cursor.consumer is None and options_in(cursor.options).came == token:
                self._broker.cursors.end(cursor)

    def redeem(self, cookie: str, origin: Origin, user: str) -> ClientArrival:
        """Return the arrival of a client that is here; MoveRefused for a cookie that is not its own.

        It can be shown once. The cookie of another stays valid, for that one.
        """
        arrival = self._arrivals.get(cookie)
        if arrival is None or not arrival.is_finished:
            raise MoveRefused(self._broker.name, "the cookie is not known here: used, too old, or altered")
        if (arrival.about.user, arrival.about.origin) != (user, origin):
            raise MoveRefused(self._broker.name, "the cookie is that of another client")
        del self._arrivals[cookie]
        if self.on_redeemed is not None:
            self.on_redeemed(arrival.about)
        return arrival


def ordered_channels(broker: Broker, channel: str) -> Channels | None:
    """Return the channels of a node if this one has an order beyond that of each sender."""
    known = broker.channels
    return known if known is not None and channel and known.is_ordered(channel) else None


def _alike(wanted: SubscribeRequest) -> SubscribeRequest:
    """A subscription without what differs from one connection to the next."""
    passive = wanted.passive and not wanted.channel
    return structs.replace(wanted, number=0, credit=0, reference="", passive=passive)


def _options_of(moved: MovedCursor) -> Options:
    options = options_in(moved.options)
    asked = {name: getattr(options, name) for name in ("passive", "newest", "channel")}
    return Options(**asked, home=moved.home, moves=moved.moves)
