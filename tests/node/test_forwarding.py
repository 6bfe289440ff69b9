"""Forwarders on real nodes: store and forward over sockets, through restarts, and what ends them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from node.peers import run

import tidings
from tidings import Event
from tidings.errors import QueueFull, QueueNotFound
from tidings.node.config import NodeConfig
from tidings.node.server import Node
from tidings.peers import forwarding


@contextlib.asynccontextmanager
async def named(home: Path, name: str, *peers: str) -> AsyncIterator[Node]:
    """A node of this name, which knows the others."""
    known = ", ".join(f"{peer}=tidings+unix://{home / peer}.sock" for peer in peers)
    settings = {"dir": str(home / name), "unix": f"{home / name}.sock", "name": name, "peers": known}
    node = Node(NodeConfig(compiled=False, **settings))
    await node.start()
    try:
        yield node
    finally:
        await node.close()


async def until(is_so: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Wait for something that will be; the test has a limit."""
    while not await is_so():
        await asyncio.sleep(0)


async def wait_there(node: Node, peer: str) -> None:
    async def is_there() -> bool:
        return node.driver.core.peering.is_there(peer)

    await until(is_there)


async def wait_sent(node: Node) -> None:
    """Wait until nothing waits for others."""

    async def is_sent() -> bool:
        return not any(one["waiting"] for one in node.driver.broker.status()["forwarding"])

    await until(is_sent)


async def contents(node: Node, queue: str) -> list[Any]:
    async with tidings.connect(node.addresses[0]) as bus:
        return [message.event["n"] for message in await (await bus.queue(queue)).get_all()]


def test_a_put_into_a_queue_of_a_peer_is_there_when_it_returns(tmp_path: Path) -> None:
    async def work() -> None:
        async with named(tmp_path, "far") as far, named(tmp_path, "near", "far") as near:
            await wait_there(near, "far")
            async with tidings.connect(far.addresses[0]) as bus:
                await bus.create_queue("jobs")
            async with tidings.connect(near.addresses[0]) as bus:
                queue = await bus.queue("jobs@far")
                await queue.put(Event("job", {"n": 1}))
                assert await contents(far, "jobs") == [1]
                await queue.put_all([Event("job", {"n": n}) for n in range(500)])
                assert await contents(far, "jobs") == list(range(500))

    run(work())


def test_errors_of_the_peer_are_raised_here(tmp_path: Path) -> None:
    async def work() -> None:
        async with named(tmp_path, "far") as far, named(tmp_path, "near", "far") as near:
            await wait_there(near, "far")
            async with (
                tidings.connect(far.addresses[0]) as there,
                tidings.connect(near.addresses[0]) as bus,
            ):
                await there.create_queue("jobs", max_messages=1)
                queue = await bus.queue("jobs@far")
                await queue.put(Event("job", {"n": 1}))
                with pytest.raises(QueueFull, match="1 of at most 1"):
                    await queue.put(Event("job", {"n": 2}))
                await there.delete_queue("jobs")
                with pytest.raises(QueueNotFound):
                    await queue.put(Event("job", {"n": 3}))
                assert (await bus.status())["forwarding"][0]["waiting"] == 0

    run(work())


def test_a_long_body_arrives_whole(tmp_path: Path) -> None:
    async def work() -> None:
        body = bytes(range(256)) * (3 << 12)
        async with named(tmp_path, "far") as far, named(tmp_path, "near", "far") as near:
            await wait_there(near, "far")
            async with (
                tidings.connect(far.addresses[0]) as there,
                tidings.connect(near.addresses[0]) as bus,
            ):
                jobs = await there.create_queue("jobs")
                await (await bus.queue("jobs@far")).put(Event("job", {"n": 1}, body=body))
                await wait_sent(near)
                message = await jobs.get(timeout_s=60)
                assert message.event.body == body

    run(work())


def test_what_is_put_while_a_peer_is_away_arrives_when_it_is_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with named(tmp_path, "near", "far") as near:
            async with named(tmp_path, "far") as far, tidings.connect(far.addresses[0]) as there:
                await there.create_queue("jobs")
                await wait_there(near, "far")
            async with tidings.connect(near.addresses[0]) as bus:
                queue = await bus.queue("jobs@far")
                await queue.put_all([Event("job", {"n": n}) for n in range(200)])
            async with named(tmp_path, "far") as far:
                await wait_sent(near)
                assert await contents(far, "jobs") == list(range(200))

    run(work())


def test_a_node_that_is_started_anew_goes_on_with_what_waits(tmp_path: Path) -> None:
    async def work() -> None:
        async with named(tmp_path, "far") as far, tidings.connect(far.addresses[0]) as there:
            await there.create_queue("jobs")
        for turn in range(3):
            async with named(tmp_path, "near", "far") as near:
                outgoing = near.driver.core.queues
                assert turn == 0 or outgoing.get("to:jobs@far") is not None
                async with tidings.connect(near.addresses[0]) as bus:
                    queue = await bus.queue("jobs@far")
                    await queue.put(Event("job", {"n": turn}))
        async with named(tmp_path, "near", "far") as near, named(tmp_path, "far") as far:
            await wait_sent(near)
            assert await contents(far, "jobs") == [0, 1, 2]

    run(work())


def test_a_queue_that_can_take_no_more_holds_up_no_other(tmp_path: Path) -> None:
    async def work() -> None:
        async with named(tmp_path, "far") as far, tidings.connect(far.addresses[0]) as there:
            await there.create_queue("full", max_messages=10)
            await there.create_queue("free")
        async with named(tmp_path, "near", "far") as near:
            async with tidings.connect(near.addresses[0]) as bus:
                for name in ("full", "free", "none"):
                    queue = await bus.create_queue(f"to:{name}@far", expiry=True)
                    await queue.put_all([Event("job", {"n": n}) for n in range(50)])
            async with named(tmp_path, "far") as far:
                await wait_sent(near)
                assert await contents(far, "full") == list(range(10))
                assert await contents(far, "free") == list(range(50))
            dead = await contents(near, "tidings.dead")
            assert len(dead) == 40 + 50

    run(work())


def test_messages_for_a_node_that_nobody_knows_wait(tmp_path: Path) -> None:
    async def work() -> None:
        async with named(tmp_path, "near") as near, tidings.connect(near.addresses[0]) as bus:
            queue = await bus.create_queue("to:jobs@nowhere")
            await queue.put(Event("job", {"n": 1}))
            (told,) = (await bus.status())["forwarding"]
            assert (told["waiting"], told["error"]) == (1, "there is no such peer")

    run(work())


def test_a_forwarder_with_nothing_to_do_ends_and_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "IDLE_S", 0.01)

    async def work() -> None:
        async with named(tmp_path, "far") as far, named(tmp_path, "near", "far") as near:
            await wait_there(near, "far")
            async with (
                tidings.connect(far.addresses[0]) as there,
                tidings.connect(near.addresses[0]) as bus,
            ):
                await there.create_queue("jobs")
                queue = await bus.queue("jobs@far")

                async def is_over() -> bool:
                    return not near.driver.core.forwarding._runs

                for n in range(3):
                    await queue.put(Event("job", {"n": n}))
                    await until(is_over)
                assert await contents(far, "jobs") == [0, 1, 2]

    run(work())


def test_more_queues_than_there_may_be_forwarders_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "IDLE_S", 0.01)
    monkeypatch.setattr(forwarding, "FORWARDERS_MAX", 1)

    async def work() -> None:
        async with named(tmp_path, "far") as far, named(tmp_path, "near", "far") as near:
            await wait_there(near, "far")
            async with (
                tidings.connect(far.addresses[0]) as there,
                tidings.connect(near.addresses[0]) as bus,
            ):
                for name in "abc":
                    await there.create_queue(name)
                    queue = await bus.create_queue(f"to:{name}@far")
                    await queue.put(Event("job", {"n": name}))
                await wait_sent(near)
                for name in "abc":
                    assert await contents(far, name) == [name]

    run(work())


def test_a_node_that_closes_forwards_no_more(tmp_path: Path) -> None:
    async def work() -> None:
        async with named(tmp_path, "near", "far") as near, tidings.connect(near.addresses[0]) as bus:
            await (await bus.create_queue("to:jobs@far")).put(Event("job", {"n": 1}))
        assert near.driver.core.forwarding._runs == {}

    run(work())
