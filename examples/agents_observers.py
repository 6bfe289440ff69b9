"""Local observers: forty still agents watch stations far apart, until three have seen bad air.

    python examples/agents_observers.py [ADDRESS] [PICTURE.svg]

They say nothing while nothing happens. So their locations give notice of them, and one whose sensor is gone,
which is a partner that it has declared, ends as an orphan. Without an address a node is started here.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import tidings
from tidings import Event
from tidings.agents import seen
from tidings.agents.orphans import AliveTimes
from tidings.client import Bus
from tidings.client.agent import Agent

ADDRESS = next((one for one in sys.argv[1:] if not one.endswith(".svg")), "")
PICTURE = next((one for one in sys.argv[1:] if one.endswith(".svg")), "")
OBSERVERS = 40
TIMES = AliveTimes(notice_s=0.2, check_s=2.0, delay_s=0.2, losses=1)


async def sensor(_agent: Agent) -> None:
    """Be there: a real one would measure."""
    await asyncio.Event().wait()


async def observe(agent: Agent, bus: Bus, station: int, readings: asyncio.Queue[float]) -> None:
    """Watch one station, and tell the group what is above the limit."""
    if station == 0:
        await agent.declare_partners("broken sensor")
    while True:
        value = await readings.get()
        if value > 80:
            found = {"group": agent.limits.group, "station": station, "value": value}
            await bus.publish("air.bad", found, delivery="reliable")


async def main() -> None:
    """Start the observers, lose one of them, and publish readings."""
    async with tidings.connect(ADDRESS) if ADDRESS else tidings.open() as bus:
        stations = [asyncio.Queue[float]() for _ in range(OBSERVERS)]

        def measured(reading: Event) -> None:
            stations[reading["station"]].put_nowait(reading["value"])

        bad = seen("type = 'air.bad'", 3)
        async with (
            bus.listen("type = 'air.pm10'", measured),
            bus.group("observers", bad, timeout_s=60, alive=TIMES) as group,
        ):
            broken = await group.spawn(sensor, name="broken sensor")
            observers = [
                await group.spawn(observe, bus, station, readings, name=f"observer {station}")
                for station, readings in enumerate(stations)
            ]
            broken.stop()
            await observers[0].wait()
            print("observer 0:", observers[0].stop_reason)
            for station in range(OBSERVERS):
                value = 95.0 if station in (7, 19, 33) else 20.0
                await bus.publish("air.pm10", station=station, value=value)
        others = {one.reason for one in group.info.agents if one.name not in ("observer 0", "broken sensor")}
        print("the others:", *others)
        print("why:", group.reason)
        picture = await bus.draw_group(group.id)
        print("drawn:", picture.count(" is at "), "agents")
        if PICTURE:
            await asyncio.to_thread(Path(PICTURE).write_text, picture)


if __name__ == "__main__":
    asyncio.run(main())
