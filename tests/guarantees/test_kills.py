"""The real node, killed with SIGKILL again and again while it works, and started again on what it kept."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from random import Random

import pytest
from effort import SEED, lasting, often
from guarantees.crowd import Crowd, Reader
from guarantees.mortal import MortalNode
from node.peers import Peer, Start, peer_of, run

import tidings
from tidings import Event

KILLS = often(8)
PROMISES_MAX = 300
"""The most events that are promised between two kills."""
HANGS_S = lasting(180.0)
"""After this the run is taken to hang."""


class Killing:
    """One run: a node that dies at random moments, and those who use it."""

    def __init__(self, start: Start, home: Path, seed: int) -> None:
        self.random = Random(seed)
        self._node = MortalNode(start, home)
        self._crowd: Crowd

    def story(self) -> str:
        """How far it has come, for a run that failed."""
        account = self._crowd.account
        had = {name: len(reader.had) for name, reader in account.readers.items()}
        missing = len(account.missing())
        return f"{self._node.kills} kills, {len(account.promised)} promised, had {had}, {missing} missing"

    async def run(self, kills: int) -> Crowd:
        crowd = Crowd(await self._node.start(), self.random)
        async with (
            crowd.reader("durable", keeps=True),
            crowd.reader("mortal", keeps=True) as mortal,
            crowd.reader("live", keeps=False),
        ):
            self._crowd = crowd
            async with asyncio.TaskGroup() as publishers:
                for name in ("ann", "bob"):
                    publishers.create_task(crowd.publish(name))
                for _ in range(kills):
                    await self._once(crowd, mortal)
                crowd.is_over = True
            await self._publish_last(crowd)
        await self._look_for_last_values(crowd)
        return crowd

    async def _look_for_last_values(self, crowd: Crowd) -> None:
        """After one more kill the node has the last event of each publisher and subject that was promised."""
        await self._node.kill()
        await self._node.start()
        promised = ((identity, crowd.account.events[identity]) for identity in crowd.account.promised)
        wanted = {(name, event.subject): event["n"] for (name, _, _), event in promised if event.subject}
        async with (
            tidings.connect(self._node.address, name="looking") as bus,
            bus.subscribe("subject IS NOT NULL", last=True) as values,
        ):
            found = [await anext(values) for _ in wanted]
            assert {(one.source, one.subject): one["n"] for one in found} == wanted

    async def _once(self, crowd: Crowd, mortal: Reader) -> None:
        """Let some work be done, kill the node, and sometimes a subscriber with it."""
        await crowd.wait_promised(len(crowd.account.promised) + self.random.randint(0, PROMISES_MAX))
        is_both = self.random.random() < 0.3
        if is_both and self.random.random() < 0.5:
            await mortal.end()
        await self._node.kill()
        if is_both:
            await mortal.end()
        await self._node.start()
        if is_both:
            await mortal.begin()

    async def _publish_last(self, crowd: Crowd) -> None:
        """What is published now reaches everybody, and all that was promised before has come before it."""
        last = ("last", 0, 1)
        async with tidings.connect(self._node.address, name="last") as bus:
            await crowd.publish_batch(bus, {last: Event("a", n=1, delivery="reliable")})
        for name in crowd.account.readers:
            await crowd.wait_had(name, last)
        missing = crowd.account.missing()
        assert not missing, f"{len(missing)} events are lost, the first: {missing[:5]}"


@pytest.mark.slow
def test_a_killed_node_loses_nothing_accepted_and_delivers_nothing_twice_unmarked(
    start: Start, tmp_path: Path
) -> None:
    print(f"seed {SEED}")  # noqa: T201  # pytest shows it when the test fails
    run = Killing(start, tmp_path, SEED)

    async def within() -> Crowd:
        try:
            async with asyncio.timeout(HANGS_S):
                return await run.run(KILLS)
        except BaseException as error:
            error.add_note(run.story())
            raise

    account = asyncio.run(within()).account
    assert len(account.promised) > 10 * KILLS
    assert account.readers["mortal"].marked
    assert account.readers["live"].had


def test_a_durable_subscription_that_began_at_a_moment_gets_nothing_earlier_from_a_restarted_node(
    start: Start, tmp_path: Path
) -> None:
    flags = ("--port", "0", "--dir", str(tmp_path / "node"))
    moments_us: list[int] = []

    async def first(address: str) -> None:
        async with peer_of(address) as peer:
            await peer.hello("peer", name="peer")
            await peer.publish_accepted(Event("a", n=1, delivery="persistent"))
            moments_us.append(time.time_ns() // 1000)
            await peer.publish_accepted(Event("a", n=2, delivery="persistent"))
            await resume(peer)

    async def second(address: str) -> None:
        async with peer_of(address) as peer:
            await peer.hello("peer", name="peer")
            await resume(peer)

    async def resume(peer: Peer) -> None:
        await peer.subscribe(durable="late", since_us=moments_us[0])
        assert [event["n"] for event in await peer.events(1)] == [2]

    for scenario in (first, second):
        node = start(*flags)
        run(scenario(node.address()))
        node.stop(signal.SIGKILL)
