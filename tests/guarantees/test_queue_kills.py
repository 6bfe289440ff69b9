"""The real node, killed with SIGKILL again and again while its queues are used."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random

import pytest
from effort import SEED, lasting, often
from guarantees.mortal import MortalNode
from guarantees.queue_crowd import JOBS, LEFT, RIGHT, QueueCrowd
from node.peers import Start, run

import tidings
from tidings.errors import QueueNotFound

KILLS = often(5)
DONE_MAX = 150
"""The most messages that are dealt with between two kills."""
HANGS_S = lasting(120.0)
"""After this the run is taken to hang."""


class Killing:
    """One run: a node that dies at random moments, and those who use its queues."""

    def __init__(self, start: Start, home: Path, seed: int) -> None:
        self.random = Random(seed)
        self.node = MortalNode(start, home)
        self.crowd: QueueCrowd

    def story(self) -> str:
        """How far it has come, for a run that failed."""
        crowd = self.crowd
        counts = f"{len(crowd.accepted)} accepted, {len(crowd.finished)} dealt with, {crowd.lost} lost"
        return f"{self.node.kills} kills, {counts}, left over: {sorted(crowd.left_over)[:10]}"

    async def run(self, kills: int) -> QueueCrowd:
        crowd = self.crowd = QueueCrowd(await self.node.start(), self.random)
        await crowd.open()
        async with asyncio.TaskGroup() as group:
            writers = [group.create_task(crowd.write(name)) for name in ("ann", "bob")]
            uses = [crowd.get("get"), crowd.take("take"), crowd.loop("loop"), crowd.move("move")]
            uses += [crowd.take("left", LEFT), crowd.get("right", RIGHT)]
            workers = [group.create_task(use) for use in uses]
            for _ in range(kills):
                done = len(crowd.finished) + self.random.randint(0, DONE_MAX)
                await crowd.wait_until(lambda done=done: len(crowd.finished) >= done)  # type: ignore[misc]
                await self.node.kill()
                crowd.life += 1
                await self.node.start()
            crowd.is_over = True
            await asyncio.wait(writers)
            await crowd.wait_until(lambda: not crowd.left_over)
            for worker in workers:
                worker.cancel()
        await self._check_empty(crowd)
        return crowd

    async def _check_empty(self, crowd: QueueCrowd) -> None:
        """See that all pairs are whole, and that nothing is left that nobody was told of."""
        pairs = [{number for queue, number in crowd.finished if queue == name} for name in (LEFT, RIGHT)]
        assert pairs[0] == pairs[1]
        async with crowd.bus("last") as bus:
            for name in (JOBS, LEFT, RIGHT):
                for message in await (await bus.queue(name)).get_all():
                    place = name, int(message["n"])
                    assert place in crowd.finished, f"{place} is left, though nobody was told of it"
                    assert message.redelivered


@pytest.mark.slow
def test_a_killed_node_loses_no_message_hands_out_none_that_was_settled_and_keeps_transactions_whole(
    start: Start, tmp_path: Path
) -> None:
    print(f"seed {SEED}")  # noqa: T201  # pytest shows it when the test fails
    run = Killing(start, tmp_path, SEED)

    async def within() -> QueueCrowd:
        try:
            async with asyncio.timeout(HANGS_S):
                return await run.run(KILLS)
        except BaseException as error:
            error.add_note(run.story())
            raise

    crowd = asyncio.run(within())
    assert len(crowd.finished) > 20 * KILLS
    assert crowd.marked


def test_with_the_disk_a_queue_and_its_messages_are_lost(start: Start, tmp_path: Path) -> None:
    node = MortalNode(start, tmp_path)

    async def scenario() -> None:
        async with tidings.connect(await node.start()) as bus:
            queue = await bus.create_queue("jobs")
            await queue.put("job", n=1)
            await node.kill()
            shutil.rmtree(tmp_path / "node")
            await node.start()
            with pytest.raises(QueueNotFound):
                await queue.get(timeout_s=30.0)

    run(scenario())
