"""Service discovery by type: services advertise what they answer with, and a client finds those that fit.

    python examples/service_discovery.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings.client.advertisements import Offered

PRINTED = "IS_A(type, 'printed')"
"""The interface that the client knows: this type and all its subtypes."""


def texts(offers: list[Offered]) -> str:
    """Return the filters of the advertisements in a fixed order."""
    return ", ".join(sorted(offer.text for offer in offers)) or "none"


async def main(address: str | None = None) -> None:
    """Watch the services that print, while three come and one goes, and select one by an attribute."""
    async with tidings.connect(address) if address else tidings.open() as bus:
        services = bus.watch_advertisements(PRINTED)
        print("printing:", texts(await anext(services)))
        async with bus.advertise("type = 'printed.page' AND dpi <= 600"), bus.advertise("type = 'scanned'"):
            print("printing:", texts(await anext(services)))
            async with bus.advertise("type = 'printed.photo' AND dpi <= 2400"):
                print("printing:", texts(await anext(services)))
                print("at 1200 dpi:", texts(await bus.advertisements(f"{PRINTED} AND dpi = 1200")))
            print("printing:", texts(await anext(services)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
