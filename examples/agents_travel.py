"""Travel planning: a dozen scouts go from node to node for offers; three good ones are enough.

    python examples/agents_travel.py [ADDRESS] [PICTURE.svg]

The group lives at the node of the address, or at one that is started here. Two more nodes, a station and a
harbour, are started here; scouts begin at the station, and each goes where its tour says.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from msgspec import Struct

import tidings
from tidings.agents import seen
from tidings.client.mobile import MobileAgent, Next, step
from tidings.errors import GroupEnded
from tidings.node.config import NodeConfig
from tidings.node.server import Node

ADDRESS = next((one for one in sys.argv[1:] if not one.endswith(".svg")), "")
PICTURE = next((one for one in sys.argv[1:] if one.endswith(".svg")), "")
PRICES = {"station": [210, 190, 240, 205], "harbour": [95, 180, 85, 90]}


class Tour(Struct):
    """What a scout carries along."""

    number: int
    offers: list[str] = []


class Scout(MobileAgent, version="1"):
    """Asks at the station, then at the harbour, and tells all members of each offer."""

    state: Tour

    @step
    async def ask(self) -> Next | list[str]:
        """Pay for an answer, and go on."""
        await self.agent.spend("an answer", usd=1)
        price = PRICES[self.where][self.state.number % 4]
        self.state.offers.append(f"{self.where} {price}")
        group = self.agent.limits.group.partition("@")[0]
        if self.where == "harbour":
            offer = {"group": group, "price": price, "scout": self.state.number}
            await self.bus.publish("travel.offer", offer, delivery="reliable")
            return self.then("wait", rests_s=60)
        return self.move("harbour", "ask")

    @step
    async def wait(self) -> list[str]:
        """Be done, if nobody has ended it before."""
        return self.state.offers


async def started(held: AsyncExitStack, name: str, **peers: str) -> str:
    """Start a node that ends with this program; return its address."""
    node = Node(NodeConfig(port=0, name=name, peers=",".join(f"{one}={at}" for one, at in peers.items())))
    await node.start()
    held.push_async_callback(node.close)
    return str(node.addresses[0])


async def main() -> None:
    """Send twelve scouts out, and draw where they were."""
    async with AsyncExitStack() as held:
        home = ADDRESS or await started(held, "home")
        harbour = await started(held, "harbour", home=home)
        station = await started(held, "station", home=home, harbour=harbour)
        nodes = [await held.enter_async_context(tidings.connect(one)) for one in (home, station, harbour)]
        bus, at_station, at_harbour = nodes
        for one in (at_station, at_harbour):
            await held.enter_async_context(one.location(Scout))
        good = seen("type = 'travel.offer' AND price < 100", 3)
        async with bus.group("travel", good, timeout_s=60, budget={"usd": 60}) as group:
            scouts = await held.enter_async_context(at_station.join_group(f"{group.id}@home"))
            for number in range(12):
                with suppress(GroupEnded):  # enough offers are there before all have left
                    await scouts.start(Scout, Tour(number), name=f"scout {number}", budget={"usd": 5})
        info = group.info
        print("why:", info.reason)
        print("all ended:", {one.state for one in info.agents})
        print("adds up:", info.given["usd"] == info.spent["usd"] + info.refunded["usd"])
        picture = await bus.draw_group(group.id)
        print("drawn at the harbour:", "is at node harbour" in picture)
        if PICTURE:
            await asyncio.to_thread(Path(PICTURE).write_text, picture)


if __name__ == "__main__":
    logging.getLogger("tidings").setLevel(logging.ERROR)  # the nodes log that their links end
    asyncio.run(main())
