"""Workers of the demo: a queue that a binding fills, and processes that empty it.

Each is a `tidings queue work` that a user could type. One of them is unlucky: its command kills it with
SIGKILL in the middle of a job, twice, and each time the node redelivers that job to the next worker.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import msgspec

import tidings
from tidings.cli.demo.child import PROGRAM, beside, running
from tidings.cli.demo.people import JOBS, text_of
from tidings.cli.demo.story import Note
from tidings.cli.work import Report

if TYPE_CHECKING:
    from tidings.client import Queue

QUEUE = "jobs"
STEADY, UNLUCKY = "ann", "ben"
KILLS = 2
"""Number of times that the unlucky worker is killed in its first job."""
JOB_S = 0.9
"""Duration of a job."""
LOOK_S = 0.25


class Crew:
    """Workers of the demo, with counts of their jobs and of the messages in their queue."""

    def __init__(self, address: str, note: Note) -> None:
        self.done = 0
        self.redelivered = 0
        self.killed = 0
        self.waiting = self.in_hand = 0
        self.is_ready = False
        self._address = address
        self._note = note

    async def work(self) -> None:
        """Create the queue, and run the workers until cancelled."""
        async with tidings.connect(self._address, name="foreman") as bus:
            queue = await bus.create_queue(QUEUE, bind=JOBS)
            async with beside(self._steady(), self._unlucky()):
                await self._look(queue)

    async def _look(self, queue: Queue) -> None:
        """Poll the queue; the crew is ready when every worker waits for a job or has one."""
        while True:
            queued = await queue.describe()
            self.waiting, self.in_hand = queued.messages, queued.in_flight
            if not self.is_ready and queued.waiting + queued.in_flight >= len((STEADY, UNLUCKY)):
                self.is_ready = True
                self._note(QUEUE, "is ready", f"two workers for {JOBS}")
            await asyncio.sleep(LOOK_S)

    async def _steady(self) -> None:
        await self._work(STEADY, f"sleep {JOB_S}")

    async def _unlucky(self) -> None:
        while self.killed < KILLS:
            code = await self._work(UNLUCKY, f"sleep {JOB_S / 2}; kill -KILL $PPID")
            if code != -signal.SIGKILL:
                return
            self.killed += 1
            self._note(UNLUCKY, "is killed", "in the middle of its job, which nobody has acknowledged")
        await self._work(UNLUCKY, f"sleep {JOB_S}")

    async def _work(self, who: str, command: str) -> int:
        """Run a worker until it ends; return its exit code, negative for a signal."""
        # With --no-reconnect no worker is left over if this process is killed together with its node.
        options = ("--no-reconnect", "--json", "--name", who, "--node", self._address)
        async with running(*PROGRAM, "queue", "work", QUEUE, command, *options) as child:
            async for line in child.lines():
                self._hear(who, msgspec.json.decode(line, type=Report))
            if (code := await child.wait()) > 0:
                self._note(who, "fails", f"with exit code {code}")
            return code

    def _hear(self, who: str, report: Report) -> None:
        """Count and note one report of a worker."""
        from tidings.event.json import from_json

        job = text_of(from_json(report.event))
        again = f" again: delivery {report.deliveries}" if report.deliveries > 1 else ""
        if report.outcome == "taken":
            self.redelivered += report.deliveries > 1
            self._note(who, "takes", job + again)
        else:
            self.done += report.outcome == "done"
            self._note(who, f"is {report.outcome}", f"with {job}")
