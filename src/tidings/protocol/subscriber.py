"""The client's end of a subscription: credit, acknowledgements, and what was had before a cut.

Beside it the client's end of an advertisement: its filter, and the listener to the demand for it.

The node sends no more than it has credit for, and gets credit for as many events as the application has
taken, so `prefetch` bounds what is held here. After a cut the subscription is made again from where it stood:
stored events that come again although they were handed to the application are left out by their positions,
others by their counters. So an application that lives on sees nothing twice; what a new one gets for the
second time is marked.

Positions are those of one node. When the client has moved to another one, the *life* of the subscription is
another: what was delivered before and not acknowledged comes again there, under other positions. It is
recognised by its origin and counter, left out, and acknowledged when the application acknowledges it under
its former position.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from tidings.errors import CodecError, EventError, TidingsError
from tidings.event import Batch, Event
from tidings.event.relayed import FirstNode, GrowingNumbers, RelayedBatch
from tidings.event.wire import count_in_head
from tidings.ids import NUMBER_MAX, ForwardedOrigin, Origin, check_system
from tidings.protocol.arguments import Wanted as Wanted
from tidings.protocol.frames import encode
from tidings.protocol.messages import Acknowledge, Credit, Deliver, OrderedRelay, Relay, unpack_numbers
from tidings.replies import Deferred
from tidings.seen import Producers

ORIGINS_MAX = 256
"""Origins of which it is remembered what came last; beyond that, the one longest silent is forgotten."""

CARRIED_MAX = 65_536
"""Events of former nodes that are recognised if they come again; of more, the oldest come twice."""


class MissedNumbers(NamedTuple):
    """Numbers of a node's events in an epoch of it, from `first` to `last`, among which some are missed."""

    node: str
    epoch: int
    first: int
    last: int


class LateBatch(Batch):
    """Events that come after they were reported as missed."""

    __slots__ = ()
    is_late = True


class EndListener(Protocol):
    """Listener that is notified of an end: a subscriber, or a listener to interest."""

    def ended(self, reason: str) -> None:
        """Nothing more will come; called once, and not when the application itself has ended it."""


class Subscriber(EndListener, Protocol):
    """Receiver of a subscription's events; called by the core, in the order of arrival."""

    def deliver(self, batch: Batch, positions: Sequence[int] | None, redelivered: bool) -> None:
        """Take a batch; `positions`: where its events are stored, `redelivered`: they may be known."""

    def gap(self, dropped: int, reason: str, missed: MissedNumbers | None = None) -> None:
        """Events were lost: so many, or 0 if nobody knows how many; `missed`: by their numbers."""


class Opening:
    """Something that a client has begun at a node: `begun` is the node's first answer."""

    __slots__ = ("_listener", "begun", "number")

    def __init__(self, number: int, listener: EndListener) -> None:
        self.number = number
        self.begun: Deferred[Any] = Deferred()
        self._listener = listener

    def fail(self, error: TidingsError) -> None:
        """The node has refused or ended it, or there is no connection any more."""
        if self.begun.is_over:
            self._listener.ended(str(error))
        else:
            self.begun.fail(error)


class ClientSubscription(Opening):
    """Client's end of a subscription. `prefetch` is the number of events that may be under way or held."""

    def __init__(self, number: int, wanted: Wanted, subscriber: Subscriber, prefetch: int) -> None:
        super().__init__(number, subscriber)
        self.wanted = wanted
        self.subscriber = subscriber
        self.prefetch = prefetch
        self._held = 0  # handed to the subscriber and not consumed
        self._next: int | None = None  # where a stream goes on after a cut
        self._granted = self._received = 0  # events on this connection
        self._position = 0  # the highest one that came on this connection
        self._is_late = False  # the next delivery was announced to be late
        self._acknowledged = self._acknowledged_sent = 0
        self._had_position = 0  # what came before this connection
        self.life = 0
        """Number of the nodes at which it was before."""
        # Of a durable one, in this life: what the node may not know to be acknowledged.
        self._recent: deque[tuple[Batch, Sequence[int]]] = deque()
        self._recent_count = 0
        self._carried: dict[_EventKey, _Former] = {}  # delivered in former lives, and to come again
        self._again: dict[int, tuple[_EventKey, _Former]] = {}  # what has come again, by its position now
        self._owed: dict[int, int] = {}  # what was acknowledged under positions of former lives
        self._had_counters: Producers[Origin, int] = Producers(ORIGINS_MAX)
        self._latest: Producers[Origin, Batch] = Producers(ORIGINS_MAX)  # the last ones without positions

    @property
    def position(self) -> int:
        """The highest one that came on this connection; 0 if none did."""
        return self._position

    # Opening, for the first time and after each cut

    def arguments(self) -> dict[str, Any]:
        """The arguments of the request that begins it on a new connection."""
        self._remember()
        self._granted = max(0, self.prefetch - self._held)
        self._received = self._position = self._acknowledged_sent = 0
        self._is_late = False
        wanted = self.wanted
        arguments: dict[str, Any] = msgspec.to_builtins(wanted)  # without what is as usual
        if wanted.is_stream and self._next is not None:
            arguments.pop("since_us", None)
            arguments["since"] = self._next
        return {**arguments, "number": self.number, "credit": self._granted}

    def opened(
        self, position: int, has_moved: bool = False, is_exact: bool = False, has_others: bool = False
    ) -> None:
        """The node has begun it; `position` is that of the last stored event.

        `has_moved`: the node has what came while the client was on its way; `is_exact`: and nothing else.
        `has_others`: what other nodes have stored meanwhile is not part of what goes on.
        """
        if is_exact:
            self._had_counters = Producers(ORIGINS_MAX)
        goes_on = self.wanted.durable or has_moved or (self.wanted.is_stream and not has_others)
        if self.begun.is_over and not goes_on:
            self.subscriber.gap(0, "disconnected")
        if self._next is None and self.wanted.since is None and self.wanted.since_us is None:
            self._next = position + 1

    def forget_positions(self) -> None:
        """The store is another one now: positions mean nothing there."""
        self._next = None
        self._had_position = self._position = self._acknowledged = 0

    def move(self) -> None:
        """The node is another one: what it had not seen acknowledged may come again, at other positions."""
        for batch, positions in self._recent:
            for event, position in zip(batch.events, positions, strict=True):
                self._carried[_key_of(event)] = self.life, position
        for position, (key, former) in self._again.items():
            self._carried[key] = former
            if position <= self._acknowledged:
                self._owed[former[0]] = max(former[1], self._owed.get(former[0], 0))
        self._owed[self.life] = self._acknowledged
        while len(self._carried) > CARRIED_MAX:
            del self._carried[next(iter(self._carried))]
        self._recent.clear()
        self._recent_count = 0
        self._again.clear()
        self.life += 1
        self.forget_positions()

    def _remember(self) -> None:
        """Note what the application has had, so that it is left out if it comes again."""
        self._had_position = max(self._had_position, self._position)
        for producer, batch in self._latest.items():
            self._had_counters.put(producer, _last_counter(batch))
        self._latest.clear()

    # Deliveries

    def take(self, message: Deliver, raw: bytes) -> None:
        """Hand a delivery on, less what was had before; CodecError if it is none."""
        batch = self.batch_of(message, raw)
        positions: Sequence[int] | None = None
        self._received += len(batch)
        if message.positions is None:
            batch = self._unseen(batch)
        else:
            batch, positions = self._unread(
                batch, unpack_numbers(message.positions, len(batch), "$.Deliver.positions")
            )
            if self._carried:
                batch, positions = self._uncarried(batch, positions)
            if self.wanted.durable is not None and len(batch):
                self._keep(batch, positions)
        if self._is_late:
            self._is_late = False
            batch = LateBatch(batch.raw, batch.origin, batch.offsets)
        if len(batch):
            self._held += len(batch)
            self.subscriber.deliver(batch, positions, message.redelivered)

    def announce_late(self) -> None:
        """The next delivery has events that were reported as missed."""
        self._is_late = True

    def batch_of(self, message: Deliver, raw: bytes) -> Batch:
        """Return the events of a delivery."""
        if isinstance(message, Relay):
            return _relayed(message, raw)
        return Batch(raw, Origin(message.system, message.epoch, message.source))

    def _unread(self, batch: Batch, positions: Sequence[int]) -> tuple[Batch, Sequence[int]]:
        """Return the stored events that were not delivered before the cut."""
        self._position = max(self._position, max(positions, default=0))
        self._next = self._position + 1
        if self.wanted.order == "newest":
            return batch, positions  # what comes again is marked; positions do not show it
        rows = [row for row, position in enumerate(positions) if position > self._had_position]
        if len(rows) == len(positions):
            return batch, positions
        return batch.take(rows), [positions[row] for row in rows]

    def _keep(self, batch: Batch, positions: Sequence[int]) -> None:
        """Remember events of a durable subscription, which may come again elsewhere."""
        self._recent.append((batch, positions))
        self._recent_count += len(positions)

    def _uncarried(self, batch: Batch, positions: Sequence[int]) -> tuple[Batch, Sequence[int]]:
        """Return the events that were not delivered at a former node; the others have new positions now."""
        rows: list[int] = []
        for row, event in enumerate(batch.events):
            key = _key_of(event)
            former = self._carried.pop(key, None)
            if former is None:
                rows.append(row)
                continue
            position = positions[row]
            self._again[position] = key, former
            if former[1] <= self._owed.get(former[0], 0):
                self._acknowledged = max(self._acknowledged, position)
        return batch.take(rows), [positions[row] for row in rows]

    def _unseen(self, batch: Batch) -> Batch:
        """Return the events of a batch without positions that did not arrive before the cut.

        Counters grow, so the first batch with nothing to leave out is the last one to be looked at.
        """
        assert batch.origin is not None
        origin = _producer_of(batch.origin)
        had = self._had_counters.get(origin)
        if had is not None:
            rows = [row for row, event in enumerate(batch.events) if event.counter > had]
            if len(rows) < len(batch):
                self._had_counters[origin] = max(had, batch.events[-1].counter)
                return batch.take(rows)
            del self._had_counters[origin]
        if len(batch):
            self._latest.put(origin, batch)
        return batch

    # What the application does

    def consume(self, count: int) -> None:
        """The application has taken so many events, and there is room for as many more."""
        self._held -= count

    def acknowledge(self, position: int, life: int | None = None) -> None:
        """Everything up to this position was dealt with, or up to this delivery if the newest come first.

        `life` is that in which it was delivered, if not this one.
        """
        if life is not None and life != self.life:
            self._acknowledge_former(position, life)
            return
        is_newest = self.wanted.order == "newest"
        self._acknowledged = position if is_newest else max(self._acknowledged, position)
        while self._recent and self._recent[0][1][-1] <= position:
            if self._recent_count - len(self._recent[0][1]) < self.prefetch:
                break  # no more than that is on its way to the client when the node is asked to hand it over
            self._recent_count -= len(self._recent.popleft()[1])

    def _acknowledge_former(self, position: int, life: int) -> None:
        """The same for an event that was delivered at a former node: by now it may have come again."""
        self._owed[life] = max(position, self._owed.get(life, 0))
        for now, (_, former) in self._again.items():
            if former[0] == life and former[1] <= position:
                self._acknowledged = max(self._acknowledged, now)

    def output(self) -> list[bytes]:
        """The frames that are due: an acknowledgement, and credit once half of it is used up."""
        frames = []
        # What was not sent on this connection the node does not take as acknowledged.
        position = min(self._acknowledged, self._position)
        if position > self._acknowledged_sent or (
            self.wanted.order == "newest" and position != self._acknowledged_sent
        ):
            self._acknowledged_sent = position
            frames.append(encode(Acknowledge(self.number, position)))
        total = self._received + self.prefetch - self._held
        if total - self._granted >= max(1, self.prefetch // 2):
            self._granted = total
            frames.append(encode(Credit(self.number, total)))
        return frames


_EventKey = tuple[str | None, int, int]
"""System, epoch and counter of an event, which it has at all nodes."""
_Former = tuple[int, int]
"""A life of a subscription, and a position in it."""


def _key_of(event: Event) -> _EventKey:
    origin = event.origin or Origin()
    return origin.system, origin.epoch, event.counter


def _producer_of(origin: Origin) -> Origin:
    """Return who has counted the events of an origin: its source has another name at each node."""
    return origin if origin.system is None else Origin(origin.system, origin.epoch)


def _relayed(message: Relay, raw: bytes) -> RelayedBatch:
    """Return events that a neighbour node has handed on."""
    try:
        check_system(message.first_node)
    except EventError as error:
        raise CodecError("$.Relay.first", error.problem) from None
    packed, count = message.positions if message.numbers is None else message.numbers, count_in_head(raw)
    if isinstance(packed, int):
        if not 0 < packed <= NUMBER_MAX - count:
            raise CodecError("$.Relay.numbers", f"{packed} is no number of an event")
        numbers: GrowingNumbers = range(packed, packed + count)
    else:
        numbers = unpack_numbers(packed or b"", count, "$.Relay.numbers")
    origin = ForwardedOrigin(message.system, message.epoch, message.source)
    first = FirstNode(message.first_node, message.first_epoch, message.is_volatile)
    after = message.after if isinstance(message, OrderedRelay) else b""
    batch = RelayedBatch(raw, origin, first, numbers, max(0, message.age_us), is_again=message.is_again)
    batch.after, batch.is_repeat = after, message.is_repeat
    return batch


def _last_counter(batch: Batch) -> int:
    """Return the counter of the last event; 0 where the bytes are no events, which the reader reports."""
    try:
        return batch.events[-1].counter
    except CodecError:
        return 0


class InterestListener(EndListener, Protocol):
    """Listener to the demand for an advertisement."""

    def changed(self, filters: list[str]) -> None:
        """These filters want it now; called whenever they change, and after each new connection."""


class ClientAdvertisement(Opening):
    """An advertisement."""

    __slots__ = ("filter", "interest")

    def __init__(self, number: int, filter: str, interest: InterestListener) -> None:
        super().__init__(number, interest)
        self.filter = filter
        self.interest = interest
