"""Real nodes and real clients that share a queue: it is used as any other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from node.peers import Start, run, running, starting

import tidings
from postgres.server import Server
from tidings import Event
from tidings.client import Bus
from tidings.errors import (
    ConfigError,
    QueueEmpty,
    QueueError,
    QueueExists,
    QueueFull,
    QueueNotFound,
)
from tidings.node.server import Node


@asynccontextmanager
async def two(server: Server) -> AsyncIterator[tuple[Node, Bus, Bus]]:
    """Two nodes, and a client of each."""
    async with (
        running(name="a", postgres=server.conninfo) as first,
        running(name="b", postgres=server.conninfo) as second,
        tidings.connect(first.addresses[0]) as one,
        tidings.connect(second.addresses[0]) as other,
    ):
        yield first, one, other


def test_clients_of_two_nodes_share_a_queue(server: Server) -> None:
    async def work() -> None:
        async with two(server) as (_, one, other):
            mine = await one.create_queue("jobs", type="postgres", max_messages=100)
            with pytest.raises(QueueExists, match="max_messages is 100, not None"):
                await other.create_queue("jobs", type="postgres")
            theirs = await other.queue("jobs")
            assert theirs.description.id == mine.description.id
            waiting = asyncio.create_task(theirs.get(timeout_s=20))
            await mine.put("job", number=1, body=b"x")
            got = await waiting
            assert (got["number"], got.body) == (1, b"x")
            await mine.put_all(Event("job", number=number) for number in range(2, 8))
            async with theirs.take(where="number = 4", timeout_s=60) as message:
                assert message["number"] == 4
                with pytest.raises(QueueEmpty):
                    await mine.get(where="number = 4", timeout_s=0)
            assert [message["number"] for message in await mine.read_all()] == [2, 3, 5, 6, 7]
            assert [message["number"] for message in await theirs.get_all(where="number > 5")] == [6, 7]
            assert (await mine.describe()).messages == 3
            assert await theirs.purge() == 3
            assert [found.name for found in await other.lookup("jobs", scope="both")] == ["jobs"]
            with pytest.raises(QueueEmpty):
                await theirs.get(timeout_s=0.05)
            await one.delete_queue("jobs")
            with pytest.raises(QueueNotFound):
                await mine.put("job")

    run(work())


def test_errors_are_those_of_any_queue(server: Server) -> None:
    async def work() -> None:
        async with two(server) as (_, one, _other):
            queue = await one.create_queue("jobs", type="postgres", max_messages=1)
            await queue.put("job", number=1)
            with pytest.raises(QueueFull):
                await queue.put("job", number=2)
            with pytest.raises(QueueError, match="can't be bound"):
                await one.create_queue("bound", type="postgres", bind="type = 'job'")
            with pytest.raises(QueueError, match="no transaction can"):
                async with one.transaction() as transaction:
                    await transaction.put(queue, "job", number=3)
            with pytest.raises(QueueError, match="no body in parts"):
                await queue.put("job", body=bytes(2 << 20))

    run(work())


def test_what_a_client_held_that_is_lost_goes_to_a_client_of_the_other_node(server: Server) -> None:
    async def work() -> None:
        async with two(server) as (first, one, other):
            queue = await one.create_queue("jobs", type="postgres")
            await queue.put("job", number=1)
            async with tidings.connect(first.addresses[0]) as lost:
                messages = (await lost.queue("jobs")).messages()
                await messages.__aenter__()
                assert (await anext(messages))["number"] == 1
            again = await (await other.queue("jobs")).get(timeout_s=20)
            assert again["number"] == 1

    run(work())


def test_who_watches_at_one_node_sees_what_is_put_at_another(server: Server) -> None:
    async def work() -> None:
        async with two(server) as (_, one, other):
            queue = await one.create_queue("jobs", type="postgres")
            async with (await other.queue("jobs")).watch("number > 1") as watch:
                await queue.put_all(Event("job", number=number) for number in range(4))
                assert [(await anext(watch))["number"] for _ in range(2)] == [2, 3]

    run(work())


@pytest.fixture
def start(server: Server) -> Iterator[Start]:
    yield from starting()


def test_when_a_node_is_killed_the_other_goes_on_and_nothing_is_lost(server: Server, start: Start) -> None:
    async def work() -> None:
        nodes = [start("--port", "0", "--postgres", server.conninfo) for _ in range(2)]
        async with (
            tidings.connect(nodes[0].address(), reconnect=False) as doomed,
            tidings.connect(nodes[1].address()) as other,
        ):
            queue = await doomed.create_queue("jobs", type="postgres")
            await queue.put_all(Event("job", number=number) for number in range(50))
            messages = queue.messages(prefetch=20)
            await messages.__aenter__()
            held = await anext(messages)  # and has not dealt with it when the node is gone
            nodes[0].process.kill()
            theirs = await other.queue("jobs")
            got = [(await theirs.get(timeout_s=30))["number"] for _ in range(50)]
            assert (held["number"], sorted(got)) == (0, list(range(50)))

    run(work())


def test_a_setting_that_is_no_conninfo_stops_the_start() -> None:
    async def work() -> None:
        with pytest.raises(ConfigError, match="postgres"):
            async with running(postgres="postgresql://alice:hidden@host/db"):
                pass

    run(work())
