"""Hostile loads on a gateway, and the canary there: a network whose readings are to arrive as events."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import suppress
from typing import Any

import tidings
from benchmarks.canary import LIFE_S_MAX, Seen, repeat, serve
from benchmarks.hostile import Load, OutOfTime, Parted, Place
from benchmarks.load import HOST, Pipe
from tidings.errors import NoAnswer
from tidings.event import Event
from tidings.node.main import loop_factory

READING = "canary.reading"
CHUNK_SIZE = 64 << 10
TEXT, MORE, LAST, PING, PONG = 0x01, 0x00, 0x80, 0x89, 0x8A
"""First bytes of WebSocket frames: a message begins, goes on, ends; is anybody there; yes."""


# The canary


def sense(pipe: Pipe, place: Place, answer_s: float) -> None:
    """Send a reading every now and then and wait for it as an event; tell Seen whenever it is asked for."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_sense(pipe, place, answer_s))


async def _sense(pipe: Pipe, place: Place, answer_s: float) -> None:
    seen = Seen()
    async with (
        asyncio.timeout(LIFE_S_MAX),
        tidings.connect(place.address, **place.proof) as bus,
        bus.subscribe(f"type = '{READING}'") as readings,
    ):
        network = await _Network.join(place)
        task = asyncio.create_task(repeat(lambda: network.round_trip(readings, answer_s), seen.asked))
        pipe.send("ready")
        await serve(pipe, seen)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class _Network:
    """A sensor network with one sensor, which was asked for its readings."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._sent = 0

    @classmethod
    async def join(cls, place: Place) -> _Network:
        reader, writer = await asyncio.open_connection(HOST, place.sensor_port)
        registered = {"sensing-id": "canary", "sensors": [{"name": "s", "type": READING}]}
        writer.write(_line({"register": {**registered, **_token(place)}}))
        heard = await reader.readline()
        if b'"subscribe"' not in heard:
            raise NoAnswer(f"a network was not asked for readings: {heard[:200]!r}")
        return cls(writer)

    async def round_trip(self, readings: Any, answer_s: float) -> None:
        """Send a reading, and wait until it is there as an event."""
        self._sent += 1
        reading = {"name": "s", "type": READING, "value": self._sent}
        self._writer.write(_line({"sensing": {"sensing-id": "canary", "sensors": [reading]}}))
        try:
            async with asyncio.timeout(answer_s):
                while (await _next(readings))["value"] < self._sent:
                    pass  # of one that was given up
        except TimeoutError:
            raise NoAnswer(f"no reading within {answer_s} s") from None


async def _next(readings: Any) -> Event:
    event: Event = await anext(readings)
    return event


def _line(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode() + b"\n"


def _token(place: Place) -> dict[str, str]:
    return {"token": place.token} if place.token else {}


# Attacks


def tiny_frames(load: Load) -> None:
    """One message over WebSocket, a byte in each frame; then a ping, which is answered behind it."""
    channel = _upgraded(load)
    sensors = json.dumps([{"name": "s", "type": "hostile.reading"}])
    token = json.dumps(_token(load.place))[1:-1]
    tail = f'"sensing-id": "hostile", "sensors": {sensors}{", " * bool(token)}{token}}}}}'
    text = f'{{"register": {{{" " * (load.sizes["frames"] - len(tail))}{tail}'
    _send(load, channel, _frames(text.encode()) + _frame(PING, b""))
    load.tally["sent"] += len(text)
    heard = b""
    while PONG not in heard:
        heard = _receive(load, channel)
    load.tally["answered"] += 1


def _upgraded(load: Load) -> socket.socket:
    """A connection that speaks WebSocket, and ends with the load."""
    channel = load.keep(socket.create_connection((HOST, load.place.sensor_http_port), timeout=10.0))
    head = {
        "Host": f"{HOST}:{load.place.sensor_http_port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    fields = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    channel.sendall(f"GET /sensors HTTP/1.1\r\n{fields}\r\n".encode())
    if b" 101 " not in channel.recv(CHUNK_SIZE):
        raise Parted("not upgraded")
    channel.settimeout(0.1)
    return channel


def _frames(text: bytes) -> bytes:
    """A text message, a byte in each frame."""
    firsts = [TEXT, *[MORE] * (len(text) - 2), LAST | MORE]
    return b"".join(_frame(first, bytes((byte,))) for first, byte in zip(firsts, text, strict=True))


def _frame(first: int, content: bytes) -> bytes:
    """A frame of a client, masked with zeros, which change nothing."""
    return bytes((first, 0x80 | len(content), 0, 0, 0, 0)) + content


def _send(load: Load, channel: socket.socket, data: bytes) -> None:
    view = memoryview(data)
    while view:
        _check_time(load)
        with suppress(TimeoutError):
            view = view[channel.send(view[:CHUNK_SIZE]) :]


def _receive(load: Load, channel: socket.socket) -> bytes:
    while True:
        _check_time(load)
        with suppress(TimeoutError):
            data = channel.recv(CHUNK_SIZE)
            if not data:
                raise Parted("closed")
            return data


def _check_time(load: Load) -> None:
    if time.monotonic() > load.deadline:
        raise OutOfTime
