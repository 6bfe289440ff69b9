"""A queue with jobs, for tests of loops and workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import tidings
from client.nodes import run
from tidings import Event
from tidings.client import Queue

Work = Callable[[Any, Queue], Awaitable[None]]


def with_jobs(count: int, work: Work, **wish: Any) -> None:
    """Run a test with a queue in which so many jobs wait."""

    async def within() -> None:
        async with tidings.open() as bus:
            queue = await bus.create_queue("jobs", **wish)
            await queue.put_all(Event("job", n=n) for n in range(count))
            await work(bus, queue)

    run(within())


async def rest(queue: Queue) -> list[tuple[int, int]]:
    """What is left, and the how many-eth delivery it is now."""
    return [(message["n"], message.deliveries) for message in await queue.get_all()]
