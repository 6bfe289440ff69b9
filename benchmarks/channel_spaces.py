"""What it costs to search the spaces of several nodes as one, and whether each entry is taken once.

The nodes run in the loop of the measurement. Each peer is reached through a proxy that delays what it passes,
the last one the longest, so the time of a search is that of its round trips and not of one processor.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median

import tidings
from benchmarks.clients import run_within
from benchmarks.figures import Figure
from benchmarks.load import HOST
from tidings.client import Bus
from tidings.client.federated import FederatedSpace
from tidings.errors import PeerError, QueueEmpty
from tidings.node.config import NodeConfig
from tidings.node.server import Node

SEARCHED = 10
"""Nodes that are searched, that of the client among them."""
DELAY_S = 0.01
"""Delay of the nearest peer in each direction; the next ones have twice that, three times, and so on."""
READS = 20
READ_MAX = 1.5
SHARED = 5
"""Nodes at which entries are taken."""
ENTRIES = 1_000
TAKERS = 50

SPACE = "trip"


def space_figures(quick: bool) -> list[Figure]:
    """Measure everything."""
    figures: list[Figure] = []

    async def measure() -> None:
        figures.append(await read_figure(3 if quick else READS))
        figures.append(await take_figure(ENTRIES // (10 if quick else 1)))

    run_within(measure())
    return figures


async def read_figure(reads: int) -> Figure:
    """Compare a read at all nodes with one at the slowest, which alone has the entry."""
    async with federation(SEARCHED, DELAY_S) as spaces:
        home, slowest = spaces[0], spaces[-1]
        await slowest.own.write(("seen", "heron"))
        name = f"n{SEARCHED - 1}"
        await home.read(("seen", str))  # all peers are known from now on
        alone = await _time(reads, lambda: home.read(("seen", str), at=name))
        all_of_them = await _time(reads, lambda: home.read(("seen", str)))
    about = {"all, ms": all_of_them * 1_000, "the slowest, ms": alone * 1_000}
    what = f"a read of {SEARCHED} nodes over that of the slowest"
    return Figure(what, "×", all_of_them / alone, READ_MAX, about, less_is_better=True)


async def take_figure(count: int) -> Figure:
    """Have takers at all nodes take all entries; PeerError unless each is taken once."""
    taken: Counter[int] = Counter()
    async with federation(SHARED, 0.0) as spaces:
        for number in range(count):
            await spaces[number % SHARED].own.write(("job", number))

        async def take(space: FederatedSpace) -> None:
            while sum(taken.values()) < count:
                try:
                    taken[(await space.take(("job", int), timeout_s=0))[1]] += 1
                except QueueEmpty:
                    await asyncio.sleep(0)

        started = time.perf_counter()
        await asyncio.gather(*(take(spaces[0]) for _ in range(TAKERS)))
        rate = count / (time.perf_counter() - started)
    if taken != Counter(dict.fromkeys(range(count), 1)):
        raise PeerError(f"{count} entries were taken {taken.total()} times")
    return Figure(f"entries of {SHARED} nodes taken once by {TAKERS} takers", "/s", rate, None, {})


async def _time(count: int, act: Callable[[], Awaitable[object]]) -> float:
    """Return the median time of something."""
    found: list[float] = []
    for _ in range(count):
        started = time.perf_counter()
        await act()
        found.append(time.perf_counter() - started)
    return median(found)


@asynccontextmanager
async def federation(count: int, delay_s: float) -> AsyncIterator[list[FederatedSpace]]:
    """Nodes that are peers of the first; a federated space at each of them."""
    async with AsyncExitStack() as stack:
        peers: dict[str, str] = {}
        buses: list[Bus] = []
        for number in range(count - 1, -1, -1):
            name = f"n{number}"
            known = ",".join(f"{one}={at}" for one, at in peers.items()) if number == 0 else None
            node = Node(NodeConfig(name=name, port=0, host=HOST, peers=known, compiled=False))
            await node.start()
            stack.push_async_callback(node.close)
            own = int(node.addresses[0].rpartition(":")[2])
            port = await stack.enter_async_context(delayed(own, number * delay_s))
            peers[name] = f"tidings://{HOST}:{port}"
            buses.insert(0, await stack.enter_async_context(tidings.connect(node.addresses[0])))
        while sum(one["state"] == "there" for one in (await buses[0].status())["peers"]) < count - 1:
            await asyncio.sleep(0.01)
        first = await buses[0].space(SPACE, federated=True)
        others = [await bus.space(SPACE, federated=True) for bus in buses[1:]]
        yield [first, *others]


@asynccontextmanager
async def delayed(port: int, delay_s: float) -> AsyncIterator[int]:
    """Pass on what comes to a port of its own, so much later; yields that port."""
    tasks: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            loop.call_later(delay_s, writer.write, data)
        loop.call_later(delay_s, writer.close)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, port)
        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = loop.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, HOST, 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in tasks:
            task.cancel()
