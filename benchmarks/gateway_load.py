"""Load on a gateway: sensor networks on raw sockets, many in a process, who send what was made before.

All say the same: readings of one sensor, in which MARKER stands once each. So whoever subscribes counts
readings without decoding anything. A network registers first and is asked for its readings, as there is
somebody who wants everything; it says nothing more than these from then on, and must be told nothing.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack

from benchmarks.load import HOST, WAIT_S_MAX, Pipe, Taken, wait_go
from benchmarks.wires import MARKER, MqttWire
from tidings.errors import PeerError

PIECE_SIZE = 32 << 10
"""Bytes that a network without a pace sends at once, more or less."""
RECEIVE_SIZE = 256 << 10
IDLE_S_MAX = 5.0
"""How long nothing may arrive before the rest is taken for lost."""
SLOTS = 100
"""Parts of a second in which the networks of a steady load take turns."""
STAMP = "2026-11-15T06:00:00Z"


def register(network: int, sensors: int = 1) -> bytes:
    """A network comes; datagrams are to be answered with no more than they were, so there is a comment."""
    offered = ",".join(f'{{"name":"s{number}","type":"{MARKER.decode()}"}}' for number in range(sensors))
    said = f'"sensing-id":"net-{network:05d}","comment":"{"of sensors " * 12}","sensors":[{offered}]'
    return f'{{"register":{{{said}}}}}\n'.encode()


def sensing(network: int, readings: int, number: int = 0) -> bytes:
    """A message of so many readings; all have one length, whatever the number."""
    said = ",".join(
        f'{{"name":"s0","type":"{MARKER.decode()}","value":"{(number + more) % 1000 / 10:04.1f}",'
        f'"timestamp":"{STAMP}"}}'
        for more in range(readings)
    )
    return f'{{"sensing":{{"sensing-id":"net-{network:05d}","sensors":[{said}]}}}}\n'.encode()


def join(port: int, network: int, sensors: int = 1, *, udp: bool = False) -> socket.socket:
    """A connection, or a socket for datagrams, of a network that is registered and was asked for readings."""
    kind = socket.SOCK_DGRAM if udp else socket.SOCK_STREAM
    channel = socket.socket(socket.AF_INET, kind)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        channel.setsockopt(socket.SOL_SOCKET, option, pack("ll", int(WAIT_S_MAX), 0))
    channel.connect((HOST, port))
    if not udp:
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    channel.sendall(register(network, sensors))
    heard = channel.recv(RECEIVE_SIZE)
    if not heard.startswith(b'{"subscribe"'):
        raise PeerError(f"a network was not asked for readings: {heard[:200]!r}")
    return channel


def _check_untold(channels: Sequence[socket.socket]) -> None:
    """Raise PeerError if the gateway has had anything to say."""
    for channel in channels:
        with contextlib.suppress(BlockingIOError):
            raise PeerError(f"the gateway said {channel.recv(RECEIVE_SIZE, socket.MSG_DONTWAIT)[:200]!r}")


def _wait(moment: float) -> None:
    while (left := moment - time.monotonic()) > 0:
        time.sleep(left)


# Much from few


@dataclass(frozen=True)
class Flood:
    """What is sent: in each turn each connection sends `piece` messages; None: as fast as they are taken."""

    connections: int
    readings: int
    piece: int
    turns: int
    turn_s: float | None = None

    @property
    def messages(self) -> int:
        """How many messages that is."""
        return self.connections * self.piece * self.turns

    @property
    def total(self) -> int:
        """How many readings that is."""
        return self.messages * self.readings

    @property
    def duration_s(self) -> float:
        """How long that takes at the least."""
        return 0.0 if self.turn_s is None else self.turns * self.turn_s

    def data(self, network: int) -> bytes:
        """What a network sends in a turn."""
        return b"".join(sensing(network, self.readings, number) for number in range(self.piece))


def fast(connections: int, readings: int, messages: int) -> Flood:
    """About so many messages as fast as they are taken."""
    piece = max(1, min(PIECE_SIZE // len(sensing(0, readings)), messages // connections))
    return Flood(connections, readings, piece, max(1, messages // (connections * piece)))


def paced(connections: int, readings: int, rate: int, duration_s: float, turn_s: float) -> Flood:
    """So many messages a second of each connection."""
    return Flood(connections, readings, max(1, round(rate * turn_s)), round(duration_s / turn_s), turn_s)


def flood(pipe: Pipe, port: int, plan: Flood) -> None:
    """Send it, each connection that of its network; then send when it was begun, and when each turn was."""
    channels = [join(port, network) for network in range(plan.connections)]
    pieces = [plan.data(network) for network in range(plan.connections)]
    pairs = list(zip(channels, pieces, strict=True))
    wait_go(pipe)
    started, sent_at = time.monotonic(), []
    for turn in range(plan.turns):
        if plan.turn_s is not None:
            _wait(started + turn * plan.turn_s)
        sent_at.append(time.monotonic())
        for channel, piece in pairs:
            channel.sendall(piece)
    _wait_end(pipe, (started, sent_at), channels)


def _wait_end(pipe: Pipe, found: object, channels: Sequence[socket.socket]) -> None:
    """Send what was found; connections last until everything has arrived."""
    pipe.send(found)
    with contextlib.suppress(EOFError):
        if pipe.poll(WAIT_S_MAX):
            pipe.recv()
    _check_untold(channels)
    pipe.send("done")


# Little from many


@dataclass(frozen=True)
class Many:
    """So many networks, each with a socket of its own, that send a message a second each."""

    first: int
    networks: int
    udp: bool
    sensors: int = 1


def steady(pipe: Pipe, port: int, many: Many, duration_s: int) -> None:
    """Send a message a second of each, evenly spread; then send when it was begun and ended."""
    channels = _join_all(port, many)
    pairs = [(channel, sensing(many.first + place, 1)) for place, channel in enumerate(channels)]
    slots = [pairs[slot::SLOTS] for slot in range(SLOTS)]
    wait_go(pipe)
    started = time.monotonic()
    for turn in range(duration_s * SLOTS):
        _wait(started + turn / SLOTS)
        for channel, message in slots[turn % SLOTS]:
            channel.send(message)
    _wait_end(pipe, (started, time.monotonic()), channels)


def stay(pipe: Pipe, port: int, many: Many) -> None:
    """Be there and say nothing, until it is enough."""
    channels = _join_all(port, many)
    wait_go(pipe)
    _check_untold(channels)


def _join_all(port: int, many: Many) -> list[socket.socket]:
    networks = range(many.first, many.first + many.networks)
    return [join(port, network, many.sensors, udp=many.udp) for network in networks]


# The other end


def hear(channel: socket.socket, count: int) -> Taken:
    """Receive so many readings, or as many as come until nothing comes for IDLE_S_MAX."""
    buffer = memoryview(bytearray(RECEIVE_SIZE))
    taken, tail, deadline = Taken(), b"", time.monotonic() + WAIT_S_MAX
    channel.settimeout(1.0)
    while taken.count < count and time.monotonic() < deadline:
        try:
            size = channel.recv_into(buffer)
        except TimeoutError:
            continue
        if not size:
            raise PeerError("the connection was closed")
        data = tail + buffer[:size]
        tail = data[1 - len(MARKER) :]  # a marker may be cut in two
        if found := data.count(MARKER):
            taken.count += found
            taken.last_at = time.monotonic()
            taken.arrivals.append((taken.last_at, taken.count))
            deadline = taken.last_at + IDLE_S_MAX
    return taken


@dataclass(frozen=True)
class SensingMqttWire(MqttWire):
    """MQTT with the messages of sensor networks as payloads."""

    readings: int = 1

    def message(self, topic: int) -> bytes:
        """PUBLISH."""
        said = b"\x00\x06t/%04d" % topic + sensing(topic, self.readings, topic)
        head, rest = len(said) % 128, len(said) // 128
        return bytes((0x30, head | 128, rest)) + said
