"""A trip: travellers talk in a channel while they change nodes, and no reply comes before its question.

    python examples/trip.py [ADDRESS]

Without an address three nodes are started in this process, and end with it; with one, the other two are
linked to the node there.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack

import tidings
from tidings.client.channels import Channel
from tidings.node.config import NodeConfig
from tidings.node.server import Node


async def started(held: AsyncExitStack, name: str, **peers: str) -> str:
    """Start a node that ends with this program; return its address."""
    node = Node(NodeConfig(port=0, name=name, peers=",".join(f"{one}={at}" for one, at in peers.items())))
    await node.start()
    held.push_async_callback(node.close)
    return str(node.addresses[0])


async def heard(channel: Channel, count: int) -> list[str]:
    """Return what is said next in the channel."""
    return [(await anext(channel))["text"] for _ in range(count)]


async def main(address: str | None = None) -> None:
    """Let two travellers move while they talk to each other and to one who stays at home."""
    async with AsyncExitStack() as held:
        home = address or await started(held, "home")
        train = await started(held, "train", home=home)
        await started(held, "hotel", home=home, train=train)
        names = {"ann": train, "ben": train, "cleo": home}
        ann, ben, cleo = [
            await held.enter_async_context(tidings.connect(at, name=name)) for name, at in names.items()
        ]
        while len((await ann.topology())["tree"]) < 2:
            await asyncio.sleep(0.01)  # the nodes are not linked yet
        async with (
            cleo.create_channel("trip", order="causal", delivery="reliable") as at_home,
            ann.channel("trip") as of_ann,
            ben.channel("trip") as of_ben,
        ):
            await at_home.send("say", text="where are you?")
            print("ann hears:", *await heard(of_ann, 1))
            await of_ann.send("say", text="at the border")
            await ann.move("hotel")
            await of_ann.send("say", text="at the hotel, room 7")
            print("ben hears:", ", ".join(await heard(of_ben, 3)))
            moving = asyncio.create_task(ben.move("hotel"))
            await at_home.send("say", text="and ben?")
            await moving
            print("ben hears:", *await heard(of_ben, 1))
            await of_ben.send("say", text="in room 8")
            for name, channel, count in (("cleo", at_home, 5), ("ann", of_ann, 4)):
                print(f"{name} has heard:", (await heard(channel, count))[-1])
            found = await at_home.status()
            print("members:", {node: count for node, count in found.members.items() if node == "hotel"})
            await at_home.delete()


if __name__ == "__main__":
    logging.getLogger("tidings").setLevel(logging.ERROR)  # the nodes log that their links end
    asyncio.run(main(*sys.argv[1:2]))
