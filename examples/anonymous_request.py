"""Anonymous request: ask whoever may know, and take the first answer.

    python examples/anonymous_request.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings import Event


async def main(address: str | None = None) -> None:
    """Two stations offer what they know; the asker names neither, only what it wants to know."""
    node = tidings.connect(address) if address else tidings.open()
    async with node as bus:

        async def north(question: Event) -> None:
            await bus.reply(question, "air.now", station="north", value=41.2)

        async def south(question: Event) -> None:
            await bus.reply(question, "air.now", station="south", value=12.5)

        async with (
            bus.listen("type = 'air.ask' AND latitude > 45", north),
            bus.listen("type = 'air.ask' AND latitude <= 45", south),
        ):
            for latitude in (50.1, 43.7):
                answer = await bus.request("air.ask", latitude=latitude, timeout_s=5)
                print(f"at {latitude}: {answer['value']} from {answer['station']}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
