"""The driver of a connection: who waits for what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from effort import ANSWER_S

import tidings
from tidings.event import Event
from tidings.ids import StoredIds
from tidings.protocol.connection import Connection
from tidings.protocol.frames import encode
from tidings.protocol.messages import Accepted, Notice, Welcome
from tidings.timers import Backoff
from tidings.transport.link import Link


def test_who_waits_for_an_earlier_counter_does_not_wait_for_later_ones() -> None:
    async def work() -> None:
        async with tidings.open() as bus, asyncio.timeout(ANSWER_S):
            link, last = bus._link, bus._core.publications.last
            later = asyncio.create_task(link.wait_accepted(last + 2, None))
            await asyncio.sleep(0)
            await bus.publish("air", delivery="persistent")
            assert not later.done()
            await bus.publish("air", delivery="persistent")
            await later

    asyncio.run(work())


class Wire(asyncio.Transport):
    """Connection to a node, which writes nowhere."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._is_closing = False

    def write(self, data: object) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


class Nodes:
    """Nodes by name, some of which are gone; `dialled` has the names of those that were dialled."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.dialled: list[str] = []

    def reach(self, name: str) -> Callable[[asyncio.Protocol], Awaitable[None]]:
        async def connect(protocol: asyncio.Protocol) -> None:
            self.dialled.append(name)
            await asyncio.sleep(0)
            if name in self.gone:
                raise OSError(f"{name} is gone")
            protocol.connection_made(Wire(protocol))
            protocol.data_received(encode(Welcome(1, name, 1, "s", 0, 1_000_000)))

        return connect

    async def wait_dialled(self, count: int) -> None:
        while len(self.dialled) < count:
            await asyncio.sleep(0)


@pytest.mark.parametrize("has_published", [False, True])
def test_a_client_that_was_sent_elsewhere_waits_for_its_new_node_if_others_may_lack_what_it_has_sent(
    has_published: bool,
) -> None:
    async def work() -> None:
        nodes, core = Nodes(), Connection(StoredIds("c", 1), "c")
        link = Link(core, reconnect=True, random=lambda: 0.0)
        link._backoff = Backoff(None, 0.0)
        async with asyncio.timeout(ANSWER_S):
            link.start(nodes.reach("a"), nodes.reach)
            await nodes.wait_dialled(1)
            await link.wait_connected(None)
            link.data_received(encode(Notice("drain", 0, {"places": ["b", "c"]})))
            await nodes.wait_dialled(2)
            await link.wait_connected(None)
            assert core.node == "b"
            if has_published:
                counter = core.publish(Event("x", delivery="reliable"))
                link.flush()
                link.data_received(encode(Accepted(counter)))
            nodes.gone = {"a", "b", "c"}
            assert link._transport is not None
            link._transport.close()
            await nodes.wait_dialled(6)
        await link.close()
        later = nodes.dialled[2:6]
        assert later == (["b"] * 4 if has_published else ["b", "c", "a", "b"])

    asyncio.run(work())
