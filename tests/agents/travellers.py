"""Classes of agents that tests have move, and that locations are told to trust."""

from __future__ import annotations

import asyncio
import os
import time

from msgspec import Struct

from tidings.client.mobile import MobileAgent, Next, StepLimits, step


class Tour(Struct):
    """Where a traveller goes, where it was, and what it has found there."""

    stops: list[str] = []
    seen: list[str] = []
    cost: float = 0.0
    problems: list[str] = []


class Traveller(MobileAgent, version="1"):
    """Goes from node to node, pays at each, and comes to an end where its tour does."""

    state: Tour

    @step
    async def visit(self) -> Next | dict[str, object]:
        tour = self.state
        if self.problem:
            tour.problems.append(self.problem)
        if tour.cost:
            await self.agent.spend(usd=tour.cost)
        tour.seen.append(self.where)
        if tour.stops:
            return self.move(tour.stops.pop(0), "visit")
        return {"seen": tour.seen, "problems": tour.problems}


class Sleeper(MobileAgent, version="1"):
    """Rests, as a message, and then is done."""

    state: Tour

    @step
    async def begin(self) -> Next:
        return self.then("end", rests_s=float(self.state.cost))

    @step
    async def end(self) -> str:
        return "rested"


class Stubborn(MobileAgent, version="1"):
    """Works on until it has to end, and hands over what there is."""

    state: Tour

    @step
    async def work(self) -> None:
        try:
            await self.agent.result("half of it", partial=True)
            await asyncio.Event().wait()
        finally:
            await self.agent.spend(usd=self.state.cost)


class Broken(MobileAgent, version="1"):
    """Fails."""

    state: Tour

    @step
    async def fail(self) -> None:
        raise ValueError("nothing goes")


class Resident(MobileAgent, version="1", stays=True):
    """A system agent, which does not move."""

    state: Tour

    @step
    async def stay(self) -> Next:
        return self.move("node-b", "stay")


class Glutton(MobileAgent, version="1", limits=StepLimits(seconds=60, memory_mb=200, processes=5)):
    """Takes what it is asked to, in a process of its own."""

    state: Tour

    @step
    async def eat(self) -> str:
        await self.agent.spend(usd=1)
        what = self.state.stops[0]
        if what == "memory":
            hoard = []
            while True:
                hoard.append(bytearray(10_000_000))
        if what == "processes":
            for _ in range(30):
                if os.fork() == 0:
                    time.sleep(60)
            await asyncio.Event().wait()
        return f"ate {what}"


class Carrier(MobileAgent, version="1"):
    """Goes where its tour says; there it pays, and the last stop says what it does: `end`, or work on."""

    state: Tour

    @step
    async def go(self) -> Next | str:
        tour = self.state
        tour.seen.append(self.where)
        if len(tour.stops) > 1:
            return self.move(tour.stops.pop(0), "go")
        if tour.cost:
            await self.agent.spend(usd=tour.cost)
        (work,) = tour.stops
        if work == "end":
            return " ".join(tour.seen)
        # One in the background, one in a session of its own that nobody has, and one that is waited for.
        shell = f"sleep {work} & (setsid sleep {work} &) ; sleep {work}"
        await self.agent.run("sh", "-c", shell, name=f"{self.agent.name}'s program")
        await asyncio.Event().wait()
        return ""
