"""The loop of a worker: what is fetched ahead, what is acknowledged when, and what goes back."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

import tidings
from client.jobs import Work, rest, with_jobs
from client.nodes import Clock, node, proxy_of, run, run_with_clock
from tidings import Event
from tidings.client import Bus, Message, Messages, Queue
from tidings.errors import Disconnected, MessageNotHeld, QueueNotFound, UserError


async def counts(queue: Queue) -> tuple[int, int]:
    """How many messages can be had, and how many are in someone's hands."""
    described = await queue.describe()
    return described.messages, described.in_flight


@pytest.mark.parametrize("prefetch", [0, 1, 2, 10, 1_000])
@pytest.mark.parametrize("acknowledge", ["auto", "dups-ok"])
def test_a_loop_gets_all_messages_in_order(prefetch: int, acknowledge: Any) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        got = []
        async with queue.messages(prefetch=prefetch, acknowledge=acknowledge) as messages:
            async for message in messages:
                got.append(message["n"])
                if len(got) == 300:
                    break
        assert got == list(range(300))
        assert await counts(queue) == (0, 0)

    with_jobs(300, work)


def test_no_more_is_fetched_ahead_than_was_said() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        async with queue.messages(prefetch=4) as messages:
            for _ in range(6):
                await anext(messages)
                assert (await counts(queue))[1] <= 5
        async with queue.messages(prefetch=0) as messages:
            await anext(messages)
            assert (await counts(queue))[1] == 1

    with_jobs(20, work)


def test_a_message_is_acknowledged_when_the_next_is_asked_for() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        async with queue.messages(prefetch=0) as messages:
            first = await anext(messages)
            assert await counts(queue) == (2, 1)
            await anext(messages)
            assert await counts(queue) == (1, 1)
            with pytest.raises(MessageNotHeld, match="'jobs"):
                await first.acknowledge()
        assert await counts(queue) == (1, 0)  # the end of the block is the end of the last one too

    with_jobs(3, work)


def test_a_loop_waits_for_what_comes() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        async with queue.messages("n > 1") as messages:
            waiting = asyncio.create_task(messages.__anext__())
            await queue.put_all([Event("job", n=1), Event("job", n=2)])
            assert (await waiting)["n"] == 2
        assert await rest(queue) == [(1, 1)]

    with_jobs(0, work)


def test_workers_share_the_work() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        done: list[int] = []

        async def labour() -> None:
            async for message in queue.messages(prefetch=3):
                done.append(message["n"])
                await asyncio.sleep(0)

        workers = [asyncio.create_task(labour()) for _ in range(4)]
        while len(done) < 200:
            await bus.status()
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        assert sorted(done) == list(range(200))

    with_jobs(200, work)


# -- how it ends


def test_after_a_break_what_was_fetched_goes_back_unopened_and_the_last_one_as_delivered() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        async for message in queue.messages(prefetch=10):
            if message["n"] == 2:
                break
        gc.collect()
        await asyncio.sleep(0)
        assert await counts(queue) == (6, 0)
        assert await rest(queue) == [(2, 2), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1)]

    with_jobs(8, work)


def test_what_was_settled_by_hand_is_left_so_by_a_break() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        async for message in queue.messages():
            await message.acknowledge()
            break
        async for message in queue.messages():
            await message.reject("bad")
            break
        async for message in queue.messages():
            await message.release()
            break
        await asyncio.sleep(0)
        assert await rest(queue) == [(2, 2), (3, 1)]

    with_jobs(4, work)


def test_an_error_in_the_block_gives_back_the_last_one() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        async def fail() -> None:
            async with queue.messages() as messages:
                async for message in messages:
                    if message["n"] == 1:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await rest(queue) == [(1, 2), (2, 1)]

    with_jobs(3, work)


def test_a_loop_that_was_closed_ends() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        messages = queue.messages()
        assert (await anext(messages))["n"] == 0
        await messages.aclose()
        await messages.aclose()
        assert [message async for message in messages] == []
        assert await rest(queue) == [(0, 2), (1, 1)]

    with_jobs(2, work)


def test_a_loop_that_waits_ends_when_it_is_closed() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        messages = queue.messages()

        async def collect() -> list[Message]:
            return [message async for message in messages]

        waiting = asyncio.create_task(collect())
        await queue.describe()
        await messages.aclose()
        assert await waiting == []
        assert (await queue.describe()).waiting == 0

    with_jobs(0, work)


def test_a_loop_that_is_left_while_it_waits_is_no_reader_any_more() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        async def labour() -> None:
            async for _ in queue.messages():
                pass

        labouring = asyncio.create_task(labour())
        await queue.describe()
        assert (await queue.describe()).waiting == 1
        labouring.cancel()
        await asyncio.wait([labouring])
        del labouring
        gc.collect()
        await asyncio.sleep(0)
        assert (await queue.describe()).waiting == 0

    with_jobs(0, work)


def test_a_queue_that_is_deleted_ends_the_loop() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async with queue.messages() as messages:
            await bus.delete_queue("jobs")
            with pytest.raises(QueueNotFound, match="jobs"):
                await anext(messages)

    with_jobs(0, work)


def test_a_loop_ends_with_the_bus() -> None:
    async def work() -> None:
        bus = await tidings.open().__aenter__()
        queue = await bus.create_queue("jobs")
        messages = queue.messages()
        waiting = asyncio.create_task(messages.__anext__())
        await bus.status()
        await bus.__aexit__(None, None, None)
        with pytest.raises(Disconnected):
            await waiting
        await messages.aclose()

    run(work())


def test_two_tasks_can_t_share_a_loop() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async with queue.messages() as messages:
            waiting = asyncio.create_task(messages.__anext__())
            await bus.status()
            with pytest.raises(UserError, match="two tasks"):
                await anext(messages)
            await queue.put("job")
            await waiting

    with_jobs(0, work)


def test_a_loop_with_a_name_holds_what_it_has_fetched_until_it_is_closed() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        messages = queue.messages(prefetch=4)
        async for _ in messages:
            break
        assert await counts(queue) == (4, 4)
        await messages.aclose()
        assert await rest(queue) == [(0, 2), *((n, 1) for n in range(1, 8))]

    with_jobs(8, work)


@pytest.mark.parametrize("acknowledge", ["auto", "client", "dups-ok"])
def test_a_bus_that_is_closed_gives_back_unopened_what_its_loops_have_fetched(
    tmp_path: Path, acknowledge: Any
) -> None:
    async def work() -> None:
        async with node(tmp_path) as address, tidings.connect(address) as other:
            source = await other.create_queue("jobs")
            await source.put_all(Event("job", n=n) for n in range(6))
            async with tidings.connect(address) as bus:
                messages = (await bus.queue("jobs")).messages(acknowledge=acknowledge)
                message = await anext(messages)
                waiting = asyncio.create_task((await bus.queue("jobs")).messages().__anext__())
                assert (await source.describe()).in_flight == 6
            assert await rest(source) == [(0, 2), *((n, 1) for n in range(1, 6))]
            with pytest.raises(MessageNotHeld):
                await message.acknowledge()
            for going_on in (waiting, messages.__anext__()):
                with pytest.raises(Disconnected):
                    await going_on

    run(work())


# -- time


def with_old_jobs(acknowledge: Any, age_s: float, work: Work) -> None:
    """Run a test with a loop that has fetched six of eight jobs, which may be held for ten seconds."""

    async def within(clock: Clock) -> None:
        async with tidings.open() as bus:
            queue = await bus.create_queue("jobs", redelivery_s=10.0)
            await queue.put_all(Event("job", n=n) for n in range(8))
            async with queue.messages(prefetch=6, acknowledge=acknowledge) as messages:
                assert [(await anext(messages))["n"] for _ in range(2)] == [0, 1]
                clock.ahead_s += age_s
                await work(messages, queue)

    run_with_clock(within)


def test_what_was_fetched_and_waits_for_too_long_goes_back_before_it_counts_as_delivered() -> None:
    async def work(_messages: Messages, queue: Queue) -> None:
        await queue.describe()
        assert await rest(queue) == [(n, 1) for n in range(2, 8)]

    with_old_jobs("auto", 9.5, work)


def test_what_was_fetched_and_can_be_held_long_enough_is_used() -> None:
    async def work(messages: Messages, queue: Queue) -> None:
        assert (await anext(messages))["n"] == 2
        assert (await counts(queue))[1] >= 2

    with_old_jobs("auto", 8.0, work)


def test_a_message_that_the_node_has_taken_back_is_not_used() -> None:
    async def work(messages: Messages, _queue: Queue) -> None:
        # By the clock of the loop the others have gone back; by that of the node they have not.
        assert (await anext(messages))["n"] == 6

    with_old_jobs("auto", 10.5, work)


def test_a_loop_asks_anew_for_what_it_could_not_hold_for_longer() -> None:
    async def work(messages: Messages, _queue: Queue) -> None:
        assert [(await anext(messages))["n"] for _ in range(6)] == [2, 3, 4, 5, 6, 7]

    with_old_jobs("auto", 9.5, work)


def test_in_lumps_messages_are_acknowledged_before_their_time_is_up() -> None:
    async def work(_messages: Messages, queue: Queue) -> None:
        await queue.describe()
        assert await counts(queue) == (6, 1)

    with_old_jobs("dups-ok", 9.5, work)


# -- acknowledging by hand, and in lumps


def test_by_hand_one_acknowledgement_is_for_all_before_it_and_what_is_left_comes_again() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        async with queue.messages(acknowledge="client") as messages:
            got = [await anext(messages) for _ in range(3)]
            await got[1].acknowledge()
            assert (await counts(queue))[1] <= 5
            with pytest.raises(MessageNotHeld, match="acknowledged already"):
                await got[2].acknowledge()
            got += [await anext(messages) for _ in range(3)]
            await got[3].reject("bad")
            await got[4].release()
        assert await rest(queue) == [(4, 2), (5, 2), (6, 1), (7, 1)]

    with_jobs(8, work)


def test_in_lumps_messages_are_acknowledged_at_the_end_at_the_latest() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        async with queue.messages(acknowledge="dups-ok", prefetch=20) as messages:
            for _ in range(5):
                await anext(messages)
            assert (await counts(queue))[1] == 8
        assert await rest(queue) == [(5, 1), (6, 1), (7, 1)]

    with_jobs(8, work)


def test_in_lumps_messages_are_acknowledged_when_there_is_nothing_else_to_do() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        async with queue.messages(acknowledge="dups-ok") as messages:
            for _ in range(8):
                await anext(messages)
            waiting = asyncio.create_task(messages.__anext__())
            await asyncio.sleep(0)
            assert await counts(queue) == (0, 0)
            waiting.cancel()

    with_jobs(8, work)


def test_after_an_error_what_was_dealt_with_in_a_lump_is_acknowledged_and_the_last_one_is_not() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        async def fail() -> None:
            async with queue.messages(acknowledge="dups-ok") as messages:
                async for message in messages:
                    if message["n"] == 2:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await rest(queue) == [(2, 2), (3, 1)]

    with_jobs(4, work)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prefetch": -1}, "prefetch .* not -1"),
        ({"prefetch": 10_001}, "prefetch .* not 10001"),
        ({"prefetch": 1.5}, r"prefetch .* not 1\.5"),
        ({"prefetch": True}, "prefetch .* not True"),
        ({"acknowledge": "later"}, "acknowledge .* not 'later'"),
    ],
)
def test_what_no_loop_can_do_is_refused(options: dict[str, Any], said: str) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        with pytest.raises(UserError, match=said):
            queue.messages(**options)

    with_jobs(0, work)


# -- lost connections


def test_a_loop_goes_on_after_cuts_and_nothing_is_lost_or_done_twice(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with (
            node(tmp_path) as address,
            proxy,
            tidings.connect(address) as other,
            tidings.connect(proxy.address, random=lambda: 0.0) as bus,
        ):
            source = await other.create_queue("jobs")
            await source.put_all(Event("job", n=n) for n in range(100))
            got = []
            async with (await bus.queue("jobs")).messages(prefetch=7) as messages:
                async for message in messages:
                    got.append(message["n"])
                    if message["n"] % 10 == 3:
                        proxy.reset()
                    if len(got) == 100:
                        break
            assert got == list(range(100))
            assert await counts(source) == (0, 0)

    run(work())


def test_what_was_fetched_before_a_restart_of_the_node_is_fetched_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            bus = await tidings.connect(address, random=lambda: 0.0).__aenter__()
            queue = await bus.create_queue("jobs")
            await queue.put_all(Event("job", n=n) for n in range(20))
            messages = queue.messages(prefetch=8)
            assert (await anext(messages))["n"] == 0
        async with node(tmp_path):
            await bus.status()
            got = [(await anext(messages))["n"] for _ in range(19)]
            assert got == list(range(1, 20))  # the first one was acknowledged when the next was asked for
            await messages.aclose()
            await bus.__aexit__(None, None, None)

    run(work())
