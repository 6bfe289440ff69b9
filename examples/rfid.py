"""RFID: gates at two linked nodes read tags, and an alarm takes only goods that leave without being paid.

    python examples/rfid.py [ADDRESS]

Without an address two nodes are started in this process, and end with it; with one, the second is linked to
the node there.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import logging
import sys

import tidings
from tidings import Event
from tidings.node.config import NodeConfig
from tidings.node.server import Node

ALARM = "type = 'rfid.read' AND direction = 'out' AND NOT paid"


def reading(gate: str, tag: str, direction: str, *, paid: bool) -> Event:
    """Return what the reader of a gate publishes: the tag, which way it goes, and whether it is paid."""
    return Event("rfid.read", gate=gate, tag=tag, direction=direction, paid=paid, delivery="reliable")


async def watch(address: str) -> None:
    """Watch both gates at the node of the first one; the second gate has a node of its own."""
    async with tidings.connect(address) as front, tidings.open(peers={"front": address}) as back:
        while not (await back.topology())["tree"]:
            await asyncio.sleep(0.01)  # the nodes are not linked yet
        async with front.subscribe(ALARM) as alarms:
            await alarms.in_force()
            await front.publish(reading("front", "coat-1", "out", paid=True))
            await front.publish(reading("front", "coat-2", "out", paid=False))
            alarm = await anext(alarms)
            print("alarm:", alarm["gate"], alarm["tag"])
            await back.publish(reading("back", "hat-1", "in", paid=False))
            await back.publish(reading("back", "hat-2", "out", paid=False))
            alarm = await anext(alarms)
            print("alarm:", alarm["gate"], alarm["tag"])
            (link,) = (await back.trace(reading("back", "hat-1", "in", paid=False)))["hops"]
            print("hat-1 has not crossed the link:", link["why"])


async def main(address: str | None = None) -> None:
    """Watch the gates at a node that is there, or at one in this process."""
    if address:
        return await watch(address)
    node = Node(NodeConfig(name="front", port=0))
    await node.start()
    try:
        await watch(node.addresses[0])
    finally:
        await node.close()


if __name__ == "__main__":
    logging.getLogger("tidings").setLevel(logging.ERROR)  # the nodes log that their link ends
    asyncio.run(main(*sys.argv[1:2]))
