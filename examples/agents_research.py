"""Web research: a client starts readers, goes offline, and has their results when it comes back.

    python examples/agents_research.py [ADDRESS] [PICTURE.svg]

Without an address a node is started in this process. Its location runs the readers; one that waits for a page
is a message, which survives a restart of the node. Nobody has to be there until the results are fetched.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct

import tidings
from tidings.agents import all_of
from tidings.client.mobile import MobileAgent, Next, step
from tidings.node.config import NodeConfig
from tidings.node.server import Node

ADDRESS = next((one for one in sys.argv[1:] if not one.endswith(".svg")), "")
PICTURE = next((one for one in sys.argv[1:] if one.endswith(".svg")), "")
PAGES = {"orchids": ["light", "water", "bark"], "ferns": ["shade", "moss"], "cacti": ["sand", "sun", "rest"]}


class Search(Struct):
    """What a reader looks for, and what it has found."""

    topic: str
    found: list[str] = []


class Reader(MobileAgent, version="1"):
    """Reads one page after the other, and rests between them."""

    state: Search

    @step
    async def read(self) -> Next | list[str]:
        """Read the next page, and pay for it."""
        pages = PAGES[self.state.topic]
        await self.agent.spend("a page", tokens=100)
        self.state.found.append(pages[len(self.state.found)])
        if len(self.state.found) < len(pages):
            return self.then("read", rests_s=0.05)
        return self.state.found


async def ask(address: str) -> str:
    """Start the readers, and leave without waiting for them; return the id of the group."""
    async with tidings.connect(address) as bus:
        group = bus.group("research", all_of(*PAGES), timeout_s=60, budget={"tokens": 2_000})
        await group.listen()
        for topic in PAGES:
            await group.start(Reader, Search(topic), name=topic, budget={"tokens": 500})
        await group.hang_up()
        return group.id


async def fetch(address: str, group: str) -> None:
    """Come back, wait for what is not there yet, and print what was found meanwhile."""
    async with tidings.connect(address) as bus:
        async with bus.join_group(group) as found:
            await found.wait()
        info = found.info
        for topic, pages in sorted(found.results.items()):
            print(f"{topic}: {', '.join(pages)}")
        print("why:", info.reason)
        print("tokens:", info.spent["tokens"], "of", info.given["tokens"])
        picture = await bus.draw_group(group)
        print("drawn:", [topic for topic in PAGES if f"{topic} rests at " in picture])
        if PICTURE:
            await asyncio.to_thread(Path(PICTURE).write_text, picture)


async def main() -> None:
    """Ask, go offline until a reader has told of its work, and fetch the results."""
    async with AsyncExitStack() as held:
        address = ADDRESS
        if not address:
            node = Node(NodeConfig(port=0))
            await node.start()
            held.push_async_callback(node.close)
            address = str(node.addresses[0])
        place = await held.enter_async_context(tidings.connect(address))
        await held.enter_async_context(place.location(Reader))
        done = await held.enter_async_context(place.subscribe("type = 'agent.resulted'"))
        group = await ask(address)
        print("offline, and", (await anext(done))["agent_name"], "is done")
        await fetch(address, group)


if __name__ == "__main__":
    asyncio.run(main())
