"""A message in a queue: the bytes of an event, who sent it, and the number under which the queue took it in.

The number is the moment of arrival in microseconds, moved on where two would be the same: so it is unique in
the node, grows, gives the order of arrival and is the `received` of the header, all in one integer. A million
waiting messages are a million of these, so they hold nothing else: the bytes are stored and handed out as
they came, and an event is made of them only while somebody looks at it. What few messages have is kept beside
them, by their numbers: further parts of their bodies, and the moments at which they expire.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from math import inf

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from tidings.errors import Refused
from tidings.event import Event
from tidings.event.header import EMPTY_HEADER, PRIORITY_DEFAULT
from tidings.event.values import TIME_US_MAX, time_from_us
from tidings.event.wire import decode_event
from tidings.ids import ForwardedOrigin, Origin
from tidings.protocol.frames import FRAME_MAX
from tidings.queues.description import Description
from tidings.store.interface import StoredMessage
from tidings.timers import Timers, granted_s

LENGTH_MAX = FRAME_MAX - 8192
"""Bytes of an event that can be put: it is handed out in a frame, and more is said of a dead letter."""
BYTES_EACH = 400
"""About what a message costs beside its bytes, for limits."""

MessagePart = tuple[int, bytes]
"""A part has a number of its own, under which it is stored."""


class Sight(Event, array_like=True, frozen=True, gc=False):
    """The event of a message, as filters see it; it was checked when it came."""

    number: int = 0

    @property
    def received(self) -> datetime | None:
        """When the queue took it in."""
        return time_from_us(min(self.number, TIME_US_MAX))


_INT_8, _UINT_8 = 0x80, 0xCC
"""In msgpack: below the first a byte is the number itself, from the second on it says how long that is."""

_decode_sight = msgspec.msgpack.Decoder(Sight).decode
_encode = msgspec.msgpack.Encoder().encode


class QueuedMessage(Struct, frozen=True, gc=False):
    """One event in a queue."""

    number: int
    raw: bytes  # the event as on the wire
    origin: Origin | None

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        return BYTES_EACH + len(self.raw)

    @property
    def event(self) -> Event:
        """The event as it came."""
        return decode_event(self.raw, self.origin)

    @property
    def shown(self) -> Event:
        """The event as it is handed out: with the time at which the queue took it in."""
        event = self.event
        received_us = min(self.number, TIME_US_MAX)
        return replace(event, header=replace(event.header or EMPTY_HEADER, received_us=received_us))

    def __hash__(self) -> int:
        return hash(self.number)


class BodyParts(dict[int, list[MessagePart]]):
    """Further parts of bodies that are too long for one frame: kept beside their message, gone with it."""

    def add(self, number: int, parts: list[MessagePart]) -> int:
        """Keep the parts of a message; how many bytes they have."""
        if parts:
            self[number] = parts
        return sum(len(part) for _, part in parts)

    def of(self, number: int) -> list[bytes]:
        """Return all further parts of the body of a message."""
        return [part for _, part in self.get(number, ())]

    def size(self, number: int) -> int:
        """Return how many bytes these have."""
        return sum(len(part) for _, part in self.get(number, ()))


def sight(message: QueuedMessage) -> Sight:
    """The event of a message, for filters and for a look at its header."""
    seen = _decode_sight(message.raw)
    force_setattr(seen, "origin", message.origin)
    force_setattr(seen, "number", message.number)
    return seen


def counter_of(raw: bytes) -> int:
    """The counter of an event on the wire: its first field, a number from 0 on."""
    head = raw[1]
    return head if head < _INT_8 else int.from_bytes(raw[2 : 2 + (1 << (head - _UINT_8))], "big")


def stored_epoch(origin: Origin) -> int:
    """The epoch as it is stored: below 0 where another node has handed the event on, so that this is kept."""
    return ~origin.epoch if isinstance(origin, ForwardedOrigin) else origin.epoch


def origin_of(stored: StoredMessage) -> Origin:
    """The origin of a message that was stored."""
    if stored.epoch < 0:
        return ForwardedOrigin(stored.system, ~stored.epoch, stored.source, stored.passed)
    return Origin(stored.system, stored.epoch, stored.source)


def event_bytes(event: Event) -> bytes:
    """An event on the wire."""
    return _encode((event.counter, event.type, event.time_us, event.values, event.header, event.body))


def with_ttl_left(raw: bytes, left_s: float) -> bytes:
    """Return an event on the wire with what is left of its life, if it names one that is longer."""
    if b"ttl_s" not in raw:  # most name none, and need not be decoded
        return raw
    event = decode_event(raw)
    header = event.header
    if header is None or header.ttl_s is None or header.ttl_s <= left_s:
        return raw
    return event_bytes(replace(event, header=replace(header, ttl_s=max(0.0, left_s))))


def check_length(raw: bytes) -> None:
    """Refuse an event that could not be handed out: it must fit a frame, also as a dead letter."""
    if len(raw) > LENGTH_MAX:
        raise Refused("too-large", f"an event of {len(raw)} bytes; at most {LENGTH_MAX} can be put")


class MessageNumbers:
    """Gives numbers to messages: the moment, or one more than the last."""

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def next(self, wall: float) -> int:
        """A number above all before, whatever the wall clock says."""
        moment = int(wall * 1e6)
        self.last = moment if moment > self.last else self.last + 1
        return self.last


def completed(wanted: Description, raw: bytes) -> bytes:
    """An event with what the description of its queue adds to the header; the same, if that is nothing."""
    if wanted.priority is None and wanted.ttl_s is None and wanted.lease_s_max is None:
        return raw
    event = decode_event(raw, None)
    header = event.header or EMPTY_HEADER
    if wanted.priority is not None and header.priority == PRIORITY_DEFAULT:
        header = replace(header, priority=wanted.priority)
    ttl_s = granted_s(wanted.ttl_s if header.ttl_s is None else header.ttl_s, wanted.lease_s_max)
    if ttl_s is not None:
        header = replace(header, ttl_s=ttl_s)
    return raw if header == event.header else event_bytes(replace(event, header=header))


class Expiry(Timers[int]):
    """The numbers of one queue's messages that expire; `is_used` says whether they do at all.

    Moments are of the clock that never jumps: a wall clock that is set while a message is here neither
    shortens its life nor prolongs it. A message that was due, and is still in flight, is over until
    it is gone.
    """

    __slots__ = ("_is_used", "_over")

    def __init__(self, is_used: bool) -> None:
        super().__init__()
        self._is_used = is_used
        self._over: set[int] = set()

    def ttl_s(self, message: QueuedMessage) -> float:
        """Seconds that it may stay; inf without a limit."""
        if not self._is_used:
            return inf
        ttl_s = sight(message).ttl_s
        return inf if ttl_s is None else ttl_s

    def moment(self, key: int) -> float:
        """The moment from which on nobody may have a message."""
        return -inf if key in self._over else super().moment(key)

    def cancel(self, key: int | None) -> None:
        """The message is gone, or has another moment."""
        self._over.discard(key)
        super().cancel(key)

    def due(self, now: float, most: float = inf) -> Iterator[int]:
        """The numbers of messages whose time is over, each once; they may be in flight."""
        for number in super().due(now, most):
            self._over.add(number)
            yield number
