"""When messages may be handed out: plans and delays, turns in a group, and the rate of a queue.

A message carries its plan in its header: a delay that counts from its arrival, or a moment of the wall clock.
So the moment is a function of the message alone, like its place in the order, and is the same after a
restart. Few messages have a plan: MARK is in the bytes of those that do, and others are not decoded for it.

A message has one place: on the shelf, in flight, or in the schedule, where no reader passes over it:
there it is delayed, or behind others of its group. The queue says what comes, comes back and goes; the
schedule puts on the shelf what may be handed out, then and when a moment has come or a group moves on. The
earliest moment is one of those at which the queue is woken, however many messages are delayed. Where no
message has a plan, all of this is one check for None and one for an empty dict.

A message handed out by a queue with a rate costs a token; tokens come at that rate, up to those of BURST_S. A
search that was begun with enough tokens may end with too few: then the bucket is in debt, and others wait
longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from math import inf
from struct import Struct as StructFormat
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from tidings.errors import QueueError
from tidings.event.header import EMPTY_HEADER
from tidings.event.wire import decode_event
from tidings.queues.description import DEAD, DELAY_S_MAX, GROUP_LENGTH_MAX, TRANSMISSION
from tidings.queues.groups import Groups
from tidings.queues.message import QueuedMessage, event_bytes, with_ttl_left
from tidings.queues.offering import offer, offer_to
from tidings.timers import Timers

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker
    from tidings.queues.queue import MessageQueue

JITTER = 0.25
"""The part of a pause by which it may be longer."""
MARK = b"queue_"
"""In the bytes of all messages that have a plan: the fields of the header are called so."""
MARK_START = MARK[:5]
"""What of it is searched for in many messages at once: Python takes ten times as long for six bytes."""
BURST_S = 0.1
"""Seconds whose tokens a bucket holds, at least one token."""
_ROUNDING = 1e-6
"""A token that is there but for the rounding of moments is there."""


class DeliveryPlan(Struct, frozen=True, gc=False):
    """The part of the header that says when, and in which group, a queue may hand a message out."""

    queue_group: str | None = None

    queue_delay_s: float | None = None
    queue_due_us: int | None = None

    def due(self, number: int) -> float:
        """Return the moment of the wall clock from which on a message of this number may be handed out."""
        if self.queue_due_us is not None:
            return self.queue_due_us / 1e6
        return 0.0 if self.queue_delay_s is None else number / 1e6 + self.queue_delay_s

    @property
    def delay_s_most(self) -> float:
        """Return the longest time until then, wherever the wall clock was set to meanwhile."""
        return DELAY_S_MAX if self.queue_delay_s is None else self.queue_delay_s


class _Planned(Struct, array_like=True, gc=False):
    """An event on the wire, of which only the plan is looked at."""

    counter: Raw
    type: Raw
    time_us: Raw
    values: Raw
    header: DeliveryPlan | None


_decode = msgspec.msgpack.Decoder(_Planned).decode
_NONE = DeliveryPlan()
_SPREAD = StructFormat(">QI")
_NUMBER_MASK = (1 << 64) - 1


def plan_of(raw: bytes) -> DeliveryPlan | None:
    """Return the plan of an event on the wire in which MARK was found, which may not have one."""
    plan = _decode(raw).header
    return None if plan == _NONE else plan


def check_plan(plan: DeliveryPlan, queue: str, wall: float) -> None:
    """Raise QueueError for a delay, or the name of a group, that is too long."""
    if plan.queue_group is not None and len(plan.queue_group) > GROUP_LENGTH_MAX:
        problem = f"a group has a name of {len(plan.queue_group)} characters"
        raise QueueError(queue, f"{problem}; at most {GROUP_LENGTH_MAX} are allowed")
    away_s = plan.due(0) - (0.0 if plan.queue_due_us is None else wall)
    if not away_s <= DELAY_S_MAX:
        raise QueueError(queue, f"a delay of {away_s:.0f} s is too long; at most {DELAY_S_MAX:.0f} s")


def shortened(raw: bytes, number: int, wall: float) -> bytes:
    """Return an event with the rest of its delay, as it leaves a queue that has had it under this number."""
    plan = plan_of(raw)
    if plan is None or plan.queue_delay_s is None:
        return raw
    event = decode_event(raw)
    rest_s = max(0.0, plan.due(number) - wall)
    return event_bytes(replace(event, header=replace(event.header or EMPTY_HEADER, queue_delay_s=rest_s)))


def as_it_leaves(queue: MessageQueue, message: QueuedMessage, wall: float) -> bytes:
    """Return the bytes of a message of a queue for another one; its ttl and its delay are what is left."""
    raw = shortened(message.raw, message.number, wall) if MARK in message.raw else message.raw
    return with_ttl_left(raw, queue.deadlines.left_s(message.number)) if queue.description.expiry else raw


def put_off(message: QueuedMessage, wall: float, delay_s: float) -> QueuedMessage:
    """Return the message as it is not to be handed out for so long from now on."""
    event, due_us = message.event, int((wall + delay_s) * 1e6)
    header = replace(event.header or EMPTY_HEADER, queue_delay_s=delay_s, queue_due_us=due_us)
    return QueuedMessage(message.number, event_bytes(replace(event, header=header)), message.origin)


def pause_s(pauses: Sequence[float], number: int, delivery: int) -> float:
    """Return the pause after this delivery of a message, or the last one; it is up to JITTER longer.

    So messages that were given back together do not all come again at once. How much longer it is depends on
    the message and the delivery only, as nothing here is left to chance.
    """
    share = crc32(_SPREAD.pack(number & _NUMBER_MASK, delivery)) / 2**32
    return pauses[min(delivery, len(pauses)) - 1] * (1 + JITTER * share)


class Delayed(dict[int, QueuedMessage]):
    """The messages of one queue that are not due yet, by their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self._moments: Timers[int] = Timers()

    def add(self, message: QueuedMessage, at: float) -> None:
        """Keep a message until a moment of the clock that never jumps."""
        self[message.number] = message
        self._moments.at(at, message.number)

    def remove(self, number: int) -> QueuedMessage:
        """Take out a message before its moment."""
        self._moments.cancel(number)
        return self.pop(number)

    @property
    def wake_at(self) -> float:
        """When the first one may be due."""
        return self._moments.wake_at if self else inf

    def due(self, now: float, most: int) -> Iterator[QueuedMessage]:
        """Take out the messages that are due, the earliest first, some of many."""
        for number in self._moments.due(now, most):
            yield self.pop(number)


class TokenBucket:
    """The tokens of one queue."""

    __slots__ = ("_at", "_capacity", "_rate", "tokens")

    def __init__(self, rate: float, now: float, tokens: float | None = None) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate * BURST_S)
        self.tokens = self._capacity if tokens is None else tokens
        self._at = now

    def available(self, now: float) -> int:
        """Return how many messages may be handed out now."""
        self.tokens = min(self._capacity, self.tokens + (now - self._at) * self._rate)
        self._at = now
        return max(0, int(self.tokens + _ROUNDING))

    def take(self, count: int = 1) -> None:
        """Messages are handed out."""
        self.tokens -= count

    @property
    def wake_at(self) -> float:
        """When the next message may be handed out."""
        return self._at + max(0.0, 1.0 - self.tokens) / self._rate


class Schedule:
    """The messages of one queue that it has, and that nobody may have yet."""

    def __init__(self, queue: MessageQueue, broker: Broker) -> None:
        self.delayed = Delayed()
        self.groups: Groups | None = None  # made when a message of a group comes
        self._queue = queue
        self._broker = broker
        # Elsewhere messages are delayed where they go, or were before they died.
        self._is_used = not (queue.name.startswith(TRANSMISSION) or queue.name == DEAD or queue.kind.is_own)

    def __len__(self) -> int:
        return len(self.delayed) + self.behind

    def __contains__(self, number: int) -> bool:
        return number in self.delayed or self.is_behind(number)

    @property
    def behind(self) -> int:
        """Number of messages that wait for others of their groups."""
        return 0 if self.groups is None else len(self.groups.behind)

    def is_behind(self, number: int) -> bool:
        """Whether a message waits for others of its group."""
        return self.groups is not None and number in self.groups.behind

    def messages(self) -> list[QueuedMessage]:
        """Return all messages that are here."""
        behind = () if self.groups is None else [self.groups.behind[one] for one in self.groups.behind]
        return [*self.delayed.values(), *behind]

    # Plans

    def plan(self, raw: bytes) -> DeliveryPlan | None:
        """Return the plan of an event, if it has one; QueueError if that can't be."""
        plan = self._plan_of(raw)
        if plan is not None:
            check_plan(plan, self._queue.name, self._broker.wall)
        return plan

    def _plan_of(self, raw: bytes) -> DeliveryPlan | None:
        return plan_of(raw) if self._is_used and MARK in raw else None

    def is_early(self, message: QueuedMessage) -> bool:
        """Whether a message that a transaction has put is not due yet."""
        plan = self._plan_of(message.raw)
        return plan is not None and plan.due(message.number) > self._broker.wall

    # What comes and goes

    def enter(self, message: QueuedMessage, plan: DeliveryPlan, deliveries: int = 0) -> None:
        """Take a message that has come, or was restored after so many deliveries."""
        due = plan.due(message.number)
        if due <= self._broker.wall:
            self._place(message, plan)
            return
        self._delay(message, self._broker.deadline(due, plan.delay_s_most))
        if deliveries and plan.queue_group is not None:
            self._hold_up(message, plan.queue_group)

    def restore(self, message: QueuedMessage, deliveries: int) -> bool:
        """Take a message that was stored, if it has a plan; whether it has."""
        plan = self._plan_of(message.raw)
        if plan is not None:
            self.enter(message, plan, deliveries)
        return plan is not None

    def pause(self, message: QueuedMessage, delay_s: float) -> QueuedMessage:
        """Take a message that has come back, and waits for so long; as it is stored then."""
        later = put_off(message, self._broker.wall, delay_s)
        self._delay(later, self._broker.now + delay_s)
        return later

    def back(self, message: QueuedMessage) -> None:
        """Take a message that has come back, or whose pause is over."""
        if self.groups is not None and message.number in self.groups:
            self._make_way(message, self.groups.turn_with(message.number))
            self._advance(self.groups.back(message))
        else:
            self._queue.place(message)

    def rejoin(self, message: QueuedMessage) -> None:
        """A message that was gone is there again, and about to come back."""
        plan = self._plan_of(message.raw)
        if plan is not None and plan.queue_group is not None:
            self._grouped.hold(message.number, plan.queue_group)

    def leave(self, number: int) -> None:
        """A message is gone: another of its group may have its turn."""
        if self.groups is not None:
            self._advance(self.groups.leave(number))

    def pick(self, number: int) -> QueuedMessage:
        """Take out a message; in its group it still has its turn, or its place behind others."""
        if number in self.delayed:
            return self.delayed.remove(number)
        assert self.groups is not None
        return self.groups.behind.remove(number)

    def end_delays(self, most: int) -> None:
        """Put on the shelf what is due, of many messages some."""
        for message in self.delayed.due(self._broker.now, most):
            plan = plan_of(message.raw)
            is_new = self.groups is None or message.number not in self.groups
            if plan is not None and plan.queue_group is not None and is_new:
                self._place(message, plan)
            else:
                self.back(message)

    def clear(self) -> Iterator[QueuedMessage]:
        """Take out all of them."""
        delayed, self.delayed = self.delayed, Delayed()
        return chain(delayed.values(), () if self.groups is None else self.groups.clear())

    # The shelf

    def _delay(self, message: QueuedMessage, at: float) -> None:
        self.delayed.add(message, at)
        self._queue.deadlines.wake_at(at)

    @property
    def _grouped(self) -> Groups:
        if self.groups is None:
            self.groups = Groups(self._queue.kind.place)
        return self.groups

    def _place(self, message: QueuedMessage, plan: DeliveryPlan) -> None:
        """Place a message that is due, if it is its turn in its group."""
        name = plan.queue_group
        if name is not None:
            self._make_way(message, self._grouped.turn_of(name))
        if name is None or self._grouped.enter(message, name):
            self._queue.place(message)
        elif len(self._queue.waiting):
            offer(self._queue, message, is_behind=True)
            offer_to(self._queue, self._grouped.owner_of(name))

    def _hold_up(self, message: QueuedMessage, name: str) -> None:
        """Let the others of a group wait for a message that pauses, as they did before the node ended."""
        shelf = self._queue.shelf
        for number in [one for one in self._grouped.turn_of(name) if one in shelf]:
            self._grouped.put_behind(shelf.remove(number))
        self._grouped.hold(message.number, name)

    def _make_way(self, message: QueuedMessage, turn: Collection[int]) -> None:
        """Take its turn from a message on the shelf that comes after this one of its group."""
        shelf, locks, place = self._queue.shelf, self._queue.locks, self._queue.kind.place
        for number in [one for one in turn if one in shelf and one not in locks]:
            if place(message) < place(shelf[number]):
                self._grouped.put_behind(shelf.remove(number))

    def _advance(self, following: QueuedMessage | None) -> None:
        """Place the message whose turn it is in a group now, if there is one."""
        if following is None:
            return
        queue = self._queue
        if queue.deadlines.is_expired(following.number):  # it is swept out there
            queue.shelf.add(following.number, following, queue.kind.place(following))
        else:
            queue.place(following)
