"""The workers of `tidings demo`: a queue that fills by itself, and processes that empty it.

Each is a `tidings queue work` of its own, as one could type it. One of them is out of luck: its command kills
it with SIGKILL in the middle of a job, twice, and each time the node gives that job to whoever comes next.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

import tidings
from tidings.cli.queue_bus import add_row, new_table
from tidings.cli.work import Report

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidings.client import Queue
    from tidings.event import Event
    from tidings.queues.description import Description

JOBS = "jobs"
WANTED = "type = 'air.pm10' AND value > 40"
"""Which publications become jobs."""
STEADY, UNLUCKY = "ann", "ben"
KILLS = 2
"""How many lives of the unlucky one end in its first job."""
JOB_STEPS = 1.5
"""How long a job takes."""
LOOK_S_MIN = 0.05
"""How often the queue is looked at, at most."""

Note = Callable[[str, str, str], None]
"""Called with who does what, in words, whenever something happens."""


class Crew:
    """The workers, what they have done, and how their queue stands."""

    def __init__(self, address: str, step_s: float, note: Note) -> None:
        self.done = 0
        self.redelivered = 0
        self.killed = 0
        self.messages = self.in_flight = 0
        self.is_ready = False
        self._address = address
        self._step_s = step_s
        self._note = note

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Let them work for as long as the block lasts."""
        async with tidings.connect(self._address, name="foreman") as bus:
            queue = await bus.create_queue(JOBS, bind=WANTED)
            duties = (self._steady(), self._unlucky(), self._look(queue))
            tasks = [asyncio.create_task(duty) for duty in duties]
            try:
                yield
                self._see(await queue.describe())
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, queue: Queue) -> None:
        """Keep an eye on the queue; the crew is ready when all wait for jobs."""
        while True:
            told = await queue.describe()
            self._see(told)
            if not self.is_ready and told.waiting == len((STEADY, UNLUCKY)):
                self.is_ready = True
                self._note(JOBS, "is ready", f"two workers wait for {WANTED}")
            await asyncio.sleep(max(self._step_s / 2, LOOK_S_MIN))

    def _see(self, told: Description) -> None:
        self.messages, self.in_flight = told.messages, told.in_flight

    async def _steady(self) -> None:
        await self._work(STEADY, f"sleep {JOB_STEPS * self._step_s}")

    async def _unlucky(self) -> None:
        while self.killed < KILLS:
            code = await self._work(UNLUCKY, f"sleep {self._step_s}; kill -KILL $PPID")
            if code != -signal.SIGKILL:
                return
            self.killed += 1
            self._note(UNLUCKY, "is killed", "in the middle of its job, which nobody has acknowledged")
        await self._work(UNLUCKY, f"sleep {JOB_STEPS * self._step_s}")

    async def _work(self, who: str, command: str) -> int:
        """Run a worker until it ends; its exit code, negative for a signal."""
        program = (sys.executable, "-c", "from tidings.cli import main; main()")
        # Without --reconnect none is left over, should this process be killed together with its node.
        options = ("--no-reconnect", "--json", "--name", who, "--node", self._address)
        process = await asyncio.create_subprocess_exec(
            *(*program, "queue", "work", JOBS, command, *options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for the demo, which then ends them
        )
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                self._hear(who, msgspec.json.decode(line, type=Report))
            if (code := await process.wait()) > 0:
                self._note(who, "fails", f"with exit code {code}")
            return code
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()

    def _hear(self, who: str, report: Report) -> None:
        """A worker tells what it does."""
        from tidings.event.json import from_json

        job = job_text(from_json(report.event))
        again = f" again: delivery {report.deliveries}" if report.deliveries > 1 else ""
        if report.outcome == "taken":
            self.redelivered += report.deliveries > 1
            self._note(who, "takes", job + again)
        else:
            self.done += report.outcome == "done"
            self._note(who, f"is {report.outcome}", f"with {job}")


def job_text(event: Event) -> str:
    """A job on one line."""
    return f"the job for value={event['value']} from {event.source}"


def crew_table(crew: Crew) -> RenderableType:
    """How the queue stands, what became of its messages, and how many workers were killed."""
    figures = {
        "messages": crew.messages,
        "in flight": crew.in_flight,
        "done": crew.done,
        "redelivered": crew.redelivered,
        "killed": crew.killed,
    }
    table = new_table("queue", "filter", *figures, numbers=figures, wide=("filter",))
    add_row(table, JOBS, WANTED, *map(str, figures.values()))
    return table
