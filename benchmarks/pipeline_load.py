"""Readings for the log of a node: prebuilt frames on a raw socket, and lists of events through the client.

All readings of a load have one size, so a load is a table of bytes into which numbers, times, types, networks
and values are written at their places. Values are spread evenly from 0 to VALUE_MAX, so a filter such as
`value >= 99` has the share of them that it seems to have; times go on by a millisecond.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from struct import pack
from typing import Any

from msgspec.structs import replace

import tidings
from benchmarks import load
from benchmarks.clients import run_within
from benchmarks.load import WAIT_S_MAX, Child, Pipe, wait_go
from benchmarks.wires import COUNTER_FIRST, Load, TidingsWire
from tidings.client import blocking
from tidings.client.bus import Bus
from tidings.errors import PeerError
from tidings.event import Batch, Event
from tidings.event.header import Delivery
from tidings.event.wire import HEAD_SIZE, array_head
from tidings.protocol.frames import PLAIN_HEAD, PUBLISH, encode
from tidings.protocol.login import WINDOW

TYPES = ("air.pm10", "air.pm25", "air.temp", "air.damp")
"""All of one length."""
NETWORKS = 1_000
VALUE, VALUE_MAX = 12.5, 100.0
TIME_US = 1_700_000_000_000_000
LIST_SIZE = 1_000
LISTS = 4
"""Lists that a client has under way at once."""
LOOK_S = 0.005


def reading(number: int, delivery: Delivery = "transient") -> Event:
    """A reading as a gateway makes it of what a sensor says."""
    values: dict[str, Any] = {
        "sensing-id": f"net-{number % NETWORKS:04d}",
        "name": "s1",
        "value": VALUE + number % NETWORKS / 16,
        "posx": 3_000.5,
        "posy": 4_000.5,
        "unit": "µg/m³",
        "model": "SDS011 rev. 2",
    }
    return Event(TYPES[number % len(TYPES)], values, delivery=delivery)


@dataclass(frozen=True)
class ReadingWire(TidingsWire):
    """Readings in batch frames: persistent ones, or such as are stored for an archive only."""

    delivery: Delivery = "transient"

    @cached_property
    def pattern(self) -> bytes:
        """One reading, of which the number, time, type, network and value are written over."""
        like = replace(reading(0, self.delivery), counter=COUNTER_FIRST, time_us=TIME_US)
        return Batch.of([like]).raw[HEAD_SIZE:]

    def load(self, count: int, piece_events: int, topics: Sequence[int]) -> Load:  # noqa: ARG002
        """So many readings, which must be a multiple of a frame and of a piece; topics they have none."""
        import numpy as np

        frames, size = count // self.frame_events, self.frame_events * len(self.pattern)
        head = encode(PUBLISH, array_head(self.frame_events) + bytes(size))[:PLAIN_HEAD]
        heads = np.tile(np.frombuffer(head, np.uint8), (frames, 1))
        data = np.hstack([heads, self._rows(count).reshape(frames, size)]).tobytes()
        return Load(data, len(data) // frames * (piece_events // self.frame_events), piece_events, count)

    def _rows(self, count: int) -> Any:
        import numpy as np

        rows = np.tile(np.frombuffer(self.pattern, np.uint8), (count, 1))
        numbers = np.arange(count)
        spread = np.random.default_rng(1).permutation(count) * (VALUE_MAX / count)
        networks = np.array([f"net-{number:04d}".encode() for number in range(NETWORKS)])
        for like, column in (
            (pack(">Q", COUNTER_FIRST), (COUNTER_FIRST + numbers).astype(">u8")),
            (pack(">Q", TIME_US), (TIME_US + 1_000 * numbers).astype(">u8")),
            (pack(">d", VALUE), spread.astype(">f8")),
            (TYPES[0].encode(), np.array([one.encode() for one in TYPES])[numbers % len(TYPES)]),
            (networks[0], networks[numbers % NETWORKS]),
        ):
            place = self.pattern.index(bytes(like))
            rows[:, place : place + len(like)] = column.view(np.uint8).reshape(count, len(like))
        return rows

    @property
    def unaccepted_max(self) -> int | None:
        """The window of a node, in readings."""
        return WINDOW // len(self.pattern)


# Into the log


def append(address: str, wire: ReadingWire, count: int) -> float:
    """Readings a second from the first byte sent until the log of the node has them all, on its disk."""
    with Child(load.feed, wire, count, wire.frame_events, (), None) as feeding:
        return _appended(address, feeding, count)


def append_lists(address: str, count: int) -> float:
    """The same of a client that publishes persistent events in lists, LISTS of them at once."""
    with Child(publish, address, count) as publishing:
        return _appended(address, publishing, count)


def _appended(address: str, sending: Child, count: int) -> float:
    with blocking.connect(address) as bus:
        before: int = bus.log.status()["end"]
        sending.receive()
        sending.send("go")
        started: float = sending.receive()[0]
        deadline = time.monotonic() + WAIT_S_MAX
        while (logged := bus.log.status()["end"] - before) < count and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        took_s = time.monotonic() - started
    if logged != count:
        raise PeerError(f"{logged} of {count} readings are in the log")
    return count / took_s


def publish(pipe: Pipe, address: str, count: int) -> None:
    """Publish so many readings; then send when it was begun and when the last was accepted."""
    run_within(_publish(pipe, address, count))


async def _publish(pipe: Pipe, address: str, count: int) -> None:
    events = [reading(number, "persistent") for number in range(LIST_SIZE)]
    async with tidings.connect(address) as bus:
        wait_go(pipe)
        started = time.monotonic()
        turns = iter(range(count // LIST_SIZE))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(LISTS):
                tasks.create_task(_publish_lists(bus, events, turns))
        pipe.send((started, time.monotonic()))


async def _publish_lists(bus: Bus, events: list[Event], turns: Iterator[int]) -> None:
    for _ in turns:
        await bus.publish_all(events)
