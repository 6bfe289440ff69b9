"""Publishers and subscribers of the demo: citizens, a ledger, and a mayor.

Citizens publish reports, one after the other. The ledger has a durable subscription to reports and alarms,
disconnects now and then, and receives what it missed when it is back. The mayor subscribes to readings, and
stands in for Spark where there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count, cycle
from typing import TYPE_CHECKING

import tidings
from tidings.cli.demo.story import Note

if TYPE_CHECKING:
    from tidings.client import Bus
    from tidings.event import Event

READINGS = "type LIKE 'air.%'"
"""Readings that Spark or the mayor requests: the other sensors of the city stay off."""
REPORTS = "type LIKE 'report.%'"
ALARMS = "type LIKE 'alarm.%'"
JOBS = f"{REPORTS} OR {ALARMS}"
"""Events that the binding puts into the queue."""

REPORT_S = 1.5
"""Time between two reports."""
HERE_S, AWAY_S = 12.0, 12.0
"""How long the ledger is connected, and how long it is away."""
SEEN = (("report.noise", "quay"), ("report.pothole", "ring road"), ("report.smell", "harbour"))
LEDGER = "ledger"


class People:
    """Citizens and ledger of the demo."""

    def __init__(self, address: str, note: Note) -> None:
        self.ledger_got = 0
        self._address = address
        self._note = note

    def connect(self, who: str) -> Bus:
        """Open a connection under this name."""
        return tidings.connect(self._address, name=who)

    async def report(self, is_time: Callable[[], bool]) -> None:
        """Publish reports for ever, once `is_time`."""
        while not is_time():
            await asyncio.sleep(REPORT_S / 10)
        async with self.connect("citizens") as bus:
            for number, (kind, street) in zip(count(1), cycle(SEEN)):
                await bus.publish(kind, street=street, number=number, delivery="persistent")
                await asyncio.sleep(REPORT_S)

    async def keep_ledger(self) -> None:
        """Listen for a while, be away for a while, for ever."""
        while True:
            async with self.connect(LEDGER) as bus, bus.listen(JOBS, self._write, durable=LEDGER):
                self._note(LEDGER, "listens", JOBS)
                await asyncio.sleep(HERE_S)
            self._note(LEDGER, "goes", f"after {self.ledger_got:,}; the node keeps for it what comes now")
            await asyncio.sleep(AWAY_S)

    def _write(self, _event: Event) -> None:
        self.ledger_got += 1


class Mayor:
    """Subscriber to readings, which the node then logs. `run` it beside the rest; `stop` it once."""

    def __init__(self, address: str, note: Note) -> None:
        self._address = address
        self._note = note
        self._is_stopped = asyncio.Event()
        self._is_gone = asyncio.Event()

    async def run(self) -> None:
        """Listen until `stop`."""
        async with tidings.connect(self._address, name="mayor") as bus:
            await bus.log.keep("readings", READINGS)
            async with bus.listen(READINGS, lambda _event: None):
                self._note("mayor", "listens", READINGS)
                await self._is_stopped.wait()
        self._note("mayor", "goes", "it has heard enough")
        self._is_gone.set()

    async def stop(self) -> None:
        """End the subscription, and wait until it has ended."""
        self._is_stopped.set()
        await self._is_gone.wait()


def text_of(event: Event) -> str:
    """Return an event of the demo as one line; an alarm without its less interesting attributes."""
    fields = event.attributes
    value, limit = fields.get("value"), fields.get("limit")
    if isinstance(value, float) and isinstance(limit, float):
        about, cell = fields.get("about"), fields.get("cell")
        return f"{event.type}: {about!s} in cell {cell!s} is {value:.1f}, over {limit:g}"
    return " ".join([event.type, *(f"{name}={value!s}" for name, value in fields.items())])
