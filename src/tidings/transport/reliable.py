"""A stream of bytes over datagrams: in order and once, though datagrams are lost, doubled and reordered.

What TCP does, as a core without I/O, for the address `tidings+udp://`. `numbered.py` needs a connection that
keeps the order; this is one.

    stream = ReliableStream.dialled(connection, now)      the end that opens
    listener.receive(datagram, place, now)                the other: a stream for each connection
    stream.write(data); stream.receive(datagram, now); stream.wake(now)
    for datagram in stream.output(now): …                 after each of these; again at `wake_at`
    for data in stream.take(): …                          what has arrived

Bytes are cut into numbered segments. Each datagram says which number is expected next, which of those after
it are there, and how many segments the end has room for. A segment is sent again when REORDERED_MAX that left
later are there, or when nothing is acknowledged for the time that round trips suggest. What is under way
grows by one with each acknowledged segment, and is halved after a loss (RFC 5681, 6298).

The rules kept: no end holds more than WINDOW segments of the other. A listener keeps nothing of a caller that
has not shown by a cookie that it hears what is sent to its address, and sends it no more than it was sent.
Only one who knows the number of a connection, 64 random bits, can end it. Nothing is encrypted: TLS
goes inside (`udp.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from hashlib import blake2b
from itertools import takewhile
from math import inf
from struct import Struct, error
from typing import Final

SEGMENT_SIZE = 1_150
"""Bytes of the stream in one datagram, which every network then carries whole."""
WINDOW = 512
"""Segments that an end holds for its program, or until those before them have come."""
REORDERED_MAX: Final = 3
START_SEGMENTS: Final = 10
RETRY_S_MIN = 0.2
RETRY_S_MAX = 3.0
OPEN_S = 0.3
"""After which an end that opens asks again."""
SILENCE_S_MAX = 15.0
"""How long an end waits for any answer to what it has sent."""
COOKIE_S: Final = 60.0
"""How long a cookie is valid at least."""
COOKIE_SIZE: Final = 8
NUMBER_MAX: Final = (1 << 32) - WINDOW
CONNECTIONS_MAX = 10_000
"""Connections of one listener; further ones are refused."""

OPEN, CHALLENGE, DATA, END, RESET = range(0x11, 0x16)  # the first half is the version
_HEAD: Final = Struct("!BQIIHB")  # kind, connection, number, expected, room, bytes of what is there
DATAGRAM_SIZE_MAX: Final = _HEAD.size + WINDOW // 8 + SEGMENT_SIZE


class _Segment:
    """A segment that is not acknowledged. `order` counts all that was sent, so it tells what left later."""

    __slots__ = ("data", "first_order", "is_lost", "kind", "number", "order", "sent_at", "times")

    def __init__(self, kind: int, number: int, data: bytes) -> None:
        self.kind = kind
        self.number = number
        self.data = data
        self.order = self.first_order = 0
        self.times = 0
        self.sent_at = 0.0
        self.is_lost = False


class RoundTripTime:
    """How long to wait for an acknowledgement, by the round trips so far (RFC 6298)."""

    def __init__(self) -> None:
        self._smooth_s: float | None = None
        self._spread_s = 0.0
        self.retry_s = 1.0

    def add(self, sample_s: float) -> None:
        """Take a round trip into account."""
        if self._smooth_s is None:
            self._smooth_s, self._spread_s = sample_s, sample_s / 2
        else:
            self._spread_s += (abs(self._smooth_s - sample_s) - self._spread_s) / 4
            self._smooth_s += (sample_s - self._smooth_s) / 8
        self.retry_s = min(max(self._smooth_s + 4 * self._spread_s, RETRY_S_MIN), RETRY_S_MAX)

    def double(self) -> None:
        """Nothing came in time."""
        self.retry_s = min(2 * self.retry_s, RETRY_S_MAX)


class ReliableStream:
    """One end of a connection."""

    def __init__(self, connection: int, now: float) -> None:
        self.connection = connection
        self.failure: str | None = None  # why it was lost
        self.is_open = True
        self._cookie: bytes | None = None  # of an end that opens, until it is open
        self._has_ended = False  # the other end has, and all it sent has arrived
        self._is_ending = False
        self._end_sent = False
        self._heard_at = now  # or when the oldest was sent that is not acknowledged
        # sending
        self._waiting = bytearray()
        self._flight: dict[int, _Segment] = {}
        self._flight_size = 0
        self._lost: deque[_Segment] = deque()
        self._next = 1
        self._limit = 1 + START_SEGMENTS  # the first number for which the other end has no room
        self._allowed = float(START_SEGMENTS)
        self._threshold = inf
        self._recovers_at = 0  # losses of numbers below this are one with the last
        self._order = 0
        self._latest = 0  # the highest order that is acknowledged
        self._trips = RoundTripTime()
        self._retry_at = inf
        # receiving
        self._expected = 1
        self._early: dict[int, tuple[int, bytes]] = {}
        self._arrived: list[bytes] = []
        self._is_paused = False
        self._owes_answer = False

    @classmethod
    def dialled(cls, connection: int, now: float) -> ReliableStream:
        """Return the end that opens a connection, whose number it has made by chance."""
        made = cls(connection, now)
        made.is_open = False
        made._cookie = bytes(COOKIE_SIZE)
        made._retry_at = now
        return made

    # For the program

    @property
    def size(self) -> int:
        """Bytes that were written and not acknowledged."""
        return len(self._waiting) + self._flight_size

    @property
    def is_over(self) -> bool:
        """Whether the connection is gone: lost, ended by the other, or ended here with all acknowledged."""
        has_ended = self._has_ended and not self._arrived
        return self.failure is not None or has_ended or (self._end_sent and not self._flight)

    @property
    def wake_at(self) -> float:
        """When `wake` is to be called."""
        return inf if self.is_over else self._retry_at

    def write(self, data: bytes) -> None:
        """Send these bytes; nothing after the end."""
        if not self._is_ending:
            self._waiting += data

    def end(self) -> None:
        """End the stream behind what was written."""
        self._is_ending = True

    def pause(self, is_paused: bool) -> None:
        """Keep what arrives, as far as there is room, or let it be taken again."""
        self._is_paused = is_paused
        self._owes_answer |= not is_paused and bool(self._arrived)

    def take(self) -> list[bytes]:
        """Return what has arrived in order, unless it is to be kept."""
        if self._is_paused or not self._arrived:
            return []
        arrived, self._arrived = self._arrived, []
        return arrived

    # From the network

    def receive(self, datagram: bytes, now: float) -> None:
        """Take a datagram of the other end; others are passed over."""
        try:
            kind, connection, number, expected, room, size = _HEAD.unpack_from(datagram)
        except error:
            return
        if connection != self.connection or self.is_over or expected > self._next:
            return
        self._heard_at = now
        if kind == CHALLENGE and self._cookie is not None:
            self._cookie = datagram[_HEAD.size : _HEAD.size + COOKIE_SIZE]
            self._retry_at = now
        elif kind == RESET:
            if not self._end_sent:
                self.failure = "the other end knows nothing of this connection, or takes no more"
            self._flight.clear()
        elif kind in (DATA, END):
            if self._cookie is not None:
                self._cookie, self.is_open, self._retry_at = None, True, inf
            if number:
                self._take_in(number, kind, datagram[_HEAD.size + size :])
            there = int.from_bytes(datagram[_HEAD.size : _HEAD.size + size], "little")
            self._acknowledge(expected, there, room, now)

    def reset(self) -> bytes:
        """Give the connection up; the datagram that tells the other end."""
        self.failure = self.failure or "given up"
        return _HEAD.pack(RESET, self.connection, 0, 0, 0, 0)

    def refuse(self) -> None:
        """Nobody is there."""
        self.failure = self.failure or "nobody listens there"

    def asked_again(self) -> None:
        """The other end has not heard that the connection is open."""
        self._owes_answer = True

    @property
    def _room(self) -> int:
        return WINDOW - len(self._arrived)

    def _take_in(self, number: int, kind: int, data: bytes) -> None:
        self._owes_answer = True
        if not 0 <= number - self._expected < self._room or len(data) > SEGMENT_SIZE:
            return
        self._early[number] = kind, data
        while (found := self._early.pop(self._expected, None)) is not None:
            self._expected += 1
            if found[0] == END:
                self._has_ended = True
                return
            self._arrived.append(found[1])

    def _acknowledge(self, expected: int, there: int, room: int, now: float) -> None:
        done = list(takewhile(expected.__gt__, self._flight))
        if there:
            done += [one for one in self._flight if one > expected and there >> (one - expected - 1) & 1]
        self._limit = max(self._limit, expected + room)
        for number in done:
            segment = self._flight.pop(number)
            self._flight_size -= len(segment.data)
            self._latest = max(self._latest, segment.first_order)  # a later one may not be what has come
            if segment.times == 1:
                self._trips.add(now - segment.sent_at)
            is_slow = self._allowed >= self._threshold
            self._allowed = min(self._allowed + (1 / self._allowed if is_slow else 1), WINDOW)
        if done:
            self._retry_at = now + self._trips.retry_s if self._flight else inf
            if there:
                self._look_for_lost()

    def _look_for_lost(self) -> None:
        for segment in self._flight.values():
            if not segment.is_lost and segment.order + REORDERED_MAX <= self._latest:
                self._lose(segment)
                if segment.number >= self._recovers_at:
                    self._recovers_at = self._next
                    self._allowed = self._threshold = max(self._allowed / 2, 2.0)

    def _lose(self, segment: _Segment) -> None:
        segment.is_lost = True
        self._lost.append(segment)

    # Time

    def wake(self, now: float) -> None:
        """Send again what should have been acknowledged by now; called at `wake_at`."""
        if now < self._retry_at or self.is_over:
            return
        if now - self._heard_at > SILENCE_S_MAX:
            self.failure = f"nothing was heard of the other end for {SILENCE_S_MAX:g} s"
            return
        if self._cookie is not None:
            return  # `output` asks again
        self._trips.double()
        self._threshold, self._allowed = max(self._allowed / 2, 2.0), 1.0
        self._recovers_at = self._next
        for segment in self._flight.values():
            if not segment.is_lost:
                self._lose(segment)
        self._retry_at = now + self._trips.retry_s

    # To the network

    def output(self, now: float) -> list[bytes]:
        """Return the datagrams that may be sent now."""
        if self._cookie is not None:
            return self._opening(now)
        out: list[bytes] = []
        under_way = len(self._flight) - len(self._lost)
        while self._lost and under_way < self._allowed:
            segment = self._lost.popleft()
            if segment.number in self._flight:
                segment.is_lost = False
                out.append(self._sent(segment, now))
            under_way += 1
        while under_way < self._allowed and (made := self._cut()) is not None:
            self._flight[made.number] = made
            self._flight_size += len(made.data)
            out.append(self._sent(made, now))
            under_way += 1
        if not out and self._owes_answer:
            out.append(self._datagram(DATA, 0, b""))
        self._owes_answer = False
        return out

    def _opening(self, now: float) -> list[bytes]:
        if now < self._retry_at or self.failure is not None:
            return []
        assert self._cookie is not None
        self._retry_at = now + OPEN_S
        return [self._datagram(OPEN, 0, self._cookie)]

    def _cut(self) -> _Segment | None:
        """Return the next segment, if there is one and the other end has room; one it may refuse, to ask."""
        if self._next >= self._limit and self._flight:
            return None
        if self._next > NUMBER_MAX:
            self.failure = "all numbers of this connection are used"
            return None
        data, kind = bytes(self._waiting[:SEGMENT_SIZE]), DATA
        del self._waiting[:SEGMENT_SIZE]
        if not data:
            if not self._is_ending or self._end_sent:
                return None
            self._end_sent, kind = True, END
        self._next += 1
        return _Segment(kind, self._next - 1, data)

    def _sent(self, segment: _Segment, now: float) -> bytes:
        self._order += 1
        segment.order = self._order
        segment.first_order = segment.first_order or self._order
        segment.times += 1
        segment.sent_at = now
        if self._retry_at == inf:
            self._heard_at = now
            self._retry_at = now + self._trips.retry_s
        return self._datagram(segment.kind, segment.number, segment.data)

    def _datagram(self, kind: int, number: int, data: bytes) -> bytes:
        there = 0
        for early in self._early:
            there |= 1 << (early - self._expected - 1)
        bits = there.to_bytes((there.bit_length() + 7) // 8, "little")
        head = _HEAD.pack(kind, self.connection, number, self._expected, self._room, len(bits))
        return head + bits + data


class ReliableListener:
    """Accepts connections: `streams` has them by place and number. `secret` is for its cookies alone."""

    def __init__(self, secret: bytes, connections_max: int = CONNECTIONS_MAX) -> None:
        self.streams: dict[tuple[Hashable, int], ReliableStream] = {}
        self._secret = secret
        self._connections_max = connections_max

    def receive(
        self, datagram: bytes, place: Hashable, now: float
    ) -> tuple[ReliableStream | None, bytes | None]:
        """Take a datagram from a place; the stream that it concerns, or that it opens, or what to answer."""
        try:
            kind, connection, *_ = _HEAD.unpack_from(datagram)
        except error:
            return None, None
        stream = self.streams.get((place, connection))
        if stream is not None:
            if kind == OPEN:
                stream.asked_again()
            else:
                stream.receive(datagram, now)
            return stream, None
        if kind == OPEN and len(datagram) == _HEAD.size + COOKIE_SIZE:
            return self._open(datagram, place, connection, now)
        if kind in (DATA, END):
            return None, _HEAD.pack(RESET, connection, 0, 0, 0, 0)
        return None, None

    def _open(
        self, datagram: bytes, place: Hashable, connection: int, now: float
    ) -> tuple[ReliableStream | None, bytes | None]:
        cookies = [self._cookie(place, connection, now - ago_s) for ago_s in (0.0, COOKIE_S)]
        if datagram[_HEAD.size :] not in cookies:
            return None, _HEAD.pack(CHALLENGE, connection, 0, 0, 0, 0) + cookies[0]
        if len(self.streams) >= self._connections_max:
            return None, _HEAD.pack(RESET, connection, 0, 0, 0, 0)
        stream = self.streams[place, connection] = ReliableStream(connection, now)
        stream.asked_again()
        return stream, None

    def _cookie(self, place: Hashable, connection: int, now: float) -> bytes:
        text = f"{place!r} {connection} {int(now / COOKIE_S)}".encode()
        return blake2b(text, digest_size=COOKIE_SIZE, key=self._secret).digest()

    def forget(self, place: Hashable, connection: int) -> None:
        """A connection is over."""
        self.streams.pop((place, connection), None)
