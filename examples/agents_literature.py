"""Literature search: agents start others for each paper that is cited, until enough is found.

    python examples/agents_literature.py [ADDRESS] [PICTURE.svg]

Each passes a share of its tokens on to those that it starts, so the search is as wide as its budget and no
wider; a parent that is done is no reason to end its children. Without an address a node is started here.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import tidings
from tidings.agents import seen
from tidings.client import Bus
from tidings.client.agent import Agent
from tidings.errors import BudgetExceeded, GroupEnded

ADDRESS = next((one for one in sys.argv[1:] if not one.endswith(".svg")), "")
PICTURE = next((one for one in sys.argv[1:] if one.endswith(".svg")), "")
CITES = {
    "survey": ["orphans", "leases", "groups"],
    "orphans": ["amoeba", "rpc"],
    "leases": ["caches", "gray"],
    "groups": ["isis", "amoeba"],
    "isis": ["cbcast"],
    "caches": ["gray"],
}
"""What each paper cites; some is found twice."""
TOKENS = 10


async def read(agent: Agent, bus: Bus, paper: str, known: set[str]) -> None:
    """Pay for reading a paper, tell the group of it, and start readers of what it cites."""
    try:
        await agent.spend(f"reading {paper}", tokens=TOKENS)
        found = {"group": agent.limits.group, "paper": paper}
        await bus.publish("paper.read", found, delivery="reliable")
        cited = [one for one in CITES.get(paper, []) if one not in known]
        known.update(cited)
        for one in cited:
            share = {"tokens": agent.budget["tokens"] / len(cited) // 1}
            if share["tokens"] >= TOKENS:
                await agent.spawn(read, bus, one, known, name=one, budget=share)
    except (BudgetExceeded, GroupEnded):
        return


async def main() -> None:
    """Search twice: with enough tokens for six papers, and with too few."""
    async with tidings.connect(ADDRESS) if ADDRESS else tidings.open() as bus:
        for tokens in (1_000, 45):
            enough = seen("type = 'paper.read'", 6)
            async with bus.group("literature", enough, timeout_s=60, budget={"tokens": tokens}) as group:
                start, known = "survey", {"survey"}
                await group.spawn(read, bus, start, known, name=start, budget={"tokens": tokens})
                while group.info.phase == "open" and (await group.refresh()).running:
                    await asyncio.sleep(0.005)
                if group.info.phase == "open":
                    await group.stop()
            info = group.info
            adds_up = info.given["tokens"] == info.spent["tokens"] + info.refunded["tokens"]
            enough_read = info.spent["tokens"] >= 6 * TOKENS
            print(f"{tokens} tokens: {info.reason}, six were read: {enough_read}, adds up: {adds_up}")
            below = [one for one in info.agents if one.parent]
            print("started by others:", len(below) == len(info.agents) - 1)
            picture = await bus.draw_group(group.id)
        print("drawn:", "survey is at " in picture)
        if PICTURE:
            await asyncio.to_thread(Path(PICTURE).write_text, picture)


if __name__ == "__main__":
    asyncio.run(main())
