"""The retry loop of an application whose node is killed and started again: one copy of each message."""

from __future__ import annotations

import asyncio
from pathlib import Path

from effort import often
from guarantees.mortal import MortalNode
from node.peers import Start, run

import tidings
from tidings import Event
from tidings.client import Queue
from tidings.errors import TidingsError

COUNT = 40
"""Events that are put, each by a loop of its own."""
LIMIT_S = 0.05
"""Less than a node takes to start, so that every loop tries more than once."""


def test_a_retry_loop_makes_one_copy_though_the_node_is_killed(start: Start, tmp_path: Path) -> None:
    tries = 0

    async def put(queue: Queue, event: Event) -> None:
        nonlocal tries
        while True:
            tries += 1
            try:
                await queue.put(event)
                return
            except TidingsError:
                await asyncio.sleep(LIMIT_S)

    async def scenario() -> None:
        node = MortalNode(start, tmp_path)
        async with tidings.connect(await node.start(), call_timeout_s=LIMIT_S) as bus:
            queue = await bus.create_queue("jobs", timeout_s=60)
            for life in range(often(1)):
                events = [Event("job", life=life, n=n) for n in range(COUNT)]
                putting = [asyncio.create_task(put(queue, event)) for event in events[::2]]
                await asyncio.sleep(0)
                await asyncio.sleep(0)  # they are sent, and perhaps stored
                await node.kill()
                putting += [asyncio.create_task(put(queue, event)) for event in events[1::2]]
                await node.start()
                await asyncio.gather(*putting)
                found = [(one["life"], one["n"]) for one in await queue.read_all(f"life = {life}")]
                assert sorted(found) == [(life, n) for n in range(COUNT)]
        assert tries > often(1) * COUNT

    run(scenario())
