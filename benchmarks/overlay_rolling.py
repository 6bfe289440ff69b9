"""A rolling restart of five nodes under load: each is drained, stopped and started again, in turn.

The nodes are processes, linked in a ring. At each of them is a publisher, which goes to a neighbour when its
node is drained, and a durable subscriber to everything, which stays. The checker knows what each publisher
has sent and when that was due, and what each subscriber got of it. The publishers keep a part of the rate
that the five nodes keep undisturbed in the same run; delays are counted from when an event was due, so a
publisher that has to wait shortens nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tidings
from benchmarks import load, neighbours, peers
from benchmarks.clients import run_within
from benchmarks.figures import Figure
from tidings import Event
from tidings.client import Bus
from tidings.errors import PeerError

NODES = 5
PIECE = 10
"""Events that a publisher sends at once."""
LOOK_S = 0.05
CAPACITY_S = 3.0
"""How long the publishers send as fast as they can, to find the rate that the nodes keep."""
BEFORE_S = 5.0
"""How long delays are measured before the restarts."""
PART = 1 / 3
"""Part of that rate that the publishers keep."""
DELAY_MAX = 20.0
"""The 99th percentile of delays during the restarts, as a multiple of that before."""


class RollingNodes:
    """Five nodes in a ring, as processes, with their directories."""

    def __init__(self, home: Path, has_compiled: bool) -> None:
        self._home = home
        self._has_compiled = has_compiled
        self._ports = [peers.free_port() for _ in range(NODES)]
        self._running: dict[int, ExitStack] = {}

    def address(self, number: int) -> str:
        """Where a node is found."""
        return f"tidings://{load.HOST}:{self._ports[number]}"

    def settings(self, number: int) -> dict[str, Any]:
        """Return the settings of a node, which dials the next one."""
        following = (number + 1) % NODES
        return {
            "port": self._ports[number],
            "name": f"n{number}",
            "dir": str(self._home / f"n{number}"),
            "peers": f"n{following}={self.address(following)}",
            "compiled": self._has_compiled,
        }

    async def start(self, number: int) -> None:
        """Start a node."""
        self._running[number] = stack = ExitStack()
        begin = partial(stack.enter_context, neighbours.node(**self.settings(number)))
        await asyncio.get_running_loop().run_in_executor(None, begin)

    async def stop(self, number: int) -> None:
        """Stop a node in good order."""
        await asyncio.get_running_loop().run_in_executor(None, self._running.pop(number).close)

    async def stop_all(self) -> None:
        """Stop those that run."""
        for number in list(self._running):
            await self.stop(number)


class RollingCheck:
    """What each publisher has sent and when it was due, and what each subscriber has got of it."""

    def __init__(self) -> None:
        self.due: list[list[float]] = [[] for _ in range(NODES)]
        self.got: dict[tuple[int, int], list[int]] = {
            pair: [] for pair in product(range(NODES), range(NODES))
        }  # by subscriber and publisher
        self.delays: list[tuple[float, float]] = []  # when it was due, and how long it took
        self.rate: float | None = None  # of all publishers together; None: as fast as they can, 0: they wait
        self.is_over = False

    async def publish(self, bus: Bus, number: int) -> None:
        """Publish at the rate that there is, until it is over; what is late is sent at once."""
        due = time.monotonic()
        while not self.is_over:
            rate, now = self.rate, time.monotonic()
            if rate == 0.0:
                await asyncio.sleep(LOOK_S)
                due = time.monotonic()
                continue
            due = now if rate is None else due + PIECE * NODES / rate
            if due > now:
                await asyncio.sleep(due - now)
            sent = self.due[number]
            first = len(sent)
            sent += [due] * PIECE
            events = [
                Event("t", {"of": number, "n": n}, delivery="reliable") for n in range(first, len(sent))
            ]
            await bus.publish_all(events)

    async def subscribe(self, bus: Bus, number: int, is_ready: asyncio.Event) -> None:
        """Take all that there is."""
        async with bus.subscribe("n >= 0", durable="all") as events:
            await events.in_force()
            is_ready.set()
            async for event in events:
                of, n = event["of"], event["n"]
                self.got[number, of].append(n)
                due = self.due[of][n]
                self.delays.append((due, time.monotonic() - due))

    @property
    def sent(self) -> int:
        """Events that were sent."""
        return sum(map(len, self.due))

    @property
    def is_level(self) -> bool:
        """Whether all subscribers have as many events as were sent."""
        return all(len(got) >= len(self.due[of]) for (_, of), got in self.got.items())

    def problems(self) -> list[str]:
        """Name the streams in which something is lost, doubled or out of order."""
        return [
            f"of {len(self.due[of])} events of publisher {of}, subscriber {by} got {len(got)}"
            for (by, of), got in self.got.items()
            if got != list(range(len(self.due[of])))
        ]

    def percentile_ms(self, since: float, until: float, part: float = 0.99) -> float:
        """Return how long the events took that were due between two moments."""
        found = sorted(took for due, took in self.delays if since <= due < until)
        if not found:
            raise PeerError("no event was due while delays were measured")
        return 1e3 * found[min(len(found) - 1, int(part * len(found)))]


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(LOOK_S)


async def wait_linked(bus: Bus) -> None:
    """Wait until all nodes are in one tree, and the links of this one are there."""
    while True:
        told = await bus.topology()
        if len(told["tree"]) == NODES - 1 and all(one["state"] != "cut" for one in told["links"]):
            return
        await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def running(nodes: RollingNodes) -> AsyncIterator[None]:
    """Run all nodes."""
    try:
        for number in range(NODES):
            await nodes.start(number)
        yield
    finally:
        await nodes.stop_all()


@asynccontextmanager
async def checked(nodes: RollingNodes, rate: float | None) -> AsyncIterator[RollingCheck]:
    """Publishers and subscribers at all nodes; at the end all that was sent has to arrive."""
    check = RollingCheck()
    check.rate = rate
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        buses = [
            await stack.enter_async_context(tidings.connect(nodes.address(number), name=f"{kind}{number}"))
            for kind in ("sub", "pub")
            for number in range(NODES)
        ]
        await wait_linked(buses[0])
        ready = [asyncio.Event() for _ in range(NODES)]
        readers = [
            group.create_task(check.subscribe(buses[number], number, ready[number]))
            for number in range(NODES)
        ]
        for one in ready:
            await one.wait()
        writers = [group.create_task(check.publish(buses[NODES + number], number)) for number in range(NODES)]
        yield check
        check.is_over = True
        await asyncio.gather(*writers)
        await _until(lambda: check.is_level)
        for reader in readers:
            reader.cancel()


async def restart_all(nodes: RollingNodes) -> None:
    """Drain, stop and start each node; go on with the next when its links are there."""
    for number in range(NODES):
        async with tidings.connect(nodes.address(number), name="operator") as bus:
            while not (await bus.drain_node())["done"]:
                await asyncio.sleep(LOOK_S)
        await nodes.stop(number)
        await nodes.start(number)
        async with tidings.connect(nodes.address(number), name="operator") as bus:
            await wait_linked(bus)


def figures(quick: bool, has_compiled: bool) -> Iterator[Figure]:
    """Measure a rolling restart; quick: the rate that the nodes keep is sought for a shorter time."""
    found: list[Figure] = []
    with TemporaryDirectory(prefix="tidings-bench-") as home:
        nodes = RollingNodes(Path(home), has_compiled)
        run_within(_measured(nodes, CAPACITY_S / 3 if quick else CAPACITY_S, found))
    yield from found


async def _measured(nodes: RollingNodes, seconds: float, found: list[Figure]) -> None:
    async with running(nodes), checked(nodes, None) as check:
        begun = time.monotonic()
        await asyncio.sleep(seconds)
        check.rate = 0.0
        await _until(lambda: check.is_level)
        kept = check.sent / (time.monotonic() - begun)
        check.rate = rate = PART * kept
        before = time.monotonic()
        await asyncio.sleep(BEFORE_S)
        during = time.monotonic()
        await restart_all(nodes)
        after = time.monotonic()
        await asyncio.sleep(1.0)
    problems = check.problems()
    if problems:
        raise PeerError(f"events were lost, doubled or out of order: {problems[:3]}")
    calm, busy = check.percentile_ms(before, during), check.percentile_ms(during, after)
    beside = {
        "undisturbed, events/s": kept,
        "during it, events/s": rate,
        "before it, ms": calm,
        "during it, ms": busy,
        "it took, s": after - during,
    }
    name = f"rolling restart of {NODES} nodes, 99th percentile of delays over that before"
    found.append(Figure(name, "×", busy / calm, DELAY_MAX, beside, less_is_better=True))
