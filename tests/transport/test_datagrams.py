"""Datagrams, by real sockets of this machine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from client.nodes import run

from tidings.transport.datagrams import DatagramPort, group_socket, plain_socket, sending_socket

GROUP = "239.255.73.99"


class Heard:
    """A port, and what has come to it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes] = asyncio.Queue()
        self.port = DatagramPort(self._hear)

    def _hear(self, data: bytes, _place: Any) -> None:
        self.queue.put_nowait(data)

    @property
    def place(self) -> tuple[str, int]:
        """Where it is."""
        place: tuple[str, int] = self.port.about("sockname")
        return place

    async def all_until(self, last: bytes) -> list[bytes]:
        """Return what came up to this."""
        got = [await self.queue.get()]
        while got[-1] != last:
            got.append(await self.queue.get())
        return got


def test_a_datagram_goes_to_one_to_all_or_to_all_but_one() -> None:
    async def work() -> None:
        ends = [Heard() for _ in range(4)]
        for end in ends:
            await end.port.open(plain_socket("localhost", 0))
        sender, *others = ends
        places = [end.place for end in others]
        sender.port.targets = places
        sender.port.send(b"all")
        sender.port.send(b"one", places[1])
        sender.port.send(b"all but one", but=places[1])
        sender.port.send(b"end")
        got = [await end.all_until(b"end") for end in others]
        assert got == [
            [b"all", b"all but one", b"end"],
            [b"all", b"one", b"end"],
            [b"all", b"all but one", b"end"],
        ]
        for end in ends:
            end.port.close()
        assert not sender.port.is_open
        sender.port.send(b"too late")

    run(work())


def test_a_group_of_this_machine_hears_what_is_sent_to_it() -> None:
    async def work() -> None:
        ends = [Heard(), Heard()]
        await ends[0].port.open(group_socket(GROUP, 0, "127.0.0.1"))
        port = ends[0].place[1]
        await ends[1].port.open(group_socket(GROUP, port, "127.0.0.1"))
        sender = DatagramPort(lambda _data, _place: None)
        await sender.open(sending_socket("127.0.0.1"))
        sender.targets = ((GROUP, port),)
        sender.send(b"hello")
        assert [await end.queue.get() for end in ends] == [b"hello", b"hello"]
        for one in (sender, *(end.port for end in ends)):
            one.close()

    run(work())


def test_what_the_system_says_of_sending_is_reported() -> None:
    async def work() -> None:
        failures: asyncio.Queue[Exception] = asyncio.Queue()
        port = DatagramPort(lambda _data, _place: None, failures.put_nowait)
        await port.open(plain_socket("127.0.0.1", 0))
        port.send(bytes(70_000), ("127.0.0.1", 9))
        assert isinstance(await failures.get(), OSError)
        port.close()

    run(work())


def test_a_group_of_ipv6_is_refused() -> None:
    with pytest.raises(OSError, match="IPv4"):
        group_socket(GROUP, 0, "::1")
