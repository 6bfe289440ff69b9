"""The client's view of a subscription: an async iterator of events, inside an `async with` block.

It begins with the block and keeps arriving events from then on, so none is lost before the first one is
requested, and none is returned before. The rule for durable subscriptions: an event is acknowledged when the
next one is requested or when the block ends without an error, so an event that was not processed is
redelivered. Acknowledgements are sent when the loop runs next, many as one.

`__anext__` is on the hot path: while decoded events are there it does not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Literal, NamedTuple, Self, TypedDict

import msgspec

from tidings.client.sessions import read_as
from tidings.errors import Disconnected, FilterError, MissingExtra, NoAnswer, Refused, UserError
from tidings.event import Batch, Event
from tidings.filters import Converter, Filter
from tidings.filters.notes import HEADER_VALUES, KnownValues
from tidings.peers.registry import ForwardOrder
from tidings.protocol.arguments import InForce, OnSlow
from tidings.protocol.subscriber import ClientSubscription, MissedNumbers, Wanted
from tidings.replies import Deferred
from tidings.transport.link import TURN_EVENTS, Link, Wait

GAPS_KEPT = 100
"""Gaps that are remembered one by one."""
NOTED_LENGTH_MAX = 8_192
"""Characters of a filter that gets notes; a longer one, made by a program, would hold up the loop."""
LOGGER = logging.getLogger("tidings.notes")

AcknowledgeBy = Literal["auto", "client"]


class SubscribeOptions(TypedDict, total=False):
    """The options of `Bus.subscribe`, for callers that pass them on."""

    durable: str | None
    since: int | datetime | None
    last: bool
    passive: bool
    on_slow: OnSlow
    slow_key: str | None
    order: ForwardOrder
    acknowledge: AcknowledgeBy
    prefetch: int | None
    convert: Converter | Mapping[str, str] | None
    timeout_s: float | None


class Gap(NamedTuple):
    """Events that were not delivered: how many (0: unknown), why, and their numbers where these are known."""

    dropped: int
    reason: str
    missed: MissedNumbers | None = None


class ArrivedBatch(NamedTuple):
    """A batch as it arrived."""

    batch: Batch
    positions: Sequence[int] | None
    redelivered: bool
    life: int  # of the subscription: positions are those of one node


class Subscription:
    """The events that match a filter, as an async iterator inside `async with`; made by `Bus.subscribe`."""

    def __init__(
        self,
        link: Link,
        wanted: Wanted,
        prefetch: int,
        by: AcknowledgeBy,
        timeout_s: float | None,
        convert: Converter | None = None,
    ) -> None:
        self.gaps: deque[Gap] = deque(maxlen=GAPS_KEPT)
        """The last gaps."""
        self.dropped: int = 0
        """Events known to have been dropped."""
        self._link = link
        self._wanted = wanted
        self._prefetch = prefetch
        self._timeout_s = timeout_s
        self._convert = convert
        self._is_auto = wanted.durable is not None and by == "auto"
        self._is_by_hand = wanted.durable is not None and by == "client"
        self._inner: ClientSubscription | None = None
        self._arrived: deque[ArrivedBatch] = deque()
        self._waiting: Wait | None = None
        self._reason: str | None = None  # why it has ended
        self._events: list[Event] = []  # of the delivery that is being handed out
        self._positions: Sequence[int] | None = None
        self._life = 0
        self.redelivered: bool = False
        """Whether the last event may have been delivered before."""
        self.late: bool = False
        """Whether the last event comes after it was reported as missed, so out of the order of its node."""
        self.missing: list[str] = []
        """With `last`, or a time as `since`: the nodes that could not be asked for what they have."""
        self._at = 0  # how many of these were handed out
        self._turn_ends = 0
        self._open: deque[tuple[Event, int, int]] = deque()  # handed out and to be acknowledged by hand

    @property
    def is_stored(self) -> bool:
        """Whether its events have positions: it is durable, or reads stored events."""
        return self._wanted.durable is not None or self._wanted.is_stream

    # The block

    async def __aenter__(self) -> Self:
        if self._inner is not None:
            raise UserError("a subscription can be entered once; make another")
        self._link.flush_soon()
        inner = self._inner = self._link.core.subscribe(self._wanted, self, self._prefetch)
        try:
            begun = self._link.outcome(inner.begun)
            told = await self._link.within(begun, self._timeout_s, "subscribe", "answered")
            self.missing = read_as(told.get("missing", []), list[str], "$.missing")
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._leave()
            return
        if self._is_auto:
            self._acknowledge_last()
        await self.leave()

    async def leave(self) -> None:
        """End it without acknowledging anything further; the node keeps a durable subscription."""
        with suppress(NoAnswer, Disconnected):  # the node then ends it with the connection
            await self._link.within(self._link.outcome(self._leave()), None, "unsubscribe", "answered")

    def _leave(self) -> Deferred[None]:
        assert self._inner is not None
        self._reason = self._reason or "left"
        self._arrived.clear()
        self._notify()  # a task that waits finds that nothing more comes
        left = self._link.core.unsubscribe(self._inner)
        self._link.flush_soon()
        return left

    def rejoin_by(self, reference: str) -> None:
        """Join a channel by another reference from now on, after a cut."""
        self._wanted = msgspec.structs.replace(self._wanted, reference=reference)
        if self._inner is not None:
            self._inner.wanted = self._wanted

    async def in_force(self, *, timeout_s: float | None = None) -> InForce:
        """Wait until all nodes of the network know of this subscription, and return since which event.

        All later reliable events that match come exactly once. A node that can't be reached is named as
        `missing`; it learns of the subscription when it can. At a node without links this returns at once.
        """
        reply = await self._link.call("in_force", {}, timeout_s, "again")
        return msgspec.convert(reply, InForce)

    # The iterator

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        at = self._at
        if self._is_auto and at:
            self._acknowledge_last()
        if at == self._turn_ends:
            await self._advance()
            at = self._at
        self._at = at + 1
        event = self._events[at]
        if self._is_by_hand and self._positions is not None:
            self._open.append((event, self._positions[at], self._life))
        return event

    async def take(self) -> list[Event]:
        """Return all events that are decoded already; waits for at least one.

        On a durable subscription the next request acknowledges all of them together.
        """
        events = [await self.__anext__()]
        at, end = self._at, len(self._events)
        if self._is_by_hand and self._positions is not None:
            self._open.extend(
                (event, position, self._life)
                for event, position in zip(self._events[at:], self._positions[at:], strict=True)
            )
        events += self._events[at:]
        self._at = self._turn_ends = end
        return events

    async def _advance(self) -> None:
        """Let other tasks run, then go on with this delivery or wait for the next one."""
        if self._at < len(self._events):
            await asyncio.sleep(0)
        else:
            while not self._arrived:
                await self._wait_arrival()
            self._begin(self._arrived.popleft())
        self._turn_ends = min(len(self._events), self._at + TURN_EVENTS)

    async def _wait_arrival(self) -> None:
        if self._inner is None:
            raise UserError(
                "a subscription begins with its block: write `async with bus.subscribe(…) as events:`, "
                "then `async for event in events:`"
            )
        if self._reason in ("left", "unsubscribed"):
            raise StopAsyncIteration  # it was ended on purpose
        if self._reason is not None:
            problem = f"the subscription was ended: {self._reason}"
            raise self._link.core.failure or Refused("ended", problem)
        if self._waiting is not None:
            raise UserError("two tasks can't iterate over one subscription")
        self._waiting = self._link.future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _begin(self, delivery: ArrivedBatch) -> None:
        """Begin a delivery; events with explicit acknowledgement use their credit until acknowledged."""
        batch, positions, redelivered, self._life = delivery
        assert self._inner is not None
        if not self._is_by_hand or positions is None:
            self._link.core.consume(self._inner, len(batch))
            self._link.flush_soon()
        self._events, self._at = batch.events, 0
        if self._convert is not None:
            self._events = [self._convert(event) for event in batch.events]
        self._positions, self.redelivered, self.late = positions, redelivered, batch.is_late

    @property
    def position(self) -> int | None:
        """The position of the last event in the log; None if it is not stored."""
        return self._positions[self._at - 1] if self._positions is not None and self._at else None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._reason is not None

    @property
    def pending(self) -> int:
        """Events that have arrived and were not returned yet."""
        return len(self._events) - self._at + sum(len(arrived.batch) for arrived in self._arrived)

    # Acknowledging

    def _acknowledge_last(self) -> None:
        if self._positions is not None and self._at and self._reason is None:
            assert self._inner is not None
            self._link.core.acknowledge(self._inner, self._positions[self._at - 1], self._life)
            self._link.flush_soon()

    async def acknowledge(self, event: Event) -> None:
        """Acknowledge this event and all before it; for `acknowledge="client"`.

        An event that is not stored, or was acknowledged with a later one, is ignored.
        """
        if not self._is_by_hand:
            raise UserError("acknowledge needs a durable subscription with acknowledge='client'")
        if all(event is not held for held, _, _ in self._open):
            return
        assert self._inner is not None
        count, position, life, held = 0, 0, 0, None
        while held is not event:
            held, position, life = self._open.popleft()
            count += 1
        self._link.core.consume(self._inner, count)
        self._link.core.acknowledge(self._inner, position, life)
        self._link.flush_soon()
        await asyncio.sleep(0)  # it has left when this returns

    # What the core calls

    def deliver(self, batch: Batch, positions: Sequence[int] | None, redelivered: bool) -> None:
        """Keep a batch until the application requests it."""
        life = 0 if self._inner is None else self._inner.life
        self._arrived.append(ArrivedBatch(batch, positions, redelivered, life))
        self._notify()

    def gap(self, dropped: int, reason: str, missed: MissedNumbers | None = None) -> None:
        """Count events that were not delivered."""
        self.gaps.append(Gap(dropped, reason, missed))
        self.dropped += dropped

    def ended(self, reason: str) -> None:
        """Stop after the events that have arrived."""
        self._reason = reason
        self._notify()

    def _notify(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


# Notes on filters, in the log of the program


def noted(filter: Filter | str) -> str:
    """Return the text of a filter for the node, and log the notes on it as warnings.

    The node reports a text that is no filter, and evaluates functions that are not installed here.
    """
    text = str(filter)
    if len(text) <= NOTED_LENGTH_MAX and LOGGER.isEnabledFor(logging.WARNING):
        with suppress(FilterError, MissingExtra):
            log_notes(filter if isinstance(filter, Filter) else Filter(text))
    return text


def log_notes(filter: Filter, known: Mapping[str, KnownValues] = HEADER_VALUES) -> None:
    """Log the notes on a filter as warnings; `known` are the values that attributes have."""
    for note in filter.notes_with(known):
        LOGGER.warning("filter: %s", note)
