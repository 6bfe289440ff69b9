"""A lane: one numbered stream of FORWARD to another node, and the messages that are on it.

The messages are those of a transmission queue, under its numbers, which grow and are stored. Unlike what a
client publishes, they are not numbered by the connection: after a cut or a crash the same messages are sent
again, under the same system and epoch. When the other node opens the stream, it reports up to which number it
has had everything.

The stream gets the answers to them, and settles them in the order in which they were sent. The other node
keeps an answer until its result is on disk here: `seen` says how far that is.

All streams to one node share its connection (`SharedConnection`), each within a window of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from struct import pack
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from tidings.errors import CodecError, Refused, TidingsError
from tidings.event.wire import array_head
from tidings.ids import ForwardedOrigin, Origin
from tidings.numbered import Outbound
from tidings.protocol.connection import Connection
from tidings.protocol.frames import encode
from tidings.protocol.messages import Failure, Forward, Refusal
from tidings.queues.inflight import InFlight
from tidings.queues.schedule import as_it_leaves

if TYPE_CHECKING:
    from tidings.peers.forwarder import Forwarder

UNDER_WAY_MAX = 8_000
"""Messages that may be under way on one stream: fewer than the other node remembers refusals."""
EARLIER = "the node is of an earlier release and opens no streams; it must be upgraded first"

_NO_ORIGIN = Origin()
_encode_event = msgspec.msgpack.Encoder().encode


class StreamState(Struct, frozen=True):
    """The reply to `forward.open`: how far the other node has come, its window, and what it has refused."""

    counter: int
    window: int
    refused: list[Refusal] = []


class SharedConnection:
    """The connection to one node, and those after it, as the streams see it that share it.

    `flush` has the driver send what was said.
    """

    def __init__(self, connection: Connection, flush: Callable[[], None]) -> None:
        self._connection = connection
        self.flush = flush
        self._streams: dict[OutboundStream, None] = {}

    def move(self, connection: Connection) -> None:
        """Go on over this connection; the one before is of no use any more."""
        self._connection = connection
        for stream in list(self._streams):
            self._open(stream)

    def attach(self, stream: OutboundStream) -> None:
        """Have a stream opened, now or when the other node is there."""
        self._streams[stream] = None
        self._open(stream)

    def _open(self, stream: OutboundStream) -> None:
        if self._connection.failure is None:
            stream.place = self._connection, self._connection.streams.open(stream)
            self.flush()

    def detach(self, stream: OutboundStream) -> None:
        """Close a stream."""
        self._streams.pop(stream, None)
        if stream.place is not None:
            connection, number = stream.place
            connection.streams.close(number)
            stream.place = None
            self.flush()

    def trouble(self, problem: str) -> None:
        """Report to all streams why the other node can't be reached."""
        for stream in list(self._streams):
            stream.trouble(problem)


class OutboundStream:
    """One stream to the other node, and what is under way on it; one with a `sweep` descends from there."""

    def __init__(self, forwarder: Forwarder, epoch: int, sweep: int) -> None:
        self.sweep = sweep
        self.seen = 0  # answers up to this number are kept here, and need not be there any more
        self.node = ""
        self.is_up = False  # the other node has opened it
        self.is_denied = False  # the other node would not
        self.place: tuple[Connection, int] | None = None  # where it is, and its number there
        self.stream: Outbound[InFlight, Refusal] = Outbound()
        self._origin = Origin(forwarder.outgoing.broker.node, epoch)
        self._forwarder = forwarder
        # Up to which numbers all is settled, by the mark of the commit that says so.
        self._settled: deque[tuple[int, int]] = deque()

    def counter_of(self, number: int) -> int:
        """The number of a message on this stream."""
        return self.sweep - number + 1 if self.sweep else number

    # What the connection calls

    def opening(self) -> dict[str, Any]:
        """Return who counts on the stream, and which answers are kept here."""
        self.is_denied = False
        return {"system": self._origin.system, "epoch": self._origin.epoch, "seen": self.seen}

    def opened(self, node: str, reply: Any) -> None:
        """Settle what the other node has had, and send the rest."""
        try:
            state = msgspec.convert(reply, StreamState)
        except msgspec.ValidationError as error:
            self.denied(CodecError("$.forward.open", str(error)))
            return
        self.node, self.is_up = node, True
        self.stream.resume(state.window, state.refused)
        self._forwarder.welcomed(self, state.counter)

    def denied(self, error: TidingsError) -> None:
        """Wait for the next connection, or for another attempt."""
        self.is_denied = True
        is_earlier = isinstance(error, Refused) and error.code == "not-found"
        self.trouble(EARLIER if is_earlier else str(error))

    def trouble(self, problem: str) -> None:
        """Report why nothing is forwarded."""
        self._forwarder.trouble(problem)

    def accepted(self, counter: int) -> None:
        """Settle what the other node has, or would not have."""
        settle = self._forwarder.outgoing.settle_held
        for item, refusal in self.stream.acknowledge(counter):
            settle(item, None if refusal is None else refusal.failure)
        self.note_settled(counter)
        self._forwarder.pump()

    def refused(self, refusal: Refusal) -> None:
        """Note what the other node would not have, until it is accepted."""
        self.stream.refuse(refusal)

    def cut(self) -> None:
        """The stream is not open any more."""
        was_up, self.is_up = self.is_up, False
        if was_up:
            self._forwarder.lost(self)
        self.stream.cut()

    # What is sent

    @property
    def has_room(self) -> bool:
        """Whether further messages may be under way, as far as their number goes."""
        return len(self.stream) < UNDER_WAY_MAX

    @property
    def room(self) -> int:
        """Number of bytes that may be sent now within the window."""
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
        raws = [as_it_leaves(queue, held.message, wall) for held in run]
        origin = run[0].message.origin or _NO_ORIGIN
        self.forward(outgoing.target, origin, numbers, raws, run, queue.parts.of(run[0].message.number))

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
        assert self.place is not None, "a stream that is up is on a connection"
        connection, number = self.place
        frames = [encode(Forward(queue, b"", stream=number), _bearer(part)) for part in parts]
        packed = pack(f">{len(numbers)}Q", *numbers)
        sender = origin.system, origin.epoch, origin.source
        passed = origin.passed if isinstance(origin, ForwardedOrigin) and not queue else ()
        message = Forward(queue, packed, *sender, self.seen, number, passed)
        frames.append(encode(message, array_head(len(raws)) + b"".join(raws)))
        connection.streams.forward(number, frames)
        self.stream.send(numbers, items, sum(map(len, frames)))

    def give_back(self) -> None:
        """Give back messages that are under way and may have to be sent again."""
        queue = self._forwarder.outgoing.queue
        for one in self.stream.cut():
            if queue.held.get(one.message.number) is one:
                queue.give_back(one, counts=False)

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


def _bearer(part: bytes) -> bytes:
    """An event that bears a part of a body, and says nothing else."""
    return array_head(1) + _encode_event((0, "part", 0, {}, None, part))
