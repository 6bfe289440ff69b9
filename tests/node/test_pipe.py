"""A pipe inside one loop: as a socket, without the system."""

from __future__ import annotations

import asyncio
from typing import Any

from tidings.node.ports import PipeEnd, connect_pipe


class Heard(asyncio.Protocol):
    """Notes what it hears."""

    def __init__(self, name: str, log: list[Any]) -> None:
        self.name = name
        self.log = log
        self.transport: PipeEnd

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, PipeEnd)
        self.transport = transport
        self.log.append((self.name, "made"))

    def data_received(self, data: bytes) -> None:
        self.log.append((self.name, data))

    def connection_lost(self, error: Exception | None) -> None:
        self.log.append((self.name, "lost"))


def connected() -> tuple[Heard, Heard, list[Any]]:
    log: list[Any] = []
    one, other = Heard("one", log), Heard("other", log)
    connect_pipe(one, other)
    log.clear()
    return one, other, log


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_both_ends_hear_of_each_other() -> None:
    async def scenario() -> None:
        log: list[Any] = []
        connect_pipe(Heard("one", log), Heard("other", log))
        assert log == [("one", "made"), ("other", "made")]

    asyncio.run(scenario())


def test_what_is_written_at_once_arrives_together_and_not_before_the_loop_runs() -> None:
    async def scenario() -> None:
        one, other, log = connected()
        one.transport.write(b"a")
        one.transport.write(bytearray(b"b"))
        other.transport.write(b"c")
        assert log == []
        await turns()
        assert log == [("other", b"ab"), ("one", b"c")]

    asyncio.run(scenario())


def test_what_was_written_before_the_end_arrives_and_nothing_after_it() -> None:
    async def scenario() -> None:
        one, other, log = connected()
        one.transport.write(b"last")
        one.transport.close()
        one.transport.close()
        one.transport.write(b"too late")
        assert one.transport.is_closing()
        await turns()
        assert log == [("other", b"last"), ("other", "lost"), ("one", "lost")]
        other.transport.write(b"nobody")
        other.transport.abort()
        await turns()
        assert len(log) == 3

    asyncio.run(scenario())


def test_who_does_not_read_gets_it_when_he_does() -> None:
    async def scenario() -> None:
        one, other, log = connected()
        other.transport.pause_reading()
        one.transport.write(b"a")
        await turns()
        one.transport.write(b"b")
        await turns()
        assert log == []
        other.transport.resume_reading()
        await turns()
        assert log == [("other", b"ab")]
        assert one.transport.get_write_buffer_size() == 0

    asyncio.run(scenario())
