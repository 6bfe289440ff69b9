"""The client's end of a connection, without I/O: what survives a cut, and what is said after one.

A driver (the asyncio client, or the simulator) hands in what arrives and sends what comes of it:

    connection.connect(now)                      a transport is there: HELLO, then all that was begun before
    connection.receive(data, now)                bytes have arrived
    connection.lost(now)                         the transport is gone; connect again when there is another
    connection.wake(now), at `wake_at`           time has passed
    for frame in connection.output(): …          after each of these, and after each call of the application
    connection.is_given_up                       the driver is to end the transport (and to call `lost`)

The rules kept: what is published, put, settled and committed is numbered and held until accepted
(`publications.py`), subscriptions and advertisements are made again on each new connection (`subscriber.py`),
and a request that was under way when the connection broke is sent again, behind the numbered ones and under
its old number, only if doing it twice is no different from doing it once (`calls.py`).
`failure` is why the node will have nothing to do with this client, or that the application has closed it;
then there is no use in connecting again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from tidings.errors import CodecError, Disconnected, TidingsError, UserError
from tidings.event import Event
from tidings.ids import Ids, Origin
from tidings.protocol.calls import Call, Calls, OnCut, ended_anyway
from tidings.protocol.frames import encode, read_frame
from tidings.protocol.keepalive import KeepAlive
from tidings.protocol.leaving import Leaving
from tidings.protocol.messages import (
    VERSION,
    Accepted,
    Bye,
    Confirm,
    Deliver,
    Failure,
    Hello,
    Notice,
    OrderedRelay,
    Packed,
    Refusal,
    Relay,
    Reply,
    Reverse,
    Welcome,
    error_of,
)
from tidings.protocol.outgoing_streams import OutgoingStreams
from tidings.protocol.publications import Publications, UnsureEvents
from tidings.protocol.subscriber import (
    ClientAdvertisement,
    ClientSubscription,
    InterestListener,
    MissedNumbers,
    Subscriber,
    Wanted,
)
from tidings.replies import Deferred, resolved

T = TypeVar("T")
# Ends of a connection after which the next attempt would end the same way.
OLDER = "the store is older than it was"
"""The reason of a gap, if the node's store is an older copy: what came after that is lost."""
_FATAL = {"protocol", "version", "too-large", "event", "not-allowed"}


class ReverseEnd(Protocol):
    """The end of a connection that runs through another one, in the other direction."""

    def receive(self, data: bytes) -> None:
        """Bytes have arrived."""

    def output(self) -> list[bytes]:
        """The frames that may be sent now, wrapped."""


class Connection(KeepAlive):
    """Client's end of a connection. `ids` numbers the events, `name` is the client's name.

    `says` returns the user and secret for each HELLO; it is called when a transport is there.
    """

    def __init__(self, ids: Ids, name: str = "", says: Callable[[], tuple[str, str]] | None = None) -> None:
        super().__init__()
        self.publications = Publications(ids)
        self.unsure = UnsureEvents()
        self.node = ""
        self.node_name = ""  # what people call the node
        self.boot: int | None = None
        self.user = ""  # who the node says that this client is
        self.inbox = ""  # how the names of its inboxes begin there; empty if the node does not say
        self.session: str | None = None
        self.position = 0  # the highest one at which the node has delivered a stored event
        self.older = 0  # how often the node turned out to have an older store than it had before
        self.held_epoch = 0  # changes when the node has taken back what this client held
        self.failure: TidingsError | None = None
        self.parting = ""  # why the node has ended the last connection, until it has done something for us
        self._origin = ids.origin
        self._name = name
        self._says = says or (lambda: ("", ""))  # for nodes that do not ask who a client is
        self._calls = Calls()
        self.leaving = Leaving(self)
        self._numbers = 0  # of subscriptions and advertisements
        self._subscriptions: dict[int, ClientSubscription] = {}
        self._due: dict[ClientSubscription, None] = {}  # those that may have frames to send
        self._offers: dict[int, ClientAdvertisement] = {}
        self.streams = OutgoingStreams(self)
        self.reverse: ReverseEnd | None = None
        """The end of the connection that runs the other way; see `Reverse`."""
        self.unpack: Callable[[bytes], bytes] | None = None
        """What returns the content of a frame that came compressed; CodecError if it can't be one."""

    # What the driver calls

    def connect(self, now: float) -> None:
        """A transport is there."""
        system, epoch = self._origin.system or "", self._origin.epoch
        seen = self.publications.accepted
        user, secret = self._says()
        known = self.node, self.boot or 0, self.position
        about = self._name, self.session, seen, user, secret
        hello = Hello([VERSION], system, epoch, *about, *known, self.leaving.cookie, self.publications.sent)
        self._begin(hello, now)

    def lost(self, _now: float) -> None:
        """The transport is gone: what can't be sent again fails, the rest waits for the next one."""
        self._due = {}
        if self._end():
            self._calls.cut()
        self.streams.cut()

    def close(self, error: TidingsError | None = None) -> None:
        """Close for good: say goodbye, and fail what still waits."""
        if self.is_up and error is None:
            self.send_published()  # nothing is heard that follows a goodbye
            self._frames.append(encode(Bye()))
        self.failure = self.failure or error or Disconnected("the connection was closed")
        subscriptions, self._subscriptions = self._subscriptions, {}
        offers, self._offers = self._offers, {}
        self._calls.fail(self.failure)
        for subscription in subscriptions.values():
            subscription.fail(self.failure)
        for offer in offers.values():
            offer.fail(self.failure)
        self.streams.end()

    def output(self, with_bulk: bool = True) -> list[bytes]:
        """The frames that may be sent now; the last are some forwarded events, unless these are to wait."""
        frames, self._frames = self._frames, []
        if self.is_up:
            if self.reverse is not None:
                frames += self.reverse.output()
            due, self._due = self._due, {}
            for subscription in due:
                frames += subscription.output()
            frames += self.publications.take()
            if with_bulk and self.streams.has_frames:
                frames += self.streams.take()
        return frames

    @property
    def has_bulk(self) -> bool:
        """Whether `output` has left forwarded events that may be sent if the transport takes more."""
        return self.is_up and self.streams.has_frames

    # What the application calls

    def publish(self, event: Event) -> int:
        """Hold an event until it is accepted; its counter. To be called while `publications` has room."""
        if self.failure is not None:
            raise self.failure
        return self.publications.publish(event)

    def put(self, queue: str, event: Event, transaction: int = 0, is_part: bool = False) -> int:
        """Hold an event for a queue until it is accepted; its counter.

        With a transaction it is put when that commits, and published if the queue has no name; `is_part`:
        its body is a part of that of the next event.
        """
        self.check()
        return self.publications.put(queue, event, transaction, is_part)

    def settle(
        self, number: int, delivery: int, outcome: int, text: str = "", delay_s: float | None = None
    ) -> int:
        """Say what becomes of a message that was handed out; the counter of that."""
        self.check()
        return self.publications.settle(number, delivery, outcome, text, delay_s)

    def commit(self, transaction: int) -> int:
        """Commit a transaction; the counter of that."""
        self.check()
        return self.publications.commit(transaction)

    def request(self, operation: str, arguments: dict[str, Any], on_cut: OnCut = "fail") -> Call:
        """Have something done, now or when there is a connection."""
        self.send_published()
        return self.ask_on(operation, arguments, on_cut)

    def ask_on(self, operation: str, arguments: dict[str, Any], on_cut: OnCut = "fail") -> Call:
        """Have something done without waiting for what was published before."""
        self.check()
        call = self._calls.add(operation, arguments, on_cut)
        if self.is_up:
            self._frames.append(call.send())
        return call

    def send_published(self) -> None:
        """Send what is published, as far as the window goes: what is said next follows it."""
        if self.is_up:
            self._frames += self.publications.take()

    def cancel_get(self, number: int) -> None:
        """The messages that a `get` asked for are not wanted, whether or not they have come.

        Called instead of `Call.cancel` where its answer was not taken: the node then takes back what it has
        handed out for it, also when it hears of that on a later connection only.
        """
        if self._calls.cancel(number) and self.failure is None:
            self.request("get.cancel", {"number": number}, "again")

    def subscribe(self, wanted: Wanted, subscriber: Subscriber, prefetch: int) -> ClientSubscription:
        """Begin a subscription, now or when there is a connection; `begun` of it has the node's answer."""
        self.check()
        self._numbers += 1
        subscription = self._subscriptions[self._numbers] = ClientSubscription(
            self._numbers, wanted, subscriber, prefetch
        )
        if self.is_up:
            self.send_published()
            self._begin_subscription(subscription)
        return subscription

    def consume(self, subscription: ClientSubscription, count: int) -> None:
        """The application has taken so many events of a subscription."""
        subscription.consume(count)
        self._due[subscription] = None

    def acknowledge(self, subscription: ClientSubscription, position: int, life: int | None = None) -> None:
        """Everything of a durable subscription up to this position was dealt with.

        `life` is that of the subscription when the event was delivered: see `ClientSubscription`.
        """
        subscription.acknowledge(position, life)
        self._due[subscription] = None

    def confirm(self, subscription: ClientSubscription, positions: list[int]) -> None:
        """Confirm to a neighbour node how far those beyond this node have what it has relayed."""
        if self.is_up:
            self._frames += subscription.output()  # nobody beyond has what this node has not acknowledged
            self._frames.append(encode(Confirm(subscription.number, positions)))

    def unsubscribe(self, subscription: ClientSubscription) -> Deferred[None]:
        """End a subscription of this connection; a durable one stays with the node."""
        self._due.pop(subscription, None)
        subscription.begun.cancel()
        if self._subscriptions.pop(subscription.number, None) is None or not self.is_up:
            return resolved(None)
        self._frames += subscription.output()  # so that an acknowledgement goes before it
        return ended_anyway(self.request("unsubscribe", {"number": subscription.number}))

    def advertise(self, filter: str, interest: InterestListener) -> ClientAdvertisement:
        """Say what may be published; `interest` is called with the filters that want it."""
        self.check()
        self._numbers += 1
        offer = self._offers[self._numbers] = ClientAdvertisement(self._numbers, filter, interest)
        if self.is_up:
            self.send_published()
            self._offer(offer)
        return offer

    def withdraw(self, offer: ClientAdvertisement) -> Deferred[None]:
        """Advertise it no longer."""
        offer.begun.cancel()
        if self._offers.pop(offer.number, None) is None or not self.is_up:
            return resolved(None)
        return ended_anyway(self.request("unadvertise", {"number": offer.number}))

    # Moving

    def move(self, to: str) -> Deferred[None]:
        """Move to the node of this name or id; the reply comes when the client is there."""
        self.check()
        return self.leaving.move(to)

    @property
    def waits(self) -> bool:
        """Whether any request waits for its answer."""
        return len(self._calls) > 0

    def subscriptions_made(self) -> list[dict[str, Any]]:
        """The subscriptions, as they are made."""
        return [
            {**msgspec.to_builtins(one.wanted), "number": one.number} for one in self._subscriptions.values()
        ]

    def report_gap(self, number: int, dropped: int, reason: str) -> None:
        """Report events that a subscription will not get."""
        if number in self._subscriptions:
            self._subscriptions[number].subscriber.gap(dropped, reason)

    def leave(self, parting: str) -> None:
        """Part from the node, to go on elsewhere."""
        if not self.is_given_up:
            self._frames.append(encode(Bye()))
            self.is_given_up, self.parting = True, parting

    def check(self) -> None:
        """Raise `failure` if there is one."""
        if self.failure is not None:
            raise self.failure

    # What is said to the node

    def _begin_subscription(self, subscription: ClientSubscription) -> None:
        """Make a subscription on this connection."""

        def begun(result: Any) -> None:
            if subscription.number in self._subscriptions:
                position = _member(result, "position", int)
                marks = (bool(result.get(mark)) for mark in ("moved", "exact", "others"))
                subscription.opened(position, *marks)
                subscription.begun.resolve(result)

        def refused(error: TidingsError) -> None:
            if self._subscriptions.pop(subscription.number, None) is not None:
                subscription.fail(error)

        self.ask_on("subscribe", subscription.arguments(), "forget").then(begun, refused)

    def _offer(self, offer: ClientAdvertisement) -> None:
        """Make an advertisement on this connection."""

        def begun(result: Any) -> None:
            if offer.number in self._offers:
                offer.interest.changed(_filters(result))
                offer.begun.resolve(result)

        def refused(error: TidingsError) -> None:
            if self._offers.pop(offer.number, None) is not None:
                offer.fail(error)

        arguments = {"number": offer.number, "filter": offer.filter}
        self.ask_on("advertise", arguments, "forget").then(begun, refused)

    # What the node says

    def _greeted(self, welcome: Welcome, _events: bytes) -> None:
        if self.session is None and welcome.counter:
            self.close(_used_before(self._origin))
            self.is_given_up = True
            return
        is_same_node = welcome.node == self.node
        is_older = welcome.is_older or (is_same_node and welcome.boot < (self.boot or 0))
        self.older += is_older
        if is_older or not is_same_node:
            self.position = 0
        for refusal in welcome.refused:
            self.publications.refuse(refusal)
        self.publications.resume(welcome.counter, welcome.window, is_same_node and welcome.boot == self.boot)
        for refusal in welcome.refused:  # beyond the counter, which something before it may hold up
            self.publications.refuse(refusal)
        is_handed_over = self.leaving.greeted(welcome)
        self.node, self.boot, self.session = welcome.node, welcome.boot, welcome.session
        self.user, self.inbox = welcome.user, welcome.inbox
        self.node_name = welcome.name
        self.held_epoch += not welcome.kept
        if is_handed_over:
            self.leave("the client was handed over to another node")
            return
        self.is_up = True
        waiting = self._calls.frames()
        for subscription in self._subscriptions.values():
            if is_older:
                subscription.subscriber.gap(0, OLDER)
            if is_older:
                subscription.forget_positions()
            elif not is_same_node:
                subscription.move()
            self._begin_subscription(subscription)
        for offer in self._offers.values():
            self._offer(offer)
        self.streams.open_again()
        # After the subscriptions, as they may be about these, and after what they may ask about.
        self.send_published()
        self._frames += waiting
        self.leaving.arrived(welcome.node)

    def _accepted(self, message: Accepted, _events: bytes) -> None:
        self.parting = ""
        if not message.stream:
            self.publications.accept(message.counter)
            self.leaving.go_on()
        else:
            self.streams.accepted(message)

    def _refused(self, message: Refusal, _events: bytes) -> None:
        if not message.stream:
            self.publications.refuse(message)
        else:
            self.streams.refused(message)

    def _replied(self, reply: Reply, _events: bytes) -> None:
        self._calls.take(reply)
        self.leaving.go_on()
        if self.publications.is_empty:
            self.parting = ""

    def _delivered(self, message: Deliver, events: bytes) -> None:
        subscription = self._subscriptions.get(message.subscription)
        if subscription is not None:
            subscription.take(message, events)
            self.position = max(self.position, subscription.position)
            self._due[subscription] = None

    def _unpacked(self, message: Packed, _events: bytes) -> None:
        if self.unpack is None:
            raise CodecError("$", "Packed is not for a client that is no node")
        relay, events = read_frame(OrderedRelay.KIND, self.unpack(message.data))  # or without its last field
        assert isinstance(relay, Relay)
        self._delivered(relay, events)

    def _noticed(self, notice: Notice, _events: bytes) -> None:
        details = notice.details
        if notice.kind == "interest" and notice.number in self._offers:
            self._offers[notice.number].interest.changed(_filters(details))
        elif notice.kind == "gap" and notice.number in self._subscriptions:
            subscriber = self._subscriptions[notice.number].subscriber
            subscriber.gap(
                _member(details, "dropped", int), _member(details, "reason", str), _missed(details)
            )
        elif notice.kind == "late" and notice.number in self._subscriptions:
            self._subscriptions[notice.number].announce_late()
        elif notice.kind == "ended" and notice.number in self._subscriptions:
            self._due.pop(subscription := self._subscriptions.pop(notice.number), None)
            subscription.subscriber.ended(_member(details, "reason", str))
        elif notice.kind == "drain":
            self.leaving.elsewhere = [one for one in _member(details, "places", list) if isinstance(one, str)]
            self.leaving.go_elsewhere()

    @property
    def has_place(self) -> bool:
        """Whether the node stores a place of this client: that of a durable subscription."""
        return any(one.wanted.durable for one in self._subscriptions.values())

    def _reversed(self, message: Reverse, _events: bytes) -> None:
        if self.reverse is None:
            raise CodecError("$", "Reverse is not for a client that is no node")
        self.reverse.receive(message.data)

    def _parted(self, message: Bye, _events: bytes) -> None:
        self.is_given_up = True
        self.parting = message.text
        self.leaving.parted(message)
        if message.code in _FATAL:
            self.close(error_of(Failure(message.code, message.text)))

    handlers = {  # noqa: RUF012 - see Talk
        Welcome: _greeted,
        Accepted: _accepted,
        Refusal: _refused,
        Reply: _replied,
        Deliver: _delivered,
        Relay: _delivered,
        OrderedRelay: _delivered,
        Packed: _unpacked,
        Notice: _noticed,
        Reverse: _reversed,
        Bye: _parted,
    }


def _used_before(origin: Origin) -> UserError:
    """Why a client that has said nothing yet can't go on: what it says would be taken for said before."""
    which = f"epoch {origin.epoch} of system {origin.system!r}"
    return UserError(f"ids of {which} were given out before: each start needs a higher epoch")


def _member(found: Any, name: str, kind: type[T]) -> T:
    """Return a member of a node's message; CodecError if it is missing or of another type."""
    value = found.get(name) if isinstance(found, dict) else None
    if not isinstance(value, kind):
        raise CodecError(f"$.{name}", f"is not {kind.__name__}")
    return value


def _missed(found: Any) -> MissedNumbers | None:
    """Return the numbers of a gap, if it has any."""
    if "node" not in found:
        return None
    epoch, first, last = (_member(found, name, int) for name in ("epoch", "first", "last"))
    return MissedNumbers(_member(found, "node", str), epoch, first, last)


def _filters(found: Any) -> list[str]:
    return [text for text in _member(found, "filters", list) if isinstance(text, str)]
