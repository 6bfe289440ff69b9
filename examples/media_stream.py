"""A media stream: frames of a camera cross to another node; a slow viewer skips to the newest one.

    python examples/media_stream.py [ADDRESS]

Without an address two nodes are started in this process, and end with it; with one, the second is linked to
the node there.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import logging
import sys

import tidings
from tidings.client import Bus
from tidings.node.config import NodeConfig
from tidings.node.server import Node

FRAMES = 50
FRAME = b"\x89" * 4096
"""The picture: its bytes are the body of an event, which nodes pass on as they are."""


async def film(camera: Bus) -> None:
    """Publish frames as transient events: none is stored, and a lost one is not sent again."""
    for number in range(FRAMES):
        await camera.publish("frame", number=number, camera="door", body=FRAME, content_type="image/png")


async def stream(address: str) -> None:
    """Film at one node, and look at the film at another: one viewer takes every frame, the other is slow."""
    async with (
        tidings.connect(address) as camera,
        tidings.open(peers={"studio": address}) as home,
        home.subscribe("type = 'frame'") as every,
        home.subscribe("type = 'frame'", on_slow="latest", slow_key="camera", prefetch=1) as newest,
    ):
        while not (await home.topology())["tree"]:
            await asyncio.sleep(0.01)  # the nodes are not linked yet
        await newest.in_force()
        await film(camera)
        seen = [await anext(every) for _ in range(FRAMES)]
        print("every frame:", len(seen), "in order:", [one["number"] for one in seen] == list(range(FRAMES)))
        print("bytes:", sum(len(one.body or b"") for one in seen))
        shown = [(await anext(newest))["number"]]
        while shown[-1] < FRAMES - 1:
            shown.append((await anext(newest))["number"])
        print("the slow viewer: at most 2 frames:", len(shown) <= 2, "and the last is", shown[-1])


async def main(address: str | None = None) -> None:
    """Stream from a node that is there, or from one in this process."""
    if address:
        return await stream(address)
    node = Node(NodeConfig(name="studio", port=0))
    await node.start()
    try:
        await stream(node.addresses[0])
    finally:
        await node.close()


if __name__ == "__main__":
    logging.getLogger("tidings").setLevel(logging.ERROR)  # the nodes log that their link ends
    asyncio.run(main(*sys.argv[1:2]))
