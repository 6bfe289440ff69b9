"""What is held of ordered channels, and its records: what waits is not lost when a node is started again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from tidings.channels.causal import ChannelArrival, decode_names
from tidings.errors import CodecError
from tidings.event.relayed import RelayedBatch, restored
from tidings.ids import ForwardedOrigin, Origin
from tidings.protocol.broker import Broker
from tidings.store.interface import RecordKind

PART_SIZE_MAX = 48 << 10
"""Bytes of what is held in one record."""


class HeldPart(Struct, frozen=True):
    """A stored piece of what is held."""

    data: bytes


class HeldBatch(Struct, frozen=True, array_like=True):
    """A batch that is held, as it is stored."""

    raw: bytes
    system: str | None
    epoch: int
    source: str | None
    provenance: bytes
    since_us: int


HELD: RecordKind[tuple[str, str, str], HeldPart] = RecordKind("channel-held", HeldPart)

_decode = msgspec.msgpack.Decoder(HeldBatch).decode


class Held:
    """A batch that is held: under which number it is stored, 0 if it is not, and in how many parts.

    `done` is called when members get the last of it.
    """

    def __init__(
        self,
        batch: RelayedBatch,
        since_us: int,
        number: int = 0,
        parts: int = 0,
        done: Callable[[], None] | None = None,
        is_reliable: bool | None = None,
    ) -> None:
        self.batch = batch
        self.is_reliable = not batch.first.is_volatile if is_reliable is None else is_reliable
        self.since_us = since_us
        self.number = number
        self.parts = parts
        self.done = done


def cut(held: Held, last: int) -> tuple[Held | None, Held | None]:
    """Divide what is held behind a number; the rest is stored, as a whole, until it goes."""
    numbers = held.batch.numbers
    count = sum(1 for number in numbers if number <= last)
    if count in (0, len(numbers)):
        return (held, None) if count else (None, held)
    first = Held(held.batch.slice(0, count), held.since_us)
    held.batch = held.batch.slice(count, len(numbers))
    return first, held


class HeldStore:
    """The records of what is held."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._number = 0

    def restored(self) -> Iterator[tuple[str, Held]]:
        """Yield what was held when the node ended, by channels, in the order in which it came."""
        parts: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        for (channel, key, place), part in HELD.known(self._broker.state).items():
            parts.setdefault((channel, int(key)), []).append((int(place), part.data))
        for (channel, number), pieces in sorted(parts.items(), key=lambda item: item[0][1]):
            self._number = max(self._number, number)
            yield channel, self._restored(number, [data for _, data in sorted(pieces)])

    def _restored(self, number: int, pieces: list[bytes]) -> Held:
        stored = _decode(b"".join(pieces))
        batch = restored(stored.raw, Origin(), stored.provenance)
        kind = Origin if batch.first.node == self._broker.node else ForwardedOrigin
        batch.origin = kind(stored.system, stored.epoch, stored.source)
        return Held(batch, stored.since_us, number, len(pieces), is_reliable=True)

    def store(self, channel: str, held: Held) -> None:
        """Store what is held."""
        batch = held.batch
        origin = batch.origin or Origin()
        about = origin.system, origin.epoch, origin.source, batch.provenance, held.since_us
        data = msgspec.msgpack.encode(HeldBatch(batch.raw, *about))
        pieces = [data[start : start + PART_SIZE_MAX] for start in range(0, len(data), PART_SIZE_MAX)]
        self._number += 1
        held.number, held.parts = self._number, len(pieces)
        for place, piece in enumerate(pieces):
            self._broker.store(HELD.set((channel, str(held.number), str(place)), HeldPart(piece)))

    def unstore(self, channel: str, held: Held) -> None:
        """Give up the records of what is held no longer."""
        for place in range(held.parts):
            self._broker.store(HELD.drop((channel, str(held.number), str(place))))


def arrival_of(batch: RelayedBatch) -> ChannelArrival:
    """Return what is known of a batch; names that are none count for nothing, as they would hold it."""
    first = batch.first
    try:
        names = decode_names(batch.after)
    except CodecError:
        names = {}
    return ChannelArrival(first.node, first.epoch, first.is_volatile, int(batch.numbers[-1]), names)
