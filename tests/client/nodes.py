"""Real nodes in the test's own loop, and proxies before them whose connections can be broken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from effort import ANSWER_S

from tidings.node.config import NodeConfig
from tidings.node.server import Node
from tidings.testing import Proxy

T = TypeVar("T")

PATIENCE_S = ANSWER_S
"""After this a test that waits for something is taken to wait for ever."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; one that hangs fails."""

    async def within() -> T:
        async with asyncio.timeout(PATIENCE_S):
            return await work

    return asyncio.run(within())


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time can be put forward; a node that runs in it has a clock of its own."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def run_with_clock(work: Callable[[Clock], Coroutine[Any, Any, T]]) -> T:
    """The same with a clock that the test may put forward."""

    async def within() -> T:
        clock = asyncio.get_running_loop()
        assert isinstance(clock, Clock)
        async with asyncio.timeout(PATIENCE_S):
            return await work(clock)

    with asyncio.Runner(loop_factory=Clock) as runner:
        return runner.run(within())


@contextlib.asynccontextmanager
async def node(home: Path, *, keeps: bool = True) -> AsyncIterator[str]:
    """A node on a Unix socket, for as long as the block lasts; its address."""
    directory = str(home / "store") if keeps else None
    running = Node(NodeConfig(dir=directory, unix=str(home / "socket"), compiled=False))
    await running.start()
    try:
        yield f"tidings+unix://{home / 'socket'}"
    finally:
        await running.close()


def proxy_of(home: Path) -> Proxy:
    """A proxy before the node of this folder, whose connections can be broken."""
    return Proxy(f"tidings+unix://{home / 'socket'}")
