"""Several nodes: what goes from one to another, and how soon all of them are asked.

Clients come by the nodes' Unix sockets, as their owner does; the nodes reach each other by TCP, plain or with
TLS. When a message has arrived is told by the message: a queue writes down when it has taken it in.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

import tidings
from benchmarks import peers
from benchmarks.clients import run_within
from benchmarks.load import HOST, WAIT_S_MAX, Child, Pipe
from benchmarks.secured import make_secured
from tidings.client.bus import Bus
from tidings.errors import PeerError
from tidings.event import Event
from tidings.node.config import NodeConfig
from tidings.node.server import Node
from tidings.security.directory import SecurityDirectory
from tidings.security.provision import make_sibling

BODY = b"b" * 150
QUEUE = "jobs"
LIST_SIZE = 1_000
LOOK_S = 0.02
PROCESSES = 4
"""Processes in which the nodes are that are asked."""


def node(port: int, **settings: Any) -> AbstractContextManager[peers.Broker]:
    """A node in a process of its own, with these settings."""
    config = msgspec.json.encode(NodeConfig(port=port, **settings)).decode()
    return peers.running("tidings", port, [sys.executable, "-m", "tidings.node.main", config])


# Store and forward


class Pair:
    """Two nodes, `near` and `far`, of which the first knows the second."""

    def __init__(self, home: Path, is_secured: bool, has_compiled: bool) -> None:
        self._home = home
        self._is_secured = is_secured
        self._has_compiled = has_compiled
        self._ports = {"near": peers.free_port(), "far": peers.free_port()}
        if is_secured:
            make_secured(home / "near.security", "near")
            near = SecurityDirectory(home / "near.security")
            make_sibling(near, home / "far.security", "far", [HOST], datetime.now(UTC))

    def address(self, name: str) -> str:
        """Where clients of a node come to it."""
        return f"tidings+unix://{self._home / name}.sock"

    def node(self, name: str) -> AbstractContextManager[peers.Broker]:
        """One of the nodes, as a process."""
        scheme = "tidings+tls" if self._is_secured else "tidings"
        return node(
            self._ports[name],
            name=name,
            dir=str(self._home / name),
            unix=f"{self._home / name}.sock",
            security=f"{self._home / name}.security" if self._is_secured else None,
            peers=f"far={scheme}://{HOST}:{self._ports['far']}" if name == "near" else None,
            compiled=self._has_compiled,
        )


def forward(home: Path, is_secured: bool, has_compiled: bool, count: int) -> float:
    """Messages a second that arrive at a node, once it is there; they were put while it was not."""
    pair = Pair(home, is_secured, has_compiled)
    with pair.node("far"), Child(make, pair.address("far")) as making:
        making.receive()
    with pair.node("near"):
        with Child(put, pair.address("near"), count) as putting:
            putting.receive()
        with pair.node("far"), Child(gather, pair.address("near"), pair.address("far"), count) as gathering:
            rate: float = gathering.receive()
    return rate


def make(pipe: Pipe, address: str) -> None:
    """Make the queue to which all goes."""
    run_within(_make(pipe, address))


def put(pipe: Pipe, address: str, count: int) -> None:
    """Put so many messages, which are numbered, for a node that is away."""
    run_within(_put(pipe, address, count))


def gather(pipe: Pipe, near: str, far: str, count: int) -> None:
    """Wait until nothing waits at one node; then send how fast it came to the other one, each once."""
    run_within(_gather(pipe, near, far, count))


async def _make(pipe: Pipe, address: str) -> None:
    async with tidings.connect(address) as bus:
        await bus.create_queue(QUEUE)
        pipe.send("done")


async def _put(pipe: Pipe, address: str, count: int) -> None:
    async with tidings.connect(address) as bus:
        queue = await bus.queue(f"{QUEUE}@far")
        for first in range(0, count, LIST_SIZE):
            numbers = range(first, min(first + LIST_SIZE, count))
            await queue.put_all([Event("job", {"n": number}, body=BODY) for number in numbers])
        waiting = await _waiting(bus)
        if waiting != count:
            raise PeerError(f"{waiting} of {count} messages wait to be sent")
        pipe.send("done")


async def _gather(pipe: Pipe, near: str, far: str, count: int) -> None:
    async with tidings.connect(near) as bus, asyncio.timeout(WAIT_S_MAX):
        while await _waiting(bus):
            await asyncio.sleep(LOOK_S)
    async with tidings.connect(far) as bus:
        messages = await (await bus.queue(QUEUE)).get_all()
    numbers = [message["n"] for message in messages]
    if numbers != list(range(count)) or len({message.id for message in messages}) != count:
        raise PeerError(f"{len(set(numbers))} of {count} messages arrived, {len(numbers)} times")
    arrivals = [moment for message in messages if (moment := message.event.received) is not None]
    pipe.send(count / (max(arrivals) - min(arrivals)).total_seconds())


async def _waiting(bus: Bus) -> int:
    return sum(one["waiting"] for one in (await bus.status())["forwarding"])


# Lookup


def lookup_ms(count: int, rounds: int, has_compiled: bool) -> float:
    """Milliseconds that a search takes which asks so many peers; the median."""
    each = [count // PROCESSES + (place < count % PROCESSES) for place in range(PROCESSES)]
    with ExitStack() as stack:
        children = [stack.enter_context(Child(be_nodes, *one)) for one in enumerate(each)]
        known = ", ".join(f"{name}={address}" for child in children for name, address in child.receive())
        home = stack.enter_context(node(peers.free_port(), name="home", peers=known, compiled=has_compiled))
        searching = stack.enter_context(Child(search, home.address, count, rounds))
        took_s: list[float] = searching.receive()
        return 1e3 * median(took_s)


def be_nodes(pipe: Pipe, place: int, count: int) -> None:
    """Be so many nodes, each with a queue; send their names and addresses, and stay until told to leave."""
    run_within(_be_nodes(pipe, [f"node-{place}-{number}" for number in range(count)]))


def search(pipe: Pipe, address: str, count: int, rounds: int) -> None:
    """Search at a node and all of its peers, again and again; send the seconds each took."""
    run_within(_search(pipe, address, count, rounds))


async def _be_nodes(pipe: Pipe, names: list[str]) -> None:
    async with AsyncExitStack() as stack:
        places = []
        for name in names:
            running = Node(NodeConfig(name=name, port=0, compiled=False))
            await running.start()
            stack.push_async_callback(running.close)
            async with tidings.connect(running.addresses[0]) as bus:
                await bus.create_queue(QUEUE, properties={"paper": "A4"})
            places.append((name, running.addresses[0]))
        pipe.send(places)
        await asyncio.to_thread(pipe.poll, 4 * WAIT_S_MAX)  # which ends when the other end is closed


async def _search(pipe: Pipe, address: str, count: int, rounds: int) -> None:
    async with tidings.connect(address) as bus:
        await bus.create_queue(QUEUE, properties={"paper": "A4"})
        async with asyncio.timeout(WAIT_S_MAX):
            while any(peer["state"] != "there" for peer in (await bus.status())["peers"]):
                await asyncio.sleep(LOOK_S)
        took_s = []
        for _ in range(rounds):
            started = time.monotonic()
            found = await bus.lookup(properties={"paper": "A4"}, scope="both")
            took_s.append(time.monotonic() - started)
            if len(found) != count + 1:
                raise PeerError(f"{len(found)} of {count + 1} queues were found")
        pipe.send(took_s)
