"""Those in the demo who publish and listen by themselves: citizens, a ledger, and a mayor.

Citizens report what they see, one thing after the other. The ledger has a durable subscription to that and to
all alarms, goes away now and then, and gets what it has missed when it is back. The mayor wants readings, and
is there only where no Spark is.
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
"""What Spark, or the mayor, wants of the city: its other sensors stay off."""
REPORTS = "type LIKE 'report.%'"
ALARMS = "type LIKE 'alarm.%'"
JOBS = f"{REPORTS} OR {ALARMS}"
"""What becomes work."""

REPORT_S = 1.5
"""How long it takes until another citizen has something to say."""
HERE_S, AWAY_S = 12.0, 12.0
"""How long the ledger listens, and how long it is away."""
SEEN = (("report.noise", "quay"), ("report.pothole", "ring road"), ("report.smell", "harbour"))
LEDGER = "ledger"


class People:
    """Citizens, ledger and mayor of the demo."""

    def __init__(self, address: str, note: Note) -> None:
        self.ledger_got = 0
        self._address = address
        self._note = note

    def connect(self, who: str) -> Bus:
        """A connection of one of them."""
        return tidings.connect(self._address, name=who)

    async def report(self, is_time: Callable[[], bool]) -> None:
        """Report for ever, once it is time to begin."""
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
    """Wants readings, which the node logs meanwhile. `run` it beside everything else; `stop` it once."""

    def __init__(self, address: str, note: Note) -> None:
        self._address = address
        self._note = note
        self._is_stopped = asyncio.Event()
        self._is_gone = asyncio.Event()

    async def run(self) -> None:
        """Listen until it is stopped."""
        async with tidings.connect(self._address, name="mayor") as bus:
            await bus.log.keep("readings", READINGS)
            async with bus.listen(READINGS, lambda _event: None):
                self._note("mayor", "listens", READINGS)
                await self._is_stopped.wait()
        self._note("mayor", "goes", "it has heard enough")
        self._is_gone.set()

    async def stop(self) -> None:
        """Have it go, and wait until it has gone."""
        self._is_stopped.set()
        await self._is_gone.wait()


def text_of(event: Event) -> str:
    """An event of the demo on one line; of an alarm, what matters."""
    told = event.attributes
    value, limit = told.get("value"), told.get("limit")
    if isinstance(value, float) and isinstance(limit, float):
        return (
            f"{event.type}: {told.get('about')!s} in cell {told.get('cell')!s} is {value:.1f}, over {limit:g}"
        )
    return " ".join([event.type, *(f"{name}={value!s}" for name, value in told.items())])
