"""A type of queue of one's own: a ring, which is never full because the oldest message makes room.

    python examples/queue_type.py

Types belong to the node. Here it is in this process and is given the class; another one is started with

    PYTHONPATH=examples tidings node --queue-types queue_type:Ring
    python examples/queue_type.py tidings://127.0.0.1:7300
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings import Event
from tidings.queues import MessageQueue, Volatile


class Ring(Volatile):
    """Keeps the newest messages, max_messages of them."""

    name = "ring"

    def check_room(self, queue: MessageQueue, count: int) -> None:
        """There always is room."""

    def make_room(self, queue: MessageQueue) -> None:
        """Drop the oldest message if there are enough; called by the node before one is put."""
        if len(queue.shelf) and queue.size >= (self.description.max_messages or 1):
            queue.drop(next(iter(queue.shelf)))


async def main(address: str | None = None) -> None:
    """Put ten readings into a ring for three."""
    node = tidings.connect(address) if address else tidings.open(queue_types=[Ring])
    async with node as bus:
        queue = await bus.create_queue("newest", type="ring", max_messages=3)
        await queue.put_all(Event("air.pm10", value=value) for value in range(10))
        print("kept:", *[message["value"] for message in await queue.get_all()])
        await bus.delete_queue("newest")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
