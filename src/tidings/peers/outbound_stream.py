"""A lane: one numbered stream to another node, and the messages of a transmission queue that are on it.

It gets the answers to them, and settles them in the order in which they were sent. The other node keeps an
answer until its result is on disk here: `seen` says how far that is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidings.event.header import EMPTY_HEADER
from tidings.event.wire import decode_event
from tidings.ids import Origin
from tidings.protocol.forwarding import ForwardSender
from tidings.protocol.messages import Failure
from tidings.queues.delayed import MARK, shortened
from tidings.queues.inflight import InFlight
from tidings.queues.message import QueuedMessage, event_bytes
from tidings.queues.queue import MessageQueue

if TYPE_CHECKING:
    from tidings.peers.forwarder import Forwarder

UNDER_WAY_MAX = 8_000
"""Messages that may be under way on one stream: fewer than the other node remembers refusals."""

Says = Callable[[], tuple[str, str]]

_NO_ORIGIN = Origin()


class OutboundStream:
    """One stream to the other node, and what is under way on it; one with a `sweep` descends from there."""

    def __init__(self, forwarder: Forwarder, epoch: int, sweep: int, says: Says | None) -> None:
        self.sweep = sweep
        self.sender: ForwardSender[InFlight] = ForwardSender(
            Origin(forwarder.outgoing.broker.node, epoch), self, says
        )
        self.settled = forwarder.outgoing.settle_held
        self._forwarder = forwarder
        # Up to which numbers all is settled, by the mark of the commit that says so.
        self._settled: deque[tuple[int, int]] = deque()

    def counter_of(self, number: int) -> int:
        """The number of a message on this stream."""
        return self.sweep - number + 1 if self.sweep else number

    @property
    def has_room(self) -> bool:
        """Whether further messages may be under way, as far as their number goes."""
        return len(self.sender.stream) < UNDER_WAY_MAX

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self.sender.stream)

    # What the other node says

    def welcomed(self, counter: int) -> None:
        """Note that the stream is welcomed: the other node has everything up to this number."""
        self._forwarder.welcomed(self, counter)

    def accepted(self, counter: int) -> None:
        """Note that the other node has everything up to this number."""
        self.note_settled(counter)
        self._forwarder.pump()

    def lost(self) -> None:
        """Note that the connection is lost."""
        self._forwarder.lost(self)

    def failure_of(self, counter: int) -> Failure | None:
        """Why it would not have what has this number, None if it has it; asked in ascending order."""
        refusal = self.sender.stream.refusal(counter)
        return None if refusal is None else refusal.failure

    # What is sent

    def send(self, run: list[InFlight]) -> None:
        """Send messages of one origin."""
        queue = self._forwarder.outgoing.queue
        numbers = [self.counter_of(held.message.number) for held in run]
        wall = self._forwarder.outgoing.broker.wall
        raws = [_as_it_leaves(queue, held.message, wall) for held in run]
        origin = run[0].message.origin or _NO_ORIGIN
        parts = queue.parts_of(run[0].message.number)
        self.sender.send(self._forwarder.outgoing.target, origin, numbers, raws, run, parts)

    def give_back(self) -> None:
        """Give back messages that are under way and may have to be sent again."""
        queue = self._forwarder.outgoing.queue
        for one in self.sender.stream.cut():
            if queue.held.get(one.message.number) is one:
                queue.give_back(one, counts=False)

    def failed(self) -> None:
        """Commits were not made: it is not known what was settled."""
        self._settled.clear()

    # What the other node need not remember any more

    def note_settled(self, counter: int) -> None:
        """All up to this number is settled with this tick's commit."""
        self._settled.append((self._forwarder.outgoing.broker.mark, counter))

    @property
    def is_unseen(self) -> bool:
        """Whether anything is settled that was not on disk."""
        return bool(self._settled)

    def durable(self, mark: int) -> None:
        """The commits up to this mark are on disk."""
        while self._settled and self._settled[0][0] <= mark:
            self.sender.seen = max(self.sender.seen, self._settled.popleft()[1])


def _as_it_leaves(queue: MessageQueue, message: QueuedMessage, wall: float) -> bytes:
    """The bytes of a message; its ttl and its delay are what is left of them."""
    raw = shortened(message.raw, message.number, wall) if MARK in message.raw else message.raw
    if not queue.description.expiry or b"ttl_s" not in raw:  # most have none, and need not be decoded
        return raw
    event = decode_event(raw)
    header = event.header or EMPTY_HEADER
    if header.ttl_s is None:
        return raw
    return event_bytes(replace(event, header=replace(header, ttl_s=queue.left_s(message.number))))
