"""Request and reply: ask a known service, and wait for its answer.

    python examples/request_reply.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings import Event
from tidings.errors import NoAnswer


async def main(address: str | None = None) -> None:
    """Ask a calculator that is named by the subject of the request, then one that is not there."""
    node = tidings.connect(address) if address else tidings.open()
    async with node as bus:

        async def add(request: Event) -> None:
            await bus.reply(request, "calculator.sum", value=request["a"] + request["b"])

        async with bus.listen("type = 'calculator.add' AND subject = 'calculator-1'", add):
            answer = await bus.request("calculator.add", a=20, b=22, subject="calculator-1", timeout_s=5)
            print("20 + 22 =", answer["value"])
            try:
                await bus.request("calculator.add", a=1, b=1, subject="calculator-2", timeout_s=0.1)
            except NoAnswer as error:
                print(error)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
