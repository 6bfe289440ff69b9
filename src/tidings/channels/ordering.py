"""The order of events in the channels of a node: which batches members get now, and which are held.

Neighbours get all events as they come, in the order of each link; only members wait. What is held for them
is stored as records of its own, as the stream has it for neighbours alone, and is added to the stream again
for members alone when it is released. So a durable member reads the stream in the order of the channel.

`causal.py` and `total.py` decide what is held, and until when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from tidings.channels.causal import (
    MARKS_MAX,
    CausalOrder,
    CausalState,
    ChannelArrival,
    Marks,
    OrderVerdict,
    decode_names,
    encode_names,
    encode_place,
    mark_of,
)
from tidings.channels.description import ChannelOrder
from tidings.channels.held import Held, HeldStore, arrival_of, cut
from tidings.channels.orders import NodeOrders
from tidings.channels.reaching import Reaching, learned, unlearned
from tidings.channels.sequence_messages import Join, LeaveVoters, SequencerMessage, SequencerState
from tidings.channels.sequencer import Sequencer
from tidings.channels.total import TotalOrder
from tidings.errors import CodecError
from tidings.event import Batch
from tidings.event.relayed import OrderedBatch, RelayedBatch
from tidings.event.wire import Checked
from tidings.protocol.broker import Broker
from tidings.protocol.incoming import IncomingStream
from tidings.replies import Deferred, resolved
from tidings.store.interface import RecordKind

LOOK_S = 0.5
"""How often to look at channels in which something waits."""
JOIN_S = 1.0
"""After how long the sequencer is asked again to make this node a voter, or not."""
HINTS_MAX = 100
"""Nodes that may be asked for the sequencer of a channel."""


class StoredOrder(Struct, frozen=True, omit_defaults=True):
    """The stored record of the order of a channel: one of two kinds."""

    causal: CausalState | None = None
    total: SequencerState | None = None
    marks: Marks = {}  # of total order


ORDERS: RecordKind[tuple[str], StoredOrder] = RecordKind("channel-order", StoredOrder)

_decode_message = msgspec.msgpack.Decoder(SequencerMessage).decode


class Ordering:
    """The orders of all channels of a node that are not fifo."""

    def __init__(self, broker: Broker, channels: NodeOrders) -> None:
        self._broker = broker
        self._channels = channels
        self._orders: dict[str, CausalOrder[Held] | TotalOrder[Held]] = {}
        self._changed: dict[str, None] = {}
        self._entering: dict[str, list[Deferred[None]]] = {}
        self._hints: dict[str, list[str]] = {}  # nodes that may know the sequencer of a channel
        self._outgoing: list[tuple[str, str, SequencerMessage]] = []
        self._flying: deque[tuple[int, list[tuple[str, str, SequencerMessage]]]] = deque()
        self._asked: dict[str, tuple[float, str]] = {}  # when, and whom that was taken for the sequencer
        self._is_looking = False
        self._held = HeldStore(broker)
        self._reaching = Reaching()

    def restore(self) -> None:
        """Go on with what was stored."""
        for (channel,), stored in ORDERS.known(self._broker.state).items():
            if stored.total is not None:
                self._begin_total(channel, stored.total, stored.marks)
            else:
                self._begin_causal(channel, stored.causal)
            self._look_later()
        for channel, held in self._held.restored():
            order, arrival, size = self._order(channel), arrival_of(held.batch), len(held.batch.raw)
            if isinstance(order, TotalOrder):
                order.hold(arrival, held, size)
            else:
                order.hold(arrival, held, size, self._broker.now)

    def _begin_causal(self, channel: str, state: CausalState | None) -> CausalOrder[Held]:
        order: CausalOrder[Held] = CausalOrder(state)
        self._orders[channel] = order
        for node, epoch in self._channels.own_epochs():
            order.own(node, epoch)
        return order

    def _begin_total(
        self, channel: str, state: SequencerState | None, marks: Marks | None = None
    ) -> TotalOrder[Held]:
        def tell(node: str, message: SequencerMessage) -> None:
            self._outgoing.append((channel, node, message))

        sequencer = Sequencer(self._broker.node, tell, self._channels.chance, state)

        def place(held: Held, entry: int) -> None:
            if self._channels.is_persistent(channel):
                held.batch.after = encode_place(entry)

        order = self._orders[channel] = TotalOrder(sequencer, cut, place, marks)
        return order

    def _order(self, channel: str) -> CausalOrder[Held] | TotalOrder[Held]:
        order = self._orders.get(channel)
        if order is None and self._channels.order_of(channel) == "total":
            return self._begin_total(channel, None)
        return self._begin_causal(channel, None) if order is None else order

    def _total(self, channel: str) -> TotalOrder[Held] | None:
        order = self._orders.get(channel)
        return order if isinstance(order, TotalOrder) else None

    # Events

    def sent(self, batch: Batch, channel: str) -> Batch:
        """Return own events of a channel with the names of what comes before them, or held."""
        order = self._order(channel)
        if isinstance(order, TotalOrder):
            order.is_taking_part = True
            if order.held or not order.sequencer.is_alone:
                return OrderedBatch(batch, b"", is_had=True)
            is_persistent = self._channels.is_persistent(channel)
            return OrderedBatch(batch, encode_place(order.sequencer.agreed + 1)) if is_persistent else batch
        names = order.send()
        if not names:
            return batch
        self._changed[channel] = None
        return OrderedBatch(batch, encode_names(names))

    def was_sent(
        self, batch: Batch, channel: str, position: int, stream: IncomingStream | None, checked: Checked
    ) -> None:
        """Own events were handed on; `position` is that of the first, 0 if they were not stored.

        A client waits for the reply until reliable ones are agreed.
        """
        order = self._order(channel)
        first, base = self._channels.own_numbers(batch, position)
        numbers = range(base, base + len(batch))
        if isinstance(order, CausalOrder):
            order.was_sent(ChannelArrival(first.node, first.epoch, first.is_volatile, numbers[-1]))
            if position:
                self._changed[channel] = None
            return
        relayed = RelayedBatch(batch.raw, batch.origin, first, numbers, 0, batch.offsets)
        is_held = isinstance(batch, OrderedBatch) and batch.is_had
        done, is_reliable = None, not checked.is_plain
        if is_held and stream is not None and is_reliable:
            origin, counter = stream.origin, int(checked.counters[0])
            self._broker.ledger.pend(origin, counter, is_stored=True)
            done = partial(self._broker.ledger.settle, origin, counter)
        held = Held(relayed, int(self._broker.wall * 1e6), done=done, is_reliable=is_reliable)
        self._take(channel, order, held)

    def expedited(self, batch: RelayedBatch, channel: str) -> None:
        """Members get events at once; what is sent after them names them in a causal channel."""
        if not batch.is_late:
            self._order(channel).expedite(arrival_of(batch))
            self._changed[channel] = None

    def was_expedited(self, batch: Batch, channel: str, position: int) -> None:
        """Own events were handed on that skip the order; `position` as in `was_sent`."""
        first, base = self._channels.own_numbers(batch, position)
        last = base + len(batch) - 1
        self._order(channel).was_urgent(ChannelArrival(first.node, first.epoch, first.is_volatile, last))

    def arrived(self, batch: RelayedBatch, channel: str) -> bool:
        """Whether members get events now that have arrived; those that are held come later."""
        if batch.is_late:
            return True
        order, since_us = self._order(channel), int(self._broker.wall * 1e6)
        had = learned(order.learned, batch)
        if not had:
            return self._take(channel, order, Held(batch, since_us))
        self._broker.count("channel_dropped", had, "order")
        rest = Held(batch.slice(had, len(batch)), since_us)
        if had < len(batch) and self._take(channel, order, rest):
            self._release(channel, rest)
        return False

    def _take(self, channel: str, order: CausalOrder[Held] | TotalOrder[Held], held: Held) -> bool:
        batch, broker, gaps = held.batch, self._broker, order.gaps
        arrival, size = arrival_of(batch), len(batch.raw)
        if isinstance(order, TotalOrder):
            verdict = order.arrive(arrival, held, size)
        else:
            verdict = order.arrive(arrival, held, size, broker.now)
        self._report(channel, order.gaps - gaps)
        if not batch.first.is_volatile or order.gaps > gaps:
            self._changed[channel] = None
        if verdict is OrderVerdict.HOLD:
            broker.count("channel_held", len(batch))
            if held.is_reliable:
                self._held.store(channel, held)
            self._look_later()
        elif verdict is OrderVerdict.DROP:
            broker.count("channel_dropped", len(batch), "order")
        if verdict is not OrderVerdict.HOLD and held.done is not None:
            held.done()
        return verdict is OrderVerdict.PASS

    def settle(self, channel: str) -> None:
        """Let members have what has waited for what they got last."""
        order = self._orders.get(channel)
        if order is None:
            return
        gaps, is_whole = order.gaps, self._channels.is_whole(channel)
        released = order.release(self._broker.now, is_whole)
        self._report(channel, order.gaps - gaps)
        for held in order.dropped:
            self._let_go(channel, held)
        order.dropped.clear()
        if isinstance(order, TotalOrder):
            self._has_entered(channel, order)
            if order.sequencer.is_changed:
                self._changed[channel] = None
        for held in released:
            self._changed[channel] = None
            self._let_go(channel, held)
            self._release(channel, held)
        if channel in self._reaching:
            self._reaching.look(channel, order, self._broker.now)

    def _release(self, channel: str, held: Held) -> None:
        """Let members have what neighbours had before."""
        batch = held.batch
        batch.is_had, batch.is_released = False, True
        batch.age_us += max(0, int(self._broker.wall * 1e6) - held.since_us)
        self._broker.ordered.release(batch, channel)

    def _let_go(self, channel: str, held: Held) -> None:
        self._held.unstore(channel, held)
        if held.done is not None:
            held.done()

    def _report(self, channel: str, gaps: int) -> None:
        if gaps:
            self._broker.count("channel_gaps", gaps)
            self._channels.report_gap(channel, gaps)

    # Looking after what waits

    def _look_later(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._channels.later(LOOK_S, self._look)

    def _look(self) -> None:
        self._is_looking = False
        for channel, order in list(self._orders.items()):
            if isinstance(order, TotalOrder):
                self._look_at(channel, order)
            elif order.held or channel in self._reaching:
                self.settle(channel)
                if order.held or channel in self._reaching:
                    self._look_later()

    def _look_at(self, channel: str, order: TotalOrder[Held]) -> None:
        sequencer, now = order.sequencer, self._broker.now
        sequencer.wake(now, order.is_waiting)
        wants = self._channels.has_members(channel)
        order.is_taking_part = wants
        if not sequencer.is_as_wanted(wants):  # a voter that is leaving comes again once it knows that it has
            self._ask(channel, sequencer, wants and not sequencer.is_leaving)
        self.settle(channel)
        is_idle = not (order.held or order.is_waiting or order.is_stuck or sequencer.is_wanted)
        if not (is_idle and sequencer.is_as_wanted(wants)) or channel in self._reaching:
            self._look_later()

    def _ask(self, channel: str, sequencer: Sequencer, is_voter: bool) -> None:
        """Ask the sequencer to make this node a voter, or not."""
        now, node = self._broker.now, self._broker.node
        asked_at, asked = self._asked.get(channel, (-JOIN_S, ""))
        if now < asked_at + JOIN_S:
            return
        self._asked[channel] = now, sequencer.leader
        if sequencer.is_leader or sequencer.leader or sequencer.is_voter:
            if is_voter:
                sequencer.wish(node, True, now)
            else:
                sequencer.leave(now)
        if sequencer.leader in ("", asked):  # it may have left since, and not know who follows it
            self._ask_others(channel, sequencer, (Join if is_voter else LeaveVoters)(node))

    def _ask_others(self, channel: str, sequencer: Sequencer, wish: Join | LeaveVoters) -> None:
        """Ask a node that may know the sequencer, each time another: this one may know old voters only."""
        self.hint(channel, [one for one in sequencer.voters if one not in self._hints.get(channel, ())])
        if hints := self._hints[channel]:
            hints.append(hints.pop(0))
            self._outgoing.append((channel, hints[-1], wish))

    # Voters

    def create(self, channel: str, order: ChannelOrder) -> None:
        """A channel begins at this node."""
        if order == "total":
            self._begin_total(channel, None).sequencer.create(self._broker.now)
            self._changed[channel] = None

    def enter(self, channel: str) -> Deferred[None]:
        """Return a reply that comes when members of a channel can get its events in their order."""
        if self._channels.order_of(channel) != "total":
            return resolved(None)
        order = self._order(channel)
        assert isinstance(order, TotalOrder)
        order.is_taking_part = True
        reply: Deferred[None] = Deferred()
        self._entering.setdefault(channel, []).append(reply)
        self._look_at(channel, order)
        return reply

    def _has_entered(self, channel: str, order: TotalOrder[Held]) -> None:
        sequencer = order.sequencer
        if sequencer.is_as_wanted(is_voter=True):
            for reply in self._entering.pop(channel, ()):
                reply.resolve(None)
        elif not (sequencer.is_leader or order.is_taking_part):
            self._channels.unbound(channel)

    def left(self, channel: str) -> None:
        """A member has gone."""
        if self._total(channel) is not None:
            self._look_later()

    def hint(self, channel: str, nodes: Sequence[str]) -> None:
        """Ask these nodes first for the sequencer of a channel."""
        former = self._hints.get(channel, [])
        others = [one for one in nodes if one != self._broker.node]
        self._hints[channel] = [*others, *(one for one in former if one not in others)][:HINTS_MAX]

    def is_in_order(self, channel: str) -> bool:
        """Whether members could get events in their order without asking another node."""
        order = self._total(channel)
        return order is None or order.sequencer.is_as_wanted(is_voter=True)

    def is_bound(self, channel: str) -> bool:
        """Whether this node must take part for the order of a channel, though it has no members."""
        order = self._total(channel)
        return order is not None and (order.sequencer.is_voter or order.sequencer.is_leader)

    def hear(self, channel: str, node: str, body: bytes) -> None:
        """Take a message of another node's sequencer."""
        order = self._total(channel)
        try:
            message = _decode_message(body)
        except (msgspec.DecodeError, msgspec.ValidationError):
            self._broker.count("relays_refused", 1, "order")
            return
        if order is not None:
            order.sequencer.hear(node, message, self._broker.now)
            self.settle(channel)
            self._look_later()

    # Who joins, and what is gone

    def marks(self, channel: str) -> dict[str, Any]:
        """Return how far a channel has come here, for a node that joins it."""
        order = self._orders.get(channel)
        if order is None:
            return {}
        if isinstance(order, CausalOrder):
            return {"marks": encode_names(seen)} if (seen := order.seen) else {}
        sequencer = order.sequencer
        hints = [self._broker.node] if sequencer.is_voter else self._hints.get(channel)
        near = hints[0] if hints else ""
        return {"marks": encode_names(order.seen), "sequencer": sequencer.leader or near}

    def learn(self, channel: str, told: object, kind: ChannelOrder | None = None) -> None:
        """Begin behind what a neighbour has had of a channel; what is no such thing counts for nothing."""
        kind = kind or self._channels.order_of(channel)
        if not isinstance(told, dict) or kind == "fifo":
            return
        if kind == "total" and channel not in self._orders:
            self._begin_total(channel, None)
        packed, hint = told.get("marks"), told.get("sequencer")
        if isinstance(hint, str) and hint:
            self.hint(channel, [hint])
        if isinstance(packed, bytes) and packed:
            with suppress(CodecError):
                order = self._order(channel)
                order.learn(decode_names(packed))
                for held in order.held:
                    held.batch = unlearned(order.learned, held.batch)
                self._changed[channel] = None

    def missed(self, node: str, epoch: int, last: int) -> None:
        """Wait no longer for events of a first node up to a number."""
        for channel, order in list(self._orders.items()):
            if isinstance(order, TotalOrder):
                order.miss(mark_of(node, epoch, is_volatile=False), last)
            elif order.held:
                order.miss(node, epoch, last)
            else:
                continue
            self._changed[channel] = None
            self.settle(channel)

    def forget(self, channel: str) -> None:
        """A channel is not here any more."""
        order = self._orders.pop(channel, None)
        if order is not None:
            for held in order.held:
                self._let_go(channel, held)
            self._changed.pop(channel, None)
            self._broker.store(ORDERS.drop((channel,)))
        self._reaching.forget(channel)
        self._hints.pop(channel, None)
        self._asked.pop(channel, None)
        for reply in self._entering.pop(channel, ()):
            reply.resolve(None)

    # Members that move

    def progress(self, channel: str) -> bytes:
        """Return how far members here have come, their own events included."""
        return encode_names(self._order(channel).marks)

    def reach(self, channel: str, told: bytes, is_coming: bool) -> Deferred[None]:
        """Return a reply that comes when members here are so far; one that leaves waits for its own, too."""
        order = self._order(channel)
        marks = decode_names(told, MARKS_MAX)
        if not is_coming:
            held = (arrival_of(one.batch) for one in order.held)
            own = [one for one in held if one.node == self._broker.node]
            marks |= {one.mark: max(one.last, marks.get(one.mark, 0)) for one in own}
        reply = self._reaching.wait(channel, marks, is_coming, self._broker.now)
        self._reaching.look(channel, order, self._broker.now)
        self._look_later()
        return reply

    # The store

    def finish_tick(self) -> None:
        """Have stored how far channels have come; what is told of that leaves when it is on disk."""
        for channel in self._changed:
            self._broker.store(ORDERS.set((channel,), self._stored(self._orders[channel])))
        self._changed.clear()
        if self._outgoing:
            outgoing, self._outgoing = self._outgoing, []
            self._flying.append((self._broker.promise, outgoing))
            self.durable(self._broker.mark_durable)

    def _stored(self, order: CausalOrder[Held] | TotalOrder[Held]) -> StoredOrder:
        if isinstance(order, CausalOrder):
            return StoredOrder(order.state)
        order.sequencer.is_changed = False
        return StoredOrder(total=order.sequencer.state, marks=order.marks)

    def durable(self, mark: int) -> None:
        """Tell other nodes what waited for the disk."""
        while self._flying and self._flying[0][0] <= mark:
            for channel, node, message in self._flying.popleft()[1]:
                self._channels.tell(channel, node, msgspec.msgpack.encode(message))
