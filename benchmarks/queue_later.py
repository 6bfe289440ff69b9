"""Delayed messages beside others, and workers beside a loop that is written by hand: what each costs.

What is compared takes turns in one process, with a node of its own, so that the ratios do not depend on the
machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median

import tidings
from benchmarks import footprint, peers
from benchmarks.clients import run_within
from benchmarks.figures import Figure
from benchmarks.load import Child, Pipe, wait_go
from benchmarks.queue_wires import BODY
from tidings.client.message import Message
from tidings.client.queue import Queue
from tidings.event import Event

LIST_SIZE = 1000
"""Messages that are put at once, at most."""
DELAY_S = 86_400.0
"""How long messages are delayed: none becomes due while it is measured."""
IDLE_S = 5.0
"""For how long a node with delayed messages is left alone."""

Turn = Callable[[], Awaitable[None]]


def figures(count: int, delayed: int, rounds: int) -> Iterator[Figure]:
    """Measure with so many messages a turn, beside so many delayed ones."""
    with peers.node(compiled=False) as node:
        yield from _beside(node, count, delayed, rounds)
    with peers.node(compiled=False) as node, Child(compare_workers, node.address, count, rounds) as child:
        by_hand_s, worker_s = _outcome(child)
    beside = {"by hand, messages/s": count / by_hand_s, "worker, messages/s": count / worker_s}
    yield Figure("API, queue.work over a loop by hand", "×", by_hand_s / worker_s, 0.95, beside)


def _beside(node: peers.Broker, count: int, delayed: int, rounds: int) -> Iterator[Figure]:
    with Child(compare_delayed, node.address, count, delayed, rounds) as child:
        plain_s, delayed_s = _outcome(child)
        beside = {"plain, messages/s": count / plain_s, "with delayed, messages/s": count / delayed_s}
        name = f"API, put and get with {delayed:,} delayed messages, over a plain queue"
        yield Figure(name, "×", plain_s / delayed_s, 0.9, beside)
        time.sleep(footprint.SETTLE_S)
        name = f"processor of a node with {delayed:,} delayed messages, idle"
        yield Figure(name, "ms a second", _idle_ms(node), 10.0, {}, less_is_better=True)
        child.send("go")


def _outcome(child: Child) -> tuple[float, float]:
    """Wait for the figures of a process, which sends None as long as it gets on."""
    while (found := child.receive()) is None:
        pass
    return float(found[0]), float(found[1])


def _idle_ms(node: peers.Broker) -> float:
    """Milliseconds of processor time that the node takes in a second."""
    before, started = _processor_s(node.process.pid), time.monotonic()
    time.sleep(IDLE_S)
    return 1e3 * (_processor_s(node.process.pid) - before) / (time.monotonic() - started)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# In processes of their own


def compare_delayed(pipe: Pipe, address: str, count: int, delayed: int, rounds: int) -> None:
    """Send the seconds of a turn without and with delayed messages in the queue; stay until told to leave."""
    run_within(_compare_delayed(pipe, address, count, delayed, rounds))


def compare_workers(pipe: Pipe, address: str, count: int, rounds: int) -> None:
    """Send the seconds that a loop by hand takes for so many messages, and those of `queue.work`."""
    run_within(_compare_workers(pipe, address, count, rounds))


async def _compare_delayed(pipe: Pipe, address: str, count: int, delayed: int, rounds: int) -> None:
    size = min(LIST_SIZE, count)
    events, small = _jobs(size), [Event("job", {}) for _ in range(LIST_SIZE)]
    async with tidings.connect(address, call_timeout_s=None) as bus:
        plain = await bus.create_queue("later.plain", persistent=False)
        other = await bus.create_queue("later.delayed", persistent=False)
        for _ in range(delayed // LIST_SIZE):
            await other.put_all(small, delay_s=DELAY_S)
            pipe.send(None)

        async def through(queue: Queue) -> None:
            for _ in range(count // size):
                await queue.put_all(events)
                await _take(queue, size)

        pipe.send(await _compared(pipe, rounds, lambda: through(plain), lambda: through(other)))
        wait_go(pipe)


async def _compare_workers(pipe: Pipe, address: str, count: int, rounds: int) -> None:
    events = _jobs(min(LIST_SIZE, count))
    async with tidings.connect(address, call_timeout_s=None) as bus:
        queue = await bus.create_queue("work", persistent=False)

        async def fill() -> None:
            for _ in range(count // len(events)):
                await queue.put_all(events)

        async def by_hand() -> None:
            await _take(queue, count)

        async def work() -> None:
            assert (await queue.work(_handle, count=count)).done == count

        pipe.send(await _compared(pipe, rounds, by_hand, work, fill))


async def _compared(
    pipe: Pipe, rounds: int, first: Turn, second: Turn, before: Turn | None = None
) -> tuple[float, float]:
    """Return the median seconds of each; both run once before anything is timed."""
    took_s: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for turn, found in zip((first, second), took_s, strict=True):
            if before is not None:
                await before()
            started = time.monotonic()
            await turn()
            found.append(time.monotonic() - started)
            pipe.send(None)
    return median(took_s[0][1:]), median(took_s[1][1:])


def _jobs(count: int) -> list[Event]:
    return [Event("job", {}, body=BODY) for _ in range(count)]


async def _take(queue: Queue, count: int) -> None:
    """Process so many messages in a loop, as a program does that has no worker."""
    async with queue.messages() as messages:
        for _ in range(count):
            await _handle(await anext(messages))


async def _handle(message: Message) -> None:
    assert message.type
