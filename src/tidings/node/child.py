"""A child of the node: a process that is started, watched, started again, and ended with the node.

It gets its settings in its only argument, and connects to the node as an ordinary client, by a Unix socket.
It ends when its standard input does, which is when the node is gone. It prints its reports to the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

import msgspec

from tidings.errors import TidingsError, UserError
from tidings.node import logs
from tidings.processes import StartedProcess, start
from tidings.timers import Backoff

START_S_MAX = 60.0
"""How long a child may take until it says what it is waited for."""
STOP_S_MAX = 10.0
"""Seconds that a child may take to stop."""
GOOD_S = 60.0
"""After so long the death of a child is an accident, and it is started again at once."""


ChildSettings = TypeVar("ChildSettings", bound=msgspec.Struct)


class ChildProcess(Generic[ChildSettings]):
    """Process that the node starts, watches, restarts and ends."""

    may_leave = False
    """Whether it may end by itself when it is not needed."""

    def __init__(self, name: str, module: str, settings: ChildSettings) -> None:
        """`name` is its name in the log, `module` is run, `settings` are passed at each start."""
        self.starts = 0
        self._settings = settings
        self._name = name
        self._module = module
        self._process: StartedProcess | None = None
        self._watch: asyncio.Task[None] | None = None

    # To be overridden

    async def _greet(self, process: StartedProcess) -> None:
        """Wait until it is there; UserError if it will not be. Called after each start, for START_S_MAX."""

    def _hear(self, line: bytes) -> None:
        """Called with each line that it prints later."""

    async def _wait_wanted(self) -> None:
        """Wait until it is needed; called before it is started again."""

    # Life

    @property
    def is_running(self) -> bool:
        """Whether there is one that has not ended."""
        return self._process is not None and self._process.ended is None

    async def start(self) -> None:
        """Start it, and wait until it is there; UserError if it will not be."""
        try:
            await self._spawn()
        except BaseException:
            await self._end()
            raise
        self.watch()

    def watch(self) -> None:
        """From now on start it whenever it is needed and not there."""
        self._watch = asyncio.get_running_loop().create_task(self._keep(), name=f"tidings {self._name}")

    async def close(self) -> None:
        """End it, and wait for that."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self._end()

    async def _spawn(self) -> None:
        self.starts += 1
        # -P: nothing is imported from the folder in which the node happens to be started.
        command = ["-P", "-m", self._module, msgspec.json.encode(self._settings).decode()]
        # Not contained: it starts no others, and ends by itself when the node does.
        self._process = process = start(
            sys.executable, *command, stdin=subprocess.PIPE, contained=False, own_group=False
        )
        await process.open()
        try:
            async with asyncio.timeout(START_S_MAX):
                await self._greet(process)
        except TimeoutError:
            raise UserError(f"the {self._name} did not start within {START_S_MAX:g} s") from None

    async def _keep(self) -> None:
        """Start it again whenever it has ended and is needed."""
        backoff = Backoff(random.random)
        while True:
            if self._process is not None and not await self._see_off(self._process, backoff):
                await asyncio.sleep(backoff.next_s())
            await self._wait_wanted()
            try:
                await self._spawn()
            except (UserError, OSError) as error:
                logs.error("a child could not be started", child=self._name, problem=str(error))
                await self._end()

    async def _see_off(self, process: StartedProcess, backoff: Backoff) -> bool:
        """Wait until it has ended; whether that was in good order."""
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        async for line in process.lines():
            self._hear(line)
        code = (await process.wait()).code
        process.close()
        if loop.time() - started_at > GOOD_S:
            backoff.reset()
        if code == 0 and self.may_leave:
            return True
        logs.error("a child has died and is started again", child=self._name, code=code)
        return False

    async def _end(self) -> None:
        """End the process, if there is one: kindly, then not."""
        if self._process is not None:
            await self._process.end("the node stops", STOP_S_MAX)


def watch_parent(ended: Callable[[], object]) -> None:
    """In a child: have this called on the running loop when the node is gone, however that has ended."""
    loop = asyncio.get_running_loop()

    def look() -> None:
        """Called when there is something to be read from the node, which says nothing: its end."""
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin.fileno())
            ended()

    loop.add_reader(sys.stdin.fileno(), look)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the terminal: the node says when it is time


async def done_before(stopped: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do something unless stopped meanwhile, which cancels it; return whether it was done."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stopped.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError, TidingsError):
            await working
        return False
    working.result()
    return True
