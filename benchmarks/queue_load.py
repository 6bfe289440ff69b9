"""Load on a queue: raw sockets on which messages are put and got, each side in a process of its own.

Who puts has so many messages outstanding on each connection, and sends the next when one was accepted. Who
gets does so on one connection, and acknowledges what has come before it takes more. Both do as little as can
be done, so that what is measured is the broker between them.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable

from benchmarks.load import WAIT_S_MAX, Child, Pipe, call, wait_go
from benchmarks.queue_wires import QueueWire
from benchmarks.wires import Load
from tidings.errors import PeerError

READ_SIZE = 64 << 10
"""Bytes that are read at once; to make room for many more takes longer than to read."""


def prepare(wire: QueueWire) -> None:
    """Make the queue, empty."""
    call(wire, wire.prepare()).close()


def carry(wire: QueueWire, count: int, connections: int, outstanding: int) -> float:
    """Messages a second that are put, stored, got and acknowledged, one put and its get counted as one."""
    prepare(wire)
    with (
        Child(get, wire, count) as getting,
        Child(put, wire, count, connections, outstanding) as putting,
    ):
        return rate(count, getting, putting)


def rate(count: int, getting: Child, putting: Child) -> float:
    """Messages a second from the first that is put to the last that is acknowledged, once all are ready."""
    for child in (getting, putting):
        child.receive()
    for child in (getting, putting):
        child.send("go")
    started, accepted_at = putting.receive()
    _, got_at = getting.receive()
    took_s: float = max(accepted_at, got_at) - started
    return count / took_s


def fill(wire: QueueWire, count: int, outstanding: int) -> float:
    """Seconds to put so many messages over one connection into a queue that nobody gets from."""
    with Child(put, wire, count, 1, outstanding) as putting:
        return _took_s(putting)


def drain(wire: QueueWire, count: int) -> float:
    """Seconds to get and acknowledge so many messages that are in a queue."""
    with Child(get, wire, count) as getting:
        return _took_s(getting)


def _took_s(child: Child) -> float:
    child.receive()
    child.send("go")
    started, done_at = child.receive()
    took_s: float = done_at - started
    return took_s


# Who puts


def put(pipe: Pipe, wire: QueueWire, count: int, connections: int, outstanding: int) -> None:
    """Put messages; then send when the first was put and when the last was accepted."""
    load = wire.load(count // connections, outstanding=outstanding)
    putters = [_Putter(call(wire, wire.begin()), load, wire.hearing()) for _ in range(connections)]
    wait_go(pipe)
    started = time.monotonic()
    _put_all({putter.channel.fileno(): putter for putter in putters}, outstanding)
    pipe.send((started, time.monotonic()))
    pipe.poll(WAIT_S_MAX)  # the connections last until all have been got


class _Putter:
    """One connection: what it has still to send, and what was accepted of what it sent."""

    def __init__(self, channel: socket.socket, load: Load, hear: Callable[[bytes], int]) -> None:
        self.channel = channel
        self._load, self._view, self._hear = load, memoryview(load.data), hear
        self._sent = self._accepted = 0

    @property
    def is_done(self) -> bool:
        """Whether everything was accepted."""
        return self._accepted >= self._load.count

    def send(self, outstanding: int) -> None:
        """Send as many as may be under way."""
        until = min(self._accepted + outstanding, self._load.count)
        if until > self._sent:
            size = self._load.piece_size
            self.channel.sendall(self._view[self._sent * size : until * size])
            self._sent = until

    def receive(self) -> None:
        """Take answers that have come."""
        data = self.channel.recv(READ_SIZE)
        if not data:
            raise PeerError("the connection was closed")
        self._accepted = self._hear(data)


def _put_all(putters: dict[int, _Putter], outstanding: int) -> None:
    poll = select.epoll()
    for number, putter in putters.items():
        poll.register(number, select.EPOLLIN)
        putter.send(outstanding)
    deadline = time.monotonic() + WAIT_S_MAX
    left = len(putters)
    while left:
        if time.monotonic() > deadline:
            raise PeerError("not everything was accepted in time")
        for number, _ in poll.poll(1.0):
            putter = putters[number]
            putter.receive()
            putter.send(outstanding)
            left -= putter.is_done


# Who gets


def get(pipe: Pipe, wire: QueueWire, count: int) -> None:
    """Get messages; then send when the first was asked for and when the last was acknowledged."""
    channel = call(wire, wire.subscribe(None))
    wait_go(pipe)
    started = time.monotonic()
    _get_all(channel, wire, count)
    pipe.send((started, time.monotonic()))
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)


def _get_all(channel: socket.socket, wire: QueueWire, count: int) -> None:
    getting = wire.getting(count)
    channel.sendall(getting.first())
    deadline = time.monotonic() + WAIT_S_MAX
    came = 0
    while came < count:
        data = channel.recv(READ_SIZE)
        if not data or time.monotonic() > deadline:
            raise PeerError(f"{came} of {count} messages came from {wire}")
        more, said = getting.hear(data)
        came += more
        if said:
            channel.sendall(said)
    channel.sendall(getting.last()[0])
    data = b""
    while not getting.is_over(data):
        data = channel.recv(READ_SIZE)
        if not data:
            raise PeerError(f"what came from {wire} was not acknowledged")
