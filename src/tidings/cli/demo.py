"""`tidings demo`: a node, sensors that publish, and who gets what; it ends by itself after a few seconds.

The node is a real one, with a directory of its own, and everything goes through it over TCP: each sensor and
each listener has a connection, and the workers of the queue are processes. The sensors and their values are
made up. On a terminal the screen changes as things happen; elsewhere there is a line for each of them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec import Struct

import tidings
from tidings.cli.connection import Json, run
from tidings.cli.crew import WANTED, Crew, crew_table
from tidings.cli.work import until_terminated
from tidings.errors import InternalError
from tidings.sensors.link import Place
from tidings.sensors.simulation import Load, Simulation

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidings.client import Bus
    from tidings.event import Event

STEPS = 20
AWAY_FROM, AWAY_TO, GUARD_FROM = 5, 12, 6
"""The steps at which the ledger goes away and comes back, and at which the guard begins to look."""
PICTURES = 4
"""How many the guard looks at."""
LATE_S_MAX = 20.0
"""By how much everything together may take longer than its steps."""
LINES_SHOWN = 12

SENSORS = {"quay": ("air.pm10", 45, 30), "park": ("air.pm10", 25, 12), "road": ("traffic.cars", 55, 50)}
"""What each sensor publishes, around which value, and how far from it."""
LISTENERS = {
    "alarm": "type = 'air.pm10' AND value > 60",
    "gardener": "type = 'air.pm10' AND subject = 'park'",
    "console": "",
    "ledger": "type = 'air.pm10' AND value > 30",
    "guard": "type = 'camera.picture'",
}
CITY = "type = 'sound.level' AND value > 55"
"""What the mayor wants of the sensors behind the gateway, and only of those."""
MAYOR_FROM, HEARINGS = 8, 6
"""The step at which the mayor begins to listen, and how many readings are enough."""
LOOK_S = 0.02
STAYING = ("alarm", "gardener", "console", "ledger")
"""Those who get all that they want in the end."""
SOURCES = (*SENSORS, "camera")
COLOURS = {"publishes": "yellow", "gets": "green", "takes": "blue", "is done": "green", "is killed": "red"}

Step = Annotated[float, typer.Option("--step", min=0.0, metavar="SECONDS", help="How long a step takes.")]


def demo(step: Step = 0.25, json: Json = False) -> None:
    """Show a node with sensors, listeners and a queue with workers, and what goes to whom."""
    run(until_terminated(_demo(step, json)))


async def _demo(step_s: float, json: bool) -> None:
    from tidings.node.config import NodeConfig
    from tidings.node.server import Node

    with TemporaryDirectory(prefix="tidings-demo-") as directory:
        node = Node(NodeConfig(dir=directory, port=0, sensor_port=0, compiled=False))
        await node.start()
        try:
            await _show(Town(node.addresses[0], node.sensor_addresses[0], step_s), json)
        finally:
            await node.close()


class Line(Struct, frozen=True):
    """Something that happened."""

    at_s: float
    who: str
    does: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:5.2f} s  {self.who:<8}  {self.does:<9}  {self.what}"


class Town:
    """The sensors, listeners and workers, and what is known of them."""

    def __init__(self, address: str, sensors: str, step_s: float) -> None:
        """`sensors` is where the gateway takes connections of sensor networks."""
        self.address = address
        self.city = Simulation(_place(sensors), Load(networks=5, sensors=4, types=["sound.level"], seed=7))
        self.lines: list[Line] = []
        self.published: list[Event] = []
        self.sent: Counter[str] = Counter()
        self.got: Counter[tuple[str, str]] = Counter()  # (listener, source) → how many events
        self.is_here = dict.fromkeys(LISTENERS, False)
        self.on_line: Callable[[Line], None] = lambda _line: None
        self._step_s = step_s
        self._began_at = time.monotonic()
        self._changed = asyncio.Event()  # another one for each change
        self.crew = Crew(address, step_s, self._note)

    async def live(self) -> None:
        """Let everything happen, and wait until all of it has arrived."""
        try:
            async with asyncio.timeout(STEPS * self._step_s + LATE_S_MAX), AsyncExitStack() as stack:
                for who in ("alarm", "gardener", "console"):
                    await stack.enter_async_context(self._listening(who))
                await stack.enter_async_context(self.crew.working())
                sensors = (self._sense(who, number) for number, who in enumerate(SENSORS))
                await asyncio.gather(self._ledger(), self._guard(), self._camera(), self._mayor(), *sensors)
                await self._until(lambda: not any(self.all_missing().values()))
        except TimeoutError:
            missing = self.all_missing()
            raise InternalError(f"the demo did not end in time; still to come: {missing}") from None

    # Those who publish

    async def _sense(self, who: str, number: int) -> None:
        kind, middle, swing = SENSORS[who]
        delivery = "reliable" if kind == "air.pm10" else "transient"
        await self._until(lambda: self.is_here["ledger"] and self.crew.is_ready)
        async with self._connect(who) as bus:
            for step in range(STEPS):
                value = round(middle + swing * math.sin(number + step / 3), 1)
                event = tidings.Event(kind, value=value, subject=who, delivery=delivery)
                await self._publish(who, bus, event)
                await asyncio.sleep(self._step_s)

    async def _camera(self) -> None:
        """Take pictures while someone wants them."""
        async with self._connect("camera") as bus, bus.advertise("type = 'camera.picture'") as interest:
            self._note("camera", "is silent", "nobody asks for pictures: the console is passive")
            await interest.wait_wanted()
            self._note("camera", "wakes up", f"someone wants {interest.filters[0]}")
            while interest.wanted:
                event = tidings.Event("camera.picture", number=self.sent["camera"] + 1)
                await self._publish("camera", bus, event)
                await asyncio.sleep(self._step_s)
            self._note("camera", "is silent", "nobody wants pictures any more")

    # The city behind the gateway

    async def _mayor(self) -> None:
        """Have sensors register that are off, listen to them for a while, and see them go off again."""
        running = asyncio.ensure_future(self.city.run())
        try:
            await self._look(lambda: running.done() or self._sensors_known() > 0)
            self._note("city", "is silent", f"{self._sensors_known()} sensors have registered, and are off")
            await self._until(lambda: self.sent["quay"] >= MAYOR_FROM)
            await self._hear()
            await self._look(lambda: running.done() or not self._sensors_on())
            self._note("city", "is silent", f"its sensors are off again, after {self.city.tally.readings}")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _hear(self) -> None:
        async with self._connect("mayor") as bus, bus.subscribe(CITY) as events:
            self._note("mayor", "listens", CITY)
            await self._look(lambda: self._sensors_on() > 0)
            self._note("city", "wakes up", f"{self._sensors_on()} sensors were asked for what is above 55")
            for _ in range(HEARINGS):
                event = await anext(events)
                self._note("mayor", "gets", f"{event.type} value={event['value']} of {event['sensing-id']}")
        self._note("mayor", "goes", "it has heard enough")

    def _sensors_known(self) -> int:
        cores = [one.core for group in self.city.groups for one in group.networks if group.link.is_connected]
        return sum(len(core.sensors) for core in cores)

    def _sensors_on(self) -> int:
        return sum(len(one.core.asked) for group in self.city.groups for one in group.networks)

    async def _look(self, is_so: Callable[[], bool]) -> None:
        """Wait for what nobody tells."""
        while not is_so():
            await asyncio.sleep(LOOK_S)

    async def _publish(self, who: str, bus: Bus, event: Event) -> None:
        self.published.append(event)
        self.sent[who] += 1
        self._note(who, "publishes", text_of(event))
        await bus.publish(event)

    # Those who listen

    @asynccontextmanager
    async def _listening(self, who: str) -> AsyncIterator[None]:
        durable = "readings" if who == "ledger" else None
        options = {"durable": durable, "passive": who == "console"}
        async with self._connect(who) as bus, bus.listen(LISTENERS[who], partial(self._got, who), **options):
            self.is_here[who] = True
            self._note(who, "listens", LISTENERS[who] or "to all there is, passively")
            yield
        self.is_here[who] = False

    async def _ledger(self) -> None:
        """Listen, go away for a while, and come back to what was kept."""
        async with self._listening("ledger"):
            await self._until(lambda: self.sent["quay"] >= AWAY_FROM)
        self._note("ledger", "goes", "the node keeps for it what is reliable")
        await self._until(lambda: self.sent["quay"] >= AWAY_TO)
        async with self._listening("ledger"):
            await self._until(
                lambda: all(self.sent[who] == STEPS for who in SENSORS) and not self.missing("ledger")
            )

    async def _guard(self) -> None:
        await self._until(lambda: self.sent["quay"] >= GUARD_FROM)
        async with self._listening("guard"):
            await self._until(lambda: self.total("guard") >= PICTURES)
        self._note("guard", "goes", "it has seen enough")

    def _got(self, who: str, event: Event) -> None:
        self.got[who, event.source or ""] += 1
        if event.source in SOURCES:  # the readings of the city are the mayor's
            self._note(who, "gets", f"{text_of(event)} from {event.source}")

    # What they have in common

    def _connect(self, who: str) -> Bus:
        return tidings.connect(self.address, name=who)

    def _note(self, who: str, does: str, what: str) -> None:
        line = Line(round(time.monotonic() - self._began_at, 3), who, does, what)
        self.lines.append(line)
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_line(line)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._changed.wait()

    def missing(self, who: str) -> int:
        """How many of the events that match its filter a listener has not got."""
        return self._count(LISTENERS[who]) - self.total(who)

    def all_missing(self) -> dict[str, int]:
        """The same for all who stay, and how many jobs are not done."""
        missing = {who: self.missing(who) for who in STAYING}
        return {**missing, "jobs": self._count(WANTED) - self.crew.done}

    def _count(self, filter: str) -> int:
        return sum(map(tidings.Filter(filter).matches, self.published))

    def total(self, who: str) -> int:
        """How many events a listener has got."""
        return sum(self.got[who, source] for source in SOURCES)


def _place(address: str) -> Place:
    """Where a gateway takes connections, as it is told: `tcp HOST:PORT`."""
    host, _, port = address.rpartition(" ")[2].rpartition(":")
    return Place(host, int(port))


# What is shown


def text_of(event: Event) -> str:
    """An event of the demo on one line."""
    return " ".join([event.type, *(f"{name}={value!s}" for name, value in event.attributes.items())])


async def _show(town: Town, json: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    if json:
        town.on_line = lambda line: typer.echo(msgspec.json.encode(line).decode())
        await town.live()
    elif console.is_terminal:
        with Live(screen(town), console=console, auto_refresh=False) as live:
            town.on_line = lambda _line: live.update(screen(town), refresh=True)
            await town.live()
            live.update(screen(town), refresh=True)
    else:
        typer.echo(f"a node at {town.address}")
        town.on_line = typer.echo
        await town.live()
        Console(highlight=False, width=100).print(table(town), crew_table(town.crew), sep="\n")


def screen(town: Town) -> RenderableType:
    """What a terminal shows: who has got what, and what happened last."""
    from rich.console import Group
    from rich.text import Text

    last = town.lines[-LINES_SHOWN:]
    lines = [
        Text(str(line), COLOURS.get(line.does, "cyan"), no_wrap=True, overflow="ellipsis") for line in last
    ]
    head = Text(f"a node at {town.address}", "bold")
    return Group(head, table(town), Text(), crew_table(town.crew), Text(), *lines)


def table(town: Town) -> RenderableType:
    """Who has got how many events of whom."""
    from rich.table import Table
    from rich.text import Text

    grid = Table("who", "filter", box=None, pad_edge=False, header_style="dim")
    for source in (*SOURCES, "all"):
        grid.add_column(source, justify="right")
    for who, filter in LISTENERS.items():
        counts = [str(town.got[who, source] or "·") for source in SOURCES]
        style = "" if town.is_here[who] else "dim"
        grid.add_row(Text(who), Text(filter or "(all)"), *counts, str(town.total(who)), style=style)
    return grid
