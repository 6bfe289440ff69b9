"""A space: work is written on a board, whoever is free takes some of it, and the results are written back.

    python examples/space.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings.client import Bus, Space

LEASE_S = 60.0
"""Who wants a result asks for it within this time."""


async def work(bus: Bus, board: Space) -> None:
    """Take a square to be calculated and write the result, both or neither; again and again."""
    while True:
        async with bus.transaction() as tx:
            _, number = await board.take(("square", int), transaction=tx)
            await board.write(("result", number, number * number), LEASE_S, tx)


async def main(address: str | None = None) -> None:
    """Have three workers square some numbers, and ask for the results in our own order."""
    node = tidings.connect(address) if address else tidings.open()
    async with node as bus:
        board = await bus.space("squares")
        workers = [asyncio.create_task(work(bus, board)) for _ in range(3)]
        for number in range(6):
            await board.write(("square", number))
        for number in reversed(range(6)):
            _, _, result = await board.take(("result", number, int), timeout_s=5)
            print(number, "squared is", result)
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        print("left on the board:", await board.count())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
