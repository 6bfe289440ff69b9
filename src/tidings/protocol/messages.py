"""What the two ends of a connection say to each other: one class for each kind of frame.

A message is the header of its frame, as an array; `docs/protocol.md` has the words. Fields are only ever
added at the end, with a default, so that an older peer and a newer one understand each other.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

VERSION = 1


class Message(Struct, array_like=True, frozen=True, gc=False):
    """The base of all messages; `KIND` is the number of the frame."""

    KIND: ClassVar[int]
    HAS_EVENTS: ClassVar[bool] = False


class Hello(Message, frozen=True, gc=False):
    """The first frame of a client."""

    KIND = 1
    versions: list[int]
    system: str
    epoch: int
    name: str = ""
    resume: str | None = None


class Welcome(Message, frozen=True, gc=False):
    """The node's answer: what it knows of the client already, and how much may be on its way."""

    KIND = 2
    version: int
    node: str
    boot: int
    session: str
    counter: int
    window: int


class Publish(Message, frozen=True, gc=False):
    """Events of the client, numbered."""

    KIND = 3
    HAS_EVENTS = True


class Accepted(Message, frozen=True, gc=False):
    """Everything up to this counter is as safe as it asked to be."""

    KIND = 4
    counter: int


class Request(Message, frozen=True, gc=False):
    """Something to be done and answered."""

    KIND = 5
    number: int
    operation: str
    arguments: dict[str, Any] = {}


class Failure(Struct, array_like=True, frozen=True, gc=False):
    """Why a request could not be done."""

    code: str
    text: str
    details: dict[str, Any] = {}


class Reply(Message, frozen=True, gc=False):
    """The answer to a request."""

    KIND = 6
    number: int
    result: Any = None
    error: Failure | None = None


class Deliver(Message, frozen=True, gc=False):
    """Events of one origin for one subscription; `positions` are eight bytes each where they are stored."""

    KIND = 7
    HAS_EVENTS = True
    subscription: int
    system: str | None = None
    epoch: int = 0
    source: str | None = None
    positions: bytes | None = None
    redelivered: bool = False


class Acknowledge(Message, frozen=True, gc=False):
    """A durable subscription has dealt with everything up to this position."""

    KIND = 8
    subscription: int
    position: int


class Credit(Message, frozen=True, gc=False):
    """How many events, since it began, a subscription may have been sent."""

    KIND = 9
    subscription: int
    total: int


class Notice(Message, frozen=True, gc=False):
    """Something the client may want to know of one of its subscriptions or advertisements."""

    KIND = 10
    kind: str
    number: int
    details: dict[str, Any] = {}


class Ping(Message, frozen=True, gc=False):
    """Are you there?"""

    KIND = 11
    number: int = 0


class Pong(Message, frozen=True, gc=False):
    """Yes."""

    KIND = 12
    number: int = 0


class Bye(Message, frozen=True, gc=False):
    """The connection ends, and why."""

    KIND = 13
    code: str = ""
    text: str = ""


KINDS: dict[int, type[Message]] = {
    kind.KIND: kind
    for kind in (
        Hello,
        Welcome,
        Publish,
        Accepted,
        Request,
        Reply,
        Deliver,
        Acknowledge,
        Credit,
        Notice,
        Ping,
        Pong,
        Bye,
    )
}
