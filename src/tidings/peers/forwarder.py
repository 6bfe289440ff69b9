"""A forwarder: empties one transmission queue into another node, each message once, without I/O.

A message has a number in its queue, which grows and is stored. These numbers are those of the stream to the
other node, whose system is this node and whose epoch is the queue. So, whatever was cut or killed meanwhile,
the other node says when it opens the stream up to which number it has had everything, and what it would not
have: that is settled here, and the rest is sent.

| phase | what happens | what is done | phase then |
| --- | --- | --- | --- |
| down | welcomed | settle what was had | asking, or flowing |
| asking | the sweep is welcomed | settle what of it was had | storing, or flowing |
| storing | the new sweep is on disk | | flowing |
| flowing | a message is on disk | send it | flowing |
| flowing | accepted, refused | settle it | flowing |
| any | lost | give back what is under way | down |

With `newest` first, what has gathered while the other node was away must not hold up what comes now. When the
link is there again, a number above all that has gathered is stored with the queue: the *sweep*. What is above
it goes as it comes; what is not goes on a second stream, whose epoch is that number, in descending order and
so under the numbers `sweep - number + 1`, which grow. Before another sweep is begun both streams say what was
had, so a message is on one stream at a time.

`pump` is on the hot path: it takes bytes as they are, in runs of one origin.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from typing import Literal

from tidings.filters import Filter
from tidings.peers.outbound_stream import OutboundStream
from tidings.peers.registry import ForwardOrder
from tidings.peers.transmission import OutgoingMessage
from tidings.queues.inflight import InFlight

RUN_SIZE = 64 << 10
"""Bytes of events after which a frame is closed."""
RUN_COUNT = 500
"""Events in one frame."""

Phase = Literal["down", "asking", "storing", "flowing"]

_ANYTHING = Filter()


class Forwarder:
    """Forwarder of one transmission queue. Its owner opens `senders`, and has their output sent."""

    def __init__(self, outgoing: OutgoingMessage, order: ForwardOrder = "oldest") -> None:
        self.outgoing = outgoing
        self.phase: Phase = "down"
        self.on_change: Callable[[], None] = lambda: None
        """Called when there may be something to be sent, or `senders` has changed."""
        self.trouble: Callable[[str], None] = lambda _problem: None
        """Called with the reason for which nothing can be forwarded."""
        self.is_closed = False
        self._order = order
        self._main = OutboundStream(self, outgoing.queue.key, 0)
        self._swept: OutboundStream | None = None  # the stream of the sweep
        self._backlog: array[int] = array("Q")  # what is to be swept; the last one first
        self._stored = 0  # the commit that says which sweep it is
        outgoing.forwarder = self

    @property
    def senders(self) -> list[OutboundStream]:
        """The streams that are to be open."""
        if self.is_closed:
            return []
        if self._swept is None or self.phase == "down":
            return [self._main]
        return [self._main, self._swept]

    @property
    def is_attended(self) -> bool:
        """Whether the other node is there, and takes what is put."""
        return self.phase == "flowing"

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to be done."""
        return not self.outgoing.queue.size

    def close(self) -> None:
        """Forward no more; what is under way stays in the queue."""
        if not self.is_closed:
            self.lost(self._main)
            self.is_closed = True
            self.outgoing.forwarder = None
            self.on_change()

    @property
    def _lanes(self) -> list[OutboundStream]:
        return [self._main] if self._swept is None else [self._main, self._swept]

    def _is_used(self, lane: OutboundStream) -> bool:
        """Whether a stream is one of those in use; another may still have something to say."""
        return lane is self._main or lane is self._swept

    # What the streams say

    def welcomed(self, lane: OutboundStream, counter: int) -> None:
        """The other node has had everything of a stream up to this number."""
        if not self._is_used(lane):
            return
        self._settle(lane, counter)
        lane.note_settled(counter)
        if lane is self._main:
            self.outgoing.meet(lane.node)
            sweep, first = self.outgoing.sweep, self.outgoing.queue.shelf.first()
            self.phase = "asking"
            if first is not None and first <= sweep:
                self._swept = OutboundStream(self, sweep, sweep)
                self.on_change()
                return
            self._swept = None
        if self.phase == "asking":
            self._plan()
        self.pump()

    def _settle(self, lane: OutboundStream, counter: int) -> None:
        """Settle what is in the queue, and the other node has had."""
        sweep, shelf = self.outgoing.sweep, self.outgoing.queue.shelf
        if lane.sweep:
            had = [number for number in shelf if sweep - counter < number <= sweep]
            had.reverse()
        else:
            had = [one for one in takewhile(lambda one: one <= counter, shelf) if one > sweep]
        for number in had:
            self.outgoing.settle(number, lane.failure_of(lane.counter_of(number)))

    def lost(self, lane: OutboundStream) -> None:
        """A stream is lost: all begins anew, when the other node is there again."""
        if self.phase == "down" or not self._is_used(lane):
            return
        self.phase = "down"
        for one in self._lanes:
            one.give_back()
        self._swept = None
        self._backlog = array("Q")
        self.outgoing.answer_all()
        self.on_change()

    # What is sent

    def _plan(self) -> None:
        """The other node has said what it has had: see in which order it gets the rest."""
        shelf, sweep = self.outgoing.queue.shelf, self.outgoing.sweep
        newer = next(shelf.find(_ANYTHING, sweep), None)
        if self._order == "newest" and newer is not None and len(shelf) > 1:
            self._stored = self.outgoing.begin_sweep()
            self._swept = None
            self.phase = "storing"
        else:
            self._flow()

    def _flow(self) -> None:
        self.phase = "flowing"
        self.outgoing.error = ""
        sweep, shelf = self.outgoing.sweep, self.outgoing.queue.shelf
        self._backlog = array("Q", takewhile(lambda one: one <= sweep, shelf)) if sweep else array("Q")
        if self._backlog and self._swept is None:
            self._swept = OutboundStream(self, sweep, sweep)
            self.on_change()

    def pump(self) -> None:
        """Send what may be sent; to be called whenever more is on disk, or more may be under way."""
        is_quiet = self._swept is None and not self._main.is_unseen and self.phase == "flowing"
        if is_quiet and not len(self.outgoing.queue.shelf):
            return  # as mostly, and there may be many of these
        durable = self.outgoing.broker.mark_durable
        for lane in self._lanes:
            lane.durable(durable)
        if self.phase == "storing" and self._stored <= durable:
            self._flow()
        if self.phase != "flowing":
            return
        self.outgoing.queue.deadlines.sweep()
        is_sent = self._fill(self._main, self._coming)
        if self._swept is not None and self._swept.is_up:
            is_sent = self._fill(self._swept, self._swept_next) or is_sent
            self._end_sweep()
        if is_sent:
            self.on_change()

    def _end_sweep(self) -> None:
        """Close the stream of the sweep, if all of it was had."""
        if self._swept is not None and not self._backlog and not self._swept.stream:
            self._swept = None
            self.on_change()

    def _fill(self, lane: OutboundStream, following: Callable[[], Iterable[int]]) -> bool:
        """Send runs on a stream while it has room; whether there were any."""
        is_sent = False
        while lane.has_room:
            run = self._run(lane, following())
            if not run:
                break
            lane.send(run)
            is_sent = True
        return is_sent

    def _coming(self) -> Iterable[int]:
        """The messages that go as they come, in order."""
        shelf, sweep = self.outgoing.queue.shelf, self.outgoing.sweep
        if not sweep or not self._backlog:
            return islice(shelf, RUN_COUNT)
        return islice(shelf.find(_ANYTHING, sweep), RUN_COUNT)

    def _swept_next(self) -> Iterator[int]:
        """Return what has gathered, the newest first; forget what is taken off the shelf."""
        backlog, shelf = self._backlog, self.outgoing.queue.shelf
        while backlog and backlog[-1] not in shelf:
            backlog.pop()
        return (number for number in islice(reversed(backlog), RUN_COUNT) if number in shelf)

    def _run(self, lane: OutboundStream, numbers: Iterable[int]) -> list[InFlight]:
        """Take the first of these that are on disk and can be in one frame that fits the window."""
        queue, broker, fresh = self.outgoing.queue, self.outgoing.broker, self.outgoing.manager.fresh
        durable, holder = broker.mark_durable, (broker.node, queue.key)
        room = min(lane.room, RUN_SIZE)
        chosen: list[int] = []
        size = 0
        origin = None
        for number in numbers:
            message = queue.shelf[number]
            if queue.deadlines.is_expired(number):
                continue
            if fresh.get(number, 0) > durable:
                break
            parts = queue.parts.of(number)
            size += len(message.raw) + sum(map(len, parts))
            if chosen and (message.origin != origin or size > room or parts):
                break
            if size > lane.room and not lane.is_clear:
                break
            origin = message.origin
            chosen.append(number)
            if parts:
                break
        return [queue.take(number, holder) for number in chosen]

    def failed(self) -> None:
        """Commits were not made: what was put with them is not there, and a sweep is not stored yet."""
        self._stored = self.outgoing.broker.mark
        for lane in self._lanes:
            lane.failed()
