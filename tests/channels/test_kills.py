"""Real nodes with TLS: members hop from one to the next under load, and one node is killed with SIGKILL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from effort import often
from guarantees.peered import run_within
from node.peers import Start, starting
from overlay.test_kills import linked_nodes

from tidings.client import Bus
from tidings.client.channels import Channel

ROUNDS = often(2)
"""How often each member hops, and the node between them is killed."""
PER_HOP = 50
"""Events that the other member gets between two hops, at least."""
BACKLOG_MAX = 500
"""Events that may be under way; the sender waits beyond that."""


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts nodes as processes of their own; those still running at the end of the test are killed."""
    yield from starting()


async def wait_three(bus: Bus) -> None:
    """Wait until a node knows all three."""
    while len((await bus.topology())["tree"]) < 2:
        await asyncio.sleep(0.01)


@pytest.mark.slow
def test_members_of_a_channel_that_hop_get_each_event_once_and_in_order_though_a_node_is_killed(
    start: Start, tmp_path: Path
) -> None:
    sent: list[int] = []
    got: list[int] = []

    async def send(channel: Channel, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            while len(sent) - len(got) > BACKLOG_MAX:
                await asyncio.sleep(0.01)
            await channel.send("step", n=len(sent), timeout_s=None)
            sent.append(len(sent))

    async def read(channel: Channel) -> None:
        async for event in channel:
            got.append(event["n"])  # noqa: PERF401 - others look at it meanwhile

    async def wait_got(count: int) -> None:
        while len(got) < count:
            await asyncio.sleep(0.01)

    async def work() -> None:
        nodes = linked_nodes(start, tmp_path, "abc")
        await asyncio.gather(*(node.start() for node in nodes.values()))
        is_over = asyncio.Event()
        async with nodes["a"].manage() as sender, nodes["c"].manage() as reader:
            await asyncio.gather(*map(wait_three, (sender, reader)))
            made = await sender.create_channel("trip", order="causal", delivery="reliable")
            found = await reader.channel("trip", durable="all")
            async with made, found, asyncio.TaskGroup() as group:
                reading = group.create_task(read(found))
                sending = group.create_task(send(made, is_over))
                for _ in range(ROUNDS):
                    await wait_got(len(got) + PER_HOP)
                    await asyncio.gather(reader.move("b"), sender.move("b"))
                    await wait_got(len(got) + PER_HOP)
                    await asyncio.gather(reader.move("a"), sender.move("c"))
                    await wait_got(len(got) + PER_HOP)
                    await nodes["b"].kill()
                    await nodes["b"].start()
                    await wait_got(len(got) + PER_HOP)
                is_over.set()
                await sending
                await wait_got(len(sent))
                reading.cancel()

    run_within(work(), lambda: f"sent {len(sent)}, got {len(got)}")
    assert got == list(range(len(sent)))
