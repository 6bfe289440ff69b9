from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from effort import ANSWER_S
from node.peers import running
from node.secured import PASSWORD, Secured

from tidings.errors import Disconnected, NoAnswer, NotAllowed, Refused
from tidings.protocol.frames import encode
from tidings.protocol.messages import Bye
from tidings.transport.credentials import Credentials
from tidings.transport.dial import dial
from tidings.transport.ping import PingAnswer, ping


async def pinged(address: str, timeout_s: float = ANSWER_S, **credentials: object) -> PingAnswer:
    given = Credentials(**credentials)  # type: ignore[arg-type]
    return await ping(dial(address, given), given.says, timeout_s)


async def pinged_at(answer: bytes, timeout_s: float = ANSWER_S) -> PingAnswer:
    """What comes of a ping where a program answers this, and then closes the connection."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        if not answer:
            await reader.read()  # until the other end has enough
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        done.set()

    done = asyncio.Event()
    server = await asyncio.start_server(say, "127.0.0.1", 0)
    try:
        return await pinged(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s)
    finally:
        await done.wait()
        server.close()


def test_a_node_answers_with_its_id_and_name() -> None:
    async def work() -> None:
        async with running(name="hall") as node:
            found = await pinged(node.addresses[0])
            assert (found.node, found.name) == (node.driver.broker.node, "hall")
            assert found.round_trip_s >= 0

    asyncio.run(work())


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0", b"\x15\x03\x03\x00\x02\x02\x0a"]
)
def test_another_program_is_no_node(answer: bytes) -> None:
    with pytest.raises(Disconnected):
        asyncio.run(pinged_at(answer))


def test_a_program_that_says_nothing_is_given_up() -> None:
    with pytest.raises(NoAnswer, match=r"within 0\.05 s"):
        asyncio.run(pinged_at(b"", timeout_s=0.05))


def test_a_node_that_takes_no_connections_says_why() -> None:
    with pytest.raises(Refused, match="no more"):
        asyncio.run(pinged_at(encode(Bye("limit", "this node accepts no more"))))


def test_where_nothing_listens_that_is_an_error() -> None:
    async def work() -> None:
        async with running() as node:
            (address,) = node.addresses
        with pytest.raises(Disconnected, match=r"refused|Connect call failed"):
            await pinged(address)

    asyncio.run(work())


def test_a_node_with_security_answers_who_is_let_in(tmp_path: Path) -> None:
    secured = Secured(tmp_path)

    async def work() -> None:
        async with running(security=str(secured.path)) as node:
            bare = node.addresses[0].removeprefix("tidings+tls://")
            assert (await pinged(bare, ca=secured.ca, user="ada", password=PASSWORD)).name == node.name
            with pytest.raises(NotAllowed):
                await pinged(bare, ca=secured.ca, user="ada", password="wrong")

    asyncio.run(work())
