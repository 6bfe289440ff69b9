"""Messages for later, as clients put and release them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tidings
from client.nodes import run
from tidings import Event
from tidings.client import Queue
from tidings.errors import QueueError, UserError
from tidings.queues.description import DELAY_S_MAX

YEAR_S = 365 * 86_400.0


def with_queue(work: Callable[[Queue], Awaitable[None]]) -> None:
    async def within() -> None:
        async with tidings.open() as bus:
            await work(await bus.create_queue("jobs"))

    run(within())


def test_a_client_puts_with_a_delay_and_with_a_moment() -> None:
    async def work(queue: Queue) -> None:
        await queue.put("job", n=1, delay_s=YEAR_S)
        await queue.put("job", n=2, not_before=datetime.now(UTC) + timedelta(days=1))
        await queue.put("job", n=3, not_before=datetime.now(UTC) - timedelta(days=1))
        assert [message["n"] for message in await queue.get_all()] == [3]
        assert (await queue.describe()).delayed == 2
        assert await queue.purge() == 2

    with_queue(work)


def test_an_event_that_was_delayed_is_put_again_without_a_delay() -> None:
    async def work(queue: Queue) -> None:
        await queue.put("job", n=1, delay_s=0.001, group="a")
        message = await queue.get()
        await queue.put(message.event)
        again = await queue.get(timeout_s=0)
        assert (again["n"], again.group) == (1, "a")

    with_queue(work)


def test_a_transaction_puts_for_later_and_into_groups() -> None:
    async def within() -> None:
        async with tidings.open() as bus:
            queue = await bus.create_queue("jobs")
            async with bus.transaction() as tx:
                await tx.put(queue, "job", n=1, delay_s=YEAR_S)
                await tx.put_all(queue, [Event("job", n=n) for n in (2, 3)], group="a")
            described = await queue.describe()
            assert (described.messages, described.delayed, described.groups) == (2, 1, 1)

    run(within())


@pytest.mark.parametrize("delay_s", [-1, float("nan"), 2 * DELAY_S_MAX, True, "5"])
def test_a_client_refuses_what_is_no_delay(delay_s: Any) -> None:
    async def work(queue: Queue) -> None:
        with pytest.raises(UserError, match="delay_s"):
            await queue.put("job", delay_s=delay_s)

    with_queue(work)


def test_a_client_refuses_a_moment_without_a_zone_or_too_far_away() -> None:
    async def work(queue: Queue) -> None:
        naive = datetime(2030, 1, 1)  # noqa: DTZ001 - that is what is refused
        with pytest.raises(UserError, match=r"not_before.*zone"):
            await queue.put("job", not_before=naive)
        with pytest.raises(UserError, match="one of them"):
            await queue.put("job", not_before=datetime.now(UTC), delay_s=1)
        with pytest.raises(QueueError, match="too long"):
            await queue.put("job", not_before=datetime.now(UTC) + timedelta(days=365 * 20))

    with_queue(work)


def test_a_misspelt_option_is_no_attribute() -> None:
    async def work(queue: Queue) -> None:
        for name, meant in (("delay", "delay_s"), ("dealy_s", "delay_s"), ("notbefore", "not_before")):
            with pytest.raises(UserError, match=meant):
                await queue.put("job", **{name: 5})
        await queue.put("job", {"delay": 5})
        assert (await queue.get(timeout_s=0))["delay"] == 5

    with_queue(work)


def test_a_client_releases_a_message_with_a_delay() -> None:
    async def work(queue: Queue) -> None:
        await queue.put("job", n=1)
        async for message in queue.messages():
            for wrong in (-1, float("nan"), 2 * DELAY_S_MAX):
                with pytest.raises(UserError, match="delay_s"):
                    await message.release(delay_s=wrong)
            await message.release(delay_s=YEAR_S)
            break
        described = await queue.describe()
        assert (described.messages, described.in_flight, described.delayed) == (0, 0, 1)

    with_queue(work)


def test_a_client_puts_into_groups_and_gets_them_one_after_the_other() -> None:
    async def work(queue: Queue) -> None:
        for n, group in enumerate("aabb"):
            await queue.put("job", n=n, group=group)
        await queue.put("job", n=4)
        async with queue.take() as first, queue.take() as second, queue.take() as third:
            assert [one["n"] for one in (first, second, third)] == [0, 2, 4]
            assert (first.group, third.group) == ("a", None)
            assert (await queue.describe()).groups == 2
        assert [message["n"] for message in await queue.get_all()] == [1, 3]
        for wrong in ("", 5, "x" * 256):
            with pytest.raises(UserError, match="group"):
                await queue.put("job", group=wrong)  # type: ignore[arg-type]

    with_queue(work)


def test_all_messages_of_a_group_are_got_at_once_by_get_all() -> None:
    async def work(queue: Queue) -> None:
        for n in range(5):
            await queue.put("job", n=n, group="a")
        assert [message["n"] for message in await queue.get_all()] == [0, 1, 2, 3, 4]
        assert await queue.is_empty()

    with_queue(work)
