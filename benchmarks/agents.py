"""What agents cost: memory at rest, moves, the end of a tree of processes, and an idle `tidings lease run`.

Nodes, and programs with agents, are processes of their own. Moves are measured in the same run as plain
messages of the size of a packed agent, as many side by side: workers at both nodes get each message and put
it to the other node, in one transaction, which is what a move does to the message of an agent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct

import tidings
from benchmarks import neighbours, peers
from benchmarks.clients import run_within
from benchmarks.figures import Figure, Report, gather
from benchmarks.load import HOST, Child, Pipe
from tidings import processes
from tidings.agents import any_of
from tidings.client.agent import Agent
from tidings.client.bus import Bus
from tidings.client.crew import cancel_all
from tidings.client.mobile import MobileAgent, Next, step
from tidings.errors import PeerError
from tidings.event import Event
from tidings.node import compiled
from tidings.processes.keeper import descendants

IDLE = 10_000
MEMORY_MB_MAX = 500.0
TRAVELLERS = 100
"""Agents that move side by side, and clients that put side by side."""
WORKERS = 50
"""Workers of each node that pass plain messages on."""
MOVES = 50
"""Moves of each."""
MOVE_RATIO_MIN = 0.5
TREE = 50
GRACE_S = 1.0
TREE_S_MAX = GRACE_S + 1.0
"""A tree of processes is ended within the grace, and a second for what does not listen."""
LEASE_S = 30.0
IDLE_CPU_S = 60.0
"""How long an idle `lease run` is looked at: two leases."""
IDLE_CPU_MAX = 0.1
SETTLE_S = 2.0
"""Until it is idle."""
LOOK_S = 0.02
PROGRAM = [sys.executable, "-c", "from tidings.cli import main; main()"]
FORKING = f"""
import os, signal, time
for number in range({TREE // 2}):
    if os.fork() == 0:
        os.setsid()
        if number % 5 == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
        time.sleep(600)
print("forked", flush=True)
time.sleep(600)
"""
"""Each of them forks twice into sessions of its own, and every fifth does not listen."""


class Route(Struct):
    """How often an agent moves still, and between which nodes; `load` makes it as large as what is put."""

    left: int
    nodes: list[str]
    load: bytes


class Commuter(MobileAgent, version="1"):
    """Moves to and fro between two nodes."""

    state: Route

    @step
    async def go(self) -> Next | str:
        """Move, until it has done so often enough."""
        route = self.state
        if not route.left:
            return "there"
        route.left -= 1
        return self.move(route.nodes[route.left % 2], "go")


def run(quick: bool, report: Report) -> dict[str, Any]:
    """Measure everything, telling lines of progress; quick: a tenth of the sizes."""
    has_compiled = compiled.is_installed()
    facts = {"quick": quick, "compiled": has_compiled}
    return gather(_figures(10 if quick else 1, has_compiled), facts, report)


def _figures(part: int, has_compiled: bool) -> Iterator[Figure]:
    with TemporaryDirectory(prefix="tidings-bench-") as home:
        yield from _moves(Path(home), max(2, MOVES // part), has_compiled)
    with TemporaryDirectory(prefix="tidings-bench-") as home:
        yield from _idle(Path(home), max(10, IDLE // part), LEASE_S / part, has_compiled)
    yield asyncio.run(_tree())
    with TemporaryDirectory(prefix="tidings-bench-") as home:
        yield _lease_run(Path(home), IDLE_CPU_S / part, has_compiled)


# Agents that are idle


def _idle(home: Path, count: int, seconds: float, has_compiled: bool) -> Iterator[Figure]:
    with ExitStack() as stack:
        node = stack.enter_context(
            neighbours.node(peers.free_port(), dir=str(home / "node"), compiled=has_compiled)
        )
        waiting = stack.enter_context(Child(wait, node.address, count, seconds))
        began_s, held_kb = waiting.receive()
        node_kb = node.memory_kb
        beside = {"node": 1024 * node_kb / 1e6, "their program": 1024 * held_kb / 1e6}
        label, target = f"{count:,} idle agents, node and program together", MEMORY_MB_MAX
        yield Figure(label, "MB", sum(beside.values()), target, beside, less_is_better=True)
        before_s = node.processor_s
        waiting.send("go on")
        program_s, lasted_s = waiting.receive()
        beside = {"node, %": 100 * (node.processor_s - before_s) / lasted_s, "to start them, s": began_s}
        yield Figure(
            "their program while leases are renewed", "% of a core", 100 * program_s / lasted_s, None, beside
        )
        waiting.send("end")
        yield Figure("to end them all", "s", waiting.receive(), None, {})


def wait(pipe: Pipe, address: str, count: int, seconds: float) -> None:
    """Have so many agents that wait, and are looked at for so long."""
    run_within(_wait(pipe, address, count, seconds))


async def _wait(pipe: Pipe, address: str, count: int, seconds: float) -> None:
    async def idle(_agent: Agent) -> None:
        await asyncio.Event().wait()

    async with tidings.connect(address) as bus:
        group = bus.group("idle", any_of("nobody"), lease_s=LEASE_S)
        async with group:
            started = time.monotonic()
            for first in range(0, count, 100):
                names = range(first, min(first + 100, count))
                await asyncio.gather(*(group.spawn(idle, name=f"{name}") for name in names))
            pipe.send((time.monotonic() - started, peers.memory_kb(os.getpid())))
            await asyncio.to_thread(pipe.recv)
            before, started = time.process_time(), time.monotonic()
            await asyncio.sleep(seconds)
            pipe.send((time.process_time() - before, time.monotonic() - started))
            await asyncio.to_thread(pipe.recv)
            started = time.monotonic()
            await group.stop()
        pipe.send(time.monotonic() - started)


# Moves


def _moves(home: Path, moves: int, has_compiled: bool) -> Iterator[Figure]:
    names = "near", "far"
    ports = {name: peers.free_port() for name in names}
    with ExitStack() as stack:
        nodes = {}
        for name, other in (names, names[::-1]):
            nodes[name] = stack.enter_context(
                neighbours.node(
                    ports[name],
                    name=name,
                    dir=str(home / name),
                    peers=f"{other}=tidings://{HOST}:{ports[other]}",
                    compiled=has_compiled,
                )
            )
        addresses = {name: node.address for name, node in nodes.items()}
        locations = [stack.enter_context(Child(locate, address)) for address in addresses.values()]
        for location in locations:
            location.receive()
        travelling = stack.enter_context(Child(travel, addresses, moves))
        put_rate, passed_rate, move_rate = travelling.receive()
        beside = {"moves/s": move_rate, "messages/s": passed_rate}
        label = "moves over plain messages that are got and put to the other node"
        yield Figure(label, "×", move_rate / passed_rate, MOVE_RATIO_MIN, beside)
        beside = {"moves/s": move_rate, "puts/s": put_rate}
        yield Figure("moves over forwarded puts that nobody gets", "×", move_rate / put_rate, None, beside)


def locate(pipe: Pipe, address: str) -> None:
    """Be a location until told to leave."""
    run_within(_locate(pipe, address))


async def _locate(pipe: Pipe, address: str) -> None:
    async with tidings.connect(address) as bus, bus.location(Commuter):
        pipe.send("there")
        await asyncio.to_thread(pipe.poll, 600.0)  # which ends when the other end is closed


def travel(pipe: Pipe, addresses: dict[str, str], moves: int) -> None:
    """Put messages from node to node, then have agents move."""
    run_within(_travel(pipe, addresses, moves))


async def _travel(pipe: Pipe, addresses: dict[str, str], moves: int) -> None:
    async with AsyncExitStack() as stack:
        near, far = [await stack.enter_async_context(tidings.connect(one)) for one in addresses.values()]
        for bus in (near, far):
            while any(one["state"] != "there" for one in (await bus.status())["peers"]):
                await asyncio.sleep(LOOK_S)
        put_rate = await _puts(near, far, moves)
        passed_rate = await _passed_on(near, far, moves)
        pipe.send((put_rate, passed_rate, await _commutes(near, moves)))


async def _puts(near: Bus, far: Bus, count: int) -> float:
    """Messages a second that arrive at the other node; clients put them one by one, side by side."""
    arrived = await far.create_queue("jobs")
    queue = await near.queue("jobs@far")
    body = b"s" * 600

    async def put() -> None:
        for _ in range(count):
            await queue.put(Event("job", {"n": 1}, body=body))

    started = time.monotonic()
    await asyncio.gather(*(put() for _ in range(TRAVELLERS)))
    while (await arrived.describe()).messages < count * TRAVELLERS:
        await asyncio.sleep(LOOK_S)
    rate = count * TRAVELLERS / (time.monotonic() - started)
    await arrived.get_all()
    return rate


async def _passed_on(near: Bus, far: Bus, count: int) -> float:
    """Messages a second that go to and fro; a worker gets each and puts it, in one transaction."""
    left = count * TRAVELLERS
    is_over = asyncio.Event()

    async def work(bus: Bus, other: str) -> None:
        nonlocal left
        while left > 0:
            async with bus.transaction() as transaction:
                message = await transaction.get("passed")
                await transaction.put(f"passed@{other}", "job", {"n": message["n"]}, body=message.event.body)
            left -= 1
        is_over.set()

    for bus in (near, far):
        await bus.create_queue("passed")
    queue = await near.queue("passed")
    started = time.monotonic()
    await queue.put_all([Event("job", {"n": one}, body=b"s" * 600) for one in range(TRAVELLERS)])
    working = [
        asyncio.ensure_future(work(bus, other))
        for bus, other in ((near, "far"), (far, "near"))
        for _ in range(WORKERS)
    ]
    await is_over.wait()
    rate = count * TRAVELLERS / (time.monotonic() - started)
    await cancel_all(working)
    return rate


async def _commutes(near: Bus, moves: int) -> float:
    """Moves a second of agents between two nodes, side by side, from the start to the last result."""
    async with near.group("commuters", lease_s=600.0) as group:
        route = Route(moves, ["near", "far"], b"s" * 300)
        started = time.monotonic()
        await asyncio.gather(*(group.start(Commuter, route, name=f"{one}") for one in range(TRAVELLERS)))
    took_s = time.monotonic() - started
    if set(group.results.values()) != {"there"}:
        raise PeerError(f"not all agents arrived: {group.info.reason} {group.info.problem}")
    return TRAVELLERS * moves / took_s


# Processes


async def _tree() -> Figure:
    process = processes.start(sys.executable, "-c", FORKING)
    await process.open()
    await process.readline()
    below = descendants(process.pid)
    while len(below) <= TREE:  # the program itself is one more
        await asyncio.sleep(LOOK_S)
        below = descendants(process.pid)
    started = time.monotonic()
    ended = await process.end("measured", GRACE_S)
    took_s = time.monotonic() - started
    left = [pid for pid in below if Path(f"/proc/{pid}").exists()]
    if left:
        raise PeerError(f"{len(left)} of {len(below)} processes are left")
    beside = {"killed": float(ended.killed), "grace, s": GRACE_S}
    label = f"{TREE} processes that forked twice, to be gone"
    return Figure(label, "s", took_s, TREE_S_MAX, beside, less_is_better=True)


def _lease_run(home: Path, seconds: float, has_compiled: bool) -> Figure:
    """Processor time of the command and its keeper, while the program that it runs sleeps."""
    with neighbours.node(peers.free_port(), dir=str(home / "node"), compiled=has_compiled) as node:
        command = [
            *PROGRAM,
            "lease",
            "run",
            "--lease",
            f"{LEASE_S}",
            "--node",
            node.address,
            "--",
            "sleep",
            "600",
        ]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not any("sleep" in _command(pid) for pid in descendants(process.pid)):
                time.sleep(LOOK_S)
            time.sleep(SETTLE_S)
            pids = [process.pid, *descendants(process.pid)]
            before, started = sum(map(_processor_s, pids)), time.monotonic()
            time.sleep(seconds)
            used = (sum(map(_processor_s, pids)) - before) / (time.monotonic() - started)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60.0)
    label = f"an idle 'tidings lease run', in {seconds:g} s"
    return Figure(label, "% of a core", 100 * used, IDLE_CPU_MAX, {}, less_is_better=True)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _processor_s(pid: int) -> float:
    """Processor time that a process has taken, as the scheduler counts it: clock ticks are too coarse."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9
