"""Request and reply: ask a known service, and wait for its answer.

    python examples/request_reply.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping

import tidings
from tidings import Event
from tidings.errors import NoAnswer, RequestFailed


async def divide(request: Event) -> Mapping[str, object]:
    """Answer a request; an error is sent to the requester."""
    return {"value": request["a"] / request["b"]}


async def main(address: str | None = None) -> None:
    """Ask a service, ask it what it can't answer, then ask one that is not there."""
    async with tidings.connect(address) if address else tidings.open() as bus:
        stop = asyncio.Event()
        service = asyncio.create_task(bus.serve("div", divide, concurrency=4, stop=stop))
        answer = await bus.request("div", a=84, b=2, timeout_s=5)
        print("84 / 2 =", answer["value"])
        try:
            await bus.request("div", a=1, b=0, timeout_s=5)
        except RequestFailed as error:
            print(error)
        try:
            await bus.request("mul", a=1, b=1, timeout_s=0.1)
        except NoAnswer as error:
            print(error)
        stop.set()  # a request that is being answered would be answered still
        await service


# -- demonstration


if __name__ == "__main__":
    logging.getLogger("tidings").setLevel(logging.ERROR)  # the service logs what it can't answer
    asyncio.run(main(*sys.argv[1:2]))
