"""For tests of the node: a peer that speaks the protocol over a real socket, and a node as a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from effort import ANSWER_S
from msgspec.structs import replace

from tidings import Batch, Event
from tidings.node.config import NodeConfig
from tidings.node.server import Node
from tidings.protocol.frames import FRAME_MAX, Frame, FrameReader, encode
from tidings.protocol.messages import (
    Accepted,
    Bye,
    Deliver,
    Hello,
    ProtocolMessage,
    Publish,
    Reply,
    Request,
    Welcome,
)

ANSWER_S_MAX = ANSWER_S
"""How long a test waits for what must come."""
SOURCE = Path(__file__).parents[2] / "src"

Kind = TypeVar("Kind", bound=ProtocolMessage)
Run = Callable[[Coroutine[Any, Any, None]], None]
"""Runs a test on a loop."""


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test on a loop of its own, and end it if it hangs."""
    asyncio.run(asyncio.wait_for(test, 2 * ANSWER_S_MAX))


def inside(node: Node) -> Peer:
    """Someone in the node's own process."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    node.attach(protocol)
    transport = protocol._transport  # type: ignore[attr-defined]  # as open_connection does it
    return Peer(reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop()))


class Peer:
    """One connection that says what it is told to say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.counter = 0
        self._frames = FrameReader(FRAME_MAX)
        self._unread: list[Frame] = []

    def send(self, *messages: ProtocolMessage) -> None:
        self.writer.write(b"".join(map(encode, messages)))

    async def hello(self, system: str = "peer", epoch: int = 1, name: str = "") -> Welcome:
        self.send(Hello([1], system, epoch, name))
        return await self.expect(Welcome)

    def publish(self, *events: Event) -> int:
        """Send these in one frame; the counter of the last."""
        numbered = [replace(event, counter=self.counter + n) for n, event in enumerate(events, start=1)]
        self.counter += len(events)
        self.writer.write(encode(Publish(), Batch.of(numbered).raw))
        return self.counter

    async def publish_accepted(self, *events: Event) -> None:
        counter = self.publish(*events)
        while (await self.expect(Accepted)).counter < counter:
            pass

    async def ask(self, operation: str, **arguments: Any) -> Reply:
        self.send(Request(1, operation, arguments))
        return await self.expect(Reply)

    async def subscribe(self, filter: str = "", credit: int = 10**9, **arguments: Any) -> None:
        reply = await self.ask("subscribe", number=1, filter=filter, credit=credit, **arguments)
        assert reply.error is None, reply.error

    async def frame(self) -> Frame | None:
        """The next frame, None at the end of the connection."""
        while not self._unread:
            data = await asyncio.wait_for(self.reader.read(1 << 18), ANSWER_S_MAX)
            if not data:
                return None
            self._unread += self._frames.feed(data)
        return self._unread.pop(0)

    async def expect(self, kind: type[Kind]) -> Kind:
        """The next message of this kind; others are passed over, and the end is a failure."""
        while frame := await self.frame():
            if isinstance(frame[0], kind):
                return frame[0]
            assert not isinstance(frame[0], Bye), frame[0]
        raise AssertionError(f"the connection ended before a {kind.__name__}")

    async def events(self, count: int) -> list[Event]:
        """The next so many events delivered."""
        events: list[Event] = []
        while len(events) < count:
            frame = await self.frame()
            assert frame is not None
            if isinstance(frame[0], Deliver):
                events += Batch(frame[1])
        return events

    async def goodbye(self) -> Bye:
        """The BYE of the node, behind which the connection must end."""
        bye = await self.expect_bye()
        assert await self.frame() is None
        return bye

    async def expect_bye(self) -> Bye:
        while frame := await self.frame():
            if isinstance(frame[0], Bye):
                return frame[0]
        raise AssertionError("the connection ended without a BYE")

    def close(self) -> None:
        self.writer.close()


@contextlib.asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Node]:
    """A node in this process that listens on a free port, without compiled code unless asked for."""
    node = Node(NodeConfig(**{"port": 0, "compiled": False, **settings}))
    await node.start()
    try:
        yield node
    finally:
        await node.close()


@contextlib.asynccontextmanager
async def peer_of(address: str) -> AsyncIterator[Peer]:
    """A connection to this address."""
    scheme, _, place = address.partition("://")
    if scheme == "tidings+unix":
        peer = Peer(*await asyncio.open_unix_connection(place))
    else:
        host, _, port = place.rpartition(":")
        peer = Peer(*await asyncio.open_connection(host, int(port)))
    try:
        yield peer
    finally:
        peer.close()
        with contextlib.suppress(ConnectionError):
            await peer.writer.wait_closed()


class Process:
    """A node as a process of its own."""

    def __init__(self, *flags: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from tidings.cli import main; main()", "node", *flags],
            env={**os.environ, "PYTHONPATH": str(SOURCE), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line it prints; empty at the end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def address(self) -> str:
        """Where it says that it listens, in its first line."""
        words = self.line().split()
        assert words[:2] == ["listening", "on"], self.finish()
        return words[2]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and wait for the end; exit code and what was written to standard error."""
        self.process.send_signal(number)
        return self.finish()

    def finish(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=ANSWER_S_MAX)
        return self.process.returncode, errors


Start = Callable[..., Process]


def starting() -> Iterator[Start]:
    """Starts node processes, and ends those that are left; the body of a fixture."""
    started: list[Process] = []

    def start(*flags: str, environment: dict[str, str] | None = None) -> Process:
        started.append(Process("--plain", *flags, environment=environment))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()
