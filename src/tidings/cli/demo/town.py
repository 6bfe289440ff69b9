"""The whole system at work: a node with its gateway, a city, citizens, workers, and Spark.

All parts talk to the node over TCP, as if each were on a machine of its own. Workers, gateway and Spark are
separate processes. The node is on the usual ports, or on free ones if those are in use.

There may be several nodes, linked in a line. People are at the first, the sensors at the last, and the others
lie between: demand crosses the links one way, readings and alarms the other. Spark reads the log of the last,
since an event is in the log of the node that took it in.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import tidings
from tidings.cli.demo.child import beside
from tidings.cli.demo.people import ALARMS, LEDGER, READINGS, DemoWorkers, Mayor, People, text_of
from tidings.cli.demo.query import Query, Said
from tidings.cli.demo.views import Figures, Line, Note, Summary, Update, judged
from tidings.client import Bus
from tidings.errors import InternalError
from tidings.event import Event
from tidings.node.config import PORT, NodeConfig
from tidings.node.server import Node
from tidings.overlay.drawing import text
from tidings.overlay.records import NodeRecord
from tidings.sensors.city import Load
from tidings.sensors.link import GatewayPlace
from tidings.sensors.simulation import Simulation

LOAD = Load(networks=120, sensors=6, readings=2, rate=2.0, connections=12, smog=12, mobility=12.0, seed=7)
LOOK_S = 0.1
FIGURES_S = 1.0
STOP_S = 15.0
"""Time from the stop of the query to the end of the demo, in which its sensors can be seen to go off."""
OFF_S_MAX = 60.0
"""Longest time for sensors to go off: longer than the lease of a query that could not disconnect cleanly."""
HOST = "127.0.0.1"
SENSOR_PORT, HTTP_PORT = 4242, 7380

Ports = tuple[list[int], list[int]]
"""Ports of the node, its gateway and its metrics; and the usual ports in use."""


# The node


class Home(Struct, frozen=True):
    """Addresses and folder of the demo's node, and the usual ports that are in use.

    `others` are the addresses of further nodes, in the order of their links; the last one has the sensors.
    `picture` shows how they are linked.
    """

    address: str
    gateway: str
    metrics: str
    folder: Path
    busy: list[int]
    others: tuple[str, ...] = ()
    picture: str = ""

    @property
    def sensing(self) -> str:
        """Address of the node that has the sensors."""
        return self.others[-1] if self.others else self.address


@asynccontextmanager
async def home(ports: Ports | None = None, nodes: int = 1) -> AsyncIterator[Home]:
    """Run linked nodes in a temporary folder, the first with metrics, the last with a gateway.

    The ports are as of `choose`; those of further nodes are free ones.
    """
    (port, sensor_port, http_port), busy = choose() if ports is None else ports
    with TemporaryDirectory(prefix="tidings-demo-", ignore_cleanup_errors=True) as folder:
        async with AsyncExitStack() as stack:
            started: list[Node] = []  # from the last one: each dials the next
            for number in range(nodes, 0, -1):
                config = NodeConfig(
                    dir=f"{folder}/node-{number}",
                    name="demo" if number == 1 else f"demo-{number}",
                    host=HOST,
                    port=port if number == 1 else 0,
                    peers=f"demo-{number + 1}={started[-1].addresses[0]}" if started else None,
                    sensor_port=sensor_port if number == nodes else None,
                    http_port=http_port if number == 1 else None,
                    compiled=False,  # compiling takes longer than it saves here
                    log_level="error",
                )
                node = Node(config)
                await node.start()
                stack.push_async_callback(node.close)
                started.append(node)
            first, last = started[-1], started[0]
            addresses = [node.addresses[0] for node in reversed(started)]
            yield Home(
                addresses[0],
                last.sensor_addresses[0],
                first.metrics_address or "",
                Path(folder),
                busy,
                tuple(addresses[1:]),
                await linked(addresses) if nodes > 1 else "",
            )


async def linked(addresses: list[str]) -> str:
    """Wait until the first of these nodes knows that all are linked; return a picture of the network."""
    async with tidings.connect(addresses[0], name="console") as bus:
        while True:
            reply = await bus.topology()
            records = msgspec.convert(reply["records"], list[NodeRecord])
            is_up = all(link.is_up for record in records for link in record.links)
            if len(reply["tree"]) == len(addresses) - 1 and is_up:
                return text(records, reply["node"])
            await asyncio.sleep(LOOK_S)


def choose(node: int = PORT, sensors: int = SENSOR_PORT, http: int = HTTP_PORT) -> Ports:
    """Return the given ports, each replaced by 0, a free one, if it is in use; and those in use."""
    kinds = {node: [socket.SOCK_STREAM], sensors: [socket.SOCK_STREAM, socket.SOCK_DGRAM]}
    kinds[http] = [socket.SOCK_STREAM]
    busy = [port for port, ways in kinds.items() if not all(_is_free(port, way) for way in ways)]
    return [0 if port in busy else port for port in (node, sensors, http)], busy


def _is_free(port: int, way: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_INET, way) as channel, suppress(OSError):
        if way == socket.SOCK_STREAM:  # as servers do, which don't wait for old connections to time out
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        channel.bind((HOST, port))
        return True
    return False


# Everything around it


class City:
    """Simulated sensors behind the gateway, silent until their readings are requested.

    In one corner the air is bad, so that alarms are raised.
    """

    def __init__(self, gateway: str, note: Note) -> None:
        """`gateway` is the address for sensor networks as a node reports it: `tcp HOST:PORT`."""
        host, _, port = gateway.rpartition(" ")[2].rpartition(":")
        self.simulation = Simulation(GatewayPlace(host, int(port)), LOAD)
        self._note = note
        self._is_noted_silent = False

    @property
    def sensors(self) -> int:
        """Number of sensors that are registered at the gateway."""
        there = (group for group in self.simulation.groups if group.link.is_connected)
        return sum(len(one.core.sensors) for group in there for one in group.networks)

    @property
    def on(self) -> int:
        """Number of sensors that are on."""
        return sum(len(one.core.asked) for group in self.simulation.groups for one in group.networks)

    async def watch(self) -> None:
        """Note when the sensors have registered, go on and go off, until cancelled."""
        all_of_them = LOAD.networks * LOAD.sensors
        await self._until(lambda: self.sensors == all_of_them)
        self._note("city", "is silent", f"{all_of_them:,} sensors have registered, and are off: nobody asks")
        self._is_noted_silent = True
        while True:
            await self._until(lambda: self.on > 0)
            self._is_noted_silent = False
            await self._settle()
            self._note("city", "wakes up", f"{self.on:,} of its sensors were asked for their readings")
            await self._until(lambda: self.on == 0)
            sent = self.simulation.tally.readings
            self._note("city", "is silent", f"its sensors are off again, after {sent:,} readings")
            self._is_noted_silent = True

    async def _settle(self) -> None:
        """Wait until the number of sensors that are on stays the same."""
        before = 0
        while before != self.on:
            before = self.on
            await asyncio.sleep(LOOK_S)

    async def wait_silent(self) -> None:
        """Wait until all sensors have registered and are off, and `watch` has noted that."""
        await self._until(lambda: self._is_noted_silent and self.on == 0)

    async def wait_sending(self) -> None:
        """Wait until sensors are on and have sent readings."""
        await self._until(lambda: self.on > 0 and self.simulation.tally.readings > 0)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Poll a condition of which sensors send no notice."""
        while not is_so():
            await asyncio.sleep(LOOK_S)


class Town:
    """Whole system of the demo, with Spark or, if not `spark`, a mayor who requests the readings.

    `show` is called with each occurrence, and with the figures of each second.
    """

    def __init__(self, home: Home, spark: bool, show: Callable[[Update], None]) -> None:
        self._show = show
        self._began_at = time.monotonic()
        self._last = Figures(at_s=self._began_at)  # of the node
        self._alarms = 0
        self._has_alarm = asyncio.Event()
        self._home = home
        self._people = People(home.address, self.note)
        self._city = City(home.gateway, self.note)
        self._crew = DemoWorkers(home.address, self.note)
        self._query = Query(home.sensing, home.folder / "spark", self.note) if spark else None
        self._asker = self._query or Mayor(home.address, home.sensing, self.note)
        self._buses: list[Bus] = []  # one at each node, the first one first

    def note(self, who: str, does: str, what: str) -> None:
        """Show an occurrence."""
        self._show(Line(self._now(), who, does, what))

    def _now(self) -> float:
        return round(time.monotonic() - self._began_at, 3)

    async def live(self, wait: Callable[[], Awaitable[object]], needs_query: bool = True) -> Summary:
        """Run all parts until `wait` returns; then stop the query, see the sensors go off, and sum up.

        If the query fails, its error ends the demo, unless `needs_query` is false.
        """
        people, crew, city = self._people, self._crew, self._city
        async with AsyncExitStack() as stack:
            for address in (self._home.address, *self._home.others):
                bus = tidings.connect(address, name="console")
                self._buses.append(await stack.enter_async_context(bus))
            await stack.enter_async_context(self._buses[0].listen(ALARMS, self._hear))
            duties = (
                city.simulation.run(),
                city.watch(),
                people.report(lambda: crew.is_ready),
                people.keep_ledger(),
                people.watch(),
            )
            async with beside(self._ask(needs_query), crew.work(), self._look(), *duties):
                await wait()
                return await self._wind_down()

    async def wait(self, seconds: float, late_s_max: float) -> None:
        """Wait until it is time to stop; if nothing has come by then, up to `late_s_max` longer for it.

        With Spark that is an alarm, otherwise a reading.
        """
        await asyncio.sleep(max(seconds - STOP_S, seconds / 2) - self._now())
        first = self._city.wait_sending() if self._query is None else self._has_alarm.wait()
        await _within(late_s_max, first)

    async def _ask(self, needs_query: bool) -> None:
        """Request readings until `_wind_down` stops that."""
        if self._query is None:  # Spark takes long enough to start
            await self._city.wait_silent()
        try:
            await self._asker.run()
        except InternalError as error:
            if needs_query:
                raise
            self.note("spark", "fails", str(error))

    async def _wind_down(self) -> Summary:
        """Stop requesting readings, wait until the sensors are off, and sum up."""
        city, on = self._city, self._city.on
        await self._asker.stop()
        await _within(OFF_S_MAX, city.wait_silent())
        figures = await self._figure()
        readings = [position async for position, _event in self._buses[-1].log.read(where=READINGS)]
        return judged(
            Summary(
                seconds=figures.at_s,
                spark=self._query is not None,
                readings_logged=len(readings),
                log_bytes=figures.log_bytes,
                alarms=self._alarms,
                sensors_on=on,
                sensors_left_on=city.on,
                jobs_done=figures.jobs_done,
                redelivered=figures.redelivered,
                killed=figures.killed,
                matches=self._people.matches,
                nodes=figures.nodes,
                relayed=figures.relayed,
            )
        )

    # Occurrences and figures

    def _hear(self, event: Event) -> None:
        """Count and show an alarm that came back."""
        self._alarms += 1
        self._has_alarm.set()
        self.note("alarm", "comes", text_of(event))

    async def _look(self) -> None:
        while True:
            self._show(await self._figure())
            await asyncio.sleep(FIGURES_S)

    async def _figure(self) -> Figures:
        """Return the present figures, with the rates since the last ones."""
        seen, crew, query = await self._look_at_nodes(), self._crew, self._query
        last = Said() if query is None else query.last
        return replace(
            seen,
            at_s=self._now(),
            sensors=self._city.sensors,
            sensors_on=self._city.on,
            jobs_waiting=crew.waiting,
            jobs_in_hand=crew.in_hand,
            jobs_done=crew.done,
            redelivered=crew.redelivered,
            killed=crew.killed,
            ledger_got=self._people.ledger_got,
            spark=query is not None,
            batches=0 if query is None else query.batches,
            rows=0 if query is None else query.rows,
            rows_per_s=last.rows_s,
            lag=last.lag,
            alarms=self._alarms,
        )

    async def _look_at_nodes(self) -> Figures:
        """Return the figures of the nodes, from their status, which makes no sensor go on.

        What is published is counted at the first node, where events of the others arrive that it wants.
        """
        statuses = [await bus.status() for bus in self._buses]
        status = statuses[0]
        before, now = self._last, time.monotonic()
        elapsed_s = max(now - before.at_s, 1e-9)
        published = _counted([status], "published")
        # Little but the log is stored here: with several nodes also what waits for a neighbour.
        logged = sum(one["log"]["end"] - 1 for one in statuses)
        self._last = Figures(
            at_s=now,
            published=published,
            published_per_s=(published - before.published) / elapsed_s,
            logged=logged,
            logged_per_s=(logged - before.logged) / elapsed_s,
            log_bytes=sum(one["log"]["bytes"] for one in statuses),
            nodes=len(statuses),
            links_up=sum(link["state"] == "up" for one in statuses for link in one["links"]) // 2,
            relayed=_counted(statuses, "relayed"),
            ledger_waiting=sum(one["depth"] for one in status["durables"] if one["name"] == LEDGER),
        )
        return self._last


def _counted(statuses: list[dict[str, Any]], what: str) -> int:
    """Return how often something has happened at all these nodes."""
    return sum(times for one in statuses for counted, _reason, times in one["counts"] if counted == what)


async def _within(seconds: float, coroutine: Coroutine[Any, Any, object]) -> None:
    """Wait for a coroutine, at most so many seconds."""
    with suppress(TimeoutError):
        await asyncio.wait_for(coroutine, seconds)
