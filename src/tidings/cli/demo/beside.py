"""Things that go on beside a block of code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


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
