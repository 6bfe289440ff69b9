"""Transactions over queues and publications: all of it, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

import tidings
from client.nodes import node, proxy_of, run
from tidings import Event
from tidings.client import Bus, Queue
from tidings.client.put import SEGMENT_SIZE
from tidings.errors import QueueEmpty, QueueFull, QueueNotFound, Refused, TransactionLost, UserError
from tidings.protocol.calls import CALLS_MAX
from tidings.protocol.frames import FRAME_MAX, FrameReader, encode
from tidings.protocol.messages import Failure, Hello, Reply, Request, Welcome

Work = Callable[[Bus, Queue], Awaitable[None]]


def with_queue(work: Work, **wish: Any) -> None:
    async def within() -> None:
        async with tidings.open() as bus:
            await work(bus, await bus.create_queue("jobs", **wish))

    run(within())


def test_what_is_put_is_seen_by_others_when_it_is_committed() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async with bus.transaction() as tx:
            await tx.put("jobs", "job", n=1)
            await queue.put("job", {"n": 2}, transaction=tx)
            await tx.put_all(queue, [Event("job", n=3), Event("job", n=4)])
            assert await queue.is_empty()
            assert [event["n"] for event in await tx.read_all(queue)] == [1, 2, 3, 4]
        assert [message["n"] for message in await queue.get_all()] == [1, 2, 3, 4]

    with_queue(work)


def test_what_is_got_is_gone_when_it_is_committed() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put_all(Event("job", n=n) for n in range(5))
        async with bus.transaction() as tx:
            message = await tx.get(queue, timeout_s=0)
            assert message["n"] == 0
            with pytest.raises(UserError, match="when its transaction ends"):
                await message.acknowledge()
            assert (await queue.get("n = 1", transaction=tx))["n"] == 1
            assert [message["n"] for message in await tx.get_all(queue, "n > 2")] == [3, 4]
            assert [event["n"] for event in await queue.read_all()] == [2]
        assert [message["n"] for message in await queue.get_all()] == [2]

    with_queue(work)


def test_after_an_error_nothing_was_done_and_everything_is_where_it_was() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put_all(Event("job", n=n) for n in range(3))

        async def fail() -> None:
            async with bus.transaction() as tx:
                await tx.get(queue)
                await tx.put(queue, "job", n=9)
                await tx.publish("news")
                raise ZeroDivisionError

        async with bus.subscribe("type = 'news'") as events:
            with pytest.raises(ZeroDivisionError):
                await fail()
            messages = await queue.get_all()
            assert [(message["n"], message.deliveries) for message in messages] == [(0, 2), (1, 1), (2, 1)]
            await bus.publish("news", n=1)
            assert (await anext(events))["n"] == 1

    with_queue(work)


def test_publications_of_a_transaction_are_made_when_it_is_committed() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async with bus.subscribe() as events:
            async with bus.transaction() as tx:
                await tx.publish("late", n=1)
                await bus.publish("early")
            assert [(await anext(events)).type for _ in range(2)] == ["early", "late"]

    with_queue(work)


def test_a_message_moves_from_one_queue_to_another() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        done = await bus.create_queue("done")
        await queue.put("job", n=1)
        async with bus.transaction() as tx:
            message = await tx.get(queue)
            await tx.put(done, message.event)
        assert await queue.is_empty()
        assert (await done.get())["n"] == 1

    with_queue(work)


def test_what_was_read_can_t_be_taken_by_others_meanwhile() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1)
        async with bus.transaction() as tx:
            assert (await tx.read(queue))["n"] == 1
            assert (await queue.read())["n"] == 1
            with pytest.raises(QueueEmpty):
                await queue.get(timeout_s=0)
            waiting = asyncio.create_task(queue.get(if_exists=True))
            await bus.status()
            assert not waiting.done()
        assert (await waiting)["n"] == 1
        with pytest.raises(QueueEmpty):
            await queue.get(if_exists=True)

    with_queue(work)


def test_a_transaction_can_be_ended_inside_its_block() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async with bus.transaction() as tx:
            await tx.put(queue, "job", n=1)
            await tx.commit()
            assert not await queue.is_empty()
            with pytest.raises(UserError, match="inside"):
                await tx.put(queue, "job")
        async with bus.transaction() as tx:
            await tx.put(queue, "job", n=2)
            await tx.rollback()
            await tx.rollback()
        assert [message["n"] for message in await queue.get_all()] == [1]
        with pytest.raises(UserError, match="once"):
            await tx.__aenter__()

    with_queue(work)


def test_a_full_queue_refuses_inside_a_transaction_too() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put_all([Event("job", n=1), Event("job", n=2)])

        async def overfill() -> None:
            async with bus.transaction() as tx:
                await tx.get(queue)
                await tx.put(queue, "job", n=3)  # there is room where the other was
                await tx.put(queue, "job", n=4)

        with pytest.raises(QueueFull, match="jobs"):
            await overfill()
        assert [message["n"] for message in await queue.get_all()] == [1, 2]

    with_queue(work, max_messages=2)


def test_a_transaction_that_takes_too_long_is_lost() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1)

        async def dawdle() -> None:
            async with bus.transaction(timeout_s=0.05) as tx:
                await tx.get(queue)
                await tx.put(queue, "job", n=2)
                await queue.get(timeout_s=30)  # it comes back

        with pytest.raises(TransactionLost):
            await dawdle()
        assert await queue.is_empty()

    with_queue(work)


def test_a_transaction_is_lost_with_its_connection(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with node(tmp_path), proxy, tidings.connect(proxy.address, random=lambda: 0.0) as bus:
            queue = await bus.create_queue("jobs")

            async def lose() -> None:
                async with bus.transaction() as tx:
                    await tx.put(queue, "job", n=1)
                    proxy.reset()
                    await bus.status()

            with pytest.raises(TransactionLost):
                await lose()
            assert await queue.is_empty()
            async with bus.transaction() as tx:
                await tx.put(queue, "job", n=2)
            assert (await queue.get())["n"] == 2

    run(work())


@pytest.mark.parametrize("turns", range(6))
def test_a_commit_that_is_cut_off_is_done_once_or_not_at_all(tmp_path: Path, turns: int) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with node(tmp_path), proxy, tidings.connect(proxy.address, random=lambda: 0.0) as bus:
            queue = await bus.create_queue("jobs")
            tx = await bus.transaction().__aenter__()
            await tx.put(queue, "job")
            committing = asyncio.create_task(tx.commit())
            for _ in range(turns):
                await asyncio.sleep(0)
            proxy.reset()
            try:
                await committing
            except TransactionLost:
                assert (await queue.describe()).messages == 0
            else:
                assert (await queue.describe()).messages == 1

    run(work())


async def give_up(getting: Coroutine[Any, Any, Any], turns: int) -> bool:
    """Cancel it after so many turns of the loop; whether it was not done by then."""
    task = asyncio.create_task(getting)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


async def rest(queue: Queue) -> list[tuple[int, int]]:
    """What is left, and the how many-eth delivery it is now."""
    return [(message["n"], message.deliveries) for message in await queue.get_all()]


def test_a_get_that_was_given_up_leaves_its_transaction_as_it_was() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async with bus.transaction() as tx:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await tx.get(queue)
            await queue.put("job", n=1)
            await tx.put(queue, "job", n=2)
        assert await rest(queue) == [(1, 1), (2, 1)]

    with_queue(work)


@pytest.mark.parametrize("turns", range(10))
@pytest.mark.parametrize("is_own", [False, True])
def test_a_message_whose_get_was_given_up_stays(turns: int, is_own: bool) -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async with bus.transaction() as tx:
            await queue.put("job", n=1, transaction=tx if is_own else None)
            was_given_up = await give_up(tx.get(queue), turns)
            await tx.put(queue, "job", n=2)
        assert await rest(queue) == [(1, 1), (2, 1)] if was_given_up else [(2, 1)]

    with_queue(work)


@pytest.mark.parametrize("turns", range(0, 40, 3))
def test_a_long_message_whose_get_was_given_up_stays(turns: int) -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1, body=bytes(4 * SEGMENT_SIZE))
        async with bus.transaction() as tx:
            was_given_up = await give_up(tx.get(queue), turns)
            await tx.put(queue, "job", n=2)
        assert await rest(queue) == [(1, 1), (2, 1)] if was_given_up else [(2, 1)]

    with_queue(work)


@pytest.mark.parametrize("turns", [*range(0, 20, 2), 30, 40])
def test_what_is_not_got_whole_in_a_transaction_is_not_got(turns: int) -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put_all(Event("job", n=n) for n in range(2_500))
        async with bus.transaction() as tx:
            was_given_up = await give_up(tx.get_all(queue), turns)
            await tx.put(queue, "job", n=9_999)
        left = await rest(queue)
        assert left == [*((n, 1) for n in range(2_500) if was_given_up), (9_999, 1)]

    with_queue(work)


class Stubborn(asyncio.Protocol):
    """A node that begins transactions, and refuses to roll them back as often as it is told to."""

    def __init__(self) -> None:
        self.refusals = 1
        self._reader = FrameReader(FRAME_MAX)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for message, _ in self._reader.feed(data):
            if isinstance(message, Hello):
                self._transport.write(encode(Welcome(1, "node", 1, "s", 0, 1 << 20)))
            elif isinstance(message, Request):
                self._transport.write(encode(Reply(message.number, None, self._answer(message))))

    def _answer(self, request: Request) -> Failure | None:
        if request.operation != "rollback" or not self.refusals:
            return None
        self.refusals -= 1
        return Failure("limit", "not now")


def test_a_rollback_that_the_node_refuses_is_told_and_can_be_tried_again(tmp_path: Path) -> None:
    async def work() -> None:
        path, stubborn = tmp_path / "socket", Stubborn()
        server = await asyncio.get_running_loop().create_unix_server(lambda: stubborn, path)
        async with server, tidings.connect(f"tidings+unix://{path}") as bus:
            tx = await bus.transaction().__aenter__()
            with pytest.raises(Refused, match="not now"):
                await tx.rollback()
            assert tx.number
            await tx.rollback()
            with pytest.raises(UserError, match="inside"):
                _ = tx.number

    run(work())


def test_a_transaction_is_rolled_back_while_thousands_wait_for_messages() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1)
        other = await bus.create_queue("other")
        tx = await bus.transaction().__aenter__()
        await tx.get(queue)
        waiting = [asyncio.create_task(other.get()) for _ in range(CALLS_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="limit"):
            await other.get()
        await tx.rollback()
        assert (await queue.describe()).messages == 1
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        assert (await other.describe()).waiting == 0

    with_queue(work)


def test_bad_arguments_are_refused_where_they_are_given() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        for timeout_s in (-1, 0, "long"):
            with pytest.raises(UserError, match="timeout_s"):
                bus.transaction(timeout_s=timeout_s)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="inside"):
            await queue.put("job", transaction=bus.transaction())
        async with bus.transaction() as tx:
            with pytest.raises(QueueNotFound, match="nowhere"):
                await tx.put("nowhere", "job")
            with pytest.raises(UserError, match="name"):
                await tx.get("")

    with_queue(work)
