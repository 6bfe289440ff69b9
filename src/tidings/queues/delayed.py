"""Messages that are not to be handed out before a moment, and how their senders ask for that.

A message carries its plan in its header: a delay that counts from its arrival, or a moment of the wall clock.
So the moment is a function of the message alone, like its place in the order, and is the same after a
restart. Few messages have a plan: MARK is in the bytes of those that do, and others are not decoded for it.

Until its moment a message is neither on the shelf nor in anyone's hands, so readers do not pass over it. The
earliest moment is one of those at which its queue is woken, however many messages are delayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from struct import Struct as StructFormat
from zlib import crc32

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from tidings.errors import QueueError
from tidings.event.header import EMPTY_HEADER
from tidings.event.wire import decode_event
from tidings.queues.description import DELAY_S_MAX, GROUP_LENGTH_MAX
from tidings.queues.message import QueuedMessage, event_bytes
from tidings.timers import Timers

JITTER = 0.25
"""The part of a pause by which it may be longer."""
MARK = b"queue_"
"""In the bytes of all messages that have a plan: the fields of the header are called so."""


class Plan(Struct, frozen=True, gc=False):
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
        """How long that is away at most, wherever the wall clock was set to meanwhile."""
        return DELAY_S_MAX if self.queue_delay_s is None else self.queue_delay_s


class _Planned(Struct, array_like=True, gc=False):
    """An event on the wire, of which only the plan is looked at."""

    counter: Raw
    type: Raw
    time_us: Raw
    values: Raw
    header: Plan | None


_decode = msgspec.msgpack.Decoder(_Planned).decode
_NONE = Plan()
_SPREAD = StructFormat(">QI")
_NUMBER_MASK = (1 << 64) - 1


def plan_of(raw: bytes) -> Plan | None:
    """Return the plan of an event on the wire in which MARK was found, which may not have one."""
    plan = _decode(raw).header
    return None if plan == _NONE else plan


def check_plan(plan: Plan, queue: str, wall: float) -> None:
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


class Delayed:
    """The messages of one queue that are not due yet, by their numbers."""

    __slots__ = ("_messages", "_moments")

    def __init__(self) -> None:
        self._messages: dict[int, QueuedMessage] = {}
        self._moments: Timers[int] = Timers()

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, number: int) -> bool:
        return number in self._messages

    def messages(self) -> list[QueuedMessage]:
        """Return all of them."""
        return list(self._messages.values())

    def add(self, message: QueuedMessage, at: float) -> None:
        """Keep a message until a moment of the clock that never jumps."""
        self._messages[message.number] = message
        self._moments.at(at, message.number)

    def remove(self, number: int) -> QueuedMessage:
        """Take out a message before its moment."""
        self._moments.cancel(number)
        return self._messages.pop(number)

    @property
    def wake_at(self) -> float:
        """When the first one may be due."""
        return self._moments.wake_at if self._messages else inf

    def due(self, now: float, most: int) -> Iterator[QueuedMessage]:
        """Take out the messages that are due, the earliest first, some of many."""
        for number in self._moments.due(now, most):
            yield self._messages.pop(number)

    def clear(self) -> Iterator[QueuedMessage]:
        """Take out all of them; they are forgotten at once."""
        messages, self._messages = self._messages, {}
        self._moments = Timers()
        return iter(messages.values())
