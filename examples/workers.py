"""Workers: each job goes to one of them; if it dies in the middle, another gets the job, marked as such.

    python examples/workers.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings import Event
from tidings.client import Queue
from tidings.errors import QueueEmpty


class OutOfPaint(Exception):
    """What this worker dies of."""


async def paint(queue: Queue, who: str, pots: int) -> None:
    """Paint doors until none has come for a while, or the paint is used up."""
    while True:
        # The door is acknowledged at the end of the block, and goes back into the queue if that raises.
        async with queue.take(timeout_s=0.5) as job:
            if pots == 0:
                raise OutOfPaint
            pots -= 1
            again = f", begun {job.deliveries - 1} time before" if job.redelivered else ""
            print(f"{who} paints door {job['door']}{again}")


async def main(address: str | None = None) -> None:
    """Three doors; the first worker has paint for one, and dies with the second in its hands."""
    node = tidings.connect(address) if address else tidings.open()
    async with node as bus:
        queue = await bus.create_queue("doors")
        await queue.put_all(Event("paint", door=door) for door in (1, 2, 3))
        try:
            await paint(queue, "ann", pots=1)
        except OutOfPaint:
            print("ann is out of paint")
        try:
            await paint(queue, "ben", pots=10)
        except QueueEmpty:
            print("ben has nothing left to do")
        await bus.delete_queue("doors")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
