"""Child processes of the demo: each is a tidings command that a user could type, and none outlives the demo.

Each has a process group of its own, so that Ctrl-C reaches the demo alone, which then terminates them.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import IO, Any

from tidings import processes
from tidings.processes import StartedProcess

PROGRAM = (sys.executable, "-c", "from tidings.cli import main; main()")


def running(
    *command: str, errors: IO[bytes] | None = None, environment: Mapping[str, str] | None = None
) -> AbstractAsyncContextManager[StartedProcess]:
    """Run a process for as long as the block lasts; its standard error goes to `errors`."""
    errors_to = subprocess.DEVNULL if errors is None else errors
    return processes.running(*command, stderr=errors_to, environment=environment)


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
