"""The processes of the demo: each is a command of tidings as one could type it, and none outlives the demo.

Each is in a process group of its own, so that Ctrl-C is for the demo alone, which then ends them. Who is
asked to end and does not is killed, with all that it has started; so is what is left of one that has died.
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
"""How long a process that was asked to end may take."""
LINGER_S_MAX = 5.0
"""How long what a process has started may outlive it."""
LOOK_S = 0.05
LINE_SIZE_MAX = 1 << 20
GONE = "ZX"
"""The states of a process that has ended, as the system writes them."""


class Child:
    """A process, what it prints, and how it ends. It has been started already."""

    # Not asyncio's own: that takes a process for alive while anything it has started has its output open.

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._output = asyncio.StreamReader(LINE_SIZE_MAX)
        self._pipe: asyncio.BaseTransport | None = None
        self._watching = asyncio.ensure_future(self._watch())

    async def open(self) -> None:
        """Begin to read what it prints."""
        loop, protocol = asyncio.get_running_loop(), asyncio.StreamReaderProtocol(self._output)
        self._pipe, _ = await loop.connect_read_pipe(lambda: protocol, self._process.stdout)

    async def lines(self) -> AsyncIterator[bytes]:
        """What it prints, until it has ended."""
        async for line in self._output:
            yield line

    async def wait(self) -> int:
        """Wait until it has ended with all that it started; its exit code, negative for a signal."""
        return await asyncio.shield(self._watching)

    async def _watch(self) -> int:
        """Wait until it has ended; whoever it leaves behind may linger for a while, and is killed then."""
        while (code := self._process.poll()) is None:
            await asyncio.sleep(LOOK_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S_MAX):
                while lives(self._process.pid):
                    await asyncio.sleep(LOOK_S)
        self._kill()
        return code

    async def end(self) -> None:
        """Ask it to end and wait until it has; if that takes too long, or is cancelled, kill it."""
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
    """A process that has ended when the block has; what it complains of goes to `errors`."""
    # In one go: what is cancelled while it is being started would be left behind.
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
    """Whether any process of a group runs. One that has ended may still be listed, if nobody asks for it."""
    return any(_is_of(group, path) for path in Path("/proc").glob("[0-9]*/stat"))


def _is_of(group: int, path: Path) -> bool:
    try:
        state, _parent, its_group = path.read_text().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):  # it has ended meanwhile
        return False
    return int(its_group) == group and state not in GONE


@asynccontextmanager
async def beside(*duties: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Let duties go on for as long as the block lasts; one that fails ends the block with its error."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(duty) for duty in duties]
            yield
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
