"""Nodes that hand on to each other, killed with SIGKILL again and again: each message arrives once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from effort import SEED, often
from guarantees.peered import Peered, run_within
from node.peers import SOURCE, Start

import tidings
from tidings import Event
from tidings.client import Queue

KILLS = often(4)
MORE_MAX = 300
"""The most messages that arrive between two kills."""

DEVICE = """
import asyncio, sys
import tidings

async def main(path, upstream, order, first):
    async with tidings.open(path, upstream=upstream, order=order) as bus:
        if first == 0:
            while (await bus.status())["upstream"]["waiting"]:
                await asyncio.sleep(0.01)
            return
        for n in range(first, first + 1_000_000):
            await bus.publish("t", n=n, delivery="reliable")
            print(n, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""
"""A device that publishes numbered events and says which are safe; or that sends what is left, and ends."""


async def arrived(queue: Queue) -> int:
    """How many messages are in a queue."""
    return (await queue.describe()).messages


async def contents(queue: Queue) -> list[int]:
    """What is in a queue, in its order."""
    await arrived(queue)  # which waits for the node
    return [int(message["n"]) for message in await queue.get_all()]


async def wait_arrived(queue: Queue, count: int) -> None:
    while await arrived(queue) < count:
        await asyncio.sleep(0.01)


@pytest.mark.slow
def test_what_is_put_for_another_node_arrives_once_and_in_order_though_both_are_killed(
    start: Start, tmp_path: Path
) -> None:
    random = Random(SEED)
    put: list[int] = []

    async def feed(queue: Queue) -> None:
        while True:
            first = put[-1] + 1 if put else 0
            batch = list(range(first, first + random.randint(1, 50)))
            await queue.put_all([Event("job", {"n": n}) for n in batch])
            put.extend(batch)

    async def scenario() -> list[int]:
        far = Peered(start, tmp_path / "far", "--name", "far")
        await far.start()
        near = Peered(start, tmp_path / "near", "--name", "near", "--peers", f"far={far.address}")
        async with (
            tidings.connect(far.address) as there,
            tidings.connect(await near.start()) as bus,
            asyncio.TaskGroup() as group,
        ):
            jobs = await there.create_queue("jobs")
            feeding = group.create_task(feed(await bus.queue("jobs@far")))
            for _ in range(KILLS):
                await wait_arrived(jobs, await arrived(jobs) + random.randint(0, MORE_MAX))
                victim = random.choice((near, far))
                await victim.kill()
                await victim.start()
            feeding.cancel()
            await asyncio.wait([feeding])
            while any(one["waiting"] for one in (await bus.status())["forwarding"]):
                await asyncio.sleep(0.01)
            return await contents(jobs)

    got = run_within(scenario())
    assert got == list(range(len(got)))  # none lost, none twice, in order
    assert len(got) >= len(put) > KILLS


@pytest.mark.slow
@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_what_a_device_has_published_arrives_once_though_it_and_the_node_above_are_killed(
    start: Start, tmp_path: Path, order: str
) -> None:
    random = Random(SEED)
    safe: set[int] = set()

    def device(address: str, first: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", DEVICE, str(tmp_path / "device"), address, order, str(first)]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def listen(running: subprocess.Popen[str], count: int) -> None:
        """Note what is safe, until so much is or the device has ended."""
        assert running.stdout is not None
        for line in running.stdout:
            if line.endswith("\n"):
                safe.add(int(line))
            count -= 1
            if not count:
                return

    async def scenario() -> list[int]:
        above = Peered(start, tmp_path / "above")
        async with tidings.connect(await above.start()) as bus:
            everything = await bus.create_queue("all", bind="")
            for turn in range(KILLS):
                running = device(above.address, 1_000_000 * (turn + 1))
                await asyncio.to_thread(listen, running, random.randint(1, MORE_MAX))
                is_away = random.random() < 0.5
                if is_away:
                    await above.kill()
                    await asyncio.to_thread(listen, running, random.randint(1, MORE_MAX))
                    await above.start()
                await asyncio.to_thread(listen, running, random.randint(1, MORE_MAX))
                running.kill()
                await asyncio.to_thread(listen, running, 0)
                running.communicate()
            last = device(above.address, 0)
            assert await asyncio.to_thread(last.wait) == 0
            last.communicate()
            return await contents(everything)

    got = run_within(scenario())
    assert len(got) == len(set(got))
    assert safe <= set(got)
    assert len(safe) > KILLS
    if order == "oldest":
        assert got == sorted(got)
