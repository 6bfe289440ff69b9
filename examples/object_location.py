"""Object location: hosts say which objects they have, and a caller finds the host of an object by its name.

    python examples/object_location.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings.client import Bus


async def place(bus: Bus, name: str, host: str) -> None:
    """Say where an object is: the node keeps the last value of each subject."""
    await bus.publish("object.at", host=host, subject=name, delivery="reliable")


async def remove(bus: Bus, name: str) -> None:
    """Say that an object is nowhere: an event that has expired takes the last value away."""
    await bus.publish("object.at", subject=name, ttl_s=0, delivery="reliable")


async def locate(bus: Bus, name: str) -> str:
    """Return the host of an object; if it has none yet, wait for it."""
    wanted = tidings.Filter("type = 'object.at' AND subject = :name AND host IS NOT NULL", name=name)
    async with bus.subscribe(wanted, last=True) as places:
        return str((await anext(places))["host"])


async def main(address: str | None = None) -> None:
    """Place two objects, move one of them, remove the other and place a third; then list what is there."""
    async with tidings.connect(address) if address else tidings.open() as bus:
        await place(bus, "stock", "south")
        await place(bus, "ledger", "north")
        print("ledger:", await locate(bus, "ledger"), "| stock:", await locate(bus, "stock"))
        await place(bus, "ledger", "east")
        print("ledger:", await locate(bus, "ledger"))
        await remove(bus, "stock")
        await place(bus, "mail", "west")
        async with bus.subscribe("type = 'object.at'", last=True) as places:
            there = [await anext(places) for _ in range(2)]  # the oldest first
        print("all:", *(f"{one.subject} at {one['host']}" for one in there))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
