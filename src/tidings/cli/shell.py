"""Shell commands that are run for messages and requests, with the event on their standard input."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from typing import IO, Any


async def run_shell(
    command: str, data: bytes, output: int | IO[Any] | None = None, **variables: str
) -> tuple[int, bytes]:
    """Run a shell command; its exit code, and what it printed if `output` is a pipe.

    If that is cancelled, the command ends too, with all that it has started.
    """
    # Started in one go: a start that is cancelled half-way would leave some of the command behind.
    process = subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.PIPE,
        stdout=output,
        env={**os.environ, **variables},
        process_group=0,
    )
    try:
        printed, _ = await asyncio.to_thread(process.communicate, data)
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        await asyncio.to_thread(process.wait)  # nothing else is to begin before it has ended
        raise
    return process.returncode, printed or b""
