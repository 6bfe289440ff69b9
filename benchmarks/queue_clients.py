"""Queues through the client library: real clients on asyncio, in processes of their own.

The events are made before the clock starts. Where what a client does is not answered at once, it asks for the
description of the queue at the end: the answer comes when all that was said before is done and stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from itertools import repeat
from pathlib import Path
from statistics import median

import tidings
from benchmarks.clients import run_within
from benchmarks.load import Pipe, wait_go
from benchmarks.queue_wires import AT_ONCE, BODY, QUEUE
from tidings.client.bus import Bus
from tidings.client.queue import Queue
from tidings.event import Event

LIST_SIZE = 1000
TEMPLATE = "color = 'blue'"
LOAD_S = 5.0
"""How long a node in the client's process has to load its compiled code, once it has been busy."""


def put(pipe: Pipe, address: str, count: int, connections: int, outstanding: int) -> None:
    """Put messages, so many outstanding on each connection; then send when it was begun and when done."""
    run_within(_put(pipe, address, count, connections, outstanding))


def get(pipe: Pipe, address: str, count: int) -> None:
    """Get so many messages in the loop of a worker; then send when the first was asked for and when done."""
    run_within(_get(pipe, address, count))


def fill(pipe: Pipe, address: str, count: int) -> None:
    """Put so many messages into a volatile queue, in lists, and stay until told to leave."""
    run_within(_fill(pipe, address, count))


def lists(pipe: Pipe, address: str, rounds: int) -> None:
    """Send the seconds that `put_all` takes with a volatile queue, and with a persistent one."""
    run_within(_lists(pipe, address, rounds))


def search(
    pipe: Pipe, address: str, persistent: bool, waiting: int, conditions: dict[str, str], rounds: int
) -> None:
    """Send the seconds that a plain `get` takes ("") and those that only the last message matches."""
    run_within(_search(pipe, address, persistent, waiting, conditions, rounds))


def operations(pipe: Pipe, node: str | Path | None, persistent: bool, count: int, rounds: int) -> None:
    """Send the seconds that each operation takes for so many messages.

    The node is at an address, or in this process, with a directory or without one.
    """
    run_within(_operations(pipe, node, persistent, count, rounds))


# Put and get


async def _put(pipe: Pipe, address: str, count: int, connections: int, outstanding: int) -> None:
    event = Event("job", {}, body=BODY)
    async with AsyncExitStack() as stack:
        buses = [await stack.enter_async_context(tidings.connect(address)) for _ in range(connections)]
        queues = [await bus.create_queue(QUEUE, persistent=True, keep=False) for bus in buses]
        wait_go(pipe)
        started = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for queue in queues:
                for _ in range(outstanding):
                    tasks.create_task(_put_each(queue, repeat(event, count // connections // outstanding)))
        pipe.send((started, time.monotonic()))


async def _put_each(queue: Queue, events: Iterable[Event]) -> None:
    for event in events:
        await queue.put(event)


async def _get(pipe: Pipe, address: str, count: int) -> None:
    async with tidings.connect(address) as bus:
        queue = await bus.create_queue(QUEUE, persistent=True, keep=False)
        wait_go(pipe)
        started = time.monotonic()
        async with queue.messages(prefetch=AT_ONCE) as messages:
            for _ in range(count):
                await anext(messages)
        pipe.send((started, time.monotonic()))


async def _fill(pipe: Pipe, address: str, count: int) -> None:
    events = [Event("job", {}, body=BODY) for _ in range(LIST_SIZE)]
    async with tidings.connect(address) as bus:
        queue = await bus.create_queue(QUEUE, persistent=False, keep=False)
        await queue.put_all(events)
        await queue.get_all()  # so that what a node needs once is there before it is measured
        wait_go(pipe)
        for _ in range(count // LIST_SIZE):
            await queue.put_all(events)
        wait_go(pipe)


async def _lists(pipe: Pipe, address: str, rounds: int) -> None:
    events = [Event("job", {}, body=BODY) for _ in range(LIST_SIZE)]
    took_s: dict[bool, list[float]] = {False: [], True: []}
    async with tidings.connect(address) as bus:
        queues = [await _queue(bus, "lists", persistent) for persistent in took_s]
        for _ in range(rounds):
            for queue, found in zip(queues, took_s.values(), strict=True):
                started = time.monotonic()
                await queue.put_all(events)
                found.append(time.monotonic() - started)
                await queue.purge()
    pipe.send((median(took_s[False]), median(took_s[True])))


async def _queue(bus: Bus, name: str, persistent: bool) -> Queue:
    kind = "persistent" if persistent else "volatile"
    return await bus.create_queue(f"{name}.{kind}", persistent=persistent, keep=False)


# Searching


def job(number: int) -> Event:
    """A message that can be told from all others by its number or its name."""
    values = {"number": number, "name": f"job {number:06d} of today", "color": ("blue", "red")[number % 2]}
    return Event("job", values, body=BODY[-100:])


async def _search(
    pipe: Pipe, address: str, persistent: bool, waiting: int, conditions: dict[str, str], rounds: int
) -> None:
    took_s: dict[str, list[float]] = {name: [] for name in ("", *conditions)}
    async with tidings.connect(address) as bus:
        queue = await _queue(bus, "search", persistent)
        for first in range(0, waiting, LIST_SIZE):
            await queue.put_all([job(number) for number in range(first, min(first + LIST_SIZE, waiting))])
        for _ in range(rounds):
            for name, where in conditions.items():
                took_s[""].append(await _got_s(queue, ""))
                took_s[name].append(await _got_s(queue, where))
        await bus.delete_queue(queue.name)
    pipe.send({name: median(found) for name, found in took_s.items()})


async def _got_s(queue: Queue, where: str) -> float:
    """Seconds to get a message that matches; another like it is put as the last one."""
    started = time.monotonic()
    message = await queue.get(where, timeout_s=0)
    took_s = time.monotonic() - started
    await queue.put(job(message["number"]))
    return took_s


# One operation after the other


async def _operations(pipe: Pipe, node: str | Path | None, persistent: bool, count: int, rounds: int) -> None:
    async with tidings.connect(node) if isinstance(node, str) else tidings.open(node) as bus:
        queue = await _queue(bus, "operations", persistent)
        await _turn(queue, count)
        await asyncio.sleep(0 if isinstance(node, str) else LOAD_S)
        turns = [await _turn(queue, count) for _ in range(rounds)]
    pipe.send({name: median(turn[name] for turn in turns) for name in turns[0]})


async def _turn(queue: Queue, count: int) -> dict[str, float]:
    """Each operation once, on a queue that is empty before and after; seconds."""
    plain = [Event("job", {"number": number}, body=BODY) for number in range(count)]
    blue, red = ([Event("job", {"color": color}, body=BODY) for _ in plain] for color in ("blue", "red"))
    mixed = [event for pair in zip(red, blue, strict=True) for event in pair]
    took_s = {
        "put": await _timed(queue, lambda: _put_each(queue, plain)),
        "get": await _timed(queue, lambda: _get_each(queue, [""] * count)),
        "put all": await _timed(queue, lambda: queue.put_all(plain)),
        "get all": await _timed(queue, queue.get_all),
    }
    await queue.put_all(plain)
    backwards = [f"number = {number}" for number in reversed(range(count))]
    took_s["get(template)"] = await _timed(queue, lambda: _get_each(queue, backwards))
    await queue.put_all(mixed)
    took_s["get all(template)"] = await _timed(queue, lambda: queue.get_all(TEMPLATE))
    assert len(await queue.get_all()) == count
    return took_s


async def _get_each(queue: Queue, conditions: Iterable[str]) -> None:
    for where in conditions:
        await queue.get(where, timeout_s=0)


async def _timed(queue: Queue, act: Callable[[], Awaitable[object]]) -> float:
    started = time.monotonic()
    await act()
    await queue.describe()
    return time.monotonic() - started
