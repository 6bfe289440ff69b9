"""Events as they are carried: with the origin that they have at the host which took them in.

A carried message has the bytes of one of these. So an event has one id wherever it arrives, and its source
names the host that vouches for it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from tidings.adhoc.messaging import SendOptions
from tidings.errors import CodecError, EventError
from tidings.event import Event
from tidings.event.header import EMPTY_HEADER
from tidings.event.wire import array_head, check
from tidings.ids import NUMBER_MAX, ForwardedOrigin, Origin, check_system
from tidings.queues.message import event_bytes, with_ttl_left

SOURCE_LENGTH_MAX = 255


class CarriedEvent(Struct, frozen=True, array_like=True):
    """One event on the wire, with its origin."""

    system: Annotated[str, Meta(max_length=64)] | None
    epoch: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
    source: Annotated[str, Meta(max_length=SOURCE_LENGTH_MAX)] | None
    raw: bytes

    @property
    def array(self) -> bytes:
        """The event as an array of one."""
        return array_head(1) + self.raw

    def is_from(self, host: str) -> bool:
        """Whether its source names this host, and no other."""
        return self.source == host or (self.source or "").endswith(f"@{host}")

    def origin_from(self, host: str) -> ForwardedOrigin:
        """Return the origin of an event that this host has taken in: its source names the host."""
        source = self.source if self.is_from(host) else f"{self.source}@{host}" if self.source else host
        return ForwardedOrigin(self.system, self.epoch, (source or host)[-SOURCE_LENGTH_MAX:])

    @property
    def origin_as_told(self) -> ForwardedOrigin:
        """The origin of an event that the holder of a topic sends on, with the source that it has checked."""
        return ForwardedOrigin(self.system, self.epoch, self.source)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(CarriedEvent)


def pack(raw: bytes, origin: Origin | None) -> bytes:
    """Return the bytes of a message that carries an event."""
    origin = origin or Origin()
    return _encoder.encode(CarriedEvent(origin.system, origin.epoch, origin.source, raw))


def options_of(event: Event) -> SendOptions:
    """Return how an event is carried, as its header says."""
    return SendOptions(
        ttl_s=event.ttl_s,
        persistent=event.delivery != "transient",
        priority=event.priority,
        reliability=event.reliability,
    )


def unpack(data: bytes) -> CarriedEvent:
    """Read the bytes of a message; CodecError if they carry no event."""
    try:
        carried = _decoder.decode(data)
        if carried.system is not None:
            check_system(carried.system)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, EventError) as error:
        raise CodecError("$", f"carries no event: {error}") from None
    if len(check(carried.array).counters) != 1:
        raise CodecError("$", "carries more than one event")
    return carried


def with_life(carried: CarriedEvent, left_s: float) -> CarriedEvent:
    """Return an event with what is left of its life."""
    return replace(carried, raw=with_ttl_left(carried.raw, left_s))


def without_report(event: Event, is_lasting: bool) -> bytes:
    """Return an event on the wire that asks for no report: it is its first host that reports.

    One on which a report is asked for is carried as a lasting one: it displaces others.
    """
    values = {name: value for name, value in event.values.items() if name != "report"}
    header = event.header or EMPTY_HEADER
    if is_lasting and header.delivery == "transient":
        header = replace(header, delivery="reliable")
    return event_bytes(replace(event, values=values, header=header if event.header or is_lasting else None))


def asking_only(event: Event) -> bytes:
    """Return an event on the wire with nothing but what a report on it needs."""
    values = {name: value for name, value in event.values.items() if name == "report"}
    return event_bytes(replace(event, values=values, body=None))
