"""The node's end of a connection: what a client says, checked and carried out.

The rule kept: whatever arrives, the worst that comes of it is a typed error to this client and the end of its
connection. Subscriptions and advertisements end with their session; durable subscriptions stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.errors import CodecError, EventError, Refused, UserError
from tidings.exchange import Advertisement, Subscription
from tidings.filters import Filter
from tidings.ids import NUMBER_MAX, Origin, check_system
from tidings.protocol.arguments import (
    NAME_LENGTH_MAX,
    Advertise,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from tidings.protocol.frames import FRAME_MAX, FrameReader, TooLarge, encode
from tidings.protocol.messages import (
    VERSION,
    Accepted,
    Acknowledge,
    Bye,
    Credit,
    Hello,
    Message,
    Notice,
    Ping,
    Pong,
    Publish,
    Request,
    Welcome,
)
from tidings.protocol.outbox import Outbox
from tidings.protocol.outlets import BlockingOutlet, DroppingOutlet, LatestOutlet, Outlet
from tidings.protocol.recent import last_values
from tidings.protocol.service import LATER, Asked
from tidings.protocol.streams import Stream
from tidings.store.interface import Durable

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

WINDOW = 4 << 20
"""Bytes of events that a client may have on their way unaccepted."""
OUTBOX_SIZE_MAX = 64 << 20
"""Bytes that may wait to be read by a client before it is given up."""
SUBSCRIPTIONS_MAX = 10_000
"""Subscriptions, and advertisements, of one session."""
HELLO_S_MAX = 10.0
"""How long a connection may be silent before its HELLO."""
SILENT_S_MAX = 60.0
"""How long a client may be silent before it is asked; as long again, and it is given up."""


class Session:
    """One client, as the node sees it."""

    def __init__(self, broker: Broker, name: str, now: float, peer: str) -> None:
        self.broker = broker
        self.name = name
        self.peer = peer
        self.outbox = Outbox()
        self.origin: Origin | None = None  # set by the HELLO
        self.last = 0  # the counter of the last event that came on this connection
        self.counter = 0  # the highest one known, on whatever connection it came
        self.accept_mark = 0  # the commit that its acceptance waits for
        self.is_closed = False
        self._accepted = 0
        self._holds = 0
        self._reader = FrameReader()
        self._heard_at = now
        self._is_asked = False
        self._asked_at = now
        self._outlets: dict[int, Outlet] = {}
        self._endings: dict[int, Callable[[], None]] = {}  # what ends the subscriptions of outlets
        self._advertisements: dict[int, Advertisement] = {}

    # What the driver calls

    def receive(self, data: bytes, now: float) -> None:
        """Bytes have arrived."""
        self.broker.now = now
        try:
            if not self.is_closed:
                self._read(data, now)
        except CodecError as error:
            self.close(_code_of(error), str(error))
        except Refused as error:
            self.close(error.code, error.problem)

    def lost(self, now: float) -> None:
        """The connection is gone."""
        self.broker.now = now
        self._leave()
        self.broker.forget(self)

    def wake(self, now: float) -> None:
        """Time has passed; to be called at `wake_at`."""
        self.broker.now = now
        if self.is_closed or now < self.wake_at:
            return
        if self.origin is None or self._is_asked:
            self.close("timeout", "nothing was heard for too long")
        else:
            self._is_asked, self._asked_at = True, now
            self.post(encode(Ping()))

    @property
    def wake_at(self) -> float:
        """When `wake` is to be called."""
        if self.is_closed:
            return inf
        if self.origin is None:
            return self._heard_at + HELLO_S_MAX
        return (self._asked_at if self._is_asked else self._heard_at) + SILENT_S_MAX

    def output(self) -> list[bytes]:
        """The frames that may be sent now; when the session is closed and these are sent, so is all."""
        return self.outbox.take(self.broker.mark_durable)

    # What the broker and the outlets call

    def post(self, frame: bytes, mark: int = 0, is_patient: bool = False) -> None:
        """Send a frame when the mark is durable; nothing follows a BYE."""
        if not self.is_closed:
            self.outbox.put(frame, mark, is_patient)
            self.broker.touch(self, mark)

    def finish_tick(self) -> None:
        """Accept what was published, once for each tick, and give up a client that does not read."""
        if self.outbox.size > OUTBOX_SIZE_MAX:
            self.close("limit", "too much waits to be read")
        if self.counter > self._accepted and not self._holds and not self.is_closed:
            self._accepted = self.counter
            self.post(encode(Accepted(self.counter)), self.accept_mark, is_patient=True)

    def depends_on(self, mark: int) -> bool:
        """Whether anything it has to say, now or with more credit, waits for this commit or a later one."""
        marks = (outlet.mark for outlet in self._outlets.values())
        return self.accept_mark >= mark or self.outbox.waits_for(mark) or any(one >= mark for one in marks)

    def fail(self, text: str) -> None:
        """What it waits for will not be: none of it may be said, and the client must come again."""
        self.outbox = Outbox()
        self.close("internal", text)

    def hold(self) -> None:
        """A slow subscription wants no more for now: what was published is not accepted yet."""
        self._holds += 1

    def let_go(self) -> None:
        """It can go on."""
        self._holds -= 1
        self.broker.owe(self)

    def close(self, code: str, text: str) -> None:
        """End the connection, saying why."""
        if not self.is_closed:
            self.broker.count("closed", reason=code)
            self._leave()
            self.outbox.end(encode(Bye(code, text)))

    def _leave(self, is_clean: bool = False) -> None:
        """Take away all that ends with the session; whether its client has said that it goes."""
        if self.is_closed:
            return
        self.is_closed = True
        self.broker.touch(self)  # whoever drives it closes the connection when all has left
        for number in list(self._outlets):
            self._end(number)
        for advertisement in self._advertisements.values():
            self.broker.exchange.withdraw(advertisement)
        self._advertisements.clear()
        if self.origin is not None:
            for service in self.broker.services:
                service.parted(self, is_clean)

    # What the client says

    def _read(self, data: bytes, now: float) -> None:
        for message, events in self._reader.feed(data):
            if self.is_closed:
                return
            self._heard_at, self._is_asked = now, False
            self._take(message, events)

    def _take(self, message: Message, events: bytes) -> None:
        kind = type(message)
        if self.origin is None and kind is not Hello:
            raise Refused("protocol", f"{kind.__name__} before Hello")
        if kind is Publish:
            self.broker.publish(self, events)
        elif kind in self.broker.frames:
            self.broker.frames[kind](self, message, events)
        else:
            handler = _HANDLERS.get(kind)
            if handler is None:
                raise Refused("protocol", f"{kind.__name__} is not for a node")
            handler(self, message)

    def _greet(self, hello: Hello) -> None:
        if self.origin is not None:
            raise Refused("protocol", "Hello twice")
        if VERSION not in hello.versions:
            self.close("version", f"this node speaks version {VERSION}, not {hello.versions[:10]}")
            return
        try:
            check_system(hello.system)
        except EventError as error:
            raise Refused("protocol", str(error)) from None
        if not 0 <= hello.epoch <= NUMBER_MAX or len(hello.name) > NAME_LENGTH_MAX:
            raise Refused("protocol", "an epoch or a name that can't be")
        self.origin = Origin(hello.system, hello.epoch, hello.name or None)
        if hello.resume is not None:
            self.broker.supersede(hello.resume, self.origin)
        broker, ledger = self.broker, self.broker.ledger
        self.counter = self._accepted = ledger.counter_of(self.origin)
        self._reader.limit = FRAME_MAX
        ledger.see(self.origin, hello.seen)
        refused = ledger.refused(self.origin)
        kept = [service.greeted(self) for service in broker.services]
        welcome = Welcome(
            VERSION, broker.node, broker.life, self.name, self.counter, WINDOW, refused, any(kept)
        )
        # A counter accepts what another connection brought.
        self.post(encode(welcome), broker.promise if self.counter else 0)

    def _answer(self, request: Request) -> None:
        asked = Asked(self, request.number)
        try:
            result = self._do(asked, request)
        except (UserError, Refused, msgspec.ValidationError) as error:
            asked.fail(error)
        else:
            if result is not LATER:
                # An answer says that all that came before it is done, an acknowledgement too.
                asked.answer(result, self.broker.promise)

    def _do(self, asked: Asked, request: Request) -> Any:
        name, arguments = request.operation, request.arguments
        if name in _OPERATIONS:
            kind, method = _OPERATIONS[name]
            return method(self, msgspec.convert(arguments, kind))
        if name in self.broker.operations:
            kind, operation = self.broker.operations[name]
            return operation(asked, msgspec.convert(arguments, kind))
        raise Refused("not-found", f"there is no operation {name[:40]!r}")

    def _subscribe(self, wanted: Subscribe) -> dict[str, Any]:
        self._check_free(wanted.number, self._outlets)
        filter = Filter(wanted.filter)
        wanted.check()
        if wanted.durable is not None:
            self._outlets[wanted.number] = self._open_durable(wanted, filter)
        elif wanted.is_stored or wanted.on_slow == "spill":
            self._outlets[wanted.number] = self._open_stream(wanted, filter)
        else:
            outlet = _outlet(self, wanted)
            subscription = Subscription(filter, outlet, wanted.passive)
            self._endings[wanted.number] = self._begin(wanted, subscription)
            self._outlets[wanted.number] = outlet
            if wanted.last:
                outlet.depend()
                for batch, rows in last_values(self.broker.recent, filter, self.broker.now):
                    outlet.deliver(batch, rows, None)
        return {"position": self.broker.position}

    def _begin(self, wanted: Subscribe, subscription: Subscription) -> Callable[[], None]:
        """Let events flow, of all that is published or of what is put into a queue; what ends that."""
        if wanted.queue is None:
            self.broker.exchange.subscribe(subscription)
            return partial(self.broker.exchange.unsubscribe, subscription)
        for service in self.broker.services:
            return service.watch(wanted.queue, subscription)
        raise Refused("not-found", "this node has no queues")

    def _open_durable(self, wanted: Subscribe, filter: Filter) -> Stream:
        assert wanted.durable is not None
        start = self._start(wanted) - 1
        record = Durable(wanted.durable, self.owner, str(filter), start, start, wanted.options)
        is_new = self.broker.find_durable(self.owner, wanted.durable) is None
        stream = self.broker.open_durable(record)
        if stream.subscription.filter != filter:
            raise Refused("exists", f"{wanted.durable!r} exists with the filter {stream.subscription.filter}")
        if stream.record is not None and stream.record.options != wanted.options:
            raise Refused("exists", f"{wanted.durable!r} exists with another order, or is passive or not")
        if stream.session is not None:
            stream.session.end(stream.number, "taken over")
        if is_new:
            stream.since_us = wanted.since_us
        stream.attach(self, wanted.number, wanted.credit)
        return stream

    def _open_stream(self, wanted: Subscribe, filter: Filter) -> Stream:
        stream = Stream(
            self.broker,
            filter,
            self._start(wanted),
            keeps_all=wanted.on_slow == "spill",
            passive=wanted.passive,
        )
        stream.since_us = wanted.since_us
        self.broker.add_stream(stream)
        stream.attach(self, wanted.number, wanted.credit)
        return stream

    def _start(self, wanted: Subscribe) -> int:
        """The first position that is wanted; for a time it is found when the store is read."""
        following = self.broker.position + 1
        if wanted.since is None:
            return following if wanted.since_us is None else 1
        return min(max(1, wanted.since), following)

    @property
    def owner(self) -> str:
        """To whom durable subscriptions belong."""
        assert self.origin is not None
        return self.origin.source or ""

    def _unsubscribe(self, unwanted: Unsubscribe) -> None:
        if unwanted.durable is not None:
            stream = self.broker.find_durable(self.owner, unwanted.durable)
            if stream is None:
                raise Refused("not-found", f"there is no durable subscription {unwanted.durable!r}")
            if stream.session is not None:
                stream.session.end(stream.number, "unsubscribed")
            self.broker.end_durable(stream)
        elif unwanted.number in self._outlets:
            self._end(unwanted.number)
        else:
            raise Refused("not-found", f"there is no subscription {unwanted.number}")

    def end(self, number: int, reason: str) -> None:
        """End a subscription of this session from outside, and tell the client."""
        self._end(number)
        self.post(encode(Notice("ended", number, {"reason": reason})))

    def _end(self, number: int) -> None:
        outlet = self._outlets.pop(number)
        outlet.close()
        if isinstance(outlet, Stream):
            outlet.detach()
            if outlet.record is None:
                self.broker.remove_stream(outlet)
        else:
            self._endings.pop(number)()

    def _advertise(self, offered: Advertise) -> dict[str, Any]:
        self._check_free(offered.number, self._advertisements)

        def tell(wanted: tuple[Filter, ...]) -> None:
            self.post(encode(Notice("interest", offered.number, {"filters": [str(f) for f in wanted]})))

        advertisement = Advertisement(Filter(offered.filter), tell)
        self._advertisements[offered.number] = advertisement
        return {"filters": [str(filter) for filter in self.broker.exchange.advertise(advertisement)]}

    def _unadvertise(self, offered: Unadvertise) -> None:
        advertisement = self._advertisements.pop(offered.number, None)
        if advertisement is None:
            raise Refused("not-found", f"there is no advertisement {offered.number}")
        self.broker.exchange.withdraw(advertisement)

    def _check_free(self, number: int, taken: dict[int, Any]) -> None:
        if number in taken:
            raise Refused("exists", f"number {number} is in use")
        if len(taken) >= SUBSCRIPTIONS_MAX:
            raise Refused("limit", f"a session has at most {SUBSCRIPTIONS_MAX} of these")

    def _status(self, _nothing: dict[str, Any]) -> dict[str, Any]:
        return self.broker.status()

    def _acknowledge(self, message: Acknowledge) -> None:
        stream = self._outlets.get(message.subscription)
        if isinstance(stream, Stream):
            stream.acknowledge(message.position)

    def _grant(self, message: Credit) -> None:
        outlet = self._outlets.get(message.subscription)
        if outlet is not None:
            outlet.grant(message.total)

    def _pong(self, message: Ping) -> None:
        self.post(encode(Pong(message.number)))

    def _heard(self, _message: Pong) -> None:
        """Being heard is all that was wanted."""

    def _part(self, _message: Bye) -> None:
        self._leave(is_clean=True)


def _code_of(error: CodecError) -> str:
    if isinstance(error, TooLarge):
        return "too-large"
    return "event" if error.place.startswith("$[") else "protocol"


def _outlet(session: Session, wanted: Subscribe) -> Outlet:
    if wanted.slow_key:
        return LatestOutlet(session, wanted.number, wanted.credit, wanted.slow_key)
    kind = BlockingOutlet if wanted.on_slow == "block" else DroppingOutlet
    return kind(session, wanted.number, wanted.credit)


_HANDLERS: dict[type[Message], Callable[[Session, Any], None]] = {
    Hello: Session._greet,
    Request: Session._answer,
    Acknowledge: Session._acknowledge,
    Credit: Session._grant,
    Ping: Session._pong,
    Pong: Session._heard,
    Bye: Session._part,
}
_OPERATIONS: dict[str, tuple[Any, Callable[[Session, Any], Any]]] = {
    "subscribe": (Subscribe, Session._subscribe),
    "unsubscribe": (Unsubscribe, Session._unsubscribe),
    "advertise": (Advertise, Session._advertise),
    "unadvertise": (Unadvertise, Session._unadvertise),
    "status": (dict[str, Any], Session._status),
}
