"""The whole system at work: a node with its gateway, a city, citizens, workers, and Spark.

Everything goes through the node over TCP, as if each were on a machine of its own. Workers, gateway and Spark
are processes of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidings.cli.demo.beside import beside
from tidings.cli.demo.city import City
from tidings.cli.demo.console import Console
from tidings.cli.demo.crew import Crew
from tidings.cli.demo.people import ALARMS, Mayor, People, text_of
from tidings.cli.demo.query import Query, Said
from tidings.cli.demo.story import Figures, Line, Summary, Told, judged
from tidings.errors import InternalError

if TYPE_CHECKING:
    from tidings.cli.demo.home import Home
    from tidings.event import Event

FIGURES_S = 1.0
STOP_S = 15.0
"""How long before the end the query is stopped, so that one can see what comes of it."""
OFF_S_MAX = 60.0
"""How long sensors may take to go off: more than the lease of a query that could not say farewell."""


class Town:
    """See the module. `spark`: whether there is Spark; else a mayor wants the readings.

    `tell` is called with all that happens, and with the figures of each second.
    """

    def __init__(self, home: Home, spark: bool, tell: Callable[[Told], None]) -> None:
        self._tell = tell
        self._began_at = time.monotonic()
        self._alarms = 0
        self._has_alarm = asyncio.Event()
        self._people = People(home.address, self.note)
        self._city = City(home.gateway, self.note)
        self._crew = Crew(home.address, self.note)
        self._query = Query(home.address, home.folder / "spark", self.note) if spark else None
        self._asker = self._query or Mayor(home.address, self.note)

    def note(self, who: str, does: str, what: str) -> None:
        """Something has happened."""
        self._tell(Line(self._now(), who, does, what))

    def _now(self) -> float:
        return round(time.monotonic() - self._began_at, 3)

    async def live(self, wait: Callable[[], Awaitable[object]], needs_query: bool = True) -> Summary:
        """Let everything happen until `wait` is over; then see the sensors go off, and sum up.

        If the query is needed and ends by itself, that is the end of it all.
        """
        people, crew, city = self._people, self._crew, self._city
        async with people.connect("console") as bus, bus.listen(ALARMS, self._hear):
            console = Console(bus)
            duties = (city.live(), city.watch(), people.report(lambda: crew.is_ready), people.keep_ledger())
            async with beside(self._ask(needs_query), crew.work(), self._look(console), *duties):
                await wait()
                return await self._wind_down(console)

    async def wait(self, seconds: float, late_s_max: float) -> None:
        """Wait until it is time to stop; for an alarm that has not come by then, so much longer at most."""
        await asyncio.sleep(max(seconds - STOP_S, seconds / 2) - self._now())
        if self._query is not None:
            await _within(late_s_max, self._has_alarm.wait())

    async def _ask(self, needs_query: bool) -> None:
        """Want readings until that is stopped."""
        if self._query is None:  # Spark takes its time by itself
            await self._city.wait_silent()
        try:
            await self._asker.run()
        except InternalError as error:
            if needs_query:
                raise
            self.note("spark", "fails", str(error))

    async def _wind_down(self, console: Console) -> Summary:
        """Have nobody want readings any more, see the sensors go off, and sum up."""
        city, on = self._city, self._city.on
        await self._asker.stop()
        await _within(OFF_S_MAX, city.wait_silent())
        figures = await self._figure(console)
        return judged(
            Summary(
                seconds=figures.at_s,
                spark=self._query is not None,
                readings_logged=await console.count_readings(),
                log_bytes=figures.log_bytes,
                alarms=self._alarms,
                sensors_on=on,
                sensors_left_on=city.on,
                jobs_done=figures.jobs_done,
                redelivered=figures.redelivered,
                killed=figures.killed,
            )
        )

    # What is seen

    def _hear(self, event: Event) -> None:
        """An alarm has come back."""
        self._alarms += 1
        self._has_alarm.set()
        self.note("alarm", "comes", text_of(event))

    async def _look(self, console: Console) -> None:
        while True:
            self._tell(await self._figure(console))
            await asyncio.sleep(FIGURES_S)

    async def _figure(self, console: Console) -> Figures:
        """How everything stands."""
        seen, crew, query = await console.look(), self._crew, self._query
        last = Said() if query is None else query.last
        return Figures(
            at_s=self._now(),
            published=seen.published,
            published_per_s=seen.published_per_s,
            logged=seen.logged,
            logged_per_s=seen.logged_per_s,
            log_bytes=seen.log_bytes,
            sensors=self._city.sensors,
            sensors_on=self._city.on,
            jobs_waiting=crew.waiting,
            jobs_in_hand=crew.in_hand,
            jobs_done=crew.done,
            redelivered=crew.redelivered,
            killed=crew.killed,
            ledger_got=self._people.ledger_got,
            ledger_waiting=seen.ledger_waiting,
            spark=query is not None,
            batches=0 if query is None else query.batches,
            rows=0 if query is None else query.rows,
            rows_per_s=last.rows_s,
            lag=last.lag,
            alarms=self._alarms,
        )


async def _within(seconds: float, coroutine: Coroutine[Any, Any, object]) -> None:
    """Wait for something, so long at most."""
    with suppress(TimeoutError):
        await asyncio.wait_for(coroutine, seconds)
