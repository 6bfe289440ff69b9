"""A lane: one numbered stream of FORWARD to another node, without I/O, and the messages that are on it.

The messages are those of a transmission queue, under its numbers, which grow and are stored. Unlike a
client's `Connection`, a stream numbers nothing itself: after a cut or a crash the same messages are sent
again, under the same system and epoch. When the other node welcomes the stream, it reports up to which number
it has had everything.

The stream gets the answers to them, and settles them in the order in which they were sent. The other node
keeps an answer until its result is on disk here: `seen` says how far that is.

A driver moves it as it moves a Connection: `connect`, `receive`, `lost`, `wake` at `wake_at`, and `output`
after each of these and after what was sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from struct import pack
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tidings.event.header import EMPTY_HEADER
from tidings.event.wire import array_head, decode_event
from tidings.ids import Origin
from tidings.numbered import Outbound
from tidings.protocol.frames import encode
from tidings.protocol.keepalive import KeepAlive
from tidings.protocol.messages import (
    VERSION,
    Accepted,
    Bye,
    Failure,
    Forward,
    Hello,
    Refusal,
    Welcome,
    error_of,
)
from tidings.queues.inflight import InFlight
from tidings.queues.message import QueuedMessage, event_bytes
from tidings.queues.queue import MessageQueue
from tidings.queues.schedule import MARK, shortened

if TYPE_CHECKING:
    from tidings.peers.forwarder import Forwarder

UNDER_WAY_MAX = 8_000
"""Messages that may be under way on one stream: fewer than the other node remembers refusals."""

Says = Callable[[], tuple[str, str]]

_NO_ORIGIN = Origin()
_encode_event = msgspec.msgpack.Encoder().encode


class OutboundStream(KeepAlive):
    """One stream to the other node, and what is under way on it; one with a `sweep` descends from there.

    `says` returns the user and secret for each HELLO.
    """

    def __init__(self, forwarder: Forwarder, epoch: int, sweep: int, says: Says | None) -> None:
        super().__init__()
        self.sweep = sweep
        self.seen = 0  # answers up to this number are kept here, and need not be there any more
        self.node = ""
        self.stream: Outbound[InFlight, Refusal] = Outbound()
        self._origin = Origin(forwarder.outgoing.broker.node, epoch)
        self._forwarder = forwarder
        self._says = says or (lambda: ("", ""))
        self._session: str | None = None
        # Up to which numbers all is settled, by the mark of the commit that says so.
        self._settled: deque[tuple[int, int]] = deque()

    def counter_of(self, number: int) -> int:
        """The number of a message on this stream."""
        return self.sweep - number + 1 if self.sweep else number

    # What the driver calls

    def connect(self, now: float) -> None:
        """A transport is there."""
        self.trouble = None
        user, secret = self._says()
        system, epoch = self._origin.system or "", self._origin.epoch
        self._begin(Hello([VERSION], system, epoch, "", self._session, self.seen, user, secret), now)

    def lost(self) -> None:
        """The transport is gone, or to be gone."""
        if self._end():
            self._forwarder.lost(self)
        self.stream.cut()

    def close(self) -> None:
        """Say goodbye: no more will be sent."""
        if self.is_up:
            self._frames.append(encode(Bye()))

    def output(self) -> list[bytes]:
        """The frames that are to be sent now."""
        frames, self._frames = self._frames, []
        return frames

    # What is sent

    @property
    def has_room(self) -> bool:
        """Whether further messages may be under way, as far as their number goes."""
        return len(self.stream) < UNDER_WAY_MAX

    @property
    def room(self) -> int:
        """How many bytes may be sent now, to stay within the window."""
        return self.stream.window - self.stream.size if self.is_up else 0

    @property
    def is_clear(self) -> bool:
        """Whether nothing is under way: then something may be sent however large it is."""
        return self.is_up and not self.stream

    def send(self, run: list[InFlight]) -> None:
        """Send messages of one origin; there must be room."""
        outgoing = self._forwarder.outgoing
        queue, wall = outgoing.queue, outgoing.broker.wall
        numbers = [self.counter_of(held.message.number) for held in run]
        raws = [_as_it_leaves(queue, held.message, wall) for held in run]
        origin = run[0].message.origin or _NO_ORIGIN
        self.forward(outgoing.target, origin, numbers, raws, run, queue.parts_of(run[0].message.number))

    def forward(
        self,
        queue: str,
        origin: Origin,
        numbers: Sequence[int],
        raws: Sequence[bytes],
        items: Sequence[InFlight],
        parts: Sequence[bytes] = (),
    ) -> None:
        """Send events of one origin, with `parts` of the body of the first.

        The numbers grow, from call to call too.
        """
        frames = [encode(Forward(queue, b""), _bearer(part)) for part in parts]
        packed = pack(f">{len(numbers)}Q", *numbers)
        message = Forward(queue, packed, origin.system, origin.epoch, origin.source, self.seen)
        frames.append(encode(message, array_head(len(raws)) + b"".join(raws)))
        self._frames += frames
        self.stream.send(numbers, items, sum(map(len, frames)))

    def give_back(self) -> None:
        """Give back messages that are under way and may have to be sent again."""
        queue = self._forwarder.outgoing.queue
        for one in self.stream.cut():
            if queue.held.get(one.message.number) is one:
                queue.give_back(one, counts=False)

    # What the other node says

    def _greeted(self, welcome: Welcome, _events: bytes) -> None:
        self.node, self._session = welcome.node, welcome.session
        self.is_up = True
        self.stream.resume(welcome.window, welcome.refused)
        self._forwarder.welcomed(self, welcome.counter)

    def _accepted(self, message: Accepted, _events: bytes) -> None:
        settle = self._forwarder.outgoing.settle_held
        for item, refusal in self.stream.acknowledge(message.counter):
            settle(item, None if refusal is None else refusal.failure)
        self.note_settled(message.counter)
        self._forwarder.pump()

    def _refused(self, message: Refusal, _events: bytes) -> None:
        self.stream.refuse(message)

    def _parted(self, message: Bye, _events: bytes) -> None:
        self.is_given_up = True
        self.trouble = error_of(Failure(message.code, message.text))

    handlers = {Welcome: _greeted, Accepted: _accepted, Refusal: _refused, Bye: _parted}  # noqa: RUF012

    def failure_of(self, counter: int) -> Failure | None:
        """Why it would not have what has this number, None if it has it; asked in ascending order."""
        refusal = self.stream.refusal(counter)
        return None if refusal is None else refusal.failure

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
            self.seen = max(self.seen, self._settled.popleft()[1])

    def failed(self) -> None:
        """Commits were not made: it is not known what was settled."""
        self._settled.clear()


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


def _bearer(part: bytes) -> bytes:
    """An event that bears a part of a body, and says nothing else."""
    return array_head(1) + _encode_event((0, "part", 0, {}, None, part))
