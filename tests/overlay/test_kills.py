"""A line of real nodes with TLS whose middle one is killed with SIGKILL while events go through it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from effort import often
from guarantees.peered import ADMIN, Secured, introduce, run_within
from node.peers import Start, starting
from security.places import cheap

from tidings import Event
from tidings.client import Bus
from tidings.security.directory import SecurityDirectory
from tidings.security.provision import Admin, make_security, make_sibling

KILLS = often(2)
BATCH = 20
"""Events that are published at once."""
UNDER_WAY = 200
"""Events that are published between two kills, at least."""
BACKLOG_MAX = 1_000
"""Events that may be under way; the publisher waits beyond that."""


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts nodes as processes of their own; those still running at the end of the test are killed."""
    yield from starting()


def linked_nodes(start: Start, home: Path, names: str) -> dict[str, Secured]:
    """Nodes of one authority, each of which knows the address of the next one only."""
    first, *others = (SecurityDirectory(home / f"{name}-sec") for name in names)
    now = datetime.now(UTC)
    make_security(first.path, names[0], ["127.0.0.1"], Admin(ADMIN, cheap()), os.urandom, now)
    for name, directory in zip(names[1:], others, strict=True):
        make_sibling(first, directory.path, name, ["127.0.0.1"], now)
        introduce(directory, names[1:].replace(name, ""))
    nodes = {
        name: Secured(start, home / name, name, directory)
        for name, directory in zip(names, (first, *others), strict=True)
    }
    for near, far in pairwise(names):
        nodes[near].know([nodes[far]])
    return nodes


async def wait_wanted(bus: Bus) -> None:
    """Wait until the neighbours of a node want something."""
    while not any(one["wanted"] for one in (await bus.status())["links"]):
        pass


@pytest.mark.slow
def test_nothing_reliable_is_lost_doubled_or_out_of_order_though_the_middle_node_is_killed(
    start: Start, tmp_path: Path
) -> None:
    sent: list[int] = []
    got: list[int] = []

    async def publish(bus: Bus, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            while len(sent) - len(got) > BACKLOG_MAX:
                await asyncio.sleep(0.01)
            numbers = range(len(sent), len(sent) + BATCH)
            await bus.publish_all([Event("t", {"n": n}, delivery="reliable") for n in numbers])
            sent.extend(numbers)

    async def subscribe(bus: Bus, is_ready: asyncio.Event) -> None:
        async with bus.subscribe("n >= 0", durable="all") as events:
            is_ready.set()
            async for event in events:
                got.append(event["n"])  # noqa: PERF401 - others look at it meanwhile

    async def wait_got(count: int) -> None:
        while len(got) < count:
            await asyncio.sleep(0.01)

    async def work() -> None:
        nodes = linked_nodes(start, tmp_path, "abc")
        await asyncio.gather(*(node.start() for node in nodes.values()))
        is_over, is_ready = asyncio.Event(), asyncio.Event()
        async with nodes["a"].manage() as near, nodes["c"].manage() as far, asyncio.TaskGroup() as group:
            reader = group.create_task(subscribe(far, is_ready))
            await is_ready.wait()
            await wait_wanted(near)
            writer = group.create_task(publish(near, is_over))
            for _ in range(KILLS):
                await wait_got(len(got) + UNDER_WAY)
                await nodes["b"].kill()
                enough = min(len(sent) + UNDER_WAY, len(got) + BACKLOG_MAX)
                while len(sent) < enough:
                    await asyncio.sleep(0.01)
                await nodes["b"].start()
            await wait_got(len(sent) + UNDER_WAY)  # it goes on, too
            is_over.set()
            await writer
            await wait_got(len(sent))
            reader.cancel()

    run_within(work(), lambda: f"sent {len(sent)}, got {len(got)}")
    assert got == list(range(len(sent)))
