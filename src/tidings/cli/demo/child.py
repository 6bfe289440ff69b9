"""Child processes of the demo: each is a tidings command that a user could type, and none outlives the demo.

Each has a process group of its own, so that Ctrl-C reaches the demo alone, which then terminates them. A
process that does not terminate in time is killed with its whole group; so are the descendants that it left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any

PROGRAM = (sys.executable, "-c", "from tidings.cli import main; main()")
END_S_MAX = 20.0
"""Longest time that a process may take to terminate."""
LINGER_S_MAX = 5.0
"""Longest time that the descendants of a process may outlive it."""
LOOK_S = 0.05
LINE_SIZE_MAX = 1 << 20
GONE = "ZX"
"""States of a process that has ended, as in `/proc/PID/stat`."""


class Child:
    """A started process, its output and its end."""

    # Not asyncio's own: that takes a process for alive while a descendant of it holds its output open.

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._output = asyncio.StreamReader(LINE_SIZE_MAX)
        self._pipe: asyncio.BaseTransport | None = None
        self._watching = asyncio.ensure_future(self._watch())

    async def open(self) -> None:
        """Begin to read its output."""
        loop, protocol = asyncio.get_running_loop(), asyncio.StreamReaderProtocol(self._output)
        self._pipe, _ = await loop.connect_read_pipe(lambda: protocol, self._process.stdout)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of its output until it ends."""
        async for line in self._output:
            yield line

    async def wait(self) -> int:
        """Wait until it and its descendants have ended; return its exit code, negative for a signal."""
        return await asyncio.shield(self._watching)

    async def _watch(self) -> int:
        """Wait until it has ended; kill the descendants that linger too long."""
        while (code := self._process.poll()) is None:
            await asyncio.sleep(LOOK_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S_MAX):
                while lives(self._process.pid):
                    await asyncio.sleep(LOOK_S)
        self._kill()
        return code

    async def end(self) -> None:
        """Terminate it and wait until it has ended; if that takes too long, or is cancelled, kill it."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.wait(), END_S_MAX + LINGER_S_MAX)
        finally:
            self._kill()
            self._process.wait()
            self._watching.cancel()
            if self._pipe is not None:
                self._pipe.close()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


@asynccontextmanager
async def running(
    *command: str, errors: IO[bytes] | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Child]:
    """Run a process for as long as the block lasts; its standard error goes to `errors`."""
    # Popen does not yield to the loop: a cancellation while the process starts would leave it behind.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if errors is None else errors,
        env={**os.environ, **(environment or {})},
        process_group=0,
    )
    child = Child(process)
    try:
        await child.open()
        yield child
    finally:
        await child.end()


def lives(group: int) -> bool:
    """Whether a process of the group runs. A zombie that nobody has waited for does not count."""
    return any(_is_of(group, path) for path in Path("/proc").glob("[0-9]*/stat"))


def _is_of(group: int, path: Path) -> bool:
    try:
        state, _parent, its_group = path.read_text().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):  # the process has ended meanwhile
        return False
    return int(its_group) == group and state not in GONE


@asynccontextmanager
async def beside(*duties: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run the duties for as long as the block lasts; one that fails ends the block with its error."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(duty) for duty in duties]
            yield
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
