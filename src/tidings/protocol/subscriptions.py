"""The subscriptions and advertisements of one client, at the node.

All of them end with the session, except durable subscriptions. The rules of the client's principal are ANDed
to its filter, so a subscription can't exceed the grant, whether it is live, stored or both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tidings.errors import Refused, TidingsError
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.interest import Advertisement
from tidings.protocol.access import Action
from tidings.protocol.arguments import (
    AdvertiseRequest,
    SubscribeRequest,
    UnadvertiseRequest,
    UnsubscribeRequest,
)
from tidings.protocol.backlog import Backlog
from tidings.protocol.channels import filter_of
from tidings.protocol.consumer import (
    BlockingConsumer,
    Consumer,
    DroppingConsumer,
    LatestConsumer,
    WaitingConsumer,
)
from tidings.protocol.cursor import Cursor, CursorConsumer, Options, options_in
from tidings.protocol.frames import encode
from tidings.protocol.last_opening import LastOpening
from tidings.protocol.members import MemberConsumer
from tidings.protocol.memory import filter_size
from tidings.protocol.messages import Acknowledge, Confirm, Credit, Notice
from tidings.protocol.past import PastConsumer
from tidings.protocol.stored_consumer import NewestFirstConsumer, StoredConsumer
from tidings.replies import Deferred
from tidings.steps import PAUSE, Steps
from tidings.store.interface import Durable

if TYPE_CHECKING:
    from tidings.protocol.arrivals import ClientArrival
    from tidings.protocol.service import SessionPattern
    from tidings.protocol.session import Session

FILTER_AT_ONCE = 8_192
"""Characters of a filter that is read where it comes; a longer one is read in a thread."""
SUBSCRIPTIONS_MAX = 10_000
"""Subscriptions, and advertisements, of one session."""

Begun = dict[str, Any] | Deferred[dict[str, Any]] | Steps[dict[str, Any] | Deferred[dict[str, Any]]]
"""The answer to a client whose subscription has begun: now, after some steps, or later."""


class Subscriptions:
    """Subscriptions and advertisements of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._broker = session.broker
        self._consumers: dict[int, Consumer] = {}
        self._endings: dict[int, Callable[[], None]] = {}  # what ends the subscriptions of consumers
        self._patterns: dict[int, SessionPattern] = {}
        self.channels: dict[int, str] = {}  # of which those are members that are any's
        self._advertisements: dict[int, Advertisement] = {}
        self.filter_size = 0  # about what all their filters cost
        self._sizes: dict[tuple[type, int], int] = {}  # the same of each
        self._backlog: Backlog | None = None  # of those that must be tried on every event
        self._openings: dict[int, LastOpening] = {}  # of those with last values
        self._understood: tuple[Filter, Filter] | None = None  # a long filter, and what of it was granted

    def depends_on(self, mark: int) -> bool:
        """Whether any of them waits for this commit or a later one."""
        if self._backlog is not None and self._backlog.mark >= mark:
            return True
        return any(consumer.mark >= mark for consumer in self._consumers.values())

    def close(self) -> Steps[None]:
        """End all of them, as the session has ended."""
        while self._consumers:
            self._end(next(iter(self._consumers)))
            yield
        while self._advertisements:
            self._withdraw(next(iter(self._advertisements)))
            yield

    def lose_oldest(self, goal: int) -> bool:
        """Have the largest lose their oldest events until so many bytes wait; whether any was lost."""
        is_any = False
        consumers = sorted(self._consumers.values(), key=lambda one: one.size, reverse=True)
        patterns = sorted(self._patterns.values(), key=lambda one: one.size, reverse=True)
        gathering = [one.sink for one in self._openings.values()]
        for holder in (self._backlog, *gathering, *patterns, *consumers):
            while self._session.holdings.size > goal and holder is not None and holder.lose_oldest():
                is_any = True
        return is_any

    def _weigh(self, kind: type, number: int, filter: str) -> None:
        """Count what a filter costs."""
        size = self._sizes[kind, number] = filter_size(filter)
        self.filter_size += size
        self._session.heavier()

    # Subscribing

    def subscribe(self, wanted: SubscribeRequest) -> Begun:
        """Begin a subscription; where the stored stream stands."""
        self._check_free(wanted.number, self._consumers)
        wanted.check()
        if wanted.link:
            return self._open_link(wanted)
        if wanted.on_slow == "block":
            self._session.principal.require("block", "on_slow='block'")
        if wanted.pattern is not None:
            return self._open_pattern(wanted, wanted.pattern)
        self._session.account.check(filter_size(wanted.filter))
        if wanted.channel is not None:
            return self._join(wanted, wanted.channel)
        if len(wanted.filter) > FILTER_AT_ONCE and wanted.queue is None:
            return self._subscribe_long(wanted)
        return self._subscribe(wanted, Filter(wanted.filter))

    def _open_pattern(self, wanted: SubscribeRequest, pattern: str) -> Begun:
        """Begin to deliver the matches of a pattern; a durable one stands, and publishes them."""
        host = self._broker.patterns
        if host is None:
            raise Refused("not-found", "this node has no patterns")
        self._session.account.check(filter_size(pattern))
        if wanted.durable is not None:
            filter = host.stand(self._session, wanted.durable, pattern, wanted.passive)
            return self._subscribe(structs.replace(wanted, filter=str(filter), passive=True), filter)
        consumer = _consumer(self._session, wanted)
        found = self._patterns[wanted.number] = host.open(self._session, pattern, consumer, wanted.passive)
        self._endings[wanted.number] = partial(host.close, found)
        self._consumers[wanted.number] = consumer
        self._weigh(SubscribeRequest, wanted.number, pattern)
        return {"position": self._broker.position}

    def _join(self, wanted: SubscribeRequest, channel: str) -> Deferred[dict[str, Any]]:
        """Begin a subscription as a member of a channel, when its events come to this node."""
        channels = self._broker.channels
        if channels is None:
            raise Refused("not-found", "this node has no channels")
        if len(wanted.filter) > FILTER_AT_ONCE:
            raise Refused("limit", f"the filter of a member has at most {FILTER_AT_ONCE} characters")
        asked = Filter(wanted.filter) & filter_of(channel)

        def begin(_joined: None) -> dict[str, Any]:
            begun = self._subscribe(structs.replace(wanted, passive=True), asked)
            assert isinstance(begun, dict), "it has no last values and no queue"
            self.channels[wanted.number] = channel
            return begun

        reference = None if self._is_member(wanted, channel) else wanted.reference
        return channels.join(self._session, channel, reference).map(begin)

    def _is_member(self, wanted: SubscribeRequest, channel: str) -> bool:
        """Whether the client has joined a channel before, here or at its former node, and has not left it."""
        cursor = self._broker.cursors.find(self._session.owner, wanted.durable or "")
        if cursor is not None and cursor.subscription.channel == channel:
            return True
        arrival = self._session.arrival
        return channel in self.channels.values() or (arrival is not None and arrival.is_of(channel))

    def _subscribe_long(self, wanted: SubscribeRequest) -> Steps[dict[str, Any] | Deferred[dict[str, Any]]]:
        begun = self._subscribe(wanted, (yield from self._understand(wanted.filter, "subscribe")))
        if not isinstance(begun, dict | Deferred):
            return (yield from begun)
        self._broker.exchange.settle()
        yield
        return begun

    def _understand(self, text: str, action: Action) -> Steps[Filter]:
        """Have a long filter read in a thread, with all that is derived from it and from what was granted."""
        outcome: list[tuple[Filter, Filter] | TidingsError] = []

        def conclude(result: tuple[Filter, Filter] | TidingsError) -> None:
            outcome.append(result)
            self._session.go_on()

        narrow = partial(self._session.narrow, action)
        run = partial(_understood, text, narrow)
        self._broker.offload(run, "compute").then(conclude, conclude)
        yield PAUSE
        (result,) = outcome
        if isinstance(result, TidingsError):
            raise result
        self._understood = result
        return result[0]

    def _narrow(self, action: Action, asked: Filter) -> Filter:
        """A filter as far as it was granted; that of a long one is known already."""
        known, self._understood = self._understood, None
        if known is not None and known[0] is asked:
            return known[1]
        return self._session.narrow(action, asked)

    def _subscribe(self, wanted: SubscribeRequest, asked: Filter) -> Begun:
        session = self._session
        # Of a queue, whoever has it says what was granted.
        filter = asked if wanted.queue is not None else self._narrow("subscribe", asked)
        is_unindexed = self._check_indexed(wanted, filter)
        if wanted.durable is not None:
            cursor = self._open_durable(wanted.durable, wanted, filter, asked)
            kind = NewestFirstConsumer if wanted.order == "newest" else StoredConsumer
            self._attach(wanted, kind(cursor, session, wanted.number, wanted.credit))
        elif wanted.is_stored or wanted.on_slow == "spill":
            return self._open_stream(wanted, filter, asked)
        else:
            consumer = _consumer(session, wanted)
            subscription = NodeSubscription(
                filter, consumer, wanted.passive, user=session.bound, owner=session, asked=asked
            )
            subscription.later = self._later(wanted) if is_unindexed else None
            subscription.channel = wanted.channel or ""
            if wanted.queue is not None:
                return self._watch(wanted, wanted.queue, subscription, consumer)
            if wanted.last:
                return self._open_last(wanted, subscription, consumer)
            self._endings[wanted.number] = self._begin(subscription)
            self._add(wanted, consumer)
            if session.arrival is not None:
                return self._claim(session.arrival, wanted, subscription, consumer)
        return {"position": self._broker.position}

    def _open_stream(self, wanted: SubscribeRequest, filter: Filter, asked: Filter) -> Begun:
        """Begin to deliver stored events, from a time on those of all nodes."""
        elsewhere, since_us = self._broker.elsewhere, wanted.since_us
        cursor = self._cursor("", wanted, filter, asked)
        cursor.subscription.owner = self._session
        self._broker.cursors.add(cursor)
        about = cursor, self._session, wanted.number, wanted.credit, wanted.on_slow == "spill"
        if elsewhere is None or not elsewhere.others or since_us is None:
            self._attach(wanted, StoredConsumer(*about))
            opened = {"position": self._broker.position}
            has_others = elsewhere is not None and bool(elsewhere.others) and wanted.channel is None
            return {**opened, "others": True} if has_others else opened
        past = PastConsumer(*about, elsewhere)
        self._attach(wanted, past)
        return past.begun

    def _claim(
        self,
        arrival: ClientArrival,
        wanted: SubscribeRequest,
        subscription: NodeSubscription,
        consumer: WaitingConsumer,
    ) -> dict[str, Any]:
        """Let a client that has moved here have what was gathered for its subscription meanwhile."""
        gathered = arrival.take(wanted)
        if gathered is None:
            return {"position": self._broker.position}
        gathered.pass_on(subscription, consumer)
        is_exact = gathered.marks is not None
        return {"position": self._broker.position, "moved": True, "exact": is_exact}

    def _add(self, wanted: SubscribeRequest, consumer: Consumer) -> None:
        self._consumers[wanted.number] = consumer
        self._weigh(SubscribeRequest, wanted.number, wanted.filter)

    def _watch(
        self, wanted: SubscribeRequest, queue: str, subscription: NodeSubscription, consumer: Consumer
    ) -> Begun:
        """Let copies of what is put into a queue flow; the reply may have to come from where that is."""
        if self._broker.watch is None:
            raise Refused("not-found", "this node has no queues")
        self._endings[wanted.number], begun = self._broker.watch(self._session, queue, subscription)
        self._add(wanted, consumer)
        fields = {"position": self._broker.position}
        return fields if begun is None else begun.map(lambda _begun: fields, partial(self._unwatch, consumer))

    def _unwatch(self, consumer: Consumer, error: TidingsError) -> TidingsError:
        """A watch has not begun: end it without a notice to the client, unless it was ended meanwhile."""
        if self._consumers.get(consumer.number) is consumer:
            self._end(consumer.number)
        return error

    def _open_last(
        self, wanted: SubscribeRequest, subscription: NodeSubscription, consumer: WaitingConsumer
    ) -> Steps[dict[str, Any] | Deferred[dict[str, Any]]]:
        """Begin a subscription with the last values there are; what is published meanwhile comes later."""
        opening = self._openings[wanted.number] = LastOpening(self._session, subscription, consumer)
        self._endings[wanted.number] = self._begin(subscription)
        self._add(wanted, consumer)
        if len(wanted.filter) > FILTER_AT_ONCE:
            self._broker.exchange.settle()
        return (yield from opening.begin())

    def _check_indexed(self, wanted: SubscribeRequest, filter: Filter) -> bool:
        """Refuse one filter too many that must be tried on every event; whether a new one is such.

        What is there already is no more.
        """
        session, places = self._session, self._broker.cursors
        if wanted.durable is None or places.find(session.owner, wanted.durable) is None:
            return self._broker.exchange.unindexed.check(session.bound or "", filter)
        return False

    def _later(self, wanted: SubscribeRequest) -> Backlog | None:
        """Return the backlog for a filter that must be tried on each event; None if it holds publishers."""
        if wanted.queue is not None or wanted.on_slow == "block":
            return None
        if self._backlog is None:
            self._backlog = Backlog(self._session)
        return self._backlog

    def _begin(self, subscription: NodeSubscription) -> Callable[[], None]:
        """Let events flow; what ends that."""
        self._broker.exchange.subscribe(subscription)
        return partial(self._broker.exchange.unsubscribe, subscription)

    def _open_durable(self, name: str, wanted: SubscribeRequest, filter: Filter, asked: Filter) -> Cursor:
        """The cursor of a durable subscription, made if there is none; what was granted is not kept."""
        cursors = self._broker.cursors
        cursor = cursors.find(self._session.owner, name)
        if cursor is None:
            cursor = self._cursor(name, wanted, filter, asked)
            cursors.open(cursor)
            return cursor
        if cursor.filter != asked:
            raise Refused("exists", f"{name!r} exists with the filter {cursor.filter}")
        if options_in(cursor.options).asked != _options(wanted):
            raise Refused("exists", f"{name!r} exists with another order, or is passive or not")
        if cursor.consumer is not None:
            self._check_latest(name, cursor.consumer)
            cursor.consumer.part("taken over")
        cursors.refilter(cursor, asked, filter, self._session.bound)
        return cursor

    def _check_latest(self, name: str, holder: CursorConsumer) -> None:
        """Refuse a request that an earlier start of the same client had sent, and that arrives late."""
        own = self._session.origin
        other = holder.session.origin if isinstance(holder, StoredConsumer) else None
        if other is not None and own.system == other.system and own.epoch < other.epoch:
            raise Refused("exists", f"{name!r} is read by a later start of this client")

    def _cursor(self, name: str, wanted: SubscribeRequest, filter: Filter, asked: Filter) -> Cursor:
        start = self._start(wanted) - 1
        record = Durable(name, self._session.owner, str(asked), start, start, _options(wanted))
        cursor = Cursor(self._broker, record, asked)
        cursor.allow(filter, self._session.bound)
        cursor.since_us = wanted.since_us
        return cursor

    def _open_link(self, wanted: SubscribeRequest) -> dict[str, Any]:
        """Let a neighbour node have what it has announced that it wants."""
        if self._broker.open_link is None:
            raise Refused("not-found", "this node has no links")
        stream = self._broker.open_link(self._session, wanted)
        if stream.cursor.consumer is not None:
            stream.cursor.consumer.part("taken over")
        acknowledged = stream.cursor.acknowledged
        self._attach(wanted, stream)
        return {"position": self._broker.position, "acknowledged": acknowledged}

    def _attach(self, wanted: SubscribeRequest, stream: StoredConsumer) -> None:
        stream.attach()
        self._endings[wanted.number] = stream.detach
        self._add(wanted, stream)

    def _start(self, wanted: SubscribeRequest) -> int:
        """The first position that is wanted; for a time it is found when the store is read."""
        following = self._broker.position + 1
        if wanted.since is None:
            return following if wanted.since_us is None else 1
        return min(max(1, wanted.since), following)

    @property
    def count(self) -> int:
        """Number of subscriptions."""
        return len(self._consumers)

    def unsubscribe(self, unwanted: UnsubscribeRequest) -> None:
        """End a subscription, a durable one for good."""
        if unwanted.durable is not None:
            self._broker.cursors.end_durable(self._session.owner, unwanted.durable)
        elif unwanted.number in self._consumers:
            self._end(unwanted.number)
        else:
            raise Refused("not-found", f"there is no subscription {unwanted.number}")

    def reading(self, name: str) -> tuple[int, StoredConsumer] | None:
        """Return the consumer of a durable subscription, and its number."""
        for number, consumer in self._consumers.items():
            if isinstance(consumer, StoredConsumer) and consumer.cursor.name == name:
                return number, consumer
        return None

    @property
    def has_place(self) -> bool:
        """Whether a place of the client is stored here: that of a durable subscription."""
        return any(isinstance(one, StoredConsumer) for one in self._consumers.values())

    @property
    def unsent(self) -> dict[int, int]:
        """Events that wait for the client's credit, by the number of its subscription."""
        waiting = {
            number: sum(map(len, one.waiting)) if isinstance(one, DroppingConsumer) else len(one.waiting)
            for number, one in self._consumers.items()
            if isinstance(one, WaitingConsumer)
        }
        return {number: count for number, count in waiting.items() if count}

    def take_away(self, number: int) -> None:
        """End a subscription without notifying the client, which goes elsewhere with it."""
        self._end(number)

    def end(self, number: int, reason: str) -> None:
        """End a subscription of this session from outside, and notify the client."""
        self._end(number)
        self._session.post(encode(Notice("ended", number, {"reason": reason})))

    def _end(self, number: int) -> None:
        consumer = self._consumers.pop(number)
        if number in self._openings:
            self._openings.pop(number).end()
        self.channels.pop(number, None)
        consumer.end()
        self.filter_size -= self._sizes.pop((SubscribeRequest, number))
        self._session.heavier()
        self._patterns.pop(number, None)
        self._endings.pop(number)()

    # Advertising

    def advertise(self, offered: AdvertiseRequest) -> dict[str, Any] | Steps[dict[str, Any]]:
        """Begin an advertisement; who wants what it offers."""
        self._check_free(offered.number, self._advertisements)
        self._session.account.check(filter_size(offered.filter))
        if len(offered.filter) > FILTER_AT_ONCE:
            return self._advertise_long(offered)
        return self._advertise(offered, Filter(offered.filter))

    def _advertise_long(self, offered: AdvertiseRequest) -> Steps[dict[str, Any]]:
        return self._advertise(offered, (yield from self._understand(offered.filter, "publish")))

    def _advertise(self, offered: AdvertiseRequest, asked: Filter) -> dict[str, Any]:

        def notify(wanted: tuple[Filter, ...]) -> None:
            details = {"filters": [str(filter) for filter in wanted]}
            self._session.post(encode(Notice("interest", offered.number, details)))

        offer = self._narrow("publish", asked)
        advertisement = Advertisement(offer, notify, asked=asked, source=self._session.owner)
        self._weigh(AdvertiseRequest, offered.number, offered.filter)
        self._advertisements[offered.number] = advertisement
        return {"filters": [str(filter) for filter in self._broker.exchange.advertise(advertisement)]}

    def unadvertise(self, offered: UnadvertiseRequest) -> None:
        """End an advertisement."""
        if offered.number not in self._advertisements:
            raise Refused("not-found", f"there is no advertisement {offered.number}")
        self._withdraw(offered.number)

    def _withdraw(self, number: int) -> None:
        self._broker.exchange.withdraw(self._advertisements.pop(number))
        self.filter_size -= self._sizes.pop((AdvertiseRequest, number))
        self._session.heavier()

    def _check_free(self, number: int, taken: dict[int, Any]) -> None:
        if number in taken:
            raise Refused("exists", f"number {number} is in use")
        if len(taken) >= SUBSCRIPTIONS_MAX:
            raise Refused("limit", f"a session has at most {SUBSCRIPTIONS_MAX} of these")

    # What the client says of what it gets

    def acknowledge(self, message: Acknowledge) -> None:
        """A durable subscription has dealt with something."""
        stream = self._consumers.get(message.subscription)
        if isinstance(stream, StoredConsumer):
            stream.acknowledge(message.position)

    def confirm(self, message: Confirm) -> None:
        """Others beyond a neighbour node have something."""
        stream = self._consumers.get(message.subscription)
        if isinstance(stream, StoredConsumer):
            stream.confirm(message.beyond)

    def give_credit(self, message: Credit) -> None:
        """A subscription may have more."""
        consumer = self._consumers.get(message.subscription)
        if consumer is not None:
            consumer.grant(message.total)


def _options(wanted: SubscribeRequest) -> bytes:
    """The stored options of a durable subscription."""
    is_newest, channel = wanted.order == "newest", wanted.channel or ""
    return Options(passive=wanted.passive, newest=is_newest, channel=channel).encode()


def _understood(text: str, narrow: Callable[[Filter], Filter]) -> tuple[Filter, Filter]:
    """The filter of a text, and what of it was granted, with all that is derived from them made already."""
    asked = Filter(text)
    granted = narrow(asked)
    for filter in (asked, granted):
        _ = filter.normal, filter.test, str(filter), hash(filter)
    return asked, granted


def _consumer(session: Session, wanted: SubscribeRequest) -> WaitingConsumer:
    if wanted.slow_key:
        return LatestConsumer(session, wanted.number, wanted.credit, wanted.slow_key)
    if wanted.on_slow == "block":
        return BlockingConsumer(session, wanted.number, wanted.credit)
    kind = DroppingConsumer if wanted.channel is None else MemberConsumer
    return kind(session, wanted.number, wanted.credit)
