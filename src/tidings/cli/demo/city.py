"""The city of the demo: sensors behind the gateway, which are silent until someone wants their readings.

In a corner of it the air is bad, so that there is something to find.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidings.cli.demo.story import Note
from tidings.sensors.link import Place
from tidings.sensors.simulation import Load, Simulation

LOAD = Load(networks=120, sensors=6, readings=2, rate=2.0, connections=12, smog=12, mobility=12.0, seed=7)
LOOK_S = 0.1


class City:
    """The sensors, and how many of them are on."""

    def __init__(self, gateway: str, note: Note) -> None:
        """`gateway` is where sensor networks speak, as a node tells it: `tcp HOST:PORT`."""
        host, _, port = gateway.rpartition(" ")[2].rpartition(":")
        self._simulation = Simulation(Place(host, int(port)), LOAD)
        self._note = note
        self._is_told_silent = False

    @property
    def sensors(self) -> int:
        """How many there are of which the gateway knows."""
        there = (group for group in self._simulation.groups if group.link.is_connected)
        return sum(len(one.core.sensors) for group in there for one in group.networks)

    @property
    def on(self) -> int:
        """How many are on."""
        return sum(len(one.core.asked) for group in self._simulation.groups for one in group.networks)

    @property
    def readings(self) -> int:
        """How many readings were sent."""
        return self._simulation.tally.readings

    async def live(self) -> None:
        """Measure for ever."""
        await self._simulation.run()

    async def watch(self) -> None:
        """Tell for ever when the sensors come, go on and go off."""
        all_of_them = LOAD.networks * LOAD.sensors
        await self._until(lambda: self.sensors == all_of_them)
        self._note("city", "is silent", f"{all_of_them:,} sensors have registered, and are off: nobody asks")
        self._is_told_silent = True
        while True:
            await self._until(lambda: self.on > 0)
            self._is_told_silent = False
            await self._settle()
            self._note("city", "wakes up", f"{self.on:,} of its sensors were asked for their readings")
            await self._until(lambda: self.on == 0)
            self._note("city", "is silent", f"its sensors are off again, after {self.readings:,} readings")
            self._is_told_silent = True

    async def _settle(self) -> None:
        """Wait until no more of them go on."""
        before = 0
        while before != self.on:
            before = self.on
            await asyncio.sleep(LOOK_S)

    async def wait_silent(self) -> None:
        """Wait until all have registered and all are off, and that was told."""
        await self._until(lambda: self._is_told_silent and self.on == 0)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Wait for what sensors don't tell."""
        while not is_so():
            await asyncio.sleep(LOOK_S)
