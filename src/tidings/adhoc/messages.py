"""Messages that hosts carry for each other, and the replicas of them in the hosts' buffers.

A message is made once, by its sender, and never changes: each carrier hands on the same bytes, so the sender
can sign them. The rest is the business of one replica: the recipients that still lack it as far as its
carrier knows, how much of its life is left, and how many copies its carrier may still hand out.

A life is carried as the seconds that are left of it, so the clocks of hosts may differ by any amount; no
carrier can prolong it beyond the life that the sender has set.
"""

from __future__ import annotations

from math import isfinite
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from tidings.adhoc.areas import AREA_LENGTH_MAX, check_area
from tidings.errors import UserError
from tidings.event.header import PRIORITY_DEFAULT, PRIORITY_MAX
from tidings.ids import NUMBER_MAX, make_id

TTL_S_DEFAULT = 86_400.0
"""Life of a message whose sender sets none: every message has an end."""
TTL_S_MAX = 30 * 86_400.0
"""Longest life; ids are remembered beyond it."""
RECIPIENTS_MAX = 1_000
"""Recipients of one message."""
SIZE_MAX = 64 << 20
"""Bytes of one message."""
NAME_LENGTH_MAX = 255
"""Characters of the name of a host, a queue or a topic."""
EVERYBODY = "*"
"""Recipient of a message to an area; no host has this name, so it is carried until its life ends."""
HEAD_SIZE = 100
"""About how many bytes a message has beside its event."""

HostName = Annotated[str, Meta(min_length=1, max_length=64)]
Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]


class MessageId(NamedTuple):
    """Identity of a message: the host that has sent it, an epoch of that host, and a counter."""

    system: str
    epoch: int
    counter: int

    def __str__(self) -> str:
        return make_id(*self)


class CarriedMessage(Struct, frozen=True, array_like=True):
    """Message as its sender has made it."""

    id: MessageId
    recipients: tuple[HostName, ...]
    ttl_s: float = TTL_S_DEFAULT
    persistent: bool = False
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX)] = PRIORITY_DEFAULT
    destination: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)] = ""  # queue or topic at the recipients
    reliability: Annotated[float, Meta(ge=0, le=1)] | None = None  # wanted share of deliveries
    size: Annotated[int, Meta(ge=0, le=SIZE_MAX)] = 0  # bytes of `raw`, also where a simulation leaves it out
    raw: bytes = b""  # the event on the wire
    proof: bytes = b""  # signature of the sender
    area: Annotated[str, Meta(max_length=AREA_LENGTH_MAX)] = ""  # of those who are its recipients instead

    @property
    def signed(self) -> bytes:
        """The bytes that the sender signs: everything but the signature."""
        said = (
            self.id,
            self.recipients,
            self.ttl_s,
            self.persistent,
            self.priority,
            self.destination,
            self.reliability,
            self.raw,
        )
        return msgspec.msgpack.encode((*said, self.area) if self.area else said)


class Replica:
    """Copy of a message in the buffer of one host."""

    __slots__ = (
        "arrival", "copies", "counted_s", "expires_at", "hops", "message", "pending", "received_at",
    )  # fmt: skip

    def __init__(
        self,
        message: CarriedMessage,
        pending: set[str],
        expires_at: float,
        received_at: float,
        copies: int = 1,
        hops: int = 0,
    ) -> None:
        self.message = message
        self.pending = pending  # recipients that lack it, as far as this host knows
        self.expires_at = expires_at
        self.received_at = received_at
        self.copies = copies  # how many its carrier may hand out, this one included
        self.counted_s = expires_at - received_at  # life that was left when its copies were counted
        self.hops = hops
        self.arrival = 0  # set by the buffer: the order in which it has taken them

    def __repr__(self) -> str:
        return f"<Replica {self.message.id} to {sorted(self.pending)}>"

    @property
    def id(self) -> MessageId:
        """The id of the message."""
        return self.message.id

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return self.message.size

    def left_s(self, now: float) -> float:
        """Seconds of its life that are left."""
        return min(max(0.0, self.expires_at - now), self.message.ttl_s)


class StoredReplica(Struct, frozen=True, array_like=True):
    """Replica as a host keeps it over a restart; the moment is one of the wall clock."""

    message: CarriedMessage
    pending: tuple[str, ...]
    expires: float
    copies: int
    hops: int
    number: int = 0  # of its message in the queue; 0 where that was stored as records


def refusal(message: CarriedMessage) -> str | None:
    """Return why a message can't be, in one word; None if it can."""
    ttl_s = message.ttl_s
    if not (isfinite(ttl_s) and 0 < ttl_s <= TTL_S_MAX):
        return "life"
    if not 0 < len(message.recipients) <= RECIPIENTS_MAX:
        return "recipients"
    if (message.area or EVERYBODY in message.recipients) and not (
        message.area and message.recipients == (EVERYBODY,)
    ):
        return "area"
    if message.raw and message.size != len(message.raw):
        return "size"
    return None


def check_sent(message: CarriedMessage) -> None:
    """Raise UserError for a message that an application can't send."""
    problem = refusal(message)
    if problem == "life":
        raise UserError(f"a life of {message.ttl_s} s: must be above 0 and at most {TTL_S_MAX:.0f}")
    if message.area:
        check_area(message.area)
    if problem == "area":
        raise UserError(f"a message to {EVERYBODY!r} has an area, and no other recipients")
    if problem == "recipients":
        raise UserError(f"{len(message.recipients)} recipients: must be 1 to {RECIPIENTS_MAX}")
    if problem is not None or message.size > SIZE_MAX:
        raise UserError(f"a message of {message.size} bytes: must be its length, and at most {SIZE_MAX}")
