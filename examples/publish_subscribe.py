"""Publish and subscribe: neither side knows the other.

    python examples/publish_subscribe.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings import Event


async def main(address: str | None = None) -> None:
    """Publish three readings, and print those that exceed a limit."""
    node = tidings.connect(address) if address else tidings.open()
    async with node as bus, bus.subscribe("type = 'air.pm10' AND value > 40") as events:
        for value in (38.5, 41.2, 55.0):
            await bus.publish("air.pm10", value=value, station="north")
        await bus.publish(Event("air.pm10", {"value": 61.0, "station": "south"}, priority=7))
        for _ in range(3):
            event = await anext(events)
            print(f"{event['station']}: {event['value']} (priority {event.priority})")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
