"""What those say who put messages into a queue of tidings or of its peers, and those who get them out.

Every wire does the same: a put is answered when the message is safe, and whoever gets messages is given up to
`at_once` of them, and acknowledges all it has been given in one go. A message is a body of one size that ends
with MARKER, as the protocol allows it. What is said is made before the clock starts, except for
acknowledgements that name what was received.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from benchmarks.wires import (
    COUNTER_FIRST,
    LAST_PING,
    MARKER,
    Load,
    Step,
    TidingsWire,
    Wire,
    check_answer,
)
from tidings.errors import PeerError
from tidings.event import Batch, Event
from tidings.ids import new_system
from tidings.protocol.frames import FRAME_MAX, FrameReader, encode
from tidings.protocol.messages import (
    DONE,
    HANDLE,
    VERSION,
    Accepted,
    Hello,
    Ping,
    Pong,
    ProtocolMessage,
    Put,
    Refusal,
    Reply,
    Request,
    Settle,
)

QUEUE = "bench"
BODY = MARKER.rjust(1000, b"b")
AT_ONCE = 1000
"""Messages that one who gets may be given before it has acknowledged any."""

Answer = tuple[int, bytes]
"""How many messages have come, and what is to be said to that."""


class Getting(ABC):
    """One side of a conversation: so many messages are got, and acknowledged up to `at_once` a time."""

    def __init__(self, count: int, at_once: int) -> None:
        self._left, self._at_once = count, at_once
        self._held = b""

    @abstractmethod
    def first(self) -> bytes:
        """What is said to have messages."""

    @abstractmethod
    def hear(self, data: bytes) -> Answer:
        """Take what has come, in whatever pieces."""

    @abstractmethod
    def last(self) -> Step:
        """What is said when all have come, and what stands in the answer: then all is acknowledged."""

    def is_over(self, data: bytes) -> bool:
        """Take what has come after that; whether all is acknowledged."""
        self._held += data
        return self.last()[1] in self._held


@dataclass(frozen=True)
class QueueWire(Wire):
    """One protocol, spoken to a port of this machine, and the queue QUEUE there; a queue has no topics."""

    at_once: int = AT_ONCE

    @abstractmethod
    def prepare(self) -> list[Step]:
        """Make the queue, empty, if it is not there."""

    @abstractmethod
    def put(self) -> bytes:
        """One message."""

    @abstractmethod
    def getting(self, count: int) -> Getting:
        """For one who gets so many messages in all."""

    def subscribe(self, _topics: Sequence[int] | None = None) -> list[Step]:
        """Who gets begins as who puts does; messages come when they are asked for."""
        return self.begin()

    def load(
        self,
        count: int,
        piece_events: int = 1,
        _topics: Sequence[int] = (),
        outstanding: int = 1,  # noqa: ARG002 - for protocols that tell what has been seen
    ) -> Load:
        """So many messages, each put by itself while no more than so many are not accepted."""
        put = self.put()
        return Load(put * count, len(put) * piece_events, piece_events, count)


# tidings


@dataclass(frozen=True)
class TidingsQueueWire(QueueWire):
    """The native protocol: PUT and the cumulative ACCEPTED, the request `get` and SETTLE."""

    persistent: bool = True

    def begin(self) -> list[Step]:
        """Say hello under a name of its own."""
        return TidingsWire(self.port).begin()

    def prepare(self) -> list[Step]:
        """Create the queue."""
        wanted = {"name": QUEUE, "persistent": self.persistent, "keep": False}
        hello = Hello([VERSION], new_system(os.urandom), 1)
        said = map(encode, (hello, Request(1, "queue.create", wanted), Ping(LAST_PING)))
        return [(b"".join(said), encode(Pong(LAST_PING)))]

    def put(self) -> bytes:
        """PUT."""
        return _put_frame()[0]

    def load(
        self, count: int, piece_events: int = 1, _topics: Sequence[int] = (), outstanding: int = 1
    ) -> Load:
        """The frame with a counter of its own for each message, and what its sender has seen accepted then.

        Of many that are outstanding some leave together, as those of a client do that has heard nothing new.
        """
        frame, seen_at, counter_at = _put_frame()
        head, middle, tail = frame[:seen_at], frame[seen_at + 8 : counter_at], frame[counter_at + 8 :]
        step = max(1, outstanding // 10)
        frames: list[bytes] = []
        for place in range(count):
            seen = COUNTER_FIRST - 1 + max(0, place - outstanding + 1) // step * step
            counter = COUNTER_FIRST + place
            frames += (head, seen.to_bytes(8, "big"), middle, counter.to_bytes(8, "big"), tail)
        return Load(b"".join(frames), len(frame) * piece_events, piece_events, count)

    def hearing(self) -> Callable[[bytes], int]:
        """Acceptances are cumulative."""
        return TidingsWire(self.port).hearing()

    def getting(self, count: int) -> Getting:
        """Ask for more when all that came is settled."""
        return _TidingsGetting(count, self.at_once)


def _put_frame() -> tuple[bytes, int, int]:
    """PUT, and where in it stand what was seen and the counter of its message, in eight bytes each."""
    batch = Batch.of([replace(Event("job", {}, body=BODY), counter=COUNTER_FIRST)])
    frame = encode(Put(QUEUE, COUNTER_FIRST), batch.raw)
    seen_at = frame.index(COUNTER_FIRST.to_bytes(8, "big"))
    return frame, seen_at, len(frame) - len(batch.raw) + batch.offsets[0] + 2  # behind 0x96 and 0xcf


class _TidingsGetting(Getting):
    def __init__(self, count: int, at_once: int) -> None:
        super().__init__(count, at_once)
        self._reader = FrameReader(FRAME_MAX)
        self._request, self._next, self._accepted = 0, COUNTER_FIRST, 0

    def first(self) -> bytes:
        wanted = {"queue": QUEUE, "count": min(self._at_once, self._left), "wait_s": None}
        self._request += 1
        return encode(Request(self._request, "get", wanted))

    def hear(self, data: bytes) -> Answer:
        came, said = 0, b""
        for message in self._messages(data):
            if isinstance(message, Reply):
                hands = message.result["messages"]
                said += self._settle(hands)
                came += len(hands)
        return came, said

    def _messages(self, data: bytes) -> Iterator[ProtocolMessage]:
        for message, _ in self._reader.feed(data):
            check(message)
            if isinstance(message, Accepted):
                self._accepted = message.counter
            yield message

    def _settle(self, hands: list[Any]) -> bytes:
        handles = b"".join(HANDLE.pack(hand[0], hand[1]) for hand in hands)
        said = encode(Settle(self._next, self._accepted, handles, DONE))
        self._next += len(hands)
        self._left -= len(hands)
        return said + self.first() if self._left else said

    def last(self) -> Step:
        return b"", encode(Accepted(self._next - 1))

    def is_over(self, data: bytes) -> bool:
        for _ in self._messages(data):
            pass
        return self._accepted == self._next - 1  # which may have come before it was waited for


def check(message: ProtocolMessage) -> None:
    """Raise PeerError if a node has refused what it was told or asked, or ends the connection."""
    check_answer(message)
    if isinstance(message, Refusal):
        raise PeerError(f"the node refused: {message}")


# Peers


@dataclass(frozen=True)
class StompWire(QueueWire):
    """STOMP 1.1, as ActiveMQ speaks it: a receipt for each message, cumulative acknowledgements."""

    def begin(self) -> list[Step]:
        """Connect without heart beats."""
        return [(b"CONNECT\naccept-version:1.1\n\n\0", b"\0\n")]

    def prepare(self) -> list[Step]:
        """Nothing: a queue is made by who first names it."""
        return self.begin()

    def put(self) -> bytes:
        """SEND."""
        headers = b"destination:/queue/%b\npersistent:true\nreceipt:1\ncontent-length:%d\n"
        return b"SEND\n" + headers % (QUEUE.encode(), len(BODY)) + b"\n" + BODY + b"\0"

    def hearing(self) -> Callable[[bytes], int]:
        """Every RECEIPT ends with the only zero in it."""
        accepted = 0

        def hear(data: bytes) -> int:
            nonlocal accepted
            _check_stomp(data)
            accepted += data.count(b"\0")
            return accepted

        return hear

    def getting(self, count: int) -> Getting:
        """Subscribe, and acknowledge the last of what has come."""
        return _StompGetting(count, self.at_once)


def _check_stomp(data: bytes) -> None:
    if b"ERROR\n" in data:
        raise PeerError(f"ActiveMQ refused: {data[:500]!r}")


class _StompGetting(Getting):
    def first(self) -> bytes:
        headers = b"destination:/queue/%b\nid:1\nack:client\nactivemq.prefetchSize:%d\n"
        return b"SUBSCRIBE\n" + headers % (QUEUE.encode(), self._at_once) + b"\n\0"

    def hear(self, data: bytes) -> Answer:
        _check_stomp(data)
        data = self._held + data
        end = data.rfind(b"\0") + 1
        self._held = data[end:]
        if not end:
            return 0, b""
        start = data.rfind(b"\nmessage-id:", 0, end)
        name = data[start : data.index(b"\n", start + 1)]
        return data.count(b"\0", 0, end), b"ACK\nsubscription:1%b\n\n\0" % name

    def last(self) -> Step:
        return b"DISCONNECT\nreceipt:2\n\n\0", b"receipt-id:2\n\n\0\n"


@dataclass(frozen=True)
class RedisStreamWire(QueueWire):
    """A stream of Redis and a group of consumers; what is acknowledged stays in the stream."""

    def begin(self) -> list[Step]:
        """Nothing need be said, but an answer shows that the server is there."""
        return [(b"PING\r\n", b"+PONG\r\n")]

    def prepare(self) -> list[Step]:
        """A new stream, since the old one has kept its messages."""
        name = QUEUE.encode()
        return [
            (b"DEL %b\r\n" % name, b"\r\n"),
            (b"XGROUP CREATE %b g $ MKSTREAM\r\n" % name, b"+OK\r\n"),
        ]

    def put(self) -> bytes:
        """XADD."""
        return _redis(b"XADD", QUEUE.encode(), b"*", b"b", BODY)

    def hearing(self) -> Callable[[bytes], int]:
        """Each answer is the id of the message, as a text with its length behind the only $ in it."""
        accepted = 0

        def hear(data: bytes) -> int:
            nonlocal accepted
            _check_redis(data)
            accepted += data.count(b"$")
            return accepted

        return hear

    def getting(self, count: int) -> Getting:
        """Ask for more when all that came is acknowledged."""
        return _RedisGetting(count, self.at_once)


def _redis(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _check_redis(data: bytes) -> None:
    if b"\n-" in data or re.match(rb"-[A-Z]", data):
        raise PeerError(f"Redis refused: {data[:500]!r}")


class _RedisGetting(Getting):
    _HEAD = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n%b\r\n\*(\d+)\r\n" % QUEUE.encode())
    _ID = re.compile(rb"\r\n(\d+-\d+)\r\n")

    def first(self) -> bytes:
        count = b"%d" % min(self._at_once, self._left)
        words = (b"GROUP", b"g", b"c", b"COUNT", count, b"BLOCK", b"0", b"STREAMS", QUEUE.encode(), b">")
        return _redis(b"XREADGROUP", *words)

    def hear(self, data: bytes) -> Answer:
        _check_redis(data)
        self._held += data
        head = self._HEAD.search(self._held)
        if head is None or self._held.count(MARKER + b"\r\n") < int(head[1]):
            return 0, b""
        ids = self._ID.findall(self._held)
        assert len(ids) == int(head[1])
        self._held, self._left = b"", self._left - len(ids)
        said = _redis(b"XACK", QUEUE.encode(), b"g", *ids)
        return len(ids), said + self.first() if self._left else said

    def last(self) -> Step:
        return b"ECHO done\r\n", b"done\r\n"
