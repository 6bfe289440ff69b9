"""Programs that are started, read and ended, by the loop of their parent.

    async with running("spark-submit", "job.py") as process:
        async for line in process.lines(): ...
    # however the block was left: it has ended, with all that it has started

A process is *contained* unless it is a part of tidings that starts no others: a keeper (`keeper.py`) runs it,
and ends what it has forked, also what has left its process group or session. Each end has a reason: that of
the first `end`, or none if it has ended by itself.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from tidings.processes.keeper import GRACE_S

LINGER_S = 5.0
"""How long the descendants of a process may outlive it by themselves."""
LINE_SIZE_MAX = 1 << 20
"""Bytes of one line of output."""
POLL_S = 0.05
"""How often a process is looked at on a system that does not tell when it ends."""
KEEPER = str(Path(__file__).with_name("keeper.py"))

PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL

File = int | IO[Any] | None


class ProcessLimits(NamedTuple):
    """What a process and all that it has started may use together: bytes, processes and seconds."""

    memory: int | None = None
    processes: int | None = None
    seconds: float | None = None

    @property
    def argument(self) -> str:
        """How the keeper is given them."""
        return ",".join("" if one is None else str(one) for one in self)


class ProcessEnd(NamedTuple):
    """How a process has ended: its exit code, negative for a signal, why, and how many had to be killed."""

    code: int
    reason: str = ""
    killed: int = 0


class StartedProcess:
    """A process, what it prints, and its end; made by `start`."""

    def __init__(self, process: subprocess.Popen[bytes], control: int | None, status: int | None) -> None:
        self._process = process
        self._control = control
        self._status = status
        self._reason = ""
        self._output = asyncio.StreamReader(LINE_SIZE_MAX)
        self._pipes: list[asyncio.BaseTransport] = []
        self._ended: ProcessEnd | None = None
        watching = self._watch() if status is None else self._listen(status)
        self._watching = asyncio.ensure_future(watching)

    @property
    def pid(self) -> int:
        """The number of the process; of its keeper, if it is contained."""
        return self._process.pid

    @property
    def ended(self) -> ProcessEnd | None:
        """How it has ended; None while it, or a descendant, runs."""
        return self._ended

    async def open(self) -> None:
        """Begin to read its output, which is empty if it is no pipe."""
        if self._process.stdout is None:
            self._output.feed_eof()
        else:
            protocol = asyncio.StreamReaderProtocol(self._output)
            loop = asyncio.get_running_loop()
            self._pipes.append((await loop.connect_read_pipe(lambda: protocol, self._process.stdout))[0])

    # What goes in and out

    async def write(self, data: bytes) -> None:
        """Write its whole standard input; a process that does not read it, or has ended, is no error."""
        stdin = self._process.stdin
        assert stdin is not None, "it was started without a pipe"

        def write() -> None:
            with suppress(BrokenPipeError), stdin:
                stdin.write(data)

        await asyncio.to_thread(write)

    async def readline(self) -> bytes:
        """Return the next line of its output; empty at the end."""
        return await self._output.readline()

    async def read(self) -> bytes:
        """Return the rest of its output, when all that can write to it have ended."""
        return await self._output.read()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of its output until it ends."""
        async for line in self._output:
            yield line

    # Its end

    def send_signal(self, number: int) -> None:
        """Send a signal to it; not to one that is contained, whose number is that of the keeper."""
        assert self._control is None, "a contained process is ended by `end`"
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> ProcessEnd:
        """Wait until it and its descendants have ended."""
        return await asyncio.shield(self._watching)

    async def end(self, reason: str = "", grace_s: float | None = None) -> ProcessEnd:
        """Terminate it and wait until it has ended.

        What is left after the grace, or a cancellation, is killed.
        """
        grace_s = GRACE_S if grace_s is None else grace_s
        if self._ended is None:
            self._reason = self._reason or reason
            self._ask(grace_s)
        try:
            async with asyncio.timeout(None if self._control is not None else grace_s):
                return await self.wait()
        except TimeoutError:
            self._ask(0.0)
            return await self.wait()
        except asyncio.CancelledError:
            self._ask(0.0)
            await self.wait()
            raise
        finally:
            if self._ended is not None:
                self.close()

    def close(self) -> None:
        """Let go of its pipes, after which a contained one ends by itself."""
        for pipe in self._pipes:
            pipe.close()
        for file in (self._process.stdin, self._process.stdout):
            if file is not None:
                with suppress(OSError):
                    file.close()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._control is not None:
            with suppress(OSError):
                os.close(self._control)
            self._control = -1

    def _ask(self, grace_s: float) -> None:
        """Have it end within the grace."""
        if self._control is None:
            self.send_signal(signal.SIGTERM if grace_s else signal.SIGKILL)
        elif self._control >= 0:
            with suppress(OSError):  # the keeper is gone
                os.write(self._control, b"end %.3f\n" % grace_s)

    async def _listen(self, status: int) -> ProcessEnd:
        """Hear the keeper until it is done; one that was killed itself took its command with it."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        file = os.fdopen(status, "rb", 0)
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
        figures = {b"code": -int(signal.SIGKILL), b"gone": 0}
        async for line in reader:
            name, _, figure = line.strip().partition(b" ")
            if name == b"limit":
                self._reason = self._reason or figure.decode()
            else:
                figures[name] = int(figure)
        pipe.close()
        self._hang_up()
        await asyncio.to_thread(self._process.wait)
        return self._note(figures[b"code"], figures[b"gone"])

    async def _watch(self) -> ProcessEnd:
        """Wait for a process without a keeper."""
        with suppress(OSError, AttributeError):  # a system without such files
            file = os.pidfd_open(self.pid)
            try:
                await _wait_readable(file)
            finally:
                os.close(file)
        while (code := self._process.poll()) is None:
            await asyncio.sleep(POLL_S)
        return self._note(code, 0)

    def _note(self, code: int, killed: int) -> ProcessEnd:
        self._ended = ProcessEnd(code, self._reason, killed)
        return self._ended


async def _wait_readable(file: int) -> None:
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    loop.add_reader(file, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(file)


def start(
    *command: str,
    stdin: File = subprocess.DEVNULL,
    stdout: File = subprocess.PIPE,
    stderr: File = None,
    environment: Mapping[str, str] | None = None,
    contained: bool = True,
    own_group: bool = True,
    linger_s: float | None = None,
    limits: ProcessLimits | None = None,
) -> StartedProcess:
    """Start a program; OSError if it can't be. To be followed by `open`, where its output is read.

    `environment` is added to that of this process. Without `own_group` it stays in the process group of this
    one, for programs that use the terminal. A contained one that is past its limits is killed at once, with
    all that it has started; the reason of its end says which limit it was.
    """
    # Popen does not yield to the loop: a cancellation while the process starts would leave it behind.
    options: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    options["env"] = {**os.environ, **(environment or {})}
    options["process_group"] = 0 if own_group else None
    if not contained:
        return StartedProcess(subprocess.Popen(command, **options), None, None)
    if shutil.which(command[0], path=options["env"].get("PATH")) is None:
        raise FileNotFoundError(2, "there is no such program", command[0])
    heard, control = os.pipe()
    status, said = os.pipe()
    keeper = (
        sys.executable,
        "-I",
        "-S",
        KEEPER,
        str(heard),
        str(said),
        str(LINGER_S if linger_s is None else linger_s),
        (limits or ProcessLimits()).argument,
    )
    try:
        process = subprocess.Popen([*keeper, *command], pass_fds=(heard, said), **options)
    except BaseException:
        os.close(control)
        os.close(status)
        raise
    finally:
        os.close(heard)
        os.close(said)
    return StartedProcess(process, control, status)


@asynccontextmanager
async def running(
    *command: str, grace_s: float | None = None, reason: str = "", **options: Any
) -> AsyncIterator[StartedProcess]:
    """Run a program for as long as the block lasts; `options` are those of `start`."""
    process = start(*command, **options)
    try:
        await process.open()
        yield process
    finally:
        await process.end(reason, grace_s)


async def shell(command: str, data: bytes, output: File = None, **variables: str) -> tuple[int, bytes]:
    """Run a shell command; its exit code, and what it printed if `output` is a pipe.

    If that is cancelled, the command ends too, with all that it has started. So does what it leaves behind.
    """
    line = "/bin/sh", "-c", command
    files: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": output}
    async with running(*line, reason="cancelled", environment=variables, **files) as process:
        # Both at once: a command that prints before it has read everything waits for its reader.
        _, printed = await asyncio.gather(process.write(data), process.read())
        return (await process.wait()).code, printed
