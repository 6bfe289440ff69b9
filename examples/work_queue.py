"""A work queue whose workers are processes: one of them is killed, and every door is painted nonetheless.

    python examples/work_queue.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory

import tidings
from tidings import Event
from tidings.client import Message
from tidings.node.config import NodeConfig
from tidings.node.server import Node


async def work(address: str) -> None:
    """A worker: four doors side by side, retries, dead letters, and a graceful stop on SIGTERM."""
    async with tidings.connect(address) as bus:
        painted = await bus.create_queue("painted")
        doors = await bus.create_queue("doors", deliveries_max=5)

        async def paint(job: Message) -> None:
            if job["color"] == "plaid":
                raise ValueError("there is no such paint")
            if job["color"] == "red" and not job.redelivered:
                await painted.put("stuck", pid=os.getpid())
                await asyncio.Event().wait()  # until it is killed
            await painted.put("painted", door=job["door"], again=job.redelivered)

        await doors.work(paint, concurrency=4, reject=ValueError, signals=True)


# -- demonstration


async def main(address: str | None = None) -> None:
    """Have six doors painted by two workers, and kill the one that is stuck with the red one."""
    async with at(address) as address, tidings.connect(address) as bus:
        doors = await bus.create_queue("doors", deliveries_max=5)
        painted = await bus.create_queue("painted")
        colors = ("blue", "red", "plaid", "green", "white", "black")
        await doors.put_all(Event("paint", door=door, color=color) for door, color in enumerate(colors, 1))
        program = (sys.executable, __file__, "--worker", address)
        workers = [await asyncio.create_subprocess_exec(*program) for _ in range(2)]

        os.kill((await painted.get("type = 'stuck'"))["pid"], signal.SIGKILL)
        done: dict[int, bool] = {}  # a door that was painted just before the kill may be painted again
        while len(done) < 5:
            job = await painted.get("type = 'painted'")
            done[job["door"]] = job["again"]
        print("painted:", *sorted(done))
        print("red was begun before:", done[2])
        letters = await bus.queue("tidings.dead")
        print("dead letter:", (await letters.get("dead.queue = 'doors'"))["dead.reason"])

        for worker in workers:
            if worker.returncode is None:
                worker.terminate()
        print("exit codes:", *sorted([await worker.wait() for worker in workers]))
        await bus.delete_queue("doors")
        await bus.delete_queue("painted")


@asynccontextmanager
async def at(address: str | None) -> AsyncIterator[str]:
    """The address of a node, which is started if none is given."""
    if address is not None:
        yield address
        return
    with TemporaryDirectory() as folder:
        node = Node(NodeConfig(unix=f"{folder}/socket", compiled=False))
        await node.start()
        try:
            yield f"tidings+unix://{folder}/socket"
        finally:
            await node.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        logging.getLogger("tidings").setLevel(logging.ERROR)  # the plaid door is logged as a warning
        asyncio.run(work(sys.argv[2]))
    else:
        asyncio.run(main(*sys.argv[1:2]))
