"""An electronic market: buyers with a budget ask sellers for offers, and nobody spends what it does not hold.

    python examples/agents_market.py [ADDRESS] [PICTURE.svg]

Each buyer is an agent whose share comes out of the budget of the group; the sellers are services beside it.
What is not spent comes back. An event of a client that says that money was spent changes nothing. Without an
address a node is started in this process.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import tidings
from tidings import Event
from tidings.agents import all_of
from tidings.client import Bus
from tidings.client.agent import Agent
from tidings.errors import BudgetExceeded

ADDRESS = next((one for one in sys.argv[1:] if not one.endswith(".svg")), "")
PICTURE = next((one for one in sys.argv[1:] if one.endswith(".svg")), "")
PRICES = {"north": {"lamp": 30.0, "desk": 120.0}, "south": {"lamp": 25.0, "desk": 180.0}}
WANTED = {"lamp": 40, "desk": 150, "piano": 60}


def seller(prices: Mapping[str, float]) -> Callable[[Event], Awaitable[Mapping[str, object]]]:
    """Return what answers with the price of what is asked for; a piano is dear."""

    async def sell(question: Event) -> Mapping[str, object]:
        return {"price": prices.get(str(question["goods"]), 900.0)}

    return sell


async def buy(agent: Agent, bus: Bus, goods: str) -> dict[str, object]:
    """Ask all sellers, and buy where it is cheapest."""
    offers: dict[str, float] = {}
    for name in PRICES:
        answer = await bus.request(f"market.{name}", goods=goods, timeout_s=10)
        offers[name] = answer["price"]
    cheapest = min(offers, key=lambda name: offers[name])
    try:
        await agent.spend(goods, usd=offers[cheapest])
    except BudgetExceeded as error:
        return {"problem": str(error)}
    return {"seller": cheapest, "price": offers[cheapest]}


async def main() -> None:
    """Open the market, and send a buyer for each of the goods."""
    async with tidings.connect(ADDRESS) if ADDRESS else tidings.open() as bus:
        stop = asyncio.Event()
        sellers = [
            asyncio.create_task(bus.serve(f"market.{name}", seller(prices), stop=stop))
            for name, prices in PRICES.items()
        ]
        async with bus.group("market", all_of(), timeout_s=60, budget={"usd": 300}) as group:
            for goods, usd in WANTED.items():
                await group.spawn(buy, bus, goods, name=goods, budget={"usd": usd})
            forged = {"group": group.id, "agent": f"{group.id}.1", "amount.usd": 40.0}
            await bus.publish("agent.spent", forged, delivery="persistent")
        for goods, bought in sorted(group.results.items()):
            print(f"{goods}: {bought}")
        info = group.info
        print("spent:", info.spent["usd"], "refunded:", info.refunded["usd"], "why:", info.reason)
        picture = await bus.draw_group(group.id)
        print("drawn:", [goods for goods in WANTED if f"{goods} is at " in picture])
        if PICTURE:
            await asyncio.to_thread(Path(PICTURE).write_text, picture)
        stop.set()
        await asyncio.wait(sellers)


if __name__ == "__main__":
    asyncio.run(main())
