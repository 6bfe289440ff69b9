"""A hostile client: it keeps to the protocol and to every documented limit, and to nothing else.

It speaks frames on a raw socket, so that a load costs its own process little: requests are sent without
waiting for their answers, and answers are read only where a load reads them. Everything is counted in a
tally: what was asked, answered, refused and why. A refusal is an answer as good as any, and so is being
parted from; each wait ends with the time of the load.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.load import HOST, RECEIVE_SIZE
from tidings.event import Batch, Event
from tidings.ids import new_system
from tidings.protocol.frames import FRAME_MAX, PUBLISH, REPLY_MAX, FrameReader, encode
from tidings.protocol.messages import (
    VERSION,
    Accepted,
    Bye,
    Hello,
    Ping,
    Pong,
    ProtocolMessage,
    Put,
    Refusal,
    Reply,
    Request,
    Welcome,
)
from tidings.transport.tls import client_context

UNACCEPTED_MAX = 2 << 20
"""Bytes of events that are on their way unaccepted: half of what a node allows."""
EVENTS_AT_ONCE = 1_000
"""Events of a frame, where a load does not say otherwise."""
TURN_S = 0.1
"""How long the socket is waited for before the time is looked at."""

Tally = Counter[str]
"""How often what happened: `answered`, `refused limit`, `accepted`, …"""


@dataclass(frozen=True)
class Place:
    """Where a node is, and who one is there."""

    port: int
    ca: Path | None = None
    token: str = field(default="", repr=False)
    sensor_port: int = 0  # of its gateway, where it has one
    sensor_http_port: int = 0

    @property
    def address(self) -> str:
        """The same for a client of the library."""
        return f"tidings{'+tls' if self.ca else ''}://{HOST}:{self.port}"

    @property
    def proof(self) -> dict[str, Any]:
        """What a client of the library shows, as arguments of `connect`."""
        return {"token": self.token, "ca": self.ca} if self.ca else {}

    def with_sensors(self, port: int, http_port: int) -> Place:
        """The same, of a node that has a gateway."""
        return Place(self.port, self.ca, self.token, port, http_port)

    def dial(self) -> socket.socket:
        """A connection, with TLS where the node has it."""
        channel = socket.create_connection((HOST, self.port), timeout=10.0)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.ca is not None:
            channel = client_context(self.ca, None, None).wrap_socket(channel, server_hostname=HOST)
        channel.setblocking(False)
        return channel


class OutOfTime(Exception):
    """The time of the load is over."""


class Parted(Exception):
    """The node has ended the connection, with this code."""


class Hostile:
    """One connection."""

    def __init__(self, place: Place, deadline: float, tally: Tally) -> None:
        self.tally = tally
        self.deadline = deadline
        self._channel = place.dial()
        self._reader = FrameReader(REPLY_MAX)
        self._out = bytearray()
        self._number = self._settled = 0
        self._counter = self._accepted = 0
        self._unaccepted: list[tuple[int, int]] = []  # (last counter of a frame, its bytes)
        self._replies: dict[int, Any] = {}
        self._awaited: set[int] = set()
        self._is_welcome = False
        self._say(Hello([VERSION], new_system(os.urandom), 1, secret=place.token))
        while not self._is_welcome:
            self._turn()

    # Asking

    def ask(self, operation: str, **arguments: Any) -> Any:
        """The answer to a request, None if it was refused."""
        number = self._request(operation, arguments)
        self._awaited.add(number)
        while number not in self._replies:
            self._turn()
        return self._replies.pop(number)

    def start(self, operation: str, **arguments: Any) -> None:
        """Send a request, as far as that can be done at once, and do not wait for the answer."""
        self._request(operation, arguments)
        self._turn()

    def wait_answers(self) -> None:
        """Wait until all that was asked is answered."""
        while self._out or self._settled < self._number:
            self._turn()

    def ask_all(self, operation: str, requests: Iterable[dict[str, Any]], outstanding: int = 1_000) -> None:
        """Send many requests, so many of which may be unanswered, and wait for all answers."""
        for arguments in requests:
            self._request(operation, arguments)
            while len(self._out) > RECEIVE_SIZE or self._number - self._settled >= outstanding:
                self._turn()
        self.wait_answers()

    def _request(self, operation: str, arguments: dict[str, Any]) -> int:
        self._number += 1
        self.tally["asked"] += 1
        self._say(Request(self._number, operation, arguments))
        return self._number

    # Events

    def publish(self, events: Iterable[Event], at_once: int = EVENTS_AT_ONCE) -> None:
        """Publish them in frames of so many, and wait until all are accepted."""
        for some in cut(events, at_once):
            self._send_events(PUBLISH, some)
        self.wait_accepted()

    def put(self, queue: str, events: Iterable[Event], at_once: int = EVENTS_AT_ONCE) -> None:
        """Put them into a queue, and wait until all are accepted."""
        for some in cut(events, at_once):
            self._send_events(Put(queue), some)
        self.wait_accepted()

    def _send_events(self, message: ProtocolMessage, events: Sequence[Event]) -> None:
        first = self._counter + 1
        raw = Batch.of([replace(event, counter=first + place) for place, event in enumerate(events)]).raw
        self._counter += len(events)
        self._unaccepted.append((self._counter, len(raw)))
        self.tally["sent events"] += len(events)
        self._say(message, raw)
        while sum(size for _, size in self._unaccepted) > UNACCEPTED_MAX and len(self._unaccepted) > 1:
            self._turn()

    def wait_accepted(self) -> None:
        """Wait until all that was sent is accepted."""
        while self._unaccepted or self._out:
            self._turn()

    # The connection

    def send(self, data: bytes) -> bool:
        """Send bytes and read nothing; whether they were taken before the time was over."""
        self._out += data
        while self._out:
            if time.monotonic() > self.deadline:
                return False
            self._turn(reads=False)
        return True

    def rest(self, until: float) -> None:
        """Stay and answer what the node asks, but say nothing."""
        while time.monotonic() < min(until, self.deadline):
            self._turn()

    def close(self) -> None:
        """End the connection at once, without a word."""
        self._channel.close()

    def _say(self, message: ProtocolMessage, events: bytes = b"") -> None:
        frame = encode(message, events)
        assert len(frame) <= FRAME_MAX + 4, "a load keeps to the limits"
        self._out += frame

    def _turn(self, reads: bool = True) -> None:
        """Read and write what can be read and written; OutOfTime and Parted end the load."""
        if time.monotonic() > self.deadline:
            raise OutOfTime
        has_more = isinstance(self._channel, ssl.SSLSocket) and self._channel.pending() > 0
        wanted = [self._channel] if reads else []
        pause_s = 0.0 if has_more else TURN_S
        readable, writable, _ = select.select(wanted, [self._channel] if self._out else [], [], pause_s)
        try:
            if writable:
                self._write()
            if readable or (has_more and reads):
                self._read()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            raise Parted(error.__class__.__name__) from None

    def _write(self) -> None:
        with memoryview(self._out) as view, view[:RECEIVE_SIZE] as part:
            size = self._channel.send(part)
        del self._out[:size]

    def _read(self) -> None:
        data = self._channel.recv(RECEIVE_SIZE)
        if not data:
            raise Parted("closed")
        for message, _ in self._reader.feed(data):
            self._hear(message)

    def _hear(self, message: ProtocolMessage) -> None:
        if isinstance(message, Reply):
            self._hear_reply(message)
        elif isinstance(message, Accepted):
            self.tally["accepted events"] += max(0, message.counter - self._accepted)
            self._accepted = max(self._accepted, message.counter)
            self._unaccepted = [one for one in self._unaccepted if one[0] > message.counter]
        elif isinstance(message, Refusal):
            self.tally[f"refused event {message.failure.code}"] += 1 + message.last - message.first
        elif isinstance(message, Welcome):
            self._is_welcome = True
        elif isinstance(message, Ping):
            self._say(Pong(message.number))
        elif isinstance(message, Bye):
            raise Parted(message.code)

    def _hear_reply(self, reply: Reply) -> None:
        self._settled += 1
        if reply.error is None:
            self.tally["answered"] += 1
        else:
            self.tally["refused"] += 1
            self.tally[f"refused {reply.error.code}"] += 1
        if reply.number in self._awaited:
            self._awaited.discard(reply.number)
            self._replies[reply.number] = reply.result


@dataclass
class Load:
    """What a row has to work with: connections of one user, the sizes of the row, and the tally."""

    place: Place
    sizes: dict[str, int]
    deadline: float
    tally: Tally = field(default_factory=Counter)
    kept: dict[str, Any] = field(default_factory=dict)  # what `prepare` leaves for `attack`
    _clients: list[Hostile] = field(default_factory=list)
    _others: list[socket.socket] = field(default_factory=list)

    def connect(self) -> Hostile:
        """One more connection, which lasts until the load is over."""
        client = Hostile(self.place, self.deadline, self.tally)
        self._clients.append(client)
        return client

    def connect_all(self, count: int) -> list[Hostile]:
        """So many more."""
        return [self.connect() for _ in range(count)]

    def keep(self, channel: socket.socket) -> socket.socket:
        """Have a connection of another kind last until the load is over."""
        self._others.append(channel)
        return channel

    def allow(self, seconds: float) -> None:
        """From now on the load has so much time."""
        self.deadline = time.monotonic() + seconds
        for client in self._clients:
            client.deadline = self.deadline

    def close(self) -> None:
        """End all connections at once."""
        for client in self._clients:
            client.close()
        for channel in self._others:
            channel.close()


def cut(events: Iterable[Event], size: int) -> Iterator[list[Event]]:
    """Lists of so many events, the last one of those that are left."""
    remaining = iter(events)
    while some := list(islice(remaining, size)):
        yield some
