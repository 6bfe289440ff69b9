"""A program that works off a queue and tells of each message twice; the tests kill it.

    python queue_worker.py ADDRESS QUEUE

It writes `begun NUMBER MARK` when it has a message and `done NUMBER` when that was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys

import tidings

PREFETCH = 5


async def work(address: str, name: str) -> None:
    """Work until killed."""
    async with tidings.connect(address) as bus:
        queue = await bus.queue(name)
        async for message in queue.messages(prefetch=PREFETCH, acknowledge="client"):
            os.write(1, f"begun {message['n']} {message.redelivered:d}\n".encode())
            await message.acknowledge()
            os.write(1, f"done {message['n']}\n".encode())


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2]))
