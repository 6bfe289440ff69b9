"""A queue as an application uses it, at a real node: putting, getting, looking, and what can't be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import tidings
from client.nodes import Clock, node, proxy_of, run, run_with_clock
from tidings import Event, Filter
from tidings.client import Bus, Queue
from tidings.client.put import SEGMENT_SIZE
from tidings.errors import (
    Disconnected,
    EventError,
    FilterError,
    MessageNotHeld,
    NoAnswer,
    QueueEmpty,
    QueueError,
    QueueFull,
    QueueNotFound,
    UserError,
)

Work = Callable[[Bus, Queue], Awaitable[None]]


def with_queue(work: Work, **wish: Any) -> None:
    """Run a test with a queue called `jobs`."""

    async def within() -> None:
        async with tidings.open() as bus:
            await work(bus, await bus.create_queue("jobs", **wish))

    run(within())


def jobs(count: int, **fields: Any) -> list[Event]:
    return [Event("job", n=n, **fields) for n in range(count)]


# -- putting and getting


def test_what_is_put_is_got_once_and_in_order() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put(Event("job", n=0))
        await queue.put("job", {"n": 1}, priority=7)
        await queue.put("job", n=2)
        assert [(await queue.get())["n"] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(QueueEmpty, match="jobs"):
            await queue.get(timeout_s=0)

    with_queue(work)


def test_a_message_can_be_used_as_its_event() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1, priority=7, body=b"x", subject="s", correlation_id="c")
        message = await queue.get()
        assert (message.type, message.priority, message.body, message["n"]) == ("job", 7, b"x", 1)
        assert (message.subject, message.correlation_id, message.get("m", 5)) == ("s", "c", 5)
        assert "n" in message
        assert "m" not in message
        assert message.event.attributes == {"n": 1}
        assert message.received is not None
        assert (message.deliveries, message.redelivered) == (1, False)
        assert "delivery 1" in repr(message)
        with pytest.raises(AttributeError):
            message.nonsense  # noqa: B018

    with_queue(work)


@pytest.mark.parametrize(
    "where",
    [
        "color = 'blue'",
        Filter("color = :c", c="blue"),
        {"color": "blue"},
        {"color": str, "n": 2},
        Event("job", color="blue"),
        Event("job", n=2),
    ],
)
def test_a_message_is_got_by_what_is_in_it(where: Any) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1, color="red")
        await queue.put("job", n=2, color="blue")
        assert (await queue.read(where))["n"] == 2
        assert (await queue.get(where, timeout_s=0))["n"] == 2
        assert (await queue.get(timeout_s=0))["n"] == 1

    with_queue(work)


def test_a_getter_waits_until_something_comes() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        waiting = [asyncio.create_task(queue.get(f"n = {n}", timeout_s=30)) for n in range(3)]
        await queue.put_all(jobs(3))
        assert [message["n"] for message in await asyncio.gather(*waiting)] == [0, 1, 2]

    with_queue(work)


def test_a_getter_that_has_waited_long_enough_is_told_that_nothing_came() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        with pytest.raises(QueueEmpty, match=r"no matching message came within 0\.02 s"):
            await queue.get(timeout_s=0.02)
        with pytest.raises(QueueEmpty):
            await queue.take(timeout_s=0).__aenter__()
        with pytest.raises(QueueEmpty):
            await queue.read()

    with_queue(work)


def test_what_a_cancelled_getter_would_have_got_stays() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        for delay in range(6):  # turns of the loop between asking and giving up
            waiting = asyncio.create_task(queue.get())
            for _ in range(delay):
                await asyncio.sleep(0)
            putting = asyncio.create_task(queue.put("job", n=delay))
            for _ in range(delay):
                await asyncio.sleep(0)
            waiting.cancel()
            await putting
            await asyncio.wait([waiting])
            message = await queue.get(timeout_s=30) if waiting.cancelled() else waiting.result()
            assert (message["n"], message.deliveries) == (delay, 1)

    with_queue(work)


def test_a_message_that_was_got_is_acknowledged_already() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1)
        message = await queue.get()
        with pytest.raises(MessageNotHeld, match=r"'jobs.*acknowledged already"):
            await message.acknowledge()
        with pytest.raises(MessageNotHeld):
            await message.reject("no")
        await bus.status()
        assert (await queue.describe()).in_flight == 0

    with_queue(work)


def test_many_are_put_and_got_at_once() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put_all(jobs(2_500))
        assert [message["n"] for message in await queue.get_all("n < 1500")] == list(range(1_500))
        assert len(await queue.get_all()) == 1_000
        assert await queue.get_all() == []

    with_queue(work)


def test_getting_all_ends_though_others_go_on_putting() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put_all(jobs(1_500))

        async def put_on() -> None:
            while True:
                await queue.put("more")

        putting = asyncio.create_task(put_on())
        assert len(await queue.get_all("type = 'job'")) == 1_500
        putting.cancel()

    with_queue(work)


@pytest.mark.parametrize("turns", [*range(12), 20, 30, 40])
def test_what_is_not_got_whole_is_not_got(turns: int) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put_all(jobs(3_500))
        getting = asyncio.create_task(queue.get_all())
        for _ in range(turns):
            await asyncio.sleep(0)
        getting.cancel()
        await asyncio.wait([getting])
        left = await queue.get_all()
        if getting.cancelled():
            assert [(message["n"], message.deliveries) for message in left] == [(n, 1) for n in range(3_500)]
        else:
            assert (len(getting.result()), left) == (3_500, [])

    with_queue(work)


def test_more_than_can_be_got_while_a_message_may_be_held_is_not_got() -> None:
    async def work(clock: Clock) -> None:
        async with tidings.open() as bus:
            queue = await bus.create_queue("jobs", redelivery_s=10.0)
            await queue.put_all(jobs(1_500))
            getting = asyncio.create_task(queue.get_all())
            while (await queue.describe()).in_flight == 0:
                pass
            clock.ahead_s += 9.5
            with pytest.raises(MessageNotHeld, match="too many"):
                await getting
            left = await queue.get_all()
            assert [(message["n"], message.deliveries) for message in left] == [(n, 1) for n in range(1_500)]

    run_with_clock(work)


# -- taking


def test_a_taken_message_is_acknowledged_at_the_end_of_the_block() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1)
        async with queue.take() as message:
            assert message["n"] == 1
            described = await queue.describe()
            assert (described.messages, described.in_flight) == (0, 1)
        described = await queue.describe()
        assert (described.messages, described.in_flight) == (0, 0)
        with pytest.raises(MessageNotHeld):
            await message.acknowledge()

    with_queue(work)


def test_a_taken_message_goes_back_if_the_block_raises() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put_all(jobs(2))

        async def fail() -> None:
            async with queue.take() as message:
                assert message["n"] == 0
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        message = await queue.get()
        assert (message["n"], message.deliveries, message.redelivered) == (0, 2, True)

    with_queue(work)


def test_what_was_settled_by_hand_inside_the_block_stays_so() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put_all(jobs(3))
        async with queue.take() as message:
            await message.acknowledge()
        async with queue.take() as message:
            await message.release()
        async with queue.take() as message:
            assert message["n"] == 1
            await message.reject("not good enough")
            with pytest.raises(MessageNotHeld, match="rejected already"):
                await message.acknowledge()
        dead = await (await bus.queue("tidings.dead")).get(timeout_s=0)
        assert (dead["n"], dead["dead.queue"], dead["dead.reason"]) == (1, "jobs", "not good enough")
        assert [message["n"] for message in await queue.get_all()] == [2]

    with_queue(work)


def test_a_message_that_was_held_for_too_long_is_not_held_any_more() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put("job")

        async def dawdle() -> None:
            async with queue.take() as message:
                assert (await queue.get(timeout_s=30)).deliveries == 2
                assert message.deliveries == 1

        with pytest.raises(MessageNotHeld, match="'jobs"):
            await dawdle()

    with_queue(work, redelivery_s=0.05)


# -- looking


def test_reading_leaves_everything_where_it_is() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put_all(jobs(2_500, body=b"body"))
        assert (await queue.read("n > 3"))["n"] == 4
        assert [event["n"] for event in await queue.read_all("n >= 100")] == list(range(100, 2_500))
        headers = await queue.headers()
        assert [event["n"] for event in headers] == list(range(2_500))
        assert {event.body for event in headers} == {None}
        assert (await queue.describe()).messages == 2_500

    with_queue(work)


def test_a_reader_can_wait_too() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        waiting = asyncio.create_task(queue.read("n = 1", timeout_s=None))
        await queue.put_all(jobs(2))
        assert (await waiting)["n"] == 1
        assert not await queue.is_empty()

    with_queue(work)


def test_a_watch_gets_copies_of_what_comes() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=0)
        async with queue.watch({"color": "blue"}) as copies:
            await queue.put("job", n=1, color="red")
            await queue.put("job", n=2, color="blue")
            assert (await anext(copies))["n"] == 2
        assert [message["n"] for message in await queue.get_all()] == [0, 1, 2]

    with_queue(work)


def test_a_queue_says_how_it_stands() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        assert await queue.is_empty()
        assert queue.description.max_messages == 2
        await queue.put_all(jobs(2))
        assert await queue.is_full()
        assert not await queue.is_empty()
        assert queue.description.messages == 2
        assert await queue.purge("n = 1") == 1
        assert await queue.purge() == 1
        assert await queue.purge() == 0
        assert not await queue.is_full()

    with_queue(work, max_messages=2)


def test_the_life_of_a_message_can_be_renewed_and_ended() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put("job", ttl_s=1_000)
        event = await queue.read()
        assert await queue.renew(event, 60) == 50
        assert event.id is not None
        assert await queue.renew(event.id, 0) == 0
        assert await queue.is_empty()
        with pytest.raises(EventError, match="id"):
            await queue.renew(Event("job"), 60)

    with_queue(work, expiry=True, lease_s_max=50)


# -- what can't be


def test_a_full_queue_refuses() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put_all(jobs(3))
        with pytest.raises(QueueFull, match="jobs"):
            await queue.put("job")
        await queue.get()
        await queue.put("job")

    with_queue(work, max_messages=3)


@pytest.mark.parametrize("count", [5, 2_000])
def test_whoever_puts_more_than_there_is_room_for_is_told_what_is_left(count: int) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        events = jobs(count)
        with pytest.raises(QueueFull) as caught:
            await queue.put_all(iter(events))
        assert caught.value.put == 3  # type: ignore[attr-defined]
        assert caught.value.left == events[3:]  # type: ignore[attr-defined]
        assert [message["n"] for message in await queue.get_all()] == [0, 1, 2]

    with_queue(work, max_messages=3)


def test_an_event_that_is_too_large_is_told_with_what_is_left() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        large = Event("job", {f"a{n}": "x" * (1 << 20) for n in range(17)})
        with pytest.raises(EventError, match="at most"):
            await queue.put(large)
        with pytest.raises(EventError) as caught:
            await queue.put_all([Event("job", n=1), large, Event("job", n=2)])
        assert caught.value.put == 1  # type: ignore[attr-defined]
        assert len(caught.value.left) == 2  # type: ignore[attr-defined]
        assert [message["n"] for message in await queue.get_all()] == [1]

    with_queue(work)


def test_a_queue_that_is_gone_is_not_found() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        waiting = asyncio.create_task(queue.get())
        await bus.status()
        await bus.delete_queue("jobs")
        with pytest.raises(QueueNotFound):
            await waiting
        for call in (queue.put("job"), queue.get(), queue.describe(), queue.purge(), queue.get_all()):
            with pytest.raises(QueueNotFound, match="jobs"):
                await call
        with pytest.raises(QueueNotFound) as caught:
            await queue.put_all(jobs(2))
        assert caught.value.put == 0  # type: ignore[attr-defined]
        with pytest.raises(QueueNotFound):
            await queue.watch().__aenter__()

    with_queue(work)


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), float("inf"), 1e11, 10**30, "5", True])
def test_what_is_no_time_to_wait_is_refused(timeout_s: Any) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        with pytest.raises(UserError, match="timeout_s"):
            await queue.get(timeout_s=timeout_s)
        with pytest.raises(UserError, match="timeout_s"):
            queue.take(timeout_s=timeout_s)
        with pytest.raises(UserError, match="timeout_s"):
            await queue.put("job", timeout_s=timeout_s)
        with pytest.raises(UserError, match="lease_s"):
            await queue.renew("id", timeout_s)

    with_queue(work)


def test_bad_arguments_are_refused_where_they_are_given() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        with pytest.raises(EventError):
            await queue.put("not a type")
        with pytest.raises(UserError, match="as it is"):
            await queue.put(Event("t"), n=1)
        with pytest.raises(UserError, match="not int") as caught:
            await queue.put_all([Event("t"), 1])  # type: ignore[list-item]
        assert (caught.value.put, caught.value.left) == (1, [1])  # type: ignore[attr-defined]
        with pytest.raises(FilterError, match="line 1"):
            await queue.get("n >")
        with pytest.raises(FilterError, match="not int"):
            await queue.get(5)  # type: ignore[arg-type]
        with pytest.raises(QueueError, match="name"):
            await bus.queue("")
        with pytest.raises(QueueError, match="name"):
            await bus.queue(7)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="prefetch"):
            queue.watch(prefetch=0)
        await queue.put("job")
        async with queue.take() as message:
            with pytest.raises(EventError, match="reason"):
                await message.reject(5)  # type: ignore[arg-type]
            with pytest.raises(EventError, match="reason"):
                await message.reject("x" * 1_001)

    with_queue(work)


# -- asking and answering


async def answer(bus: Bus, queue: Queue, count: int) -> None:
    for _ in range(count):
        message = await queue.get()
        await bus.reply(message, "doubled", n=2 * message["n"])


def test_a_request_is_answered_by_whoever_gets_it() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        answering = asyncio.create_task(answer(bus, queue, 20))
        answers = await asyncio.gather(*(queue.request("job", n=n, timeout_s=30) for n in range(20)))
        assert [event["n"] for event in answers] == [2 * n for n in range(20)]
        await answering
        with pytest.raises(NoAnswer):
            await queue.request("job", timeout_s=0.02)

    with_queue(work)


def test_an_answer_can_go_to_a_queue() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        answers = await bus.create_queue("answers")
        await queue.put("job", n=21, reply_to="answers", correlation_id="7")
        await answer(bus, queue, 1)
        received = await answers.get(timeout_s=30)
        assert (received["n"], received.correlation_id) == (42, "7")
        await queue.put("job", n=1, reply_to="nowhere")
        with pytest.raises(QueueNotFound, match="nowhere"):
            await answer(bus, queue, 1)

    with_queue(work)


# -- long messages


@pytest.mark.parametrize("size", [SEGMENT_SIZE, SEGMENT_SIZE + 1, 20 * SEGMENT_SIZE + 17])
def test_a_body_of_any_length_arrives_whole(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)

    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1, body=body)
        assert (await queue.describe()).messages == 1
        assert (await queue.headers())[0].body is None
        async with queue.take() as message:
            assert message.body == body
            await message.release()
        message = await queue.get()
        assert (message.body, message["n"], message.deliveries) == (body, 1, 2)
        assert await queue.is_empty()

    with_queue(work)


def test_a_long_body_can_be_read_without_being_taken() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        bodies = [bytes(2 * SEGMENT_SIZE), b"short", bytes(3 * SEGMENT_SIZE)]
        await queue.put_all(Event("job", body=body) for body in bodies)
        assert (await queue.read()).body == bodies[0]
        assert [event.body for event in await queue.read_all()] == bodies

    with_queue(work)


def test_a_watch_gets_the_first_part_of_a_long_body() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        body = bytes(range(256)) * (SEGMENT_SIZE // 128)
        async with queue.watch() as copies:
            await queue.put("film", body=body)
            assert (await anext(copies)).body == body[:SEGMENT_SIZE]
        assert (await queue.get()).body == body

    with_queue(work)


def test_a_long_body_among_short_ones() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        bodies = [b"a", bytes(3 * SEGMENT_SIZE), b"b", bytes(2 * SEGMENT_SIZE + 1), b"c"]
        events = [Event("job", body=body) for body in bodies]
        with pytest.raises(QueueFull) as caught:
            await queue.put_all(events)
        assert (caught.value.put, caught.value.left) == (3, events[3:])  # type: ignore[attr-defined]
        async with bus.transaction() as tx:
            assert [message.body for message in await tx.get_all(queue)] == bodies[:3]
            await tx.put_all(queue, [Event("job", body=body) for body in bodies[2:]])
        assert [message.body for message in await queue.get_all()] == bodies[2:]

    with_queue(work, max_messages=3)


# -- lost connections


def test_puts_and_gets_go_on_after_a_cut_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with (
            node(tmp_path) as address,
            proxy,
            tidings.connect(address) as other,
            tidings.connect(proxy.address, random=lambda: 0.0) as bus,
        ):
            mine, theirs = await bus.create_queue("jobs"), await other.queue("jobs")
            for n in range(10):
                putting = asyncio.create_task(mine.put("job", n=n))
                await asyncio.sleep(0)
                proxy.reset()
                await putting
                waiting = asyncio.create_task(mine.get(timeout_s=30))
                await asyncio.sleep(0)
                proxy.reset()
                message = await waiting
                assert message["n"] == n
            await bus.status()
            described = await theirs.describe()
            assert (described.messages, described.in_flight) == (0, 0)

    run(work())


def test_what_was_taken_back_while_all_were_got_is_got_once(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with (
            node(tmp_path) as address,
            proxy,
            tidings.connect(address) as other,
            tidings.connect(proxy.address, random=lambda: 0.0) as bus,
        ):
            source = await other.create_queue("jobs", persistent=False)
            await source.put_all(jobs(500, body=bytes(20_000)))  # about fifty fit one answer
            getting = asyncio.create_task((await bus.queue("jobs")).get_all())
            while (await source.describe()).in_flight < 150:
                pass
            proxy.cut()
            assert not getting.done()
            await source.read("n = 0", timeout_s=30)
            proxy.mend()
            assert sorted(message["n"] for message in await getting) == list(range(500))
            await bus.status()
            assert (await source.describe()).in_flight == 0

    run(work())


def test_a_message_that_is_held_through_a_cut_can_be_acknowledged(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with (
            node(tmp_path),
            proxy,
            tidings.connect(proxy.address, random=lambda: 0.0) as bus,
        ):
            queue = await bus.create_queue("jobs")
            await queue.put("job", body=bytes(2 * SEGMENT_SIZE))
            async with queue.take() as message:
                proxy.reset()
            assert len(message.body) == 2 * SEGMENT_SIZE
            described = await queue.describe()
            assert (described.messages, described.in_flight) == (0, 0)

    run(work())


@pytest.mark.parametrize("turns", [1, 5, 20, 60])
def test_a_long_body_that_is_cut_off_arrives_whole_and_once(tmp_path: Path, turns: int) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with (
            node(tmp_path),
            proxy,
            tidings.connect(proxy.address, random=lambda: 0.0) as bus,
        ):
            queue = await bus.create_queue("jobs")
            body = bytes(range(256)) * (5 * SEGMENT_SIZE // 256)
            putting = asyncio.create_task(queue.put("job", body=body))
            for _ in range(turns):
                await asyncio.sleep(0)
            proxy.reset()
            await putting
            assert [message.body for message in await queue.get_all()] == [body]

    run(work())


def test_without_a_node_a_getter_is_told_so_in_its_time(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with node(tmp_path), proxy, tidings.connect(proxy.address) as bus:
            queue = await bus.create_queue("jobs")
            proxy.cut()
            while bus.is_connected:
                await asyncio.sleep(0)
            for timeout_s in (0, 0.02):
                with pytest.raises(Disconnected):
                    await queue.get(timeout_s=timeout_s)
            for size in (1, 2 * SEGMENT_SIZE):
                with pytest.raises(Disconnected):
                    await queue.put("job", body=bytes(size), timeout_s=0.02)

    run(work())


def test_messages_and_acknowledgements_outlive_a_restart_of_the_node(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            bus = await tidings.connect(address, random=lambda: 0.0).__aenter__()
            queue = await bus.create_queue("jobs")
            await queue.put_all(jobs(3))
            assert (await queue.get())["n"] == 0
            taken = await queue.take().__aenter__()
        acknowledging = asyncio.create_task(taken.acknowledge())
        async with node(tmp_path):
            await acknowledging  # it was in nobody else's hands since
            with pytest.raises(MessageNotHeld):
                await taken.acknowledge()
            assert [message["n"] for message in await queue.get_all()] == [2]
            await bus.__aexit__(None, None, None)

    run(work())


# -- acknowledging on arrival


def test_a_get_whose_message_went_back_before_it_was_acknowledged_returns_the_next(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            node(tmp_path) as address,
            proxy_of(tmp_path) as proxy,
            tidings.connect(proxy.address) as bus,
            tidings.connect(address) as other,
        ):
            queue, theirs = await bus.create_queue("jobs"), await other.queue("jobs")
            await queue.put_all(jobs(2))
            say, is_cut = bus._link.core.settle, asyncio.Event()

            def settle_late(*handle: Any) -> int:
                if not is_cut.is_set():  # for so long that the message goes to another
                    proxy.cut()
                    is_cut.set()
                return say(*handle)

            bus._link.core.settle = settle_late  # type: ignore[method-assign]
            getting = asyncio.create_task(queue.get())
            await is_cut.wait()
            assert (await theirs.get("n = 0"))["n"] == 0
            proxy.mend()
            assert (await getting)["n"] == 1

    run(work())


@pytest.mark.parametrize("turns", range(30))
def test_a_get_that_is_timed_out_has_its_message_or_leaves_it(turns: int) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1)
        got: list[Any] = []

        async def get() -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    limits.append(limit)
                    got.append(await queue.get())
            await asyncio.sleep(0)  # it goes on after a time-out, whether or not that came in time

        limits: list[asyncio.Timeout] = []
        getting = asyncio.create_task(get())
        for _ in range(turns):
            await asyncio.sleep(0)
        if limits and not getting.done() and not got:
            limits[0].reschedule(0)
        await getting
        assert len(got) + (await queue.describe()).messages == 1

    with_queue(work)


@pytest.mark.parametrize("turns", range(30))
def test_a_cancelled_task_has_the_message_that_it_has_acknowledged_and_ends_where_it_waits_next(
    turns: int,
) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1)
        got: list[Any] = []

        async def get_for_ever() -> None:
            got.append(await queue.get())
            await asyncio.Event().wait()

        getting = asyncio.create_task(get_for_ever())
        for _ in range(turns):
            await asyncio.sleep(0)
        getting.cancel()
        await asyncio.wait([getting])
        assert getting.cancelled()
        assert len(got) + (await queue.describe()).messages == 1

    with_queue(work)


@pytest.mark.parametrize("turns", range(30))
def test_a_time_limit_around_more_than_a_get_is_told_as_such(turns: int) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1)
        got: list[Any] = []
        limits: list[asyncio.Timeout] = []

        async def get_and_stay() -> None:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                got.append(await queue.get())
                await asyncio.Event().wait()

        staying = asyncio.create_task(get_and_stay())
        await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        limits[0].reschedule(0)
        with pytest.raises(TimeoutError):
            await staying
        assert len(got) + (await queue.describe()).messages == 1

    with_queue(work)


@pytest.mark.parametrize("turns", range(30))
def test_a_time_limit_within_what_a_cancelled_task_still_does_cancels_nothing_else(turns: int) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1)
        got: list[Any] = []
        limits: list[asyncio.Timeout] = []

        async def clean_up() -> str:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    limits.append(limit)
                    got.append(await queue.get())
            for _ in range(3):
                await asyncio.sleep(0)
            return "done"

        cleaning = asyncio.create_task(clean_up())
        await asyncio.sleep(0)
        cleaning.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        if limits and not got:
            limits[0].reschedule(0)
        assert await cleaning == "done"
        assert len(got) + (await queue.describe()).messages == 1

    with_queue(work)
