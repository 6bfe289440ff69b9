"""Waiting until an ordered channel has come so far at a node, as members that move must.

How far a member has come is said as marks: the numbers up to which it got the events of each first node. The
node that it leaves lets it go when its own members got all that those of the other node had got before that
one began to gather for it. The other lets it come when its members got all that it had. So what it gets at
both nodes is one sequence in the order of the channel, and what it sends follows all that it had.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from tidings.channels.causal import MARKS_MAX, ChannelArrival, Marks, decode_names, mark_of, urgent
from tidings.errors import Disconnected
from tidings.event.relayed import RelayedBatch
from tidings.protocol.channels import is_expedited
from tidings.replies import Deferred

REACH_S = 20.0
"""How long events are waited for; then the client stays."""
MISS_S = 10.0
"""How long transient ones are, as they may be lost."""


class Progress(Protocol):
    """The order of a channel at this node."""

    def lacks(self, marks: Mapping[int, int]) -> list[int]:
        """Return up to which of these marks members have not got the events."""

    def skip(self, marks: Marks) -> None:
        """Wait for no transient events up to these marks."""


class _Waiting(Struct):
    marks: Marks
    since: float
    is_coming: bool
    reply: Deferred[None]


class Reaching:
    """The members that wait to leave this node, or to come to it, by channels."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[_Waiting]] = {}

    def __contains__(self, channel: str) -> bool:
        return channel in self._waiting

    def wait(self, channel: str, marks: Marks, is_coming: bool, now: float) -> Deferred[None]:
        """Return a reply that comes when members here have got all events up to these marks."""
        waiting = _Waiting(marks, now, is_coming, Deferred())
        self._waiting.setdefault(channel, []).append(waiting)
        return waiting.reply

    def look(self, channel: str, order: Progress, now: float) -> None:
        """Let go who need not wait any more."""
        waiting = self._waiting.pop(channel, [])
        left = [one for one in waiting if not self._is_over(one, order, now)]
        if left:
            self._waiting[channel] = [*left, *self._waiting.get(channel, ())]

    def _is_over(self, one: _Waiting, order: Progress, now: float) -> bool:
        lacking = order.lacks(one.marks)
        if lacking and now >= one.since + REACH_S:
            one.reply.fail(Disconnected("events of a channel are on their way for too long"))
            return True
        if any(not mark & 1 for mark in lacking) or (lacking and now < one.since + MISS_S):
            return False
        if one.is_coming:
            order.skip({mark: one.marks[mark] for mark in lacking})
        one.reply.resolve(None)
        return True

    def forget(self, channel: str) -> None:
        """A channel is not here any more."""
        for one in self._waiting.pop(channel, ()):
            one.reply.fail(Disconnected("the channel was deleted, or left"))


def learned(marks: Marks, batch: RelayedBatch) -> int:
    """Return how many events of a batch were sent before this node took part, up to these marks."""
    first, numbers = batch.first, batch.numbers
    last = marks.get(mark_of(first.node, first.epoch, first.is_volatile), 0)
    return bisect_right(numbers, last) if numbers[0] <= last else 0


def unlearned(marks: Marks, batch: RelayedBatch) -> RelayedBatch:
    """Return a batch without those events, or as it is if there are no others."""
    had = learned(marks, batch)
    return batch.slice(had, len(batch)) if 0 < had < len(batch) else batch


def beyond(told: bytes, batch: RelayedBatch) -> list[int]:
    """Return the rows of a batch that come after marks, which a member had at its former node."""
    marks, first = decode_names(told, MARKS_MAX), batch.first
    plain = ChannelArrival(first.node, first.epoch, first.is_volatile, 0)
    had, had_urgent = marks.get(plain.mark, 0), marks.get(urgent(plain).mark, 0)

    def is_beyond(row: int) -> bool:
        return batch.numbers[row] > (had_urgent if is_expedited(batch[row]) else had)

    return [row for row in range(len(batch)) if is_beyond(row)]
