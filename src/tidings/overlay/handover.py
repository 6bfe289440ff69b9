"""Hand-over: a client moves from this node to another one, and goes on there where it was.

    client      move(to) ──►  this node                         the other node
                              announce ───────────────────────► gathers what the subscriptions match,
                                       ◄─────────────────────── answers when they are in force
                              waits until it has all that was stored for it before that
                              what waits for durable subscriptions, piece by piece ──► stored for them
                              finish ─────────────────────────► counts on, keeps the durable subscriptions
                ◄──  addresses, cookie
    client      HELLO with the cookie ────────────────────────► has what was gathered, then what comes

In an ordered channel this node waits until its members had all that those of the other one had before, then
delivers no more and says how far the client has come; the other one waits until its own members are as far.

Up to the numbers from which on a subscription is in force there, this node has everything, and stores or
delivers it; from there on the other one has. What both have is told apart by the numbers of first nodes. The
client has said all that it had to say before it asks, so its counter is all that is left to hand over.

The messages go from node to node along the tree. If any step fails, this node has the other forget the
client, and the client stays. So it does if the answer to `finish` is lost: the other node has everything
then, but the client has no cookie to go there. A hand-over of durable subscriptions is stored until it is
over, so a node that ends in the middle of it has the other one forget the client after its next start.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct, structs

from tidings.errors import CodecError, Disconnected, MoveRefused, Refused, TidingsError
from tidings.event.relayed import Had
from tidings.ids import Origin
from tidings.overlay.carrying import HeldBack, MovingEvents
from tidings.overlay.service import Overlay
from tidings.protocol.announced import ClientAnnouncement, MovedBatch, MovedCursor
from tidings.protocol.arguments import InForce, SubscribeRequest
from tidings.protocol.arrivals import ordered_channels
from tidings.protocol.broker import Broker
from tidings.protocol.channels import Channels
from tidings.protocol.messages import HandedOver
from tidings.protocol.service import IncomingRequest, Service
from tidings.protocol.session import Session
from tidings.protocol.stored_consumer import StoredConsumer
from tidings.protocol.subscriptions import SUBSCRIPTIONS_MAX
from tidings.replies import Deferred, all_of, failed
from tidings.store.interface import RecordKind

TOKEN_SIZE = 20
"""Random bytes in a cookie: none can be guessed."""
HOPS_MAX = 64
"""Nodes that a message of a move passes: the tree may be changing its shape."""
STEP_S = 30.0
"""How long the other node may take to answer one message; then the client stays."""
FORGET_S = 1.0
"""How long to wait before a node that can't be reached is asked again to forget a client; then twice that."""
FORGET_S_MAX = 3_600.0
"""The longest of these times."""
FORGET_FOR_S = 86_400.0
"""How long it is asked at most."""
UNSURE_MAX = 10_000
"""Hand-overs of which the other node may keep something; of more, the oldest are forgotten."""

Step = Literal["announce", "bring", "finish", "forget", "arrived"]


class MoveRequest(Struct, frozen=True):
    """The arguments of `move`: the name or id of a node, and the client's subscriptions."""

    to: str
    subscriptions: Annotated[tuple[SubscribeRequest, ...], Meta(max_length=SUBSCRIPTIONS_MAX)] = ()


class MoveMessage(Struct, frozen=True):
    """The arguments of `link.move`: a message to the node where a client is to go on."""

    to: str
    step: Step
    content: Raw
    hops: int = 0


class Brought(Struct, frozen=True):
    """What waits for a durable subscription, or a piece of it."""

    token: str
    name: str
    batches: tuple[MovedBatch, ...]


class Finish(Struct, frozen=True):
    """All was said of a client: what its durable subscriptions have had of each first node.

    `marks` say how far it has come in ordered channels (`channels/reaching.py`).
    """

    token: str
    had: dict[str, Had]
    marks: dict[str, bytes] = {}


class Expected(Struct, frozen=True):
    """The answer to an announcement: how far ordered channels had come when events were gathered from."""

    marks: dict[str, bytes] = {}


class Forget(Struct, frozen=True):
    """A client does not come, nor do its durable subscriptions of these names."""

    token: str
    source: str = ""
    names: tuple[str, ...] = ()


class UnsureHandover(Struct, frozen=True):
    """The stored record of a hand-over that is not over: what the other node is to forget if it fails."""

    to: str
    forget: Forget
    since_us: int


UNSURE: RecordKind[tuple[str], UnsureHandover] = RecordKind("unsure-handover", UnsureHandover)


class ClientArrived(Struct, frozen=True):
    """A client is there: the node that it has left need not send it on."""

    system: str
    epoch: int
    source: str | None


class Handover(Service):
    """Service by which clients move; `entropy` returns random bytes."""

    def __init__(self, broker: Broker, overlay: Overlay, entropy: Callable[[int], bytes]) -> None:
        self._broker = broker
        self._overlay = overlay
        self._entropy = entropy
        self._leaving: dict[Session, Departure] = {}
        self.operations = {
            "move": (MoveRequest, self._move),
            "link.move": (MoveMessage, self._told),
        }
        self._steps: dict[Step, tuple[Any, Callable[[Any], Any]]] = {
            "announce": (ClientAnnouncement, self._announced),
            "bring": (Brought, self._brought),
            "finish": (Finish, self._finished),
            "forget": (Forget, self._forgotten),
            "arrived": (ClientArrived, self._arrived),
        }
        broker.arrivals.on_redeemed = self._redeemed
        self._unsure = UNSURE.known(broker.state)
        for unsure in self._unsure.values():
            overlay.later(FORGET_S, partial(self.take_back, unsure))

    def parted(self, session: Session, is_clean: bool) -> None:  # noqa: ARG002
        """A client that was to move has gone before."""
        departure = self._leaving.pop(session, None)
        if departure is not None:
            departure.fail(Disconnected("the client has gone"))

    # A client that leaves

    def _move(self, asked: IncomingRequest, request: MoveRequest) -> Deferred[Any]:
        session = asked.session
        node = self._find(request.to)
        address = self._address(node, request.to)
        bound = [one.durable for one in request.subscriptions if one.durable and not is_moved(one)]
        if bound:
            raise MoveRefused(request.to, f"{bound[0]!r} is a durable pattern, which can't move")
        if session in self._leaving:
            raise MoveRefused(request.to, "the client is on its way already")
        departure = Departure(self._broker, self._overlay, self, session, node, self._token())
        self._leaving[session] = departure
        self._broker.count("moves")

        def over(_outcome: Any) -> None:
            self._leaving.pop(session, None)

        reply = departure.begin(request.subscriptions)
        reply.then(over, over)

        def handed_over(cookie: str) -> Any:
            to = HandedOver(node, [address], cookie)
            self._broker.departed.add(session.origin, to)
            return msgspec.to_builtins(structs.replace(to, dropped=session.subscriptions.unsent))

        return reply.map(handed_over)

    def _find(self, to: str) -> str:
        """Return the id of the node to which a client wants to go; MoveRefused if it can't."""
        topology = self._overlay.topology
        named = topology.names.get(to, "")
        if named is None:
            raise MoveRefused(to, "several nodes have this name; give the id of one of them")
        node = named or to
        if node == self._broker.node:
            raise MoveRefused(to, "the client is there")
        if topology.way(node) is None:
            raise MoveRefused(to, "there is no such node, or it can't be reached")
        return node

    def _address(self, node: str, to: str) -> str:
        record = next((one for one in self._overlay.topology.records if one.node == node), None)
        if record is None or not record.address or not self._overlay.records.is_of_use(record.address):
            raise MoveRefused(to, "it has no address at which a client could reach it")
        return record.address

    def _token(self) -> str:
        return b32encode(self._entropy(TOKEN_SIZE)).decode().lower()

    # Messages from node to node

    def send(self, to: str, step: Step, content: Struct) -> Deferred[Any]:
        """Send a message of a move, and return the answer."""
        return self._pass_on(MoveMessage(to, step, Raw(msgspec.msgpack.encode(content))))

    def _pass_on(self, message: MoveMessage) -> Deferred[Any]:
        way = self._overlay.topology.way(message.to)
        neighbour = None if way is None else self._overlay.neighbours.get(way)
        if neighbour is None or not neighbour.is_up or message.hops >= HOPS_MAX:
            return failed(Disconnected(f"no way leads to node {message.to!r}"))
        asked = neighbour.send("link.move", structs.replace(message, hops=message.hops + 1))
        reply: Deferred[Any] = Deferred()
        asked.then(reply.resolve, reply.fail)
        self._overlay.later(STEP_S, lambda: reply.fail(Disconnected("the other node does not answer")))
        return reply

    def _told(self, asked: IncomingRequest, message: MoveMessage) -> Any:
        self._overlay.linking.caller(asked.session)
        if message.to != self._broker.node:
            return self._pass_on(message)
        kind, act = self._steps[message.step]
        return act(msgspec.msgpack.decode(message.content, type=kind))

    # A client that comes

    def _announced(self, about: ClientAnnouncement) -> Any:
        """Expect a client; the answer comes when its subscriptions are in force."""
        if self._overlay.is_draining:
            raise MoveRefused(self._broker.name, "it is drained itself")
        arrival = self._broker.arrivals.open(about)
        if not about.subscriptions and not about.cursors:
            return None

        def found(told: InForce) -> Expected:
            if told.missing:
                self._broker.arrivals.end(about.token)
                raise Disconnected(f"nodes can't be reached: {', '.join(told.missing)}")
            return Expected(arrival.progress)

        in_force: Deferred[InForce] = Deferred()

        def joined(_none: None) -> None:
            self._overlay.in_force().then(in_force.resolve, in_force.fail)

        arrival.joined.then(joined, in_force.fail)
        return in_force.map(found)

    def _brought(self, brought: Brought) -> None:
        arrival = self._broker.arrivals.get(brought.token)
        if brought.name not in arrival.cursors:
            raise Refused("protocol", f"no durable subscription {brought.name!r} was announced")
        arrival.bring(brought.name, brought.batches)

    def _finished(self, finish: Finish) -> Deferred[None]:
        arrival = self._broker.arrivals.get(finish.token)
        return arrival.reach(finish.marks).map(lambda _none: arrival.finish(finish.had, finish.marks))

    def _forgotten(self, forget: Forget) -> None:
        self._broker.arrivals.forget(forget.token, forget.source, forget.names)

    def begin(self, to: str, forget: Forget) -> UnsureHandover:
        """Note what another node may keep of a client until the hand-over is over."""
        unsure = UnsureHandover(to, forget, int(self._broker.wall * 1e6))
        if forget.names:
            self._unsure[forget.token,] = unsure
            self._broker.store(UNSURE.set((forget.token,), unsure))
            if len(self._unsure) > UNSURE_MAX:
                self.end(next(iter(self._unsure.values())))
        return unsure

    def end(self, unsure: UnsureHandover) -> None:
        """The other node has the client for good, or keeps nothing of it."""
        if self._unsure.pop((unsure.forget.token,), None) is not None:
            self._broker.store(UNSURE.drop((unsure.forget.token,)))

    def take_back(self, unsure: UnsureHandover, again_s: float = FORGET_S) -> None:
        """Have another node forget a client, however long it can't be reached; a day is the most."""

        def over(_told: object = None) -> None:
            self.end(unsure)

        def again(error: TidingsError) -> None:
            is_late = self._broker.wall > unsure.since_us / 1e6 + FORGET_FOR_S
            if is_late or not isinstance(error, Disconnected):
                over()
            else:
                again_after_s = min(2 * again_s, FORGET_S_MAX)
                self._overlay.later(again_s, partial(self.take_back, unsure, again_after_s))

        self.send(unsure.to, "forget", unsure.forget).then(over, again)

    def _redeemed(self, about: ClientAnnouncement) -> None:
        self._broker.departed.forget(about.origin)  # it has come back
        self.send(about.by, "arrived", ClientArrived(about.system, about.epoch, about.source))

    def _arrived(self, arrived: ClientArrived) -> None:
        self._broker.departed.forget(Origin(arrived.system, arrived.epoch, arrived.source))


class Departure:
    """A client on its way from this node to another."""

    def __init__(
        self,
        broker: Broker,
        overlay: Overlay,
        handover: Handover,
        session: Session,
        node: str,
        token: str,
    ) -> None:
        self._broker = broker
        self._overlay = overlay
        self._session = session
        self._handover = handover
        self._node = node
        self._token = token
        self._reply: Deferred[str] = Deferred()
        self._left: list[tuple[int, StoredConsumer]] = []  # whose events are still to be moved
        self._moved: list[tuple[int, StoredConsumer]] = []
        self._had: dict[str, Had] = {}
        self._ordered: dict[str, Channels] = {}  # of which it is a member
        self._held_back: list[HeldBack] = []  # for those that are not durable
        self._marks: dict[str, bytes] = {}

    def begin(self, wanted: Sequence[SubscribeRequest]) -> Deferred[str]:
        """Begin; the reply is the cookie."""
        session = self._session
        live = tuple(one for one in wanted if is_gathered(one))
        names = [one.durable for one in wanted if one.durable is not None and is_moved(one)]
        self._unsure = self._handover.begin(
            self._node, Forget(self._token, session.origin.source or "", tuple(names))
        )
        reading = [found for name in names if (found := session.subscriptions.reading(name)) is not None]
        cursors = [consumer.cursor for _, consumer in reading]
        self._left = reading
        members = {one.channel or "" for one in wanted}
        known = {channel: ordered_channels(self._broker, channel) for channel in members}
        self._ordered = {channel: found for channel, found in known.items() if found is not None}
        about = ClientAnnouncement(
            self._token,
            session.principal.user,
            session.origin.system or "",
            session.origin.epoch,
            session.origin.source,
            self._broker.ledger.counter_of(session.origin),
            self._broker.node,
            live,
            tuple(map(MovedCursor.of, cursors)),
            tuple(dict.fromkeys(session.channels)),
        )
        has_any = bool(live or cursors)
        self._handover.send(self._node, "announce", about).then(
            lambda told: self._settle(told) if has_any else self._finish(), self.fail
        )
        return self._reply

    def fail(self, error: TidingsError) -> None:
        """The client stays: let its subscriptions go on."""
        if self._reply.is_over:
            return
        self._handover.take_back(self._unsure)
        for _, consumer in (*self._left, *self._moved):
            if consumer.is_paused and not consumer.is_over:
                consumer.go_on()
        for held in self._held_back:
            held.go_on()
        self._reply.fail(error)

    def _settle(self, told: Any) -> None:
        """Wait until this node has all that was stored for it before they were in force there."""
        expected = _expected(told)

        def settled(told: InForce) -> None:
            if told.missing:
                self.fail(Disconnected(f"nodes can't be reached: {', '.join(told.missing)}"))
            else:
                self._reach(expected.marks)

        self._overlay.in_force(settled=True).then(settled, self.fail)

    def _reach(self, marks: dict[str, bytes]) -> None:
        """Wait until ordered channels have come as far here as they had there."""
        waits = [
            known.reach(channel, marks.get(channel, b""), is_coming=False)
            for channel, known in self._ordered.items()
        ]
        all_of(waits).then(self._part, self.fail)

    def _part(self, _none: None) -> None:
        """Deliver no more in ordered channels and to durable subscriptions, and note what they had."""
        if self._reply.is_over:
            return
        self._had = self._numbers()
        self._marks = {channel: known.progress(channel) for channel, known in self._ordered.items()}
        self._held_back = [
            HeldBack(member, self._broker.node)
            for member in self._broker.exchange.members
            if member.owner is self._session and member.channel in self._ordered
        ]
        for _, consumer in self._left:
            consumer.pause()
        self._next()

    def _numbers(self) -> dict[str, Had]:
        """What this node has had of each first node, its own events too."""
        broker = self._broker
        own = Had(self._overlay.numbers.epoch, broker.position)
        return {**broker.relays.had_numbers(), broker.node: own}

    def _next(self) -> None:
        """Move what waits for the next durable subscription."""
        if self._reply.is_over:
            return
        if not self._left:
            self._finish()
            return
        number, consumer = self._left.pop(0)
        self._moved.append((number, consumer))
        moving = MovingEvents(
            self._broker, self._overlay, consumer.cursor, self._had[self._broker.node].number
        )
        moving.run(self._bring, self._next, self.fail)

    def _bring(self, name: str, batches: tuple[MovedBatch, ...]) -> Deferred[Any]:
        return self._handover.send(self._node, "bring", Brought(self._token, name, batches))

    def _finish(self) -> None:
        self._handover.send(self._node, "finish", Finish(self._token, self._had, self._marks)).then(
            self._done, self.fail
        )

    def _done(self, _told: Any) -> None:
        """The other node has all: nothing is kept here."""
        if self._reply.is_over:
            return
        self._handover.end(self._unsure)
        for number, consumer in self._moved:
            cursor = consumer.cursor
            if not consumer.is_over:
                self._session.subscriptions.take_away(number)
            if self._broker.cursors.find(*cursor.key) is cursor:
                self._broker.cursors.end(cursor)
        self._reply.resolve(self._token)


def _expected(told: Any) -> Expected:
    try:
        return msgspec.convert(told, Expected)
    except msgspec.ValidationError as error:
        raise CodecError("$.move", str(error)) from None


def is_gathered(wanted: SubscribeRequest) -> bool:
    """Whether another node can gather what a subscription matches, before its client is there."""
    others = wanted.queue is not None or wanted.pattern is not None
    return not (others or wanted.link or wanted.last or wanted.is_stored or wanted.on_slow == "spill")


def is_moved(wanted: SubscribeRequest) -> bool:
    """Whether a durable subscription moves with its client."""
    return wanted.durable is not None and wanted.pattern is None
