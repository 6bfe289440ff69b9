from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from client.nodes import node, run

import tidings
from tidings.errors import Disconnected, NoAnswer, UserError
from tidings.testing import Proxy


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that says what it hears."""
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()
    await writer.wait_closed()


async def echoing() -> tuple[asyncio.Server, str]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    return server, f"tidings://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_bytes_pass_both_ways_however_many_there_are() -> None:
    async def work() -> None:
        server, address = await echoing()
        said = bytes(range(256)) * 4_096
        async with server, Proxy(address) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(said)
            assert await reader.readexactly(len(said)) == said
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()

    run(work())


def test_a_reset_breaks_what_there_is_and_a_client_goes_on_by_itself(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            node(tmp_path) as address,
            Proxy(address) as proxy,
            tidings.connect(proxy.address, random=lambda: 0.0) as bus,
        ):
            proxy.reset()
            await bus.publish("t", delivery="reliable")
            assert proxy.connections == 2

    run(work())


def test_no_connection_comes_about_between_a_cut_and_its_end(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            node(tmp_path) as address,
            Proxy(address) as proxy,
            tidings.connect(proxy.address, random=lambda: 0.0) as bus,
        ):
            proxy.cut()
            with pytest.raises(Disconnected):
                await bus.publish("t", delivery="reliable", timeout_s=0.05)
            proxy.mend()
            await bus.publish("t", delivery="reliable")

    run(work())


def test_what_is_stalled_arrives_after_its_end_on_the_same_connection(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            node(tmp_path) as address,
            Proxy(address) as proxy,
            tidings.connect(proxy.address) as bus,
        ):
            proxy.stall()
            with pytest.raises(NoAnswer):
                await bus.status(timeout_s=0.05)
            waiting = asyncio.create_task(bus.status())
            proxy.mend()
            assert (await waiting)["node"]
            assert proxy.connections == 1

    run(work())


def test_a_node_whose_answers_are_lost_has_done_what_it_was_asked_for(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            node(tmp_path) as address,
            Proxy(address) as proxy,
            tidings.connect(proxy.address, random=lambda: 0.0) as bus,
            tidings.connect(address) as witness,
            witness.subscribe("type = 't'") as events,
        ):
            proxy.lose_answers()
            with pytest.raises(NoAnswer) as caught:
                await bus.publish("t", delivery="reliable", timeout_s=0.05)
            assert caught.value.may_be_accepted
            assert (await anext(events)).type == "t"
            proxy.mend()
            await bus.status()
            assert proxy.connections >= 2

    run(work())


def test_in_a_thread_of_its_own_it_does_the_same(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            await asyncio.to_thread(break_from_a_thread, address)

    run(work())


def break_from_a_thread(address: str) -> None:
    with Proxy(address) as proxy, tidings.blocking.connect(proxy.address, random=lambda: 0.0) as bus:
        proxy.cut()
        with pytest.raises(Disconnected):
            bus.publish("t", delivery="reliable", timeout_s=0.05)
        proxy.mend()
        bus.publish("t", delivery="reliable")
        assert proxy.connections >= 2
        proxy.stall()  # and the block ends while it lasts


def test_a_proxy_outside_its_block_says_so() -> None:
    with pytest.raises(UserError, match="inside `with`"):
        _ = Proxy("tidings://127.0.0.1:7300").address


def test_the_address_keeps_what_the_client_must_know_of_the_target() -> None:
    with Proxy("tidings+tls://ann@127.0.0.1:7300") as proxy:
        assert proxy.address == f"tidings+tls://ann@127.0.0.1:{proxy.port}"
