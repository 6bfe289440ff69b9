"""Citizens, a ledger, a watch, a mayor and workers of the demo.

Citizens publish reports, one after the other. The watch has a pattern, which fires when one sort of report
follows another. The ledger has a durable subscription to reports and alarms,
disconnects now and then, and receives what it missed when it is back. The mayor subscribes to readings, and
stands in for Spark where there is none.

Two workers empty a queue that a binding fills; each is a `tidings queue work` that a user could type. One of
them is unlucky: its command kills it with SIGKILL in the middle of a job, twice, and each time the node
redelivers that job to the next worker.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from itertools import count, cycle
from typing import TYPE_CHECKING

import msgspec

import tidings
from tidings.cli.demo.child import PROGRAM, beside, running
from tidings.cli.work import WorkReport
from tidings.client import Bus, Queue
from tidings.event import Event
from tidings.event.json import from_json
from tidings.patterns import Pattern

if TYPE_CHECKING:
    from tidings.cli.demo.views import Note

READINGS = "type LIKE 'air.%'"
"""Readings that Spark or the mayor requests: the other sensors of the city stay off."""
REPORTS = "type LIKE 'report.%'"
ALARMS = "type LIKE 'alarm.%'"
JOBS = f"{REPORTS} OR {ALARMS}"
"""Events that the binding puts into the queue."""

TROUBLE = Pattern(
    "noise[type = 'report.noise'] THEN smell[type = 'report.smell' AND number > noise.number] WITHIN 30 s"
    " RETURN noise.street, smell.street AS 'pattern.trouble'"
)
"""Reports that the watch waits for: noise, and within half a minute a smell."""

REPORT_S = 1.5
"""Time between two reports."""
HERE_S, AWAY_S = 12.0, 12.0
"""How long the ledger is connected, and how long it is away."""
SEEN = (("report.noise", "quay"), ("report.pothole", "ring road"), ("report.smell", "harbour"))
LEDGER = "ledger"
QUEUE = "jobs"
STEADY, UNLUCKY = "ann", "ben"
KILLS = 2
"""Number of times that the unlucky worker is killed in its first job."""
JOB_S = 0.9
"""Duration of a job."""
LOOK_S = 0.25


class People:
    """Citizens, ledger and watch of the demo."""

    def __init__(self, address: str, note: Note) -> None:
        self.ledger_got = 0
        self.matches = 0
        self._address = address
        self._note = note

    def connect(self, who: str) -> Bus:
        """Open a connection under this name."""
        return tidings.connect(self._address, name=who)

    async def report(self, is_time: Callable[[], bool]) -> None:
        """Publish reports without end, once `is_time`."""
        while not is_time():
            await asyncio.sleep(REPORT_S / 10)
        async with self.connect("citizens") as bus:
            for number, (kind, street) in zip(count(1), cycle(SEEN)):
                await bus.publish(kind, street=street, number=number, delivery="persistent")
                await asyncio.sleep(REPORT_S)

    async def keep_ledger(self) -> None:
        """Listen for a while, be away for a while, and so on."""
        while True:
            async with self.connect(LEDGER) as bus, bus.listen(JOBS, self._write, durable=LEDGER):
                self._note(LEDGER, "listens", JOBS)
                await asyncio.sleep(HERE_S)
            self._note(LEDGER, "goes", f"after {self.ledger_got:,}; the node keeps for it what comes now")
            await asyncio.sleep(AWAY_S)

    async def watch(self) -> None:
        """Have a pattern, and note the first time that it fires."""
        async with self.connect("watch") as bus, bus.subscribe(TROUBLE, passive=True) as found:
            async for match in found:
                self.matches += 1
                if self.matches == 1:
                    noise, smell = match["noise.street"], match["smell.street"]
                    what = f"noise at the {noise}, then a smell at the {smell}, within 30 s"
                    self._note("pattern", "fires", what)

    def _write(self, _event: Event) -> None:
        self.ledger_got += 1


class Mayor:
    """Subscriber to readings, which their node then logs. `run` it beside the rest; `stop` it once."""

    def __init__(self, address: str, sensing: str, note: Note) -> None:
        """`sensing` is the address of the node that has the sensors, if that is another one."""
        self._address = address
        self._sensing = sensing
        self._note = note
        self._is_stopped = asyncio.Event()
        self._is_gone = asyncio.Event()

    async def run(self) -> None:
        """Listen until `stop`."""
        async with tidings.connect(self._sensing, name="mayor") as there:
            await there.log.keep("readings", READINGS)
        async with (
            tidings.connect(self._address, name="mayor") as bus,
            bus.listen(READINGS, lambda _event: None),
        ):
            self._note("mayor", "listens", READINGS)
            await self._is_stopped.wait()
        self._note("mayor", "goes", "it has heard enough")
        self._is_gone.set()

    async def stop(self) -> None:
        """End the subscription, and wait until it has ended."""
        self._is_stopped.set()
        await self._is_gone.wait()


class DemoWorkers:
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
            async with beside(self._work(STEADY, f"sleep {JOB_S}"), self._unlucky()):
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

    async def _unlucky(self) -> None:
        while self.killed < KILLS:
            code = await self._work(UNLUCKY, f"sleep {JOB_S / 2}; kill -KILL $TIDINGS_WORKER")
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
                self._hear(who, msgspec.json.decode(line, type=WorkReport))
            if (code := (await child.wait()).code) > 0:
                self._note(who, "fails", f"with exit code {code}")
            return code

    def _hear(self, who: str, report: WorkReport) -> None:
        """Count and note one report of a worker."""
        job = text_of(from_json(report.event))
        again = f" again: delivery {report.deliveries}" if report.deliveries > 1 else ""
        if report.outcome == "taken":
            self.redelivered += report.deliveries > 1
            self._note(who, "takes", job + again)
        else:
            self.done += report.outcome == "done"
            self._note(who, f"is {report.outcome}", f"with {job}")


def text_of(event: Event) -> str:
    """Return an event of the demo as one line; an alarm without its less interesting attributes."""
    fields = event.attributes
    value, limit = fields.get("value"), fields.get("limit")
    if isinstance(value, float) and isinstance(limit, float):
        about, cell = fields.get("about"), fields.get("cell")
        return f"{event.type}: {about!s} in cell {cell!s} is {value:.1f}, over {limit:g}"
    return " ".join([event.type, *(f"{name}={value!s}" for name, value in fields.items())])
