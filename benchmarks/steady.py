"""A good client that publishes at a steady rate, in a process of its own: how much of the rate does it keep?

It sends frames that were made before, with the counters written over, as often as they are due and as far as
the node's window allows; a second connection subscribes to one in TOPICS of the events. An event is done when
it was accepted and, if it was for the subscriber, delivered. What is late may be made good until it is asked
how much was done.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.hostile import Place
from benchmarks.load import RECEIVE_SIZE, WAIT_S_MAX, Pipe, wait_go
from benchmarks.secure_load import call
from benchmarks.secured import TlsWire
from benchmarks.wires import COUNTER_FIRST, EVENT_SIZE, MARKER, TidingsWire, pattern_of
from tidings.errors import PeerError
from tidings.protocol.login import WINDOW

TOPICS = 10
FRAME_EVENTS = 100
PIECE_FRAMES = 30
"""Frames that are sent at once."""
PIECE_EVENTS = FRAME_EVENTS * PIECE_FRAMES
UNACCEPTED_MAX = WINDOW // EVENT_SIZE - PIECE_EVENTS
WINDOWS = 4
"""Parts of the time in which the rate is looked for."""
PAUSE_S_MAX = 0.02
"""How long the sockets are waited for before the time is looked at."""


T = TypeVar("T")


@dataclass(frozen=True)
class Kept:
    """How many events were due, and how many were published."""

    due: int
    done: int

    @property
    def share(self) -> float:
        """The part of its rate that the publisher has kept."""
        return min(1.0, self.done / self.due) if self.due else 1.0


def publish(pipe: Pipe, place: Place, seconds: float, part: float) -> None:
    """Keep the node busy; when told to go on, send its rate for this client, and go on at a part of that.

    Whenever it is asked it sends Kept, of the time since it was asked before, until the other end is closed.
    """
    steady = Steady(place)
    steady.run_for(seconds)
    wait_go(pipe)
    # The best of some, as the machine may have had something else to do.
    rate = max(steady.run_for(seconds / WINDOWS) for _ in range(WINDOWS))
    steady.drain()
    pipe.send(rate)
    while True:
        began, first = time.monotonic(), steady.done
        steady.run(part * rate, pipe.poll)
        due = int(part * rate * (time.monotonic() - began))
        try:
            pipe.recv()
        except EOFError:
            return
        # What is just being sent is not late.
        pipe.send(Kept(due, min(due, steady.done - first + PIECE_EVENTS)))


class Steady:
    """Two connections: one that publishes, and one that subscribes."""

    def __init__(self, place: Place) -> None:
        wire = _wire(place)
        self._subscriber = call(wire, wire.subscribe((0,)))
        self._publisher = call(wire, wire.begin())
        self._hear = wire.hearing()
        self._pieces = _Pieces()
        self._out = memoryview(b"")
        self._tail = b""
        self._sent = self._accepted = self._delivered = 0
        for channel in (self._subscriber, self._publisher):
            channel.setblocking(False)

    @property
    def done(self) -> int:
        """Events that were accepted and, as far as they were for the subscriber, delivered."""
        return min(self._accepted, TOPICS * self._delivered)

    def run(self, rate: float | None, is_over: Callable[[], bool]) -> float:
        """Publish at this rate, or as fast as can be, until it is over; how many were done in a second."""
        began, first, sent_before = time.monotonic(), self.done, self._sent
        while not is_over():
            due_at = began
            if rate is not None:
                due_at += (self._sent - sent_before + PIECE_EVENTS) / rate
            self._turn(due_at)
        return (self.done - first) / max(1e-9, time.monotonic() - began)

    def run_for(self, seconds: float) -> float:
        """The same as fast as can be, for so many seconds."""
        deadline = time.monotonic() + seconds
        return self.run(None, lambda: time.monotonic() > deadline)

    def drain(self) -> None:
        """Wait until all that was sent is done, or for WAIT_S_MAX."""
        deadline = time.monotonic() + WAIT_S_MAX
        while self.done < self._sent and time.monotonic() < deadline:
            self._turn(deadline)

    def _turn(self, due_at: float) -> None:
        now = time.monotonic()
        if not self._out and now >= due_at and self._sent - self._accepted <= UNACCEPTED_MAX:
            self._out = memoryview(self._pieces.next())
            self._sent += PIECE_EVENTS
        channels = [self._publisher, self._subscriber]
        has_more = any(isinstance(one, ssl.SSLSocket) and one.pending() for one in channels)
        pause_s = 0.0 if has_more else min(PAUSE_S_MAX, max(0.0, due_at - now) or PAUSE_S_MAX)
        _, writable, _ = select.select(channels, [self._publisher] if self._out else [], [], pause_s)
        if writable:
            self._out = self._out[_try(self._publisher.send, self._out) or 0 :]
        if data := _receive(self._publisher):
            self._accepted = self._hear(data)
        if data := _receive(self._subscriber):
            data = self._tail + data
            self._tail = data[1 - len(MARKER) :]  # a marker may be cut in two
            self._delivered += data.count(MARKER)


def _wire(place: Place) -> TidingsWire:
    if place.ca is None:
        return TidingsWire(place.port, FRAME_EVENTS)
    return TlsWire(place.port, FRAME_EVENTS, place.ca, place.token)


def _try(act: Callable[..., T], *arguments: object) -> T | None:
    """What comes of it, None if it has to wait."""
    try:
        return act(*arguments)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None


def _receive(channel: socket.socket) -> bytes:
    data = _try(channel.recv, RECEIVE_SIZE)
    if data == b"":
        raise PeerError("the node has parted from the publisher")
    return data or b""


class _Pieces:
    """Frames of events, each of which is counted on from the one before."""

    def __init__(self) -> None:
        import numpy as np

        frame, places = pattern_of(range(TOPICS), FRAME_EVENTS)
        self._frames = np.tile(np.frombuffer(frame, np.uint8), (PIECE_FRAMES, 1))
        self._counters = np.arange(COUNTER_FIRST, COUNTER_FIRST + PIECE_EVENTS, dtype=np.uint64)
        self._places = np.array(places)

    def next(self) -> bytes:
        """The bytes of the next PIECE_EVENTS events."""
        said = self._counters.astype(">u8").view("u1").reshape(PIECE_FRAMES, FRAME_EVENTS, 8)
        for byte in range(8):
            self._frames[:, self._places + byte] = said[:, :, byte]
        self._counters += PIECE_EVENTS
        return self._frames.tobytes()
