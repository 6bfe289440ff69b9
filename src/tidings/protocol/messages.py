"""The messages of the protocol: one class for each kind of frame.

A message is the header of its frame, as an array; `docs/protocol.md` has the words. Fields are only ever
added at the end, with a default, so that an older peer and a newer one understand each other.

Errors travel as failures: `failure_of` says what a node makes of an error, `error_of` the reverse.
"""

from __future__ import annotations

import sys
from array import array
from struct import Struct as StructFormat
from typing import Any, ClassVar

from msgspec import DecodeError, Raw, Struct

from tidings.errors import (
    AgentError,
    BudgetExceeded,
    ChannelAmbiguous,
    ChannelError,
    ChannelExists,
    ChannelNotFound,
    CodecError,
    Disconnected,
    FilterError,
    GroupEnded,
    GroupNotFound,
    LifeEnded,
    MessageNotHeld,
    MissingExtra,
    MoveRefused,
    NotAllowed,
    QueueAmbiguous,
    QueueEmpty,
    QueueError,
    QueueExists,
    QueueFull,
    QueueNotFound,
    Refused,
    TidingsError,
    TransactionLost,
    in_words,
)

VERSION = 1

_QUEUE_ERRORS: dict[str, type[QueueError]] = {
    "queue-empty": QueueEmpty,
    "queue-full": QueueFull,
    "queue-not-found": QueueNotFound,
    "queue-exists": QueueExists,
    "queue-ambiguous": QueueAmbiguous,
    "not-yours": MessageNotHeld,
    "queue": QueueError,
}
_QUEUE_CODES = {kind: code for code, kind in _QUEUE_ERRORS.items()}
_CHANNEL_ERRORS: dict[str, type[ChannelError]] = {
    "channel-not-found": ChannelNotFound,
    "channel-exists": ChannelExists,
    "channel-ambiguous": ChannelAmbiguous,
}
_CHANNEL_CODES = {kind: code for code, kind in _CHANNEL_ERRORS.items()}
_AGENT_ERRORS: dict[str, type[AgentError]] = {
    "group-not-found": GroupNotFound,
    "group-ended": GroupEnded,
    "life-ended": LifeEnded,
    "budget": BudgetExceeded,
    "agent": AgentError,
}
_AGENT_CODES = {kind: code for code, kind in _AGENT_ERRORS.items()}


class ProtocolMessage(Struct, array_like=True, frozen=True, gc=False):
    """The base of all messages; `KIND` is the number of the frame."""

    KIND: ClassVar[int]
    HAS_EVENTS: ClassVar[bool] = False


class Hello(ProtocolMessage, frozen=True, gc=False):
    """The first frame of a client."""

    KIND = 1
    versions: list[int]
    system: str
    epoch: int
    name: str = ""
    resume: str | None = None
    seen: int = 0  # it has had every answer up to this counter
    user: str = ""
    secret: str = ""  # a password or a token; never shown, never logged
    node: str = ""  # to which it spoke last
    boot: int = 0  # what that said
    position: int = 0  # the highest one at which that has delivered a stored event
    cookie: str = ""  # by which the node knows a client that has moved to it
    sent: int = 0  # the highest counter that it has sent, to whichever node

    def __repr__(self) -> str:
        return f"Hello({self.versions}, {self.system!r}, {self.epoch}, {self.name!r}, user={self.user!r})"


class Failure(Struct, array_like=True, frozen=True, gc=False):
    """Why something could not be done."""

    code: str
    text: str
    details: dict[str, Any] = {}


class Refusal(ProtocolMessage, frozen=True, gc=False):
    """Refusal of the items with these counters; it leaves before the ACCEPTED that covers them."""

    KIND = 17
    first: int
    last: int
    failure: Failure
    stream: int = 0  # which of the client's streams has these counters: see Forward


class HandedOver(Struct, frozen=True):
    """Where a client goes on: the id of the node, its addresses, the cookie, and events left behind."""

    node: str
    addresses: list[str]
    cookie: str
    dropped: dict[int, int] = {}  # how many, by the numbers of subscriptions


class Welcome(ProtocolMessage, frozen=True, gc=False):
    """The node's answer: what it knows of the client already, and how much may be on its way."""

    KIND = 2
    version: int
    node: str
    boot: int
    session: str
    counter: int
    window: int
    refused: list[Refusal] = []  # above what the client has seen
    kept: bool = False  # what it held it still holds
    name: str = ""  # what people call the node
    user: str = ""  # who the client is there, "" for its owner
    is_older: bool = False  # the store has not all that the client had from it: it is an older copy
    inbox: str = ""  # how the names of the client's inboxes begin
    moved: HandedOver | None = None  # the client was handed over to another node, and may not know it
    others: list[str] = []  # addresses of other nodes, where it may go on if this one is gone


class Publish(ProtocolMessage, frozen=True, gc=False):
    """Events of the client, numbered; `source` is who has sent them, if the client hands them on."""

    KIND = 3
    HAS_EVENTS = True
    source: str | None = None


class Accepted(ProtocolMessage, frozen=True, gc=False):
    """Everything up to this counter is as safe as it asked to be."""

    KIND = 4
    counter: int
    stream: int = 0


class Request(ProtocolMessage, frozen=True, gc=False):
    """A request, which is answered."""

    KIND = 5
    number: int
    operation: str
    arguments: dict[str, Any] = {}


class RawRequest(ProtocolMessage, frozen=True, gc=False):
    """A request as a node reads it: the arguments are decoded by who knows what they may be."""

    KIND = Request.KIND
    number: int
    operation: str
    arguments: Raw = Raw(b"\x80")


class Reply(ProtocolMessage, frozen=True, gc=False):
    """The answer to a request."""

    KIND = 6
    number: int
    result: Any = None
    error: Failure | None = None


class Deliver(ProtocolMessage, frozen=True, gc=False):
    """Events of one origin for one subscription; `positions` are eight bytes each where they are stored."""

    KIND = 7
    HAS_EVENTS = True
    subscription: int
    system: str | None = None
    epoch: int = 0
    source: str | None = None
    positions: bytes | None = None
    redelivered: bool = False


class Acknowledge(ProtocolMessage, frozen=True, gc=False):
    """A durable subscription has dealt with everything up to this position."""

    KIND = 8
    subscription: int
    position: int


class Credit(ProtocolMessage, frozen=True, gc=False):
    """Number of events that a subscription may have been sent since it began."""

    KIND = 9
    subscription: int
    total: int


class Notice(ProtocolMessage, frozen=True, gc=False):
    """A notification to the client on one of its subscriptions or advertisements."""

    KIND = 10
    kind: str
    number: int
    details: dict[str, Any] = {}


class Ping(ProtocolMessage, frozen=True, gc=False):
    """Are you there?"""

    KIND = 11
    number: int = 0


class Pong(ProtocolMessage, frozen=True, gc=False):
    """Yes."""

    KIND = 12
    number: int = 0


class Bye(ProtocolMessage, frozen=True, gc=False):
    """The connection ends, and why."""

    KIND = 13
    code: str = ""
    text: str = ""


class Put(ProtocolMessage, frozen=True, gc=False):
    """Events of the client, numbered, for a queue; for everybody, if it has no name, when they are committed.

    The bodies of a part belong to that of the next event that is put into the queue in this transaction.
    """

    KIND = 14
    HAS_EVENTS = True
    queue: str
    seen: int = 0
    transaction: int = 0
    is_part: bool = False


class Settle(ProtocolMessage, frozen=True, gc=False):
    """Settlement of messages that the client holds: `handles` are twelve bytes each, numbered from `first`.

    `outcome` is one of the constants below; `text` is the reason of a rejection. Messages that are given back
    wait for `delay_s` before they are handed out again; None: as their queue says.
    """

    KIND = 15
    first: int
    seen: int
    handles: bytes
    outcome: int
    text: str = ""
    delay_s: float | None = None


class Commit(ProtocolMessage, frozen=True, gc=False):
    """Let all that was done in a transaction be done."""

    KIND = 16
    counter: int
    seen: int
    transaction: int


class Forward(ProtocolMessage, frozen=True, gc=False):
    """Events of one origin, handed on by another node or by a device that had stored them.

    They have the ids and times that they were given there, so it is `numbers`, eight bytes for each event,
    that are counted, on a stream that the client has opened, or on its own. They go into a queue, or to
    everybody if it has no name. The bodies of a part, which has no numbers, belong to that of the next event
    on the stream.
    """

    KIND = 18
    HAS_EVENTS = True
    queue: str
    numbers: bytes
    system: str | None = None
    epoch: int = 0
    source: str | None = None
    seen: int = 0
    stream: int = 0
    passed: tuple[str, ...] = ()  # the nodes that a publication has passed before the sender


class Reverse(ProtocolMessage, frozen=True, gc=False):
    """Bytes of the connection that runs the other way: on a link each node is a client of the other."""

    KIND = 19
    data: bytes


class Relay(Deliver, frozen=True, gc=False):
    """Events for a neighbour node: a delivery that says which node took them in, and under which numbers.

    `numbers` are None where they are the positions, at the first node itself; one number is the first of
    numbers that follow each other. `age_us` is the part of their lives that is used up. What comes *again* is
    handed on although it was had: there may be nodes beyond that lack it.
    """

    KIND = 20
    HAS_EVENTS = True
    first_node: str = ""
    first_epoch: int = 0
    numbers: bytes | int | None = None
    is_volatile: bool = False
    age_us: int = 0
    is_again: bool = False
    is_repeat: bool = False  # their publisher has sent them to another node, too


class OrderedRelay(Relay, frozen=True, gc=False):
    """Events of an ordered channel for a neighbour node: `after` names what comes before them there."""

    KIND = 23
    after: bytes = b""


class Confirm(ProtocolMessage, frozen=True, gc=False):
    """Position up to which a neighbour, and others beyond it, have stored what was relayed to it.

    The first position is its own; of each further one, all within so many more hops have what they want.
    """

    KIND = 21
    subscription: int
    beyond: list[int]


class Packed(ProtocolMessage, frozen=True, gc=False):
    """A RELAY frame whose header and events are compressed with zstd, for a neighbour that can unpack it."""

    KIND = 22
    data: bytes


DONE, GIVE_BACK, REJECT, UNOPENED = range(4)
"""Outcomes: it was dealt with; it was not; it can't be; nobody has looked at it."""
HANDLE = StructFormat(">QI")
"""A handle: the number of the message, and which of its deliveries it is."""

_MESSAGES: list[type[ProtocolMessage]] = [
    *ProtocolMessage.__subclasses__(),
    *Deliver.__subclasses__(),
    *Relay.__subclasses__(),
]
KINDS = {kind.KIND: kind for kind in _MESSAGES if kind is not RawRequest}
"""The messages by their numbers."""


def unpack_numbers(packed: bytes, count: int, place: str) -> array[int]:
    """Return the numbers of so many events, which travel as eight bytes each; CodecError for more or less."""
    if len(packed) != 8 * count:
        raise CodecError(place, f"{len(packed)} bytes for {count} events")
    numbers = array("Q", packed)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def failure_of(error: TidingsError | DecodeError) -> Failure:
    """Return the failure that a client gets for an error of its own."""
    match error:
        case FilterError():
            place = {"problem": error.problem, "line": error.line, "column": error.column, "hint": error.hint}
            return Failure("filter", str(error), place)
        case MissingExtra():
            return Failure("extra", str(error), {"what": error.what, "extra": error.extra})
        case QueueError():
            details = {"queue": error.queue, "problem": error.problem}
            return Failure(_QUEUE_CODES[type(error)], str(error), details)
        case ChannelError():
            details = {"channel": error.channel, "problem": error.problem}
            return Failure(_CHANNEL_CODES[type(error)], str(error), details)
        case AgentError():
            details = {"agent": error.agent, "problem": error.problem}
            return Failure(_AGENT_CODES[type(error)], str(error), details)
        case TransactionLost():
            return Failure("rolled-back", str(error))
        case MoveRefused():
            return Failure("move", str(error), {"node": error.node, "problem": error.problem})
        case NotAllowed():
            return Failure("not-allowed", str(error))
        case Disconnected():
            return Failure("away", str(error))
        case Refused():
            return Failure(error.code, error.problem)
        case _:
            return Failure("protocol", in_words(error))


def error_of(failure: Failure) -> TidingsError:
    """The error that a node's refusal is here."""
    code, text, details = failure.code, failure.text, failure.details
    if code == "filter":
        problem = details.get("problem", text)
        return FilterError(problem, details.get("line"), details.get("column"), details.get("hint"))
    if code == "extra" and {"what", "extra"} <= details.keys():
        return MissingExtra(details["what"], details["extra"])
    if code in _QUEUE_ERRORS:
        return _QUEUE_ERRORS[code](str(details.get("queue", "")), str(details.get("problem", text)))
    if code in _CHANNEL_ERRORS:
        return _CHANNEL_ERRORS[code](str(details.get("channel", "")), str(details.get("problem", text)))
    if code in _AGENT_ERRORS:
        return _AGENT_ERRORS[code](str(details.get("agent", "")), str(details.get("problem", text)))
    if code == "rolled-back":
        return TransactionLost(text)
    if code == "not-allowed":
        return NotAllowed(text)
    if code == "move":
        return MoveRefused(str(details.get("node", "")), str(details.get("problem", text)))
    if code == "away":
        error = Disconnected(text)
        error.may_be_accepted = True  # by the other node, whose answer is missing
        return error
    return Refused(code, text)
