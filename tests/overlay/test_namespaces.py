"""Five real nodes in network namespaces: one is killed, a link is cut, the network falls into two parts.

A publisher and a durable subscriber at each node; the checker knows what each has sent and got. Nothing is
lost, doubled or out of order, and meanwhile events flow between all nodes that can reach each other.

With TIDINGS_PICTURES=DIR the network is drawn to DIR after each step, as `docs/results.md` shows it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import msgspec
import pytest
from effort import IS_SOAK
from guarantees.peered import run_within
from overlay.namespaces import NetworkOfNamespaces, are_allowed

from tidings import Event
from tidings.client import Bus
from tidings.overlay.drawing import svg
from tidings.overlay.records import NodeRecord

NODES = 5
ALL = range(1, NODES + 1)
RING = [(number, number % NODES + 1) for number in ALL]
MORE = 20
"""Events of each publisher that have to arrive before the next thing happens."""
PAUSE_S = 0.02


class Checker:
    """What each publisher has sent, and what each subscriber has got of it."""

    def __init__(self) -> None:
        self.sent = dict.fromkeys(ALL, 0)
        self.got: dict[tuple[int, int], list[int]] = {pair: [] for pair in product(ALL, ALL)}  # by, of
        self.is_over = asyncio.Event()

    async def publish(self, bus: Bus, number: int) -> None:
        """Publish until it is over."""
        while not self.is_over.is_set():
            event = Event("t", {"of": number, "n": self.sent[number]}, delivery="reliable")
            self.sent[number] += 1
            await bus.publish(event)
            await asyncio.sleep(PAUSE_S)

    async def subscribe(self, bus: Bus, number: int, is_ready: asyncio.Event) -> None:
        """Take all that there is."""
        async with bus.subscribe("n >= 0", durable="all") as events:
            await events.in_force()
            is_ready.set()
            async for event in events:
                self.got[number, event["of"]].append(event["n"])

    async def wait_flow(self, *parts: Iterable[int]) -> None:
        """Wait until within each part all subscribers get new events of all publishers."""
        pairs = [pair for part in parts for pair in product(part, repeat=2)]
        goals = {pair: self.sent[pair[1]] + MORE for pair in pairs}
        while any(len(self.got[pair]) < goal for pair, goal in goals.items()):
            await asyncio.sleep(PAUSE_S)

    async def wait_all(self) -> None:
        """Wait until everybody has everything."""
        while any(len(got) < self.sent[of] for (_, of), got in self.got.items()):
            await asyncio.sleep(PAUSE_S)

    @property
    def counts(self) -> dict[tuple[int, int], int]:
        """How many events each subscriber has of each publisher."""
        return {pair: len(got) for pair, got in self.got.items()}

    def check(self) -> None:
        """All that was sent has come to all, once and in order."""
        for (by, of), got in self.got.items():
            assert got == list(range(self.sent[of])), f"n{by} of n{of}: {len(got)} of {self.sent[of]}"


async def wait_linked(bus: Bus) -> None:
    """Wait until all nodes are in one tree."""
    while len((await bus.topology())["tree"]) < NODES - 1:
        await asyncio.sleep(PAUSE_S)


async def draw(bus: Bus, step: str) -> None:
    """Draw the network as a node knows it."""
    reply = await bus.topology()
    if folder := os.environ.get("TIDINGS_PICTURES"):
        records = msgspec.convert(reply["records"], list[NodeRecord])
        Path(folder, f"namespaces-{step}.svg").write_text(svg(records, reply["node"]))


def logged(net: NetworkOfNamespaces, *numbers: int) -> list[tuple[str, str]]:
    """What nodes have logged of silent neighbours: the line, and the cause."""
    lines = [line for number in numbers for line in net[number].log.read_text().splitlines()]
    told = [json.loads(line) for line in lines if line.startswith("{")]
    return [(one["event"], one.get("cause", "")) for one in told if "neighbour" in one.get("event", "")]


@pytest.mark.slow
@pytest.mark.skipif(not IS_SOAK, reason="a matter of the long run")
@pytest.mark.skipif(IS_SOAK and not are_allowed(), reason="network namespaces can't be made here")
@pytest.mark.timeout(600)
def test_the_log_of_a_checker_is_clean_whatever_is_killed_cut_or_parted(tmp_path: Path) -> None:
    net = NetworkOfNamespaces(tmp_path, NODES)
    checker = Checker()

    async def work() -> None:
        for near, far in RING:
            net[near].start([net[far]])
        async with asyncio.TaskGroup() as group:
            buses = {}
            for number in ALL:
                buses[number] = bus = net[number].bus(f"app{number}")
                await bus.__aenter__()
            await wait_linked(buses[1])
            ready = {number: asyncio.Event() for number in ALL}
            readers = [
                group.create_task(checker.subscribe(buses[number], number, ready[number])) for number in ALL
            ]
            for number in ALL:
                await ready[number].wait()
            writers = [group.create_task(checker.publish(buses[number], number)) for number in ALL]
            await checker.wait_flow(ALL)
            await draw(buses[1], "begun")

            net[3].stop()  # SIGKILL
            await checker.wait_flow((1, 2, 4, 5))
            await draw(buses[1], "killed")
            net[3].start([net[4]])
            await checker.wait_flow(ALL)

            net.cut((1, 2))
            await checker.wait_flow(ALL)
            await draw(buses[1], "cut")
            net.heal((1, 2))
            await checker.wait_flow(ALL)

            apart = list(product((1, 2), (3, 4, 5)))
            net.cut(*apart)
            await checker.wait_flow((1, 2), (3, 4, 5))
            await draw(buses[1], "parted")
            net.heal(*apart)
            await checker.wait_flow(ALL)
            await draw(buses[1], "healed")

            checker.is_over.set()
            await asyncio.gather(*writers)
            await checker.wait_all()
            for reader in readers:
                reader.cancel()
        for bus in buses.values():
            await bus.__aexit__(None, None, None)

    with net.made():
        run_within(work(), lambda: f"sent {checker.sent}, got {checker.counts}, logs {logged(net, *ALL)}")
    checker.check()
    assert ("a neighbour is dead to this node", "link") in logged(net, 1, 2)
