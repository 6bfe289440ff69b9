"""A proxy between clients and a node, whose connections can be broken, held up and restored.

It carries bytes and knows nothing of what they mean, so any protocol over TCP passes it. Inside `async with`
it runs on the loop of the caller, and a call takes effect at once; inside `with` it runs in a thread of its
own, and a call returns when it has taken effect. The rule it keeps: what it has read and may not pass on
waits in the buffer of one read, and more is left to the sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Self

from tidings.client.runner import Runner
from tidings.errors import UserError
from tidings.transport.address import Address, parse

READ_SIZE_MAX = 1 << 16
"""Bytes that are read at once, and may wait in each direction of a connection while it is stalled."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Address of its own for a node, with connections that can be broken, stalled and restored.

    A client connects to `address` instead of the node's. The proxy is entered once, with `with` or
    `async with`.
    """

    def __init__(self, target: str) -> None:
        """`target` is the address of the node."""
        self._target = parse(target)
        self._runner: Runner | None = None  # the thread, if it has one of its own
        self._server: asyncio.Server | None = None
        self._port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()  # set while bytes may pass
        self._flows.set()
        self._is_cut = False
        self._loses_answers = False
        self.connections: int = 0
        """How many connections it has accepted so far, refused ones included."""
        self.bytes_passed: int = 0
        """Bytes that it has passed on so far, in both directions."""

    @property
    def address(self) -> str:
        """The address at which clients reach the node through this proxy."""
        scheme, user = "tidings", ""
        if self._target.kind == "tls":
            scheme, user = "tidings+tls", f"{self._target.user}@" if self._target.user else ""
        return f"{scheme}://{user}127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """The TCP port of the proxy on 127.0.0.1."""
        if self._server is None:
            raise UserError("a proxy is used inside `with` or `async with`")
        return self._port

    # Faults

    def reset(self) -> None:
        """Break all connections and lose what is on its way; clients may reconnect at once."""
        self._do(self._abort)

    def cut(self) -> None:
        """Break all connections, and each new one, until `mend`."""
        self._do(self._cut)

    def stall(self) -> None:
        """Keep connections open, and accept new ones, but pass on nothing until `mend`."""
        self._do(self._flows.clear)

    def lose_answers(self) -> None:
        """Pass on what clients send, and lose what the node sends, until `mend`."""
        self._do(self._lose_answers)

    def mend(self) -> None:
        """Accept connections and pass on bytes again, those held back first.

        Connections whose answers were lost are broken, as the rest of them would make no sense.
        """
        self._do(self._mend)

    def _cut(self) -> None:
        self._is_cut = True
        self._abort()

    def _lose_answers(self) -> None:
        self._loses_answers = True

    def _mend(self) -> None:
        if self._loses_answers:
            self._loses_answers = False
            self._abort()
        self._is_cut = False
        self._flows.set()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _do(self, act: Callable[[], None]) -> None:
        """Do something on the proxy's loop, and return when it is done."""
        if self._runner is None:
            act()
        else:
            self._runner.run(_call(act))

    # The block

    def __enter__(self) -> Self:
        self._runner = Runner()
        try:
            self._runner.run(self.__aenter__())
        except BaseException:
            self._runner.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._runner is not None
        self._runner.run(self._close())
        self._runner.stop()

    async def __aenter__(self) -> Self:
        if self._server is not None:
            raise UserError("a proxy can be entered once; make another")
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=READ_SIZE_MAX)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._flows.set()
        self._cut()
        await asyncio.gather(*self._serving)

    # Connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called by the server for each connection."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.connections += 1
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            if not self._is_cut:
                await self._pass_on(reader, writer, await _dial(self._target))
        self._writers.discard(writer)
        writer.transport.abort()
        self._serving.discard(task)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, far: Streams
    ) -> None:
        far_reader, far_writer = far
        if not self._is_cut:  # as it may be since the node was dialled
            self._writers.add(far_writer)
            ways = [self._carry(reader, far_writer), self._carry(far_reader, writer, is_answer=True)]
            tasks = [asyncio.ensure_future(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._writers.discard(far_writer)
        far_writer.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool = False
    ) -> None:
        """Pass on what one end sends until it ends the connection."""
        while data := await reader.read(READ_SIZE_MAX):
            await self._flows.wait()
            if not (is_answer and self._loses_answers):
                writer.write(data)
                self.bytes_passed += len(data)
                await writer.drain()
        await self._flows.wait()
        writer.close()


async def _dial(target: Address) -> Streams:
    if target.kind == "unix":
        return await asyncio.open_unix_connection(target.path, limit=READ_SIZE_MAX)
    return await asyncio.open_connection(target.host, target.port, limit=READ_SIZE_MAX)


async def _call(act: Callable[[], None]) -> None:
    act()
