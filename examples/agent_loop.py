"""Agents that search side by side, with a budget: the first good result ends the others.

    python examples/agent_loop.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings.agents import any_of
from tidings.client.agent import Agent
from tidings.errors import BudgetExceeded

PRICES = {"south": [400] * 1_000, "east": [500] * 1_000, "north": [310, 240, 95]}


async def search(agent: Agent, place: str) -> dict[str, object] | None:
    """A plain loop: each question costs something, and is paid for before it is asked."""
    best = None
    try:
        for price in PRICES[place]:
            await agent.spend(usd=0.25)
            best = min(price, best or price)
            if price < 100:
                return {"place": place, "price": price}
            await asyncio.sleep(0.001)
    except (asyncio.CancelledError, BudgetExceeded):  # a last step: hand over what there is
        await agent.result({"place": place, "best so far": best}, partial=True)
        raise
    return None


async def main() -> None:
    """Search at three places at once."""
    async with tidings.connect(sys.argv[1]) if sys.argv[1:] else tidings.open() as bus:
        async with bus.group("hotels", any_of(), timeout_s=60, budget={"usd": 900}) as group:
            for place in PRICES:
                await group.spawn(search, place, name=place, budget={"usd": 300})
        print("found:", group.results["north"])
        print("why:", group.reason)
        for one in group.info.agents:
            print(f"{one.name}: {one.reason}")
        info = group.info
        print("adds up:", info.given["usd"] == info.spent["usd"] + info.refunded["usd"])


asyncio.run(main())
