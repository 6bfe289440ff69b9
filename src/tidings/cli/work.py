"""`tidings queue work`: run a command for each message of a queue.

The message is held while the command runs, and what becomes of it is said by the command's exit code. Should
this process die, the node hands the message to the next worker; should the command take longer than the
queue's redelivery_s, it does the same.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Struct

from tidings.cli.connection import connects, queue_of, until_terminated
from tidings.cli.filter import parse
from tidings.cli.options import Json, Name, QueueName, Where, argument, option, seconds
from tidings.cli.printing import line_of, print_json
from tidings.client import Message
from tidings.errors import MessageNotHeld
from tidings.event.json import to_json
from tidings.processes import shell

PAUSE_S = 1.0

Command = Annotated[str, argument("COMMAND", "The shell command, in quotes: 'python job.py'")]
RejectOn = Annotated[
    list[int] | None,
    option("CODE", "Reject the message on this exit code, as a dead letter.", min=1, max=255),
]
Count = Annotated[int | None, option("End after so many messages.", min=1)]
Timeout = Annotated[float | None, seconds("--timeout", "End when no message has come for so long.")]
Concurrency = Annotated[int, option("Run so many commands side by side.", min=1)]
Pause = Annotated[float, seconds("--pause", "Pause after a failed message.")]
Reconnect = Annotated[bool, option("--reconnect/--no-reconnect", "Reconnect when the node is gone.")]


class WorkReport(Struct, frozen=True):
    """Outcome of a message: taken, done, given back, rejected, or late."""

    outcome: str
    deliveries: int
    event: msgspec.Raw
    exit: int | None = None
    took_s: float | None = None


@connects
async def work(
    queue: QueueName,
    command: Command,
    where: Where = "",
    reject_on: RejectOn = None,
    count: Count = None,
    timeout: Timeout = None,
    concurrency: Concurrency = 1,
    pause: Pause = PAUSE_S,
    reconnect: Reconnect = True,
    name: Name = "",
    json: Json = False,
) -> None:
    """Run COMMAND for each message of a queue, with the event as JSON on its standard input.

    Exit code 0 acknowledges the message, any other gives it back to be handed out again. COMMAND finds in
    TIDINGS_DELIVERIES how often the message was handed out, this time included, and in TIDINGS_WORKER the
    process of this worker. What COMMAND leaves running ends 5 s after it. With --json, what COMMAND
    prints goes to standard error. The exit code is 1 if a message was not acknowledged.
    """
    wanted = parse(where, json)
    worker = CommandWorker(command, frozenset(reject_on or ()), json)

    async def toil() -> None:
        async with queue_of(queue, name, reconnect) as found:
            typer.echo(f"working on {queue}; Ctrl-C ends", err=True)
            try:
                await found.work(
                    *(worker.process, wanted),
                    concurrency=concurrency,
                    prefetch=0,
                    pause_s=pause,
                    count=count,
                    timeout_s=timeout,
                    stop=worker.stop,
                )
                worker.check()
            finally:
                typer.echo(worker.summary(), err=True)

    await until_terminated(toil())
    if worker.counts.total() > worker.counts["done"]:
        raise typer.Exit(1)


class CommandWorker:
    """Runs the command, and says what becomes of the messages."""

    def __init__(self, command: str, reject_on: frozenset[int], json: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.stop = asyncio.Event()
        self._trouble: Exception | None = None
        self._command = command
        self._reject_on = reject_on
        self._json = json

    async def process(self, message: Message) -> None:
        """Run the command for a message, and settle it; an error that is not the command's ends the work."""
        try:
            await self._process(message)
        except Exception as error:
            self._trouble = error
            self.stop.set()
            if message.outcome is None:
                await message.release()

    def check(self) -> None:
        """Raise the error that has ended the work, if one has: nothing could be printed or run."""
        if self._trouble is not None:
            raise self._trouble

    async def _process(self, message: Message) -> None:
        self._report("taken", message)
        began_at = time.monotonic()
        code = await self._run(message)
        try:
            outcome = await self._settle(message, code)
        except MessageNotHeld:
            outcome = "late"
        self.counts[outcome] += 1
        self._report(outcome, message, code, round(time.monotonic() - began_at, 3))

    async def _settle(self, message: Message, code: int) -> str:
        if code == 0:
            await message.acknowledge()
            return "done"
        if code in self._reject_on:
            await message.reject(f"exit code {code}")
            return "rejected"
        await message.release()
        return "given back"

    async def _run(self, message: Message) -> int:
        """Run the command; its exit code."""
        output = sys.stderr if self._json else None
        told = {"TIDINGS_DELIVERIES": str(message.deliveries), "TIDINGS_WORKER": str(os.getpid())}
        return (await shell(self._command, to_json(message.event) + b"\n", output, **told))[0]

    def _report(self, outcome: str, message: Message, exit: int | None = None, took_s: Any = None) -> None:
        if self._json:
            report = WorkReport(
                outcome, message.deliveries, msgspec.Raw(to_json(message.event)), exit, took_s
            )
            print_json(report)
        elif outcome not in ("taken", "done"):
            why = "as it was given to another meanwhile" if outcome == "late" else f"exit code {exit}"
            typer.echo(f"{outcome}, {why}: {line_of(message.event)}", err=True)

    def summary(self) -> str:
        """Return the number of messages, by their outcomes."""
        others = (f", {times:,} {outcome}" for outcome, times in self.counts.items() if outcome != "done")
        return f"{self.counts['done']:,} done" + "".join(others)
