"""Load through the client library: real clients on asyncio, each in a process of its own.

The events are made before the clock starts, and gone round in; numbering and encoding them is the client's
part, and decoding them that of the subscriber. The loop is uvloop where it is installed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from itertools import cycle, islice
from typing import Any, Literal

import tidings
from benchmarks.load import WAIT_S_MAX, Pipe, wait_go
from benchmarks.wires import TOPICS, event_of
from tidings.client.bus import Bus
from tidings.event import Event
from tidings.node.main import loop_factory

LIST_SIZE = 1000
PREFETCH = 1 << 20
"""Events that may be on their way: all of them, so that none is dropped by a subscriber that falls behind."""
DURABLE = "bench"

Way = Literal["lists", "one by one", "reliable"]


def publish(pipe: Pipe, address: str, way: Way, count: int, outstanding: int) -> None:
    """Publish so many events in this way; then send when it was begun and when it was done."""
    run_within(_publish(pipe, address, way, count, outstanding))


def subscribe(pipe: Pipe, address: str, way: Way, count: int) -> None:
    """Take so many events, one by one or as lists as they come; then send when the last came."""
    run_within(_subscribe(pipe, address, way, count))


def answer(pipe: Pipe, address: str, count: int) -> None:
    """Answer so many requests."""
    run_within(_answer(pipe, address, count))


def ask(pipe: Pipe, address: str, count: int) -> None:
    """Make so many requests, one after the other; then send the time each took."""
    run_within(_ask(pipe, address, count))


def run_within(work: Coroutine[Any, Any, None]) -> None:
    """Run it on a loop of its own, for a bounded time."""

    async def within() -> None:
        async with asyncio.timeout(4 * WAIT_S_MAX):
            await work

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(within())


async def _publish(pipe: Pipe, address: str, way: Way, count: int, outstanding: int) -> None:
    delivery: dict[str, Any] = {"delivery": "reliable"} if way == "reliable" else {}
    events = [_event(topic, delivery) for topic in range(TOPICS)]
    async with tidings.connect(address) as bus:
        wait_go(pipe)
        started = time.monotonic()
        await _WAYS[way](bus, events, count, outstanding)
        pipe.send((started, time.monotonic()))


def _event(topic: int, delivery: dict[str, Any]) -> Event:
    like = event_of(topic)
    return Event(like.type, dict(like.values), body=like.body, **delivery)


async def _lists(bus: Bus, events: list[Event], count: int, _outstanding: int) -> None:
    for _ in range(count // LIST_SIZE):
        await bus.publish_all(events[:LIST_SIZE])


async def _one_by_one(bus: Bus, events: list[Event], count: int, _outstanding: int) -> None:
    for event in islice(cycle(events), count):
        await bus.publish(event)


async def _outstanding(bus: Bus, events: list[Event], count: int, outstanding: int) -> None:
    """So many tasks, each of which waits for its event to be stored before it publishes the next."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(outstanding):
            tasks.create_task(_one_by_one(bus, events, count // outstanding, 1))


_WAYS: dict[Way, Callable[[Bus, list[Event], int, int], Awaitable[None]]] = {
    "lists": _lists,
    "one by one": _one_by_one,
    "reliable": _outstanding,
}


async def _subscribe(pipe: Pipe, address: str, way: Way, count: int) -> None:
    durable = DURABLE if way == "reliable" else None
    async with (
        tidings.connect(address, name="bench") as bus,
        bus.subscribe(durable=durable, prefetch=PREFETCH) as events,
    ):
        wait_go(pipe)
        received = 0
        if way == "one by one":
            async for _ in events:
                received += 1
                if received == count:
                    break
        else:
            while received < count:
                received += len(await events.take())
        pipe.send(time.monotonic())


async def _answer(pipe: Pipe, address: str, count: int) -> None:
    async with tidings.connect(address) as bus, bus.subscribe("type = 'ask'") as requests:
        wait_go(pipe)
        for _ in range(count):
            await bus.reply(await anext(requests), "answer")


async def _ask(pipe: Pipe, address: str, count: int) -> None:
    async with tidings.connect(address) as bus:
        wait_go(pipe)
        took_s = []
        for _ in range(count):
            sent_at = time.monotonic()
            await bus.request("ask", timeout_s=WAIT_S_MAX)
            took_s.append(time.monotonic() - sent_at)
        pipe.send(took_s)
