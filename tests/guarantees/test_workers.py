"""Workers killed with SIGKILL while they have messages in their hands."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from random import Random

from effort import often
from guarantees.queue_worker import PREFETCH
from node.peers import SOURCE, run, running

import tidings
from tidings import Event
from tidings.client.queue import Queue
from tidings.errors import QueueEmpty

ROUNDS = often(3)
WORKERS = 2
"""Workers in each round; all of them are killed."""
LINES_MAX = 100
"""The most lines that a worker writes before it is killed."""
PATIENCE_S = 3.0
"""How long to wait for a message that a dead worker held: longer than the node waits for it to come back."""
WORKER = Path(__file__).with_name("queue_worker.py")


class Job:
    """What was told of one job: whether it was marked each time it was begun, and whether it was done."""

    def __init__(self) -> None:
        self.marks: list[bool] = []
        self.is_done = False
        self.came_again = False  # after it was done

    def begin(self, is_marked: bool) -> None:
        self.came_again = self.came_again or self.is_done
        self.marks.append(is_marked)


Jobs = dict[int, Job]


async def live(address: str, lines: int, jobs: Jobs) -> None:
    """Run a worker until it has written so many lines, kill it, and note all that it wrote, as it comes.

    What it held others get a while later only, so the notes of all workers are in the order of events.
    """
    worker = await asyncio.create_subprocess_exec(
        sys.executable, str(WORKER), address, "jobs",
        stdout=PIPE, env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert worker.stdout is not None
    for _ in range(lines):
        note(jobs, await worker.stdout.readline())
    worker.send_signal(signal.SIGKILL)
    for line in (await worker.stdout.read()).splitlines(keepends=True):
        note(jobs, line)
    assert await worker.wait() == -signal.SIGKILL


def note(jobs: Jobs, line: bytes) -> None:
    """Take in what a worker has told; a line that was cut short was not."""
    if line.endswith(b"\n"):
        what, number, *mark = line.split()
        if what == b"begun":
            jobs[int(number)].begin(mark == [b"1"])
        else:
            jobs[int(number)].is_done = True


async def finish(queue: Queue, jobs: Jobs) -> int:
    """Do what is left, until nothing comes back any more; how many that were."""
    left = 0
    while True:
        try:
            async with queue.take(timeout_s=PATIENCE_S) as message:
                jobs[int(message["n"])].begin(message.redelivered)
            jobs[int(message["n"])].is_done = True
            left += 1
        except QueueEmpty:
            return left


def check(jobs: Jobs) -> None:
    """See that each job was done, twice only if it was in the hands of one who died, and then marked."""
    for number, job in jobs.items():
        assert job.marks, f"job {number} was never begun"
        assert not job.came_again, f"job {number} came again after it was acknowledged"
        assert job.marks.count(False) <= 1, f"job {number} came again unmarked"
    began_twice = sum(len(job.marks) > 1 for job in jobs.values())
    assert began_twice <= ROUNDS * WORKERS, "more came again than workers had begun when they died"
    only_fetched = sum(job.marks == [True] for job in jobs.values())
    assert only_fetched <= ROUNDS * WORKERS * 2 * PREFETCH


def test_every_job_of_killed_workers_is_done_and_only_what_they_had_begun_comes_again_marked(
    tmp_path: Path,
) -> None:
    random = Random(20261115)
    jobs: Jobs = {number: Job() for number in range(ROUNDS * WORKERS * LINES_MAX)}

    async def scenario() -> None:
        async with running(dir=str(tmp_path / "node")) as node, tidings.connect(node.addresses[0]) as bus:
            queue = await bus.create_queue("jobs", deliveries_max=None)
            await queue.put_all(Event("job", n=number) for number in jobs)
            for _ in range(ROUNDS):
                lines = [random.randint(1, LINES_MAX) for _ in range(WORKERS)]
                await asyncio.gather(*(live(node.addresses[0], count, jobs) for count in lines))
            assert await finish(queue, jobs) > 0
            check(jobs)

    run(scenario())
