"""Load with TLS and without: one publisher and one subscriber, who do the same in both cases.

On the wire a publisher sends bytes that were made before the clock started, and a subscriber counts markers
in what arrives; through the API both are clients of the library. A rate is from the first byte sent to the
last event received.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from typing import Any

import tidings
from benchmarks.clients import LIST_SIZE, PREFETCH, run_within
from benchmarks.load import (
    CHUNK_SIZE,
    RECEIVE_SIZE,
    WAIT_S_MAX,
    Child,
    Pipe,
    converse,
    dial,
    receive,
    wait_go,
)
from benchmarks.secured import TlsWire
from benchmarks.wires import MARKER, TOPICS, Load, Step, TidingsWire, event_of
from tidings.errors import PeerError
from tidings.event import Event

PIECE = 100
"""Events in a frame."""

Proof = dict[str, Any]
"""What a client shows, as arguments of `connect`."""


def carry(publisher: TidingsWire, subscriber: TidingsWire, count: int) -> float:
    """Events a second on the wire, to a subscriber to everything."""
    with Child(tap, subscriber, count) as taking, Child(feed, publisher, count) as sending:
        return _rate(count, taking, sending)


def through_clients(address: str, proof: Proof, count: int) -> float:
    """Events a second through the API, in lists."""
    with Child(take, address, proof, count) as taking, Child(publish, address, proof, count) as sending:
        return _rate(count, taking, sending)


def _rate(count: int, taking: Child, sending: Child) -> float:
    for child in (taking, sending):
        child.receive()
    for child in (taking, sending):
        child.send("go")
    started: float = sending.receive()
    last_at: float = taking.receive()
    return count / (last_at - started)


# Wire


def call(wire: TidingsWire, steps: Sequence[Step]) -> socket.socket:
    """A connection on which these steps were gone through, with TLS if the wire has it."""
    channel = dial(wire.port)
    return converse(wire.wrap(channel) if isinstance(wire, TlsWire) else channel, steps)


def feed(pipe: Pipe, wire: TidingsWire, count: int) -> None:
    """Send a load as fast as it is taken; then send when it was begun."""
    load = wire.load(count, PIECE, range(TOPICS))
    channel = call(wire, wire.begin())
    wait_go(pipe)
    started = time.monotonic()
    _send_all(channel, wire, load)
    pipe.send(started)
    pipe.poll(WAIT_S_MAX)  # the connection lasts until all have received


def _send_all(channel: socket.socket, wire: TidingsWire, load: Load) -> None:
    """Send a load, and wait until all of it was accepted; never more than the node's window is not."""
    hear, sent, accepted = wire.hearing(), 0, 0
    pieces, view = max(1, CHUNK_SIZE // load.piece_size), memoryview(load.data)
    for start in range(0, len(view), pieces * load.piece_size):
        while sent - accepted > (wire.unaccepted_max or 0) or _has_more(channel):
            accepted = hear(receive(channel))
        channel.sendall(view[start : start + pieces * load.piece_size])
        sent += pieces * load.piece_events
    while accepted < load.count:
        accepted = hear(receive(channel))


def _has_more(channel: socket.socket) -> bool:
    return bool(select.select([channel], [], [], 0)[0])


def tap(pipe: Pipe, wire: TidingsWire, count: int) -> None:
    """Receive so many events; then send when the last came."""
    channel = call(wire, wire.subscribe(None))
    wait_go(pipe)
    buffer, tail, taken = memoryview(bytearray(RECEIVE_SIZE)), b"", 0
    while taken < count:
        size = channel.recv_into(buffer)
        if not size:
            raise PeerError("the connection was closed")
        data = tail + buffer[:size]
        tail = data[1 - len(MARKER) :]  # a marker may be cut in two
        taken += data.count(MARKER)
    if taken > count:
        raise PeerError(f"{taken} events came, and {count} were sent")
    pipe.send(time.monotonic())


# API


def publish(pipe: Pipe, address: str, proof: Proof, count: int) -> None:
    """Publish so many events in lists; then send when it was begun."""
    run_within(_publish(pipe, address, proof, count))


def take(pipe: Pipe, address: str, proof: Proof, count: int) -> None:
    """Take so many events as they come; then send when the last came."""
    run_within(_take(pipe, address, proof, count))


async def _publish(pipe: Pipe, address: str, proof: Proof, count: int) -> None:
    like = [event_of(topic) for topic in range(LIST_SIZE)]
    events = [Event(one.type, dict(one.values), body=one.body) for one in like]
    async with tidings.connect(address, **proof) as bus:
        wait_go(pipe)
        started = time.monotonic()
        for first in range(0, count, LIST_SIZE):
            await bus.publish_all(events[: count - first])
        pipe.send(started)


async def _take(pipe: Pipe, address: str, proof: Proof, count: int) -> None:
    async with tidings.connect(address, **proof) as bus, bus.subscribe(prefetch=PREFETCH) as events:
        wait_go(pipe)
        received = 0
        while received < count:
            received += len(await events.take())
        pipe.send(time.monotonic())
