"""What publishers and subscribers say to tidings and to its peers: bytes that are made before they are sent.

Every wire carries the same load: events in a cycle of topics, each with a payload of one size in which MARKER
stands once. So whoever receives can count events without knowing the protocol, and costs the same for all
peers. All events of a load have one size, and a *piece* is what is sent at once when it is paced.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import pack
from typing import Any

from msgspec.structs import replace

from tidings.errors import PeerError
from tidings.event import Batch, Event
from tidings.ids import new_system
from tidings.protocol.frames import FRAME_MAX, PUBLISH, FrameReader, encode
from tidings.protocol.login import WINDOW
from tidings.protocol.messages import (
    VERSION,
    Accepted,
    Bye,
    Hello,
    Ping,
    Pong,
    ProtocolMessage,
    Reply,
    Request,
)

MARKER = b"temperature"
PAYLOAD = (
    b'{"name":"s1","type":"temperature","value":"21.50",'
    b'"timestamp":"2026-11-15T06:00:00Z","sensing-id":"net-1"}'
)
TOPICS = 1000
"""Topics, stations or subjects that events go round in."""
COUNTER_FIRST = 2**40
"""Counters of this size all take nine bytes, so they can be written over those of a pattern."""
LAST_PING = 77_777
CREDIT = 2**40
"""Without end, as peers have no credit; what limits a subscriber that falls behind is the node's outbox."""

Step = tuple[bytes, bytes]
"""What is said, and how the answer ends that is waited for."""


@dataclass(frozen=True)
class Load:
    """Events ready to be sent: pieces of one size, one behind the other."""

    data: bytes
    piece_size: int
    piece_events: int
    count: int


@dataclass(frozen=True)
class Wire(ABC):
    """One protocol, spoken to a port of this machine."""

    port: int

    @abstractmethod
    def begin(self) -> list[Step]:
        """How a publisher begins."""

    @abstractmethod
    def subscribe(self, topics: Sequence[int] | None) -> list[Step]:
        """How a subscriber begins that wants these topics, each by itself, or everything."""

    @abstractmethod
    def load(self, count: int, piece_events: int, topics: Sequence[int]) -> Load:
        """So many events, which must be a multiple of the topics and of a piece."""

    @property
    def unaccepted_max(self) -> int | None:
        """Events that may be under way to the peer; None if it does not say what it has accepted."""
        return None

    def hearing(self) -> Callable[[bytes], int]:
        """For one publisher: takes what comes back, and tells how many events have been accepted."""
        return lambda _data: 0


# tidings


def event_of(topic: int, counter: int = COUNTER_FIRST) -> Event:
    """An event of the load: what the payload of the peers says, in as many bytes."""
    values = {"name": "s1", "value": 21.5 + topic / 7, "sensing_id": "net-1", "station": f"s{topic:04d}"}
    return replace(Event(MARKER.decode(), values, body=b"b" * 17), counter=counter)


EVENT_SIZE = len(Batch.of([event_of(0)]).raw) - 5


@dataclass(frozen=True)
class TidingsWire(Wire):
    """The native protocol, with acceptance and credit; `frame_events` is how many stand in a frame."""

    frame_events: int = 100

    def begin(self) -> list[Step]:
        """Say hello under a name of its own."""
        return [(self._hello() + encode(Ping(LAST_PING)), encode(Pong(LAST_PING)))]

    def subscribe(self, topics: Sequence[int] | None) -> list[Step]:
        """Subscriptions of one connection."""
        return self.subscribe_to([""] if topics is None else [f"station = 's{one:04d}'" for one in topics])

    def subscribe_to(self, filters: Sequence[str]) -> list[Step]:
        """Subscriptions of one connection, by their filters."""
        requests = [
            Request(number, "subscribe", {"number": number, "filter": text, "credit": CREDIT})
            for number, text in enumerate(filters)
        ]
        said = self._hello() + b"".join(map(encode, [*requests, Ping(LAST_PING)]))
        return [(said, encode(Pong(LAST_PING)))]

    def event_of(self, topic: int) -> Event:
        """An event of the load."""
        return event_of(topic)

    def _hello(self) -> bytes:
        return encode(Hello([VERSION], new_system(os.urandom), 1))

    def load(self, count: int, piece_events: int, topics: Sequence[int]) -> Load:
        """A pattern of frames, one for each topic or more, repeated with the counters written over."""
        import numpy as np

        frame_events = min(self.frame_events, piece_events)
        pattern, places = pattern_of(topics, frame_events, self.event_of)
        times = count // len(places)
        frames = np.tile(np.frombuffer(pattern, np.uint8), (times, 1))
        counters = np.arange(COUNTER_FIRST, COUNTER_FIRST + count, dtype=">u8").view(np.uint8)
        for byte in range(8):
            frames[:, np.array(places) + byte] = counters.reshape(times, len(places), 8)[:, :, byte]
        frame_size = len(pattern) * frame_events // len(places)
        return Load(frames.tobytes(), frame_size * (piece_events // frame_events), piece_events, count)

    @property
    def unaccepted_max(self) -> int | None:
        """The window of a node, in events."""
        return WINDOW // EVENT_SIZE

    def hearing(self) -> Callable[[bytes], int]:
        """Acceptances are cumulative."""
        reader, newest = FrameReader(FRAME_MAX), 0

        def hear(data: bytes) -> int:
            nonlocal newest
            for message, _ in reader.feed(data):
                if isinstance(message, Accepted):
                    newest = message.counter - COUNTER_FIRST + 1
                check_answer(message)
            return newest

        return hear


def pattern_of(
    topics: Sequence[int], frame_events: int, event_of: Callable[[int], Event] = event_of
) -> tuple[bytes, list[int]]:
    """Frames with an event of each topic, and where the counters stand in them."""
    cycle = [topics[place % len(topics)] for place in range(max(len(topics), frame_events))]
    data, places = b"", []
    for first in range(0, len(cycle), frame_events):
        batch = Batch.of([event_of(topic) for topic in cycle[first : first + frame_events]])
        frame = encode(PUBLISH, batch.raw)
        start = len(data) + len(frame) - len(batch.raw)
        places += [start + offset + 2 for offset in batch.offsets[:-1]]  # behind 0x96 and 0xcf
        data += frame
    return data, places


def check_answer(message: ProtocolMessage) -> None:
    """Raise PeerError if a node has refused what it was asked, or ends the connection."""
    if isinstance(message, Bye) or (isinstance(message, Reply) and message.error is not None):
        raise PeerError(f"the node refused: {message}")


# Peers


class _PatternWire(Wire):
    """A protocol without counters: one message for each topic, repeated."""

    @abstractmethod
    def message(self, topic: int) -> bytes:
        """One publication."""

    def load(self, count: int, piece_events: int, topics: Sequence[int]) -> Load:
        """The messages of all topics, repeated."""
        cycle = b"".join(map(self.message, topics))
        size = len(cycle) // len(topics)
        return Load(cycle * (count // len(topics)), size * piece_events, piece_events, count)


@dataclass(frozen=True)
class NatsWire(_PatternWire):
    """NATS core."""

    def begin(self) -> list[Step]:
        """Connect without a confirmation for each message."""
        return [(b'CONNECT {"verbose":false}\r\nPING\r\n', b"PONG\r\n")]

    def subscribe(self, topics: Sequence[int] | None) -> list[Step]:
        """Subjects."""
        subjects = ["t.*"] if topics is None else [f"t.{topic:04d}" for topic in topics]
        lines = "".join(f"SUB {subject} {number}\r\n" for number, subject in enumerate(subjects))
        return [(b'CONNECT {"verbose":false}\r\n' + lines.encode() + b"PING\r\n", b"PONG\r\n")]

    def message(self, topic: int) -> bytes:
        """PUB."""
        return b"PUB t.%04d %d\r\n%b\r\n" % (topic, len(PAYLOAD), PAYLOAD)


@dataclass(frozen=True)
class MqttWire(_PatternWire):
    """MQTT 3.1.1 with QoS 0."""

    def begin(self) -> list[Step]:
        """Connect with a clean session and a name of its own."""
        name = new_system(os.urandom).encode()
        said = b"\x00\x04MQTT\x04\x02\x00\x00" + pack(">H", len(name)) + name
        return [(b"\x10" + _mqtt_length(len(said)) + said, b"\x20\x02\x00\x00")]

    def subscribe(self, topics: Sequence[int] | None) -> list[Step]:
        """One topic pattern, or the topics."""
        steps = self.begin()
        for pattern in [b"t/+"] if topics is None else [b"t/%04d" % topic for topic in topics]:
            said = b"\x00\x01" + pack(">H", len(pattern)) + pattern + b"\x00"
            steps.append((b"\x82" + _mqtt_length(len(said)) + said, b"\x90\x03\x00\x01\x00"))
        return steps

    def message(self, topic: int) -> bytes:
        """PUBLISH."""
        said = b"\x00\x06t/%04d" % topic + PAYLOAD
        return b"\x30" + _mqtt_length(len(said)) + said


def _mqtt_length(length: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    head, rest = length % 128, length // 128
    return bytes((head | 128,)) + _mqtt_length(rest) if rest else bytes((head,))


@dataclass(frozen=True)
class RedisWire(_PatternWire):
    """Redis publish and subscribe."""

    def begin(self) -> list[Step]:
        """Nothing need be said, but an answer shows that the server is there."""
        return [(b"PING\r\n", b"+PONG\r\n")]

    def subscribe(self, topics: Sequence[int] | None) -> list[Step]:
        """A pattern, or channels."""
        if topics is None:
            return [(b"PSUBSCRIBE t:*\r\n", b":1\r\n")]
        names = b" ".join(b"t:%04d" % topic for topic in topics)
        return [(b"SUBSCRIBE %b\r\n" % names, b":%d\r\n" % len(topics))]

    def message(self, topic: int) -> bytes:
        """PUBLISH."""
        return b"*3\r\n$7\r\nPUBLISH\r\n$6\r\nt:%04d\r\n$%d\r\n%b\r\n" % (topic, len(PAYLOAD), PAYLOAD)


WIRES: dict[str, Any] = {"nats": NatsWire, "mosquitto": MqttWire, "redis": RedisWire}
"""How each peer is spoken to."""
