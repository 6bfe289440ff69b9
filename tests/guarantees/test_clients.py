"""Clients killed with SIGKILL in the middle of their work."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from itertools import count
from pathlib import Path
from random import Random

import pytest
from effort import often
from guarantees.reader import ACKNOWLEDGED_EACH
from node.peers import SOURCE, peer_of, run, running

import tidings
from tidings import Event
from tidings.ids import StoredIds
from tidings.protocol.publications import Publications

BATCH = 50
"""Events that are published at once."""
LIVES = often(10)
LINES_MAX = 300
"""The most events that a life is allowed to tell of before it is killed."""
READER = Path(__file__).with_name("reader.py")

Told = list[tuple[int, bool]]
"""The numbers of the events that a program told of, and whether they were marked."""


async def open_subscription(address: str) -> None:
    """Have the subscription there before anything is published."""
    async with tidings.connect(address, name="reader") as bus, bus.subscribe(durable="all"):
        pass


async def publish(address: str) -> None:
    """Publish numbered events until cancelled."""
    async with tidings.connect(address, name="writer") as bus:
        for first in count(1, BATCH):
            await bus.publish_all(Event("a", n=first + n, delivery="reliable") for n in range(BATCH))


async def life(address: str, by: str, lines: int) -> Told:
    """Run the reader until it has told of so many events, kill it, and give all that it told."""
    reader = await asyncio.create_subprocess_exec(
        sys.executable, str(READER), address, by,
        stdout=PIPE, env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert reader.stdout is not None
    told = [await reader.stdout.readline() for _ in range(lines)]
    reader.send_signal(signal.SIGKILL)
    told += (await reader.stdout.read()).splitlines(keepends=True)
    assert await reader.wait() == -signal.SIGKILL
    whole = [line.split() for line in told if line.endswith(b"\n")]
    return [(int(number), mark == b"1") for number, mark in whole]


@pytest.mark.parametrize("by", ["auto", "client"])
def test_what_a_killed_subscriber_had_not_acknowledged_comes_again_marked(tmp_path: Path, by: str) -> None:
    random = Random(20261115)

    async def scenario() -> None:
        async with running(dir=str(tmp_path / "node")) as node:
            await open_subscription(node.addresses[0])
            writer = asyncio.ensure_future(publish(node.addresses[0]))
            last = 0  # told of in any life
            for _ in range(LIVES):
                told = await life(node.addresses[0], by, random.randint(1, LINES_MAX))
                check_life(told, last, by)
                last = max(last, told[-1][0])
            writer.cancel()
            await asyncio.wait([writer])
            assert last > LIVES

    run(scenario())


def check_life(told: Told, last: int, by: str) -> None:
    """See that a life goes on where it must, without a gap, and marks what any life before it had."""
    numbers = [number for number, _ in told]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] <= last + 1
    assert all(is_marked for number, is_marked in told if number <= last)
    if by == "client":
        assert numbers[0] <= last // ACKNOWLEDGED_EACH * ACKNOWLEDGED_EACH + 1


def test_what_a_killed_publisher_was_promised_is_delivered(tmp_path: Path) -> None:
    code = """
import asyncio, os, sys, tidings
async def publish():
    async with tidings.connect(sys.argv[1], name="writer") as bus:
        for n in range(1, 1_000_000):
            await bus.publish("a", n=n, delivery="reliable")
            os.write(1, f"{n}\\n".encode())
asyncio.run(publish())"""

    async def scenario() -> None:
        async with running(dir=str(tmp_path / "node")) as node, peer_of(node.addresses[0]) as peer:
            await peer.hello("peer", name="peer")
            await peer.subscribe(durable="all")
            writer = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, node.addresses[0],
                stdout=PIPE, env={**os.environ, "PYTHONPATH": str(SOURCE)},
            )  # fmt: skip
            assert writer.stdout is not None
            promised = [await writer.stdout.readline() for _ in range(50)]
            writer.kill()
            promised += (await writer.stdout.read()).splitlines()
            await writer.wait()
            numbers = [event["n"] for event in await peer.events(len(promised))]
            assert numbers == list(range(1, len(promised) + 1))

    run(scenario())


def test_transient_events_that_a_killed_node_took_along_do_not_hold_up_the_end_of_their_publisher() -> None:
    publications = Publications(StoredIds("writer", 1))
    publications.resume(0, window=1 << 20, is_same_boot=False)
    kept = publications.publish(Event("a", delivery="reliable"))
    last = publications.publish(Event("a"))
    assert len(publications.take()) == 2
    publications.resume(0, window=1 << 20, is_same_boot=False)  # to a node that was started anew
    assert len(publications.take()) == 1
    publications.accept(kept)
    assert publications.is_empty
    assert publications.accepted == last
