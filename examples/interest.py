"""Advertise with interest: a sensor that measures only while someone wants it to.

    python examples/interest.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings.client import Bus, Interest


async def measure(bus: Bus, interest: Interest) -> None:
    """Publish readings while anyone wants them; as many as fit, since this one costs nothing."""
    await interest.wait_wanted()
    print("measuring for", *interest.filters)
    value = 0
    while interest.wanted:
        await bus.publish("air.pm10", value=value)
        value += 1
        await asyncio.sleep(0.01)
    print("nobody listens: silent again")


async def main(address: str | None = None) -> None:
    """Run a sensor, listen to it for a while, and stop listening."""
    node = tidings.connect(address) if address else tidings.open()
    async with node as bus, bus.advertise("type = 'air.pm10'") as interest:
        print("wanted:", interest.wanted)
        sensor = asyncio.create_task(measure(bus, interest))
        async with bus.subscribe("type = 'air.pm10' AND value >= 2") as events:
            for _ in range(2):
                print("reading", (await anext(events))["value"])
        await sensor


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
