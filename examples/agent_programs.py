"""Programs that know nothing of tidings, as members of a group: when one is done, the others end.

    python examples/agent_programs.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings.agents import any_of


async def main() -> None:
    """Run three programs, of which one is fast."""
    async with tidings.connect(sys.argv[1]) if sys.argv[1:] else tidings.open() as bus:
        async with bus.group("builds", any_of("fast"), timeout_s=60) as group:
            # It starts others in the background, one of them in a session of its own.
            await group.run("sh", "-c", "setsid sleep 1000 & sleep 1000 & wait", name="slow")
            broken = await group.run("sh", "-c", "exit 3", name="broken")
            await broken.wait()
            await group.run("sh", "-c", "true", name="fast")
        for one in group.info.agents:
            print(f"{one.name}: {one.reason}" + (f", {one.problem}" if one.problem else ""))


asyncio.run(main())
