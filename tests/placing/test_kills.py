"""A line of real nodes with TLS: each is killed while a pattern finds matches at the last one."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from effort import often
from guarantees.peered import run_within
from node.peers import Start
from overlay.test_kills import linked_nodes

from tidings import Event, Pattern
from tidings.client import Bus

ROUNDS = often(1)
UNDER_WAY = 60
"""Keys whose events are published between two kills, at least."""
AB = Pattern("a[type = 'A'] THEN b[type = 'B'] WITHIN 1 h BY k LATE 15 s RETURN a.n, b.n AS 'pair'")


async def wait_placed(bus: Bus) -> None:
    """Wait until a node evaluates the pattern of another."""
    while not any(one["phase"] == "here" for one in (await bus.status())["patterns_placed"]):
        await asyncio.sleep(0.05)


@pytest.mark.slow
def test_each_match_comes_once_though_every_node_on_its_way_is_killed(start: Start, tmp_path: Path) -> None:
    sent: list[int] = []
    got: list[int] = []

    async def publish(bus: Bus, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            key = len(sent)
            both = [Event(kind, {"k": key, "n": key}, delivery="reliable") for kind in "AB"]
            await bus.publish_all(both)
            sent.append(key)
            await asyncio.sleep(0.01)

    async def subscribe(bus: Bus, is_ready: asyncio.Event) -> None:
        async with bus.subscribe(AB, durable="pairs") as matches:
            is_ready.set()
            async for match in matches:
                assert match["a.n"] == match["b.n"] == match["k"]
                got.append(match["k"])

    async def work() -> None:
        nodes = linked_nodes(start, tmp_path, "abc")
        for node in nodes.values():
            node._flags += ("--offers", "declared")
        await asyncio.gather(*(node.start() for node in nodes.values()))
        is_over, is_ready = asyncio.Event(), asyncio.Event()
        async with (
            nodes["a"].manage() as near,
            nodes["c"].manage() as far,
            far.advertise("type IN ('A', 'B')"),
            asyncio.TaskGroup() as group,
        ):
            reader = group.create_task(subscribe(near, is_ready))
            await is_ready.wait()
            await wait_placed(far)
            writer = group.create_task(publish(far, is_over))
            for victim in "cba" * ROUNDS:
                enough = len(sent) + UNDER_WAY
                while len(sent) < enough:
                    await asyncio.sleep(0.01)
                await nodes[victim].kill()
                await nodes[victim].start()
            is_over.set()
            await writer
            while len(got) < len(sent):
                await asyncio.sleep(0.05)
            reader.cancel()

    run_within(work(), lambda: f"sent {len(sent)}, got {len(got)}")
    assert Counter(got) == Counter(sent)
