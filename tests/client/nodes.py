"""Real nodes in the test's own loop, and a relay in front of them whose connections can be cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from effort import ANSWER_S

from tidings.node.config import NodeConfig
from tidings.node.server import Node

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


class Relay:
    """Carries bytes between clients and a node, until it is told to cut them off."""

    def __init__(self, home: Path) -> None:
        self.connections = 0
        self.is_closed = False
        self.is_silent = False  # it swallows what comes from the node
        self._target = str(home / "socket")
        self._path = str(home / "relay")
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"tidings+unix://{self._path}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Relay]:
        server = await asyncio.start_unix_server(self._serve, self._path)
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """Break all connections, and lose what is under way."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.is_closed:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_unix_connection(self._target)
            self._writers |= {writer, far_writer}
            with contextlib.suppress(OSError):
                await asyncio.gather(_carry(reader, far_writer), self._carry_back(far_reader, writer))
            self._writers -= {writer, far_writer}
            far_writer.transport.abort()
        writer.transport.abort()

    async def _carry_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if not self.is_silent:
                writer.write(data)
        writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()
