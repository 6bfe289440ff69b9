"""Puts and publications that fail and are tried again: one copy, wherever the connection was cut."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count as count_up
from pathlib import Path
from typing import Any

import pytest
from effort import ANSWER_S

import tidings
from client.nodes import node, proxy_of, run
from tidings import Event
from tidings.client import Bus, Message, Queue
from tidings.client.encryption import Keyring, generate_key
from tidings.client.put import SEGMENT_SIZE
from tidings.errors import Disconnected, MessageNotHeld, NoAnswer, TidingsError, TransactionLost
from tidings.testing import Proxy

SOON_S = 0.02
"""A limit that passes in every test here."""

Work = Callable[[Proxy, Bus, Queue], Awaitable[None]]
Send = Callable[[Bus, Queue, Event], Awaitable[None]]


async def put(_bus: Bus, queue: Queue, event: Event) -> None:
    await queue.put(event)


async def put_in_group(_bus: Bus, queue: Queue, event: Event) -> None:
    await queue.put(event, group="g", delay_s=0)


async def put_all(_bus: Bus, queue: Queue, event: Event) -> None:
    await queue.put_all([event])


async def publish(bus: Bus, _queue: Queue, event: Event) -> None:
    await bus.publish(event)


async def publish_all(bus: Bus, _queue: Queue, event: Event) -> None:
    await bus.publish_all([event])


SENDS = {one.__name__: one for one in (put, put_in_group, put_all, publish, publish_all)}
BODIES = {"short": b"x", "long": bytes(SEGMENT_SIZE + 1)}


def with_proxy(work: Work, home: Path, **options: Any) -> None:
    """Run with a bound queue of a node behind a proxy, and little patience."""

    async def within() -> None:
        proxy = proxy_of(home)
        async with (
            node(home),
            proxy,
            tidings.connect(proxy.address, call_timeout_s=SOON_S, random=lambda: 0.0) as bus,
        ):
            queue = await bus.create_queue("jobs", bind="type = 'job'", timeout_s=ANSWER_S, **options)
            try:
                await work(proxy, bus, queue)
            finally:
                mend(proxy)

    run(within())


def mend(proxy: Proxy) -> None:
    """Let the node be reached again, on a new connection."""
    proxy.mend()
    proxy.reset()


async def away(proxy: Proxy, bus: Bus) -> None:
    """Break the connection, and let there be no other one."""
    proxy.cut()
    while bus.is_connected:
        await asyncio.sleep(0)


async def settled(call: Callable[[], Awaitable[Any]]) -> Any:
    """The usual loop: try until there is no error."""
    while True:
        try:
            return await call()
        except (NoAnswer, Disconnected):
            await asyncio.sleep(SOON_S / 10)


async def got(queue: Queue) -> Message:
    """The same for a message: an error has it if the acknowledgement was sent, and not answered in time."""
    while True:
        try:
            return await queue.get()
        except (NoAnswer, Disconnected) as error:
            for message in getattr(error, "messages", []):
                return message


def job(**fields: Any) -> Event:
    return Event("job", delivery="reliable", **fields)


async def count(queue: Queue) -> int:
    return (await queue.describe(timeout_s=ANSWER_S)).messages


@pytest.mark.parametrize("how", SENDS)
def test_what_was_never_sent_is_withdrawn(tmp_path: Path, how: str) -> None:
    async def work(proxy: Proxy, bus: Bus, queue: Queue) -> None:
        await away(proxy, bus)
        with pytest.raises(Disconnected, match="withdrawn") as caught:
            await SENDS[how](bus, queue, job())
        assert not caught.value.may_be_accepted
        assert bus._core.publications.is_empty
        assert not bus._core.unsure.known
        mend(proxy)
        assert await count(queue) == 0

    with_proxy(work, tmp_path)


@pytest.mark.parametrize("how", SENDS)
def test_what_was_sent_may_be_accepted_and_is_there_once(tmp_path: Path, how: str) -> None:
    async def work(proxy: Proxy, bus: Bus, queue: Queue) -> None:
        event = job()
        proxy.lose_answers()
        for _ in range(3):
            with pytest.raises((NoAnswer, Disconnected), match="may have been accepted") as caught:
                await SENDS[how](bus, queue, event)
            assert caught.value.may_be_accepted
        mend(proxy)
        await settled(lambda: SENDS[how](bus, queue, event))
        assert await count(queue) == 1
        assert not bus._core.unsure.known

    with_proxy(work, tmp_path)


@pytest.mark.parametrize("how", SENDS)
def test_an_event_that_is_sent_twice_on_purpose_is_there_twice(tmp_path: Path, how: str) -> None:
    async def work(proxy: Proxy, bus: Bus, queue: Queue) -> None:
        event = job()
        proxy.lose_answers()
        with pytest.raises(TidingsError):
            await SENDS[how](bus, queue, event)
        mend(proxy)
        for _ in range(3):
            await settled(lambda: SENDS[how](bus, queue, event))
        assert await count(queue) == 3

    with_proxy(work, tmp_path)


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_cancelled_put_is_withdrawn_or_keeps_its_number(tmp_path: Path, is_sent: bool) -> None:
    async def work(proxy: Proxy, bus: Bus, queue: Queue) -> None:
        event = job()
        proxy.lose_answers()
        if not is_sent:
            await away(proxy, bus)
        putting = asyncio.create_task(queue.put(event, timeout_s=ANSWER_S))
        for _ in range(3):
            await asyncio.sleep(0)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        assert bool(bus._core.unsure.known) is is_sent
        assert bus._core.publications.is_empty is not is_sent
        mend(proxy)
        await settled(lambda: queue.put(event))
        assert await count(queue) == 1

    with_proxy(work, tmp_path)


@pytest.mark.parametrize("size", BODIES)
@pytest.mark.parametrize("passes", range(8))
def test_wherever_the_connection_is_cut_the_retry_loop_makes_one_copy(
    tmp_path: Path, size: str, passes: int
) -> None:
    async def work(proxy: Proxy, _bus: Bus, queue: Queue) -> None:
        event = job(body=BODIES[size])
        sending = asyncio.create_task(settled(lambda: queue.put(event)))
        for _ in range(passes):
            await asyncio.sleep(0)
        proxy.lose_answers()
        while passes % 2 and not sending.done() and proxy.connections < 3:
            proxy.reset()
            await asyncio.sleep(SOON_S)
        mend(proxy)
        await sending
        assert await count(queue) == 1

    with_proxy(work, tmp_path)


def test_an_encrypted_event_that_is_put_again_is_there_once(tmp_path: Path) -> None:
    async def work(proxy: Proxy, bus: Bus, _queue: Queue) -> None:
        ring = Keyring([generate_key()])
        queue = await bus.create_queue("secrets", keys=ring, timeout_s=ANSWER_S)
        event = job(body=b"secret")
        proxy.lose_answers()
        with pytest.raises(TidingsError):
            await queue.put(event)
        mend(proxy)
        await settled(lambda: queue.put(event))
        assert await count(queue) == 1

    with_proxy(work, tmp_path)


def test_put_all_says_which_events_to_put_again(tmp_path: Path) -> None:
    async def work(proxy: Proxy, _bus: Bus, queue: Queue) -> None:
        events = [job(n=n) for n in range(1_000)]
        left = events[10:]
        await queue.put_all(events[:10], timeout_s=ANSWER_S)
        proxy.lose_answers()
        with pytest.raises((NoAnswer, Disconnected)) as caught:
            await queue.put_all(iter(left))
        assert (caught.value.put, caught.value.left) == (0, left)  # type: ignore[attr-defined]
        mend(proxy)
        while left:
            try:
                await queue.put_all(left)
                break
            except (NoAnswer, Disconnected) as error:
                left = error.left  # type: ignore[union-attr]
        found = await settled(queue.read_all)
        assert [event["n"] for event in found] == list(range(1_000))

    with_proxy(work, tmp_path)


def test_a_put_all_without_end_can_be_cancelled(tmp_path: Path) -> None:
    async def work(proxy: Proxy, bus: Bus, queue: Queue) -> None:
        await away(proxy, bus)
        endless = (job() for _ in count_up())
        (putting,) = [asyncio.create_task(queue.put_all(endless, timeout_s=ANSWER_S))]
        while not bus._core.publications.size:
            await asyncio.sleep(0)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        assert bus._core.publications.is_empty

    with_proxy(work, tmp_path)


def test_acknowledging_all_that_was_delivered_says_that_it_may_be_accepted(tmp_path: Path) -> None:
    async def work(proxy: Proxy, _bus: Bus, queue: Queue) -> None:
        await queue.put_all([job(), job()], timeout_s=ANSWER_S)
        messages = queue.messages(acknowledge="client")
        await anext(messages)
        last = await anext(messages)
        proxy.lose_answers()
        with pytest.raises(NoAnswer) as caught:
            await last.acknowledge()
        assert caught.value.may_be_accepted
        mend(proxy)
        about = await queue.describe(timeout_s=ANSWER_S)
        assert (about.messages, about.in_flight) == (0, 0)

    with_proxy(work, tmp_path)


def test_parts_of_a_long_event_do_not_stay_in_the_send_buffer(tmp_path: Path) -> None:
    async def work(proxy: Proxy, bus: Bus, queue: Queue) -> None:
        async with bus.transaction() as tx:
            await away(proxy, bus)
            with pytest.raises(Disconnected):
                await tx.put(queue, job(body=bytes(3 * SEGMENT_SIZE)))
            assert bus._core.publications.is_empty
            await tx.rollback()

    with_proxy(work, tmp_path)


def test_a_request_that_was_sent_may_have_been_done(tmp_path: Path) -> None:
    async def work(proxy: Proxy, bus: Bus, queue: Queue) -> None:
        await bus._asking.wait_open()
        with pytest.raises(NoAnswer) as nobody:
            await bus.request("ask")
        assert nobody.value.may_be_accepted
        proxy.lose_answers()
        with pytest.raises(NoAnswer) as caught:
            await queue.purge()
        assert caught.value.may_be_accepted
        await away(proxy, bus)
        with pytest.raises(Disconnected) as caught_away:
            await queue.purge()
        assert not caught_away.value.may_be_accepted

    with_proxy(work, tmp_path)


def test_a_refusal_that_comes_late_is_raised_by_the_next_try(tmp_path: Path) -> None:
    async def work(proxy: Proxy, bus: Bus, _queue: Queue) -> None:
        small = await bus.create_queue("small", max_messages=1, timeout_s=ANSWER_S)
        await small.put("job", timeout_s=ANSWER_S)
        event = job()
        proxy.lose_answers()
        with pytest.raises(TidingsError):
            await small.put(event)
        mend(proxy)
        with pytest.raises(tidings.errors.QueueFull) as caught:
            await settled(lambda: small.put(event))
        assert not caught.value.may_be_accepted
        await settled(small.get_all)
        await settled(lambda: small.put(event))
        assert await count(small) == 1

    with_proxy(work, tmp_path)


def test_an_acknowledgement_can_be_repeated(tmp_path: Path) -> None:
    async def work(proxy: Proxy, bus: Bus, queue: Queue) -> None:
        for is_sent in (True, False):
            await queue.put("job", timeout_s=ANSWER_S)
            message = await queue.take().__aenter__()
            if is_sent:
                proxy.lose_answers()
            else:
                await away(proxy, bus)
            with pytest.raises((NoAnswer, Disconnected)) as caught:
                await message.acknowledge()
            assert caught.value.may_be_accepted is is_sent
            mend(proxy)
            await settled(message.acknowledge)
            with pytest.raises(MessageNotHeld):
                await message.acknowledge()
            assert await count(queue) == 0

    with_proxy(work, tmp_path)


def test_a_commit_that_was_not_sent_is_none_and_one_that_was_can_be_waited_for(tmp_path: Path) -> None:
    async def work(proxy: Proxy, bus: Bus, queue: Queue) -> None:
        tx = await settled(lambda: bus.transaction().__aenter__())
        await tx.put(queue, "job", timeout_s=ANSWER_S)
        proxy.lose_answers()
        with pytest.raises(NoAnswer) as caught:
            await tx.commit()
        assert caught.value.may_be_accepted
        mend(proxy)
        await settled(tx.commit)
        assert await count(queue) == 1

        tx = await settled(lambda: bus.transaction().__aenter__())
        await away(proxy, bus)
        with pytest.raises(TransactionLost, match="nothing of the transaction was done"):
            await tx.commit()

    with_proxy(work, tmp_path)


def test_what_a_get_has_not_acknowledged_goes_back_or_is_with_the_error(tmp_path: Path) -> None:
    async def work(proxy: Proxy, bus: Bus, queue: Queue) -> None:
        await queue.put("job", timeout_s=ANSWER_S)
        core, settle = bus._core, bus._core.settle

        def cut(*arguments: Any) -> int:  # when the acknowledgement is numbered, and not sent
            proxy.cut()
            bus._link._is_paused = True  # nothing is written until the connection is gone
            core.settle = settle  # type: ignore[method-assign]
            return settle(*arguments)

        core.settle = cut  # type: ignore[method-assign]
        with pytest.raises((NoAnswer, Disconnected)) as caught:
            await queue.get()
        assert not caught.value.may_be_accepted
        assert caught.value.messages == []  # type: ignore[attr-defined]
        mend(proxy)
        assert (await got(queue)).type == "job"

    with_proxy(work, tmp_path)
