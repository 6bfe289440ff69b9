"""Load on a wire: publishers and subscribers on raw sockets, each in a process of its own.

They do as little as can be done: a publisher sends bytes that were made before the clock started, a
subscriber counts markers in what arrives. So what is measured is the broker between them. Times are those of
`time.monotonic`, which on Linux all processes share. Every wait has a limit, and a child that is not done
when its block ends is killed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from struct import pack
from types import TracebackType
from typing import Any, Self

from benchmarks.wires import MARKER, Load, Wire
from tidings.errors import PeerError, TidingsError

WAIT_S_MAX = float(os.environ.get("TIDINGS_BENCH_WAIT_S", "20"))
"""How long any one step of a measurement may take; under an instrument that slows a node down, longer."""
CHUNK_SIZE = 256 << 10
"""Bytes that a publisher without a pace sends at once."""
RECEIVE_SIZE = 256 << 10
HOST = "127.0.0.1"

Pipe = Connection

CHILD_MODULES = ("arena", "channel", "gateway_load", "pipeline_load", "queue_clients", "queue_load", "secure")
"""Modules of the functions that children run, with all that these import."""
PROCESSES = multiprocessing.get_context("forkserver")
"""How children are started: forked from a process that has imported these modules, and done nothing else.

A fresh interpreter for each child would take longer for its imports than most children take for their work.
"""
PROCESSES.set_forkserver_preload([f"benchmarks.{name}" for name in CHILD_MODULES])


class Child:
    """A function in a process of its own: `run(pipe, *arguments)`; what it sends is had by `receive`."""

    def __init__(self, run: Callable[..., None], *arguments: Any) -> None:
        self._pipe, theirs = PROCESSES.Pipe()
        self._process = PROCESSES.Process(target=_guarded, args=(run, theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        self._process.join(timeout=1.0)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()

    def send(self, word: Any) -> None:
        """Tell the child to go on; PeerError with its reason if it has ended."""
        try:
            self._pipe.send(word)
        except OSError:
            self.receive()
            raise PeerError("a process of the measurement has ended") from None

    def kill(self) -> None:
        """End the child at once."""
        self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Whether the child says something, or ends, within so many seconds."""
        return self._pipe.poll(seconds)

    def receive(self) -> Any:
        """What the child says next; PeerError if it has failed or takes too long."""
        if not self._pipe.poll(2 * WAIT_S_MAX):
            raise PeerError("a process of the measurement does not answer")
        try:
            found = self._pipe.recv()
        except EOFError:
            raise PeerError("a process of the measurement has died") from None
        if isinstance(found, Exception):
            raise PeerError(f"a process of the measurement failed: {found!r}")
        return found


def _guarded(run: Callable[..., None], pipe: Pipe, *arguments: Any) -> None:
    try:
        run(pipe, *arguments)
    except (OSError, EOFError, TidingsError) as error:
        with contextlib.suppress(OSError):  # the parent may be gone
            pipe.send(PeerError(repr(error)))


def wait_go(pipe: Pipe) -> None:
    """Say that all is ready, and wait until everybody is."""
    pipe.send("ready")
    if not pipe.poll(WAIT_S_MAX):
        raise PeerError("nobody said go")
    pipe.recv()


def call(wire: Wire, steps: Sequence[tuple[bytes, bytes]]) -> socket.socket:
    """A connection on which these steps were gone through."""
    return converse(dial(wire.port), steps)


def dial(port: int) -> socket.socket:
    """A connection on which nothing was said yet."""
    channel = socket.create_connection((HOST, port), timeout=WAIT_S_MAX)
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return channel


def converse(channel: socket.socket, steps: Sequence[tuple[bytes, bytes]]) -> socket.socket:
    """Go through these steps on a connection, and leave it with limits for the load."""
    for said, ending in steps:
        channel.sendall(said)
        heard = b""
        while not heard.endswith(ending):
            heard += receive(channel)
    # Limits of the system, not of Python, which would look for readiness before each call.
    channel.settimeout(None)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        channel.setsockopt(socket.SOL_SOCKET, option, pack("ll", int(WAIT_S_MAX), 0))
    return channel


def receive(channel: socket.socket) -> bytes:
    """What has arrived; PeerError if the connection was closed."""
    data = channel.recv(RECEIVE_SIZE)
    if not data:
        raise PeerError("the connection was closed")
    return data


# Publishers


def feed(
    pipe: Pipe, wire: Wire, count: int, piece_events: int, topics: Sequence[int], rate: float | None
) -> None:
    """Send a load, at so many events a second or as fast as it is taken; then send when each part left."""
    load = wire.load(count, piece_events, topics)
    publisher = _Publisher(call(wire, wire.begin()), wire, load)
    wait_go(pipe)
    started = time.monotonic()
    sent_at = publisher.send_all() if rate is None else publisher.send_paced(rate)
    publisher.wait_accepted()
    pipe.send((started, sent_at))
    pipe.poll(WAIT_S_MAX)  # the connection lasts until all have received


class _Publisher:
    def __init__(self, channel: socket.socket, wire: Wire, load: Load) -> None:
        self._channel = channel
        self._load = load
        self._unaccepted_max = wire.unaccepted_max
        self._hear = wire.hearing()
        self._sent = self._accepted = 0

    def send_all(self) -> list[float]:
        """Send everything; when it was begun."""
        started = time.monotonic()
        load = self._load
        pieces = max(1, CHUNK_SIZE // load.piece_size)
        view = memoryview(load.data)
        for start in range(0, len(view), pieces * load.piece_size):
            self._send(view[start : start + pieces * load.piece_size], pieces * load.piece_events)
        return [started]

    def send_paced(self, rate: float) -> list[float]:
        """Send a piece whenever its time has come; when each was sent."""
        load, view = self._load, memoryview(self._load.data)
        pause_s = load.piece_events / rate
        due, sent_at = time.monotonic(), []
        for start in range(0, len(view), load.piece_size):
            due += pause_s
            while (left := due - time.monotonic()) > 0:
                time.sleep(left)
            sent_at.append(time.monotonic())
            self._send(view[start : start + load.piece_size], load.piece_events)
        return sent_at

    def _send(self, data: memoryview, events: int) -> None:
        if self._unaccepted_max is not None:
            while self._sent - self._accepted > self._unaccepted_max:
                self._accepted = self._hear(receive(self._channel))
        self._channel.sendall(data)
        self._sent += events
        with contextlib.suppress(BlockingIOError):
            self._accepted = self._hear(self._channel.recv(CHUNK_SIZE, socket.MSG_DONTWAIT))

    def wait_accepted(self) -> None:
        """Wait until everything was accepted, where that is told."""
        while self._unaccepted_max is not None and self._accepted < self._load.count:
            self._accepted = self._hear(receive(self._channel))


# Subscribers


@dataclass
class Taken:
    """What a subscriber has received: how many events, when the last came, and how many there were when."""

    count: int = 0
    last_at: float = 0.0
    arrivals: list[tuple[float, int]] = field(default_factory=list)


def tap(pipe: Pipe, wire: Wire, count: int, topics: Sequence[Sequence[int] | None]) -> None:
    """Receive so many events over one connection for each of the lists of topics; then send Taken."""
    channels = [call(wire, wire.subscribe(wanted)) for wanted in topics]
    wait_go(pipe)
    pipe.send(_take(channels, count))


def _take(channels: list[socket.socket], count: int) -> Taken:
    poll = select.epoll()
    by_number = {channel.fileno(): channel for channel in channels}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    tails = dict.fromkeys(by_number, b"")
    buffer = memoryview(
        bytearray(RECEIVE_SIZE)
    )  # one for all: to make one so large takes longer than to read
    taken = Taken()
    deadline = time.monotonic() + WAIT_S_MAX
    while taken.count < count and time.monotonic() < deadline:
        for number, _ in poll.poll(1.0):
            size = by_number[number].recv_into(buffer)
            if not size:
                raise PeerError("the connection was closed")
            data = tails[number] + buffer[:size]
            tails[number] = data[1 - len(MARKER) :]  # a marker may be cut in two
            taken.count += data.count(MARKER)
        taken.last_at = time.monotonic()
        taken.arrivals.append((taken.last_at, taken.count))
    return taken


# Requests and answers


def answer(pipe: Pipe, wire: Wire, count: int) -> None:
    """Answer so many events of topic 0 with one of topic 1 each."""
    load = wire.load(count, 1, (1,))
    channel = call(wire, wire.subscribe((0,)))
    wait_go(pipe)
    for start in range(0, len(load.data), load.piece_size):
        _wait_event(channel)
        channel.sendall(load.data[start : start + load.piece_size])
    pipe.poll(WAIT_S_MAX)  # the connection lasts until the last answer has come


def ask(pipe: Pipe, wire: Wire, count: int) -> None:
    """Publish events of topic 0, each when the answer to the one before has come; send the times it took."""
    load = wire.load(count, 1, (0,))
    channel = call(wire, wire.subscribe((1,)))
    wait_go(pipe)
    took_s = []
    for start in range(0, len(load.data), load.piece_size):
        sent_at = time.monotonic()
        channel.sendall(load.data[start : start + load.piece_size])
        _wait_event(channel)
        took_s.append(time.monotonic() - sent_at)
    pipe.send(took_s)


def _wait_event(channel: socket.socket) -> None:
    data = receive(channel)
    while MARKER not in data:
        data += receive(channel)
