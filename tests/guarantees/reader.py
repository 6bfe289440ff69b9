"""A program with a durable subscription that tells of each event it gets; the tests kill it.

python reader.py ADDRESS auto     an event is acknowledged when the next one is asked for
python reader.py ADDRESS client   every tenth event is acknowledged by hand, with all before it
"""

from __future__ import annotations

import asyncio
import os
import sys

import tidings

ACKNOWLEDGED_EACH = 10


async def read(address: str, is_by_hand: bool) -> None:
    """Read until killed."""
    async with (
        tidings.connect(address, name="reader") as bus,
        bus.subscribe(durable="all", acknowledge="client" if is_by_hand else "auto") as events,
    ):
        async for event in events:
            os.write(1, f"{event['n']} {events.redelivered:d}\n".encode())
            if is_by_hand and event["n"] % ACKNOWLEDGED_EACH == 0:
                await events.acknowledge(event)


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1], sys.argv[2] == "client"))
