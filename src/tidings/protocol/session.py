"""The node's end of a connection: what a client says, checked and carried out.

The rule kept: whatever arrives, the worst that comes of it is a typed error to this client and the end of its
connection. Subscriptions and advertisements end with their session; durable subscriptions stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Generator
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.errors import CodecError, NotAllowed, Refused, UserError
from tidings.event import Batch
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.ids import ForwardedOrigin, Origin
from tidings.protocol.access import NOBODY, Action, PeerInfo, Principal
from tidings.protocol.answers import INBOXES, answers_to, without_others
from tidings.protocol.arguments import (
    NAME_LENGTH_MAX,
    AdvertiseRequest,
    SubscribeRequest,
    UnadvertiseRequest,
    UnsubscribeRequest,
    decode_arguments,
)
from tidings.protocol.frames import FRAME_MAX, PUBLISH, TooLarge, encode
from tidings.protocol.incoming import IncomingStream
from tidings.protocol.ledger import ProducerKey, identity_of
from tidings.protocol.login import Login
from tidings.protocol.memory import Holdings
from tidings.protocol.messages import (
    Acknowledge,
    Bye,
    Confirm,
    Credit,
    Hello,
    Ping,
    Pong,
    ProtocolMessage,
    Publish,
    RawRequest,
)
from tidings.protocol.outbox import ROOM, AwaitsRoom, Outbox
from tidings.protocol.service import LATER, IncomingRequest
from tidings.protocol.subscriptions import Subscriptions
from tidings.protocol.worker import SessionWorker
from tidings.replies import Deferred
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.protocol.arrivals import ClientArrival
    from tidings.protocol.broker import Broker

WEIGHT_STALE = 64 << 10
"""Bytes that may be counted in an account after they have left, until something else comes."""
OUTPUT_SIZE_MAX = 1 << 20
"""Bytes that are handed to the transport at once."""
OUTBOX_SIZE_MAX = 64 << 20
"""Bytes that may wait to be read by a client before it is given up."""
ALLOWED_KEPT = 1_000
"""Answers of a principal that are remembered."""
HELLO_S_MAX = 10.0
"""How long a connection may be silent before its HELLO."""
SILENT_S_MAX = 60.0
"""How long a client may be silent before it is asked; as long again, and it is given up."""
READ_S_MAX = 120.0
"""How long a client may take nothing of what waits for it before it is given up."""
INTERNAL = "internal error; see the node's log"


class Session(SessionWorker, IncomingStream):
    """One client, as the node sees it."""

    def __init__(self, broker: Broker, name: str, now: float, caller: PeerInfo) -> None:
        SessionWorker.__init__(self, broker)
        IncomingStream.__init__(self, Origin())  # of its events; set by the HELLO
        self.session = self
        self.streams: dict[int, IncomingStream] = {}  # those that its client has opened beside its own
        self.name = name
        self.number = int(name.rpartition("-")[2])  # its place among all since the node started
        self.caller = caller
        self.connected_at = now
        self.principal = NOBODY
        self.granted: NodeSubscription | None = None  # what it may publish, None for everything
        self.bound: str | None = None  # its user, if that is bound by rules: see Permit
        self.is_let_in = False  # whether the authenticator has let its client in, ever
        self.login = Login(self)
        self._allowed: dict[tuple[Action, str], Filter | None] = {}  # what was asked of the principal
        self.holdings = Holdings()  # the events that wait for it
        self.account = broker.memory.open(self, "")
        self._weight = 0  # what of it is counted in the account
        self._is_heavier = False
        self._awaiting_room: dict[AwaitsRoom, None] = {}
        self._read_at = now  # when something was sent last
        self._silent_since = now  # or since it was asked
        self._is_asked = False
        self.received_at = now  # when bytes have come, be it a part of a frame only
        self.subscriptions: Subscriptions = Subscriptions(self)
        self.repeated = 0  # up to this counter its client may have sent events to another node
        self.arrival: ClientArrival | None = None  # what waits for it here, if it has moved to this node

    @property
    def channels(self) -> Collection[str]:
        """The channels of which the client is a member."""
        return self.subscriptions.channels.values()

    # What the driver calls

    def receive(self, data: bytes, now: float) -> None:
        """Bytes have arrived: go on with them now, or when it is this client's turn."""
        self.broker.now = self.received_at = now
        if not self.is_closed:
            self._reader.add(data)
            self.broker.turns.offer(self, self.share)
            if self._reader.has_next:  # it waits for its turn
                self.is_swollen = True

    def give_up(self) -> bool:
        """Part from a client whose work has failed for a fault of the node; whether more is left to do."""
        self.close("internal", INTERNAL)
        return self.has_work

    def _part_for(self, error: CodecError | Refused) -> None:
        if isinstance(error, Refused):
            self.close(error.code, error.problem)
        else:
            self.close(_code_of(error), str(error))

    def lost(self, now: float) -> None:
        """The connection is gone."""
        self.broker.now = now
        self._leave()
        self.account.close()
        self.broker.sessions.forget(self)

    def wake(self, now: float) -> None:
        """Time has passed; to be called at `wake_at`."""
        self.broker.now = now
        if self.is_closed or now < self.wake_at:
            return
        if self.outbox.size and now >= self._read_at + READ_S_MAX:
            self.close("limit", "nothing was read for too long")
            return
        if self.is_kept_waiting:
            self._silent_since, self._is_asked = now, False
            return
        if not self.is_let_in or self._is_asked:
            self.close("timeout", "nothing was heard for too long")
        else:
            self._silent_since, self._is_asked = now, True
            self.post(encode(Ping()))

    @property
    def wake_at(self) -> float:
        """When `wake` is to be called."""
        if self.is_closed:
            return inf
        silent_at = self._silent_since + (SILENT_S_MAX if self.is_let_in else HELLO_S_MAX)
        return min(silent_at, self._read_at + READ_S_MAX) if self.outbox.size else silent_at

    def output(self) -> list[bytes]:
        """Some of the frames that may be sent now; to be called again while something is left.

        When the session is closed and all is sent, the connection is to be closed.
        """
        frames = self.outbox.take(self.broker.mark_durable, OUTPUT_SIZE_MAX)
        if frames:
            self._read_at = self.broker.now
            if self._awaiting_room or self.is_stalled or self._weight > WEIGHT_STALE:
                self._drained()
        return frames

    def _stall(self) -> None:
        if not self.is_closed:
            self.is_stalled = True
            self.broker.owe(self)  # so that the end of the tick lets it go on

    def _resume(self) -> None:
        """Go on with frames that have waited, if they need not any longer."""
        if self.is_stalled and self._may_go_on:
            self.is_stalled = False
            self.broker.turns.add(self, self.share)

    def _drained(self) -> None:
        """Go on with what has waited for the client to read."""
        if self._awaiting_room and self.has_room:
            self._refill()
        self._resume()
        self.weigh()

    @property
    def has_room(self) -> bool:
        """Whether the outbox has room for more events."""
        return self.outbox.size < ROOM

    def await_room(self, waiting: AwaitsRoom) -> None:
        """Note that a subscription or other sender has events for when the outbox has room."""
        self._awaiting_room[waiting] = None

    def _refill(self) -> None:
        """Let those go on that wait for room, as long as there is any."""
        awaiting, self._awaiting_room = self._awaiting_room, {}
        for waiting in awaiting:
            if self.has_room:
                waiting.release()
            else:
                self._awaiting_room[waiting] = None

    def hold_batch(self, part: Batch) -> None:
        """A batch waits for a subscription."""
        self.holdings.add(part)
        self.heavier()

    def heavier(self) -> None:
        """Have it weighed with this tick what the client makes the node hold."""
        self._is_heavier = True
        self.broker.owe(self)

    def weigh(self) -> None:
        """Count in the accounts what the client makes the node hold."""
        self._is_heavier = False
        waiting = self.holdings.size + self._reader.held + self.outbox.size
        self.is_swollen = waiting > 0  # it may leave without being weighed again
        size = waiting + self.subscriptions.filter_size
        if size != self._weight:
            self.broker.memory.charge(self.account, size - self._weight)
            self._weight = size

    def shrink(self, excess: int, limit_name: str) -> None:
        """Have the largest subscriptions lose their oldest events; part from a client that has none."""
        if not self.subscriptions.lose_oldest(self.holdings.size - excess):
            self.outbox = Outbox()
            self.close("limit", f"more waits for this client than {limit_name} allows")
        self.weigh()

    # What the broker and the consumers call

    def post(self, frame: bytes, mark: int = 0, is_patient: bool = False) -> None:
        """Send a frame when the mark is durable; nothing follows a BYE."""
        if not self.is_closed:
            if not self.outbox.size:
                self._read_at = self.broker.now
            self.outbox.put(frame, mark, is_patient)
            self.broker.touch(self, mark)

    def finish_tick(self) -> None:
        """Accept what was published, once for each tick, and give up a client that does not read."""
        self._taken_size = 0
        if self.is_stalled:
            self._resume()
        if self._is_heavier or self.outbox.size > WEIGHT_STALE:
            if self.outbox.size > OUTBOX_SIZE_MAX:
                self.close("limit", "too much waits to be read")
            self.weigh()
        if not self.is_closed:
            if self.counter > self.accepted:
                self.send_accepted()
            if self.streams:  # those of other nodes that forward
                for stream in self.streams.values():
                    if stream.counter > stream.accepted:
                        stream.send_accepted()

    def depends_on(self, mark: int) -> bool:
        """Whether anything it has to say, now or with more credit, waits for this commit or a later one."""
        if self.accept_mark >= mark or self.outbox.waits_for(mark) or self.subscriptions.depends_on(mark):
            return True
        return any(stream.accept_mark >= mark for stream in self.streams.values())

    def counts_in(self, uncounted: Container[ProducerKey]) -> bool:
        """Whether any of its streams is among those of which something was not stored."""
        streams = (self, *self.streams.values())
        return self.is_let_in and any(identity_of(one.origin) in uncounted for one in streams)

    def fail(self, text: str) -> None:
        """Drop all that waits for a failed commit, and close: the client must reconnect."""
        self.outbox = Outbox()
        self.close("internal", text)

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
        if not self._is_working:  # otherwise that ends with the step that is under way
            self._drop_task()
        self.do(self.subscriptions.close())
        if self.arrival is not None:
            self.arrival.close()
        if self.is_let_in:
            self.broker.sessions.part(self)
            for service in self.broker.services:
                service.parted(self, is_clean)
        self.streams.clear()

    # What the client says

    def _take(self, message: ProtocolMessage, events: bytes) -> Steps[None] | None:
        self._silent_since, self._is_asked = self.broker.now, False
        kind = type(message)
        if not self.is_let_in and (self.login.is_under_way or kind is not Hello):
            self._take_early(kind)
            return None
        if kind is Publish:
            origin = self.origin if message is PUBLISH else self._origin_for(message)
            return self.broker.publishing.publish(self, events, origin)
        if kind in self.broker.frames:
            return self.broker.frames[kind](self, message, events)
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise Refused("protocol", f"{kind.__name__} is not for a node")
        return handler(self, message)

    def _take_early(self, kind: type[ProtocolMessage]) -> None:
        """Refuse a frame that came before the client has logged in, except BYE."""
        awaited = "Welcome" if self.login.is_under_way else "Hello"
        if not self.login.is_under_way or kind is not Bye:
            raise Refused("protocol", f"{kind.__name__} before {awaited}")
        self._leave(is_clean=True)

    def _origin_for(self, message: ProtocolMessage) -> Origin:
        """The origin of events that are published: the client, or whom it says that it has them from."""
        said = message.source if isinstance(message, Publish) else None
        if said is None:
            return self.origin
        if not 0 < len(said) <= NAME_LENGTH_MAX or not said.isprintable():
            problem = f"is not 1 to {NAME_LENGTH_MAX} characters that can be shown"
            raise CodecError("$.Publish.source", problem)
        return ForwardedOrigin(self.origin.system, self.origin.epoch, self.sender(said))

    # Who the client is

    def sender(self, said: str | None) -> str | None:
        """Return the sender of forwarded events: the given one, if it is a node's or the user's own name.

        Never longer than a name may be, as no other node would take the event: then it is the user alone.
        """
        principal = self.principal
        if principal.rules is None or principal.is_node:
            return said
        if not said or said == principal.user or said.startswith(f"{principal.user}/"):
            return said or principal.user
        sender = f"{principal.user}/{said}"
        return sender if len(sender) <= NAME_LENGTH_MAX else principal.user

    def let_in(self, principal: Principal) -> None:
        """Let the client in, with these rights; its time and memory count for its user from now on."""
        broker = self.broker
        self.principal, self.bound, self.is_let_in = principal, principal.bound, True
        self.share = broker.sessions.share_of(principal.user, self.share)
        self.account.close()
        self.account, self._weight = broker.memory.open(self, principal.user), 0
        self._reader.limit = FRAME_MAX

    # What the client may do

    def allow(self, action: Action, queue: str) -> Filter | None:
        """Which messages of a queue this is allowed for, None for all; NotAllowed for none."""
        if self.principal.rules is None:
            return None
        key = action, queue
        if key not in self._allowed:
            if len(self._allowed) >= ALLOWED_KEPT:
                self._allowed.clear()
            self._allowed[key] = self.principal.queue_grant(action, queue)
        return self._allowed[key]

    def may_publish(self, batch: Batch, row: int) -> bool:
        """Whether an event was granted, and speaks for nobody else."""
        if self.granted is not None and not self.granted.filter.matches(batch[row]):
            return False
        answers = self.broker.answers
        return self.bound is None or bool(answers.allowed(self.bound, batch, (row,), self.broker.now))

    def check_put(self, granted: Filter | None, batch: Batch, row: int) -> None:
        """Raise NotAllowed for an event that may not be put, `granted` being what may be put there."""
        if granted is not None and not granted.matches(batch[row]):
            raise NotAllowed(f"{self.principal.user!r} may put or publish only what matches: {granted}")
        answers = self.broker.answers
        if self.bound is not None and not answers.may_ask(self.bound, batch, row, self.broker.now):
            raise NotAllowed(answers.refusal(self.principal, batch, row))

    def narrow(self, action: Action, filter: Filter) -> Filter:
        """A filter as far as it was granted; NotAllowed if nothing of it is."""
        if self.principal.rules is None:
            return filter
        own = answers_to(self.broker.node, self.principal.user) if action == "subscribe" else ()
        if any(one.covers(filter) for one in own):
            return filter  # a client that may ask may hear the answer
        if action == "subscribe" and self.bound is not None and INBOXES.covers(filter):
            raise NotAllowed(f"{self.principal.user!r} may not subscribe to the inbox of another")
        granted = self.principal.grant(action)
        if granted is None:
            return filter
        if not granted.overlaps(filter):
            raise NotAllowed(f"{self.principal.user!r} may {action} only what matches: {granted}")
        return filter & granted

    def narrow_stored(self, filter: Filter) -> Filter:
        """Narrow a filter on the log to what may be read; NotAllowed if nothing may be."""
        narrowed = self.narrow("subscribe", filter)
        return narrowed if self.bound is None else narrowed & without_others(self.broker.node, self.bound)

    def _answer(self, request: RawRequest) -> Steps[None] | None:
        asked = IncomingRequest(self, request.number)
        try:
            result = self._do(asked, request)
        except (UserError, Refused, msgspec.DecodeError) as error:
            asked.fail(error)
        else:
            if isinstance(result, Generator):
                return self._answer_later(asked, result)
            self._conclude(asked, result)
        return None

    def _answer_later(self, asked: IncomingRequest, steps: Steps[Any]) -> Steps[None]:
        """Answer a request that takes several steps."""
        try:
            result = yield from steps
        except (UserError, Refused) as error:
            asked.fail(error)
        else:
            self._conclude(asked, result)

    def _conclude(self, asked: IncomingRequest, result: Any) -> None:
        if isinstance(result, Deferred):
            result.then(partial(self._conclude, asked), asked.fail)
        elif result is not LATER:
            # An answer says that all that came before it is done, an acknowledgement too.
            asked.answer(result, self.broker.promise)

    def _do(self, asked: IncomingRequest, request: RawRequest) -> Any:
        name, arguments = request.operation, request.arguments
        self.principal.check_operation(name)
        if name in self.broker.operations:
            kind, operation = self.broker.operations[name]
            return operation(asked, decode_arguments(arguments, kind))
        if name in _OPERATIONS:
            kind, method = _OPERATIONS[name]
            return method(self.subscriptions, decode_arguments(arguments, kind))
        if name == "status":
            self.principal.check_manage()
            return self.broker.status()
        raise Refused("not-found", f"there is no operation {name[:40]!r}")

    @property
    def is_greeted(self) -> bool:
        """Whether its client was let in and has not left."""
        return self.is_let_in and not self.is_closed

    @property
    def owner(self) -> str:
        """To whom durable subscriptions belong."""
        return self.origin.source or ""


def _code_of(error: CodecError) -> str:
    if isinstance(error, TooLarge):
        return "too-large"
    return "event" if error.place.startswith("$[") else "protocol"


_HANDLERS: dict[type[ProtocolMessage], Callable[[Session, Any], Steps[None] | None]] = {
    Hello: lambda session, message: session.login.greet(message),
    RawRequest: Session._answer,
    Acknowledge: lambda session, message: session.subscriptions.acknowledge(message),
    Confirm: lambda session, message: session.subscriptions.confirm(message),
    Credit: lambda session, message: session.subscriptions.give_credit(message),
    Ping: lambda session, message: session.post(encode(Pong(message.number))),
    Pong: lambda _session, _message: None,  # being heard is all that was wanted
    Bye: lambda session, _message: session._leave(is_clean=True),
}
FRAMES = frozenset(_HANDLERS) | {Publish}
"""What every session hears by itself."""
_OPERATIONS: dict[str, tuple[Any, Callable[[Subscriptions, Any], Any]]] = {
    "subscribe": (SubscribeRequest, Subscriptions.subscribe),
    "unsubscribe": (UnsubscribeRequest, Subscriptions.unsubscribe),
    "advertise": (AdvertiseRequest, Subscriptions.advertise),
    "unadvertise": (UnadvertiseRequest, Subscriptions.unadvertise),
}
OPERATIONS = frozenset(_OPERATIONS) | {"status"}
"""What every session does by itself."""
