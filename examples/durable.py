"""A durable subscription: what happens while nobody listens is there when someone comes back.

    python examples/durable.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings import Event


async def main(address: str | None = None) -> None:
    """Subscribe, go away, have jobs published, and come back for them."""
    node = tidings.connect(address) if address else tidings.open()
    async with node as bus:
        async with bus.subscribe("type = 'job'", durable="worker"):
            pass  # from now on the node keeps what is reliable for this subscription

        await bus.publish_all(Event("job", number=number, delivery="reliable") for number in (1, 2, 3))

        async with bus.subscribe("type = 'job'", durable="worker") as jobs:
            print("job", (await anext(jobs))["number"])
            print("job", (await anext(jobs))["number"])
            # The first was acknowledged when the second was asked for, the second is by the end of the block.

        async with bus.subscribe("type = 'job'", durable="worker") as jobs:
            print("job", (await anext(jobs))["number"])
        await bus.unsubscribe("worker")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
