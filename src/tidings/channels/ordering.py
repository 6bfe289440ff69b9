"""The order of events in the channels of a node: which batches members get now, and which are held.

Neighbours get all events as they come, in the order of each link; only members wait. What is held for them
is stored as records of its own, as the stream has it for neighbours alone, and is added to the stream again
for members alone when it is released. So a durable member reads the stream in the order of the channel.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from tidings.channels.causal import (
    Arrival,
    CausalOrder,
    CausalState,
    Verdict,
    decode_names,
    encode_names,
)
from tidings.errors import CodecError
from tidings.event import Batch
from tidings.event.relayed import OrderedBatch, RelayedBatch, restored
from tidings.ids import ForwardedOrigin
from tidings.protocol.broker import Broker
from tidings.store.interface import RecordKind

LOOK_S = 1.0
"""How often to look whether what is held has waited too long."""
PART_SIZE_MAX = 48 << 10
"""Bytes of what is held in one record."""


class StoredOrder(Struct, frozen=True):
    """The stored record of the order of a channel."""

    causal: CausalState


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


ORDERS: RecordKind[tuple[str], StoredOrder] = RecordKind("channel-order", StoredOrder)
HELD: RecordKind[tuple[str, str, str], HeldPart] = RecordKind("channel-held", HeldPart)

_decode = msgspec.msgpack.Decoder(HeldBatch).decode


class Held:
    """A batch that is held: under which number it is stored, 0 if it is not, and in how many parts."""

    def __init__(self, batch: RelayedBatch, since_us: int, number: int = 0, parts: int = 0) -> None:
        self.batch = batch
        self.since_us = since_us
        self.number = number
        self.parts = parts


class OrderedChannels(Protocol):
    """The channels of a node, as their order is kept."""

    def is_whole(self, channel: str) -> bool:
        """Whether all nodes that may take part in it can be reached."""

    def own_epochs(self) -> list[tuple[str, int]]:
        """Return this node with each epoch of its numbers."""

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call a function after a time."""

    def report_gap(self, channel: str, count: int) -> None:
        """Report to its members that events were not waited for."""


class Ordering:
    """The orders of all channels of a node that are causal."""

    def __init__(self, broker: Broker, channels: OrderedChannels) -> None:
        self._broker = broker
        self._channels = channels
        self._orders: dict[str, CausalOrder[Held]] = {}
        self._changed: dict[str, None] = {}
        self._is_looking = False
        self._number = 0

    def restore(self) -> None:
        """Go on with what was stored."""
        for (channel,), stored in ORDERS.known(self._broker.state).items():
            self._begin(channel, stored.causal)
        parts: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        for (channel, number, place), part in HELD.known(self._broker.state).items():
            parts.setdefault((channel, int(number)), []).append((int(place), part.data))
        for held, pieces in sorted(parts.items(), key=lambda item: item[0][1]):
            self._number = max(self._number, held[1])
            self._hold_again(*held, len(pieces), b"".join(data for _, data in sorted(pieces)))

    def _hold_again(self, channel: str, number: int, parts: int, data: bytes) -> None:
        stored = _decode(data)
        origin = ForwardedOrigin(stored.system, stored.epoch, stored.source)
        held = Held(restored(stored.raw, origin, stored.provenance), stored.since_us, number, parts)
        self._order(channel).hold(_arrival(held.batch), held, len(stored.raw), self._broker.now)
        self._look_later()

    def _begin(self, channel: str, state: CausalState | None) -> CausalOrder[Held]:
        order = self._orders[channel] = CausalOrder(state)
        for node, epoch in self._channels.own_epochs():
            order.own(node, epoch)
        return order

    def _order(self, channel: str) -> CausalOrder[Held]:
        order = self._orders.get(channel)
        return self._begin(channel, None) if order is None else order

    # Events

    def sent(self, batch: Batch, channel: str) -> Batch:
        """Return own events of a channel with the names of what comes before them."""
        order = self._order(channel)
        names = order.send()
        if not names:
            return batch
        self._changed[channel] = None
        return OrderedBatch(batch, encode_names(names))

    def arrived(self, batch: RelayedBatch, channel: str) -> bool:
        """Whether members get events now that have arrived; those that are held come later."""
        if batch.is_late:
            return True
        order, broker = self._order(channel), self._broker
        held = Held(batch, int(broker.wall * 1e6))
        gaps = order.gaps
        verdict = order.arrive(_arrival(batch), held, len(batch.raw), broker.now)
        self._report(channel, order.gaps - gaps)
        if not batch.first.is_volatile or order.gaps > gaps:
            self._changed[channel] = None
        if verdict is Verdict.HOLD:
            broker.count("channel_held", len(batch))
            if not batch.first.is_volatile:
                self._store(channel, held)
            self._look_later()
        elif verdict is Verdict.DROP:
            broker.count("channel_dropped", len(batch), "order")
        return verdict is Verdict.PASS

    def settle(self, channel: str) -> None:
        """Let members have what has waited for what they got last."""
        order = self._orders.get(channel)
        if order is None:
            return
        gaps, is_whole = order.gaps, self._channels.is_whole(channel)
        released = order.release(self._broker.now, is_whole)
        self._report(channel, order.gaps - gaps)
        for held in released:
            self._changed[channel] = None
            self._unstore(channel, held)
            batch = held.batch
            batch.is_had, batch.is_released = False, True
            batch.age_us += max(0, int(self._broker.wall * 1e6) - held.since_us)
            self._broker.ordered.release(batch, channel)

    def _report(self, channel: str, gaps: int) -> None:
        if gaps:
            self._broker.count("channel_gaps", gaps)
            self._channels.report_gap(channel, gaps)

    def _look_later(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._channels.later(LOOK_S, self._look)

    def _look(self) -> None:
        self._is_looking = False
        for channel, order in list(self._orders.items()):
            if order.held:
                self.settle(channel)
                if order.held:
                    self._look_later()

    # Who joins, and what is gone

    def marks(self, channel: str) -> dict[str, Any]:
        """Return how far a channel has come here, for a node that joins it."""
        order = self._orders.get(channel)
        return {} if order is None or not order.marks else {"marks": encode_names(order.marks)}

    def learn(self, channel: str, told: object) -> None:
        """Begin behind what a neighbour has had of a channel; what is no such thing counts for nothing."""
        packed = told.get("marks") if isinstance(told, dict) else None
        if isinstance(packed, bytes) and packed:
            with suppress(CodecError):
                self._order(channel).learn(decode_names(packed))
                self._changed[channel] = None

    def missed(self, node: str, epoch: int, last: int) -> None:
        """Wait no longer for events of a first node up to a number."""
        for channel, order in list(self._orders.items()):
            if order.held:
                order.miss(node, epoch, last)
                self._changed[channel] = None
                self.settle(channel)

    def forget(self, channel: str) -> None:
        """A channel is not here any more."""
        order = self._orders.pop(channel, None)
        if order is not None:
            for held in order.held:
                self._unstore(channel, held)
            self._changed.pop(channel, None)
            self._broker.store(ORDERS.drop((channel,)))

    # The store

    def finish_tick(self) -> None:
        """Have stored how far channels have come."""
        for channel in self._changed:
            self._broker.store(ORDERS.set((channel,), StoredOrder(self._orders[channel].state)))
        self._changed.clear()

    def _store(self, channel: str, held: Held) -> None:
        batch = held.batch
        origin = batch.origin
        assert origin is not None
        about = origin.system, origin.epoch, origin.source, batch.provenance, held.since_us
        data = msgspec.msgpack.encode(HeldBatch(batch.raw, *about))
        pieces = [data[start : start + PART_SIZE_MAX] for start in range(0, len(data), PART_SIZE_MAX)]
        self._number += 1
        held.number, held.parts = self._number, len(pieces)
        for place, piece in enumerate(pieces):
            self._broker.store(HELD.set((channel, str(held.number), str(place)), HeldPart(piece)))

    def _unstore(self, channel: str, held: Held) -> None:
        for place in range(held.parts):
            self._broker.store(HELD.drop((channel, str(held.number), str(place))))


def _arrival(batch: RelayedBatch) -> Arrival:
    """Return what is known of a batch; names that are none count for nothing, as they would hold it."""
    first = batch.first
    try:
        names = decode_names(batch.after)
    except CodecError:
        names = {}
    return Arrival(first.node, first.epoch, first.is_volatile, int(batch.numbers[-1]), names)
