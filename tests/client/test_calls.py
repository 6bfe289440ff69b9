"""Calls that end: how long the node may take to answer, and what the error says then."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from effort import ANSWER_S

import tidings
from client.nodes import Clock, node, proxy_of, run, run_with_clock
from tidings import Filter
from tidings.client import Bus, Queue
from tidings.client.bus import CALL_S
from tidings.errors import Disconnected, NoAnswer, TransactionLost, UserError
from tidings.protocol.publications import SEND_BUFFER_MAX
from tidings.testing import Proxy

Made = Callable[[Bus, Queue], Awaitable[Any]]
LONG_S = CALL_S + 5
"""More than any call may take by default, and less than a test may."""


async def commit(bus: Bus, _queue: Queue) -> None:
    """A transaction whose answers do not come."""
    async with bus.transaction(timeout_s=None):
        pass


async def put_all(_bus: Bus, queue: Queue) -> None:
    await queue.put_all([tidings.Event("job"), tidings.Event("job")])


async def read_log(bus: Bus, _queue: Queue) -> None:
    async for _ in bus.log.read():
        pass


ANSWERED: dict[str, Made] = {
    "put": lambda _, queue: queue.put("job"),
    "put: not": put_all,
    "publish": lambda bus, _: bus.publish("t", delivery="reliable"),
    "publish: not": lambda bus, _: bus.publish_all([tidings.Event("t", delivery="reliable")]),
    "queue.create": lambda bus, _: bus.create_queue("other"),
    "queue.describe": lambda _, queue: queue.describe(),
    "queue.find": lambda bus, _: bus.lookup(),
    "queue.delete": lambda bus, _: bus.delete_queue("jobs"),
    "queue.purge": lambda _, queue: queue.purge(),
    "queue.renew": lambda _, queue: queue.renew("x", 5),
    "subscribe": lambda bus, _: bus.subscribe().__aenter__(),
    "unsubscribe": lambda bus, _: bus.unsubscribe("d"),
    "advertise": lambda bus, _: bus.advertise().__aenter__(),
    "advertisements.list": lambda bus, _: bus.advertisements(),
    "status": lambda bus, _: bus.status(),
    "log.status": lambda bus, _: bus.log.status(),
    "log": read_log,
    "begin": commit,
    "no answer to t": lambda bus, _: bus.request("t"),
}
"""Calls that wait for the node, by the beginning of the error's text."""

WAITING: dict[str, Made] = {
    "get": lambda _, queue: queue.get(),
    "take": lambda _, queue: queue.take().__aenter__(),
    "read": lambda _, queue: queue.read(timeout_s=None),
    "messages": lambda _, queue: anext(queue.messages()),
    "seal": lambda bus, _: bus.log.seal(),
}
"""Calls that wait for something to happen."""


def with_silence(work: Callable[[Clock, Proxy, Bus, Queue], Awaitable[None]], home: Path) -> None:
    """Run with a queue of a node that can be silenced, and a clock that can be put forward."""

    async def within(clock: Clock) -> None:
        proxy = proxy_of(home)
        async with node(home), proxy:
            bus = await tidings.connect(proxy.address, random=lambda: 0.0).__aenter__()
            try:
                await work(clock, proxy, bus, await bus.create_queue("jobs"))
            finally:
                proxy.mend()
                proxy.reset()
                await bus.__aexit__(None, None, None)

    run_with_clock(within)


async def begun(*calls: Awaitable[Any]) -> list[asyncio.Future[Any]]:
    """Calls that have said what they have to say, and wait."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


def test_a_call_that_the_node_does_not_answer_ends_and_names_itself(tmp_path: Path) -> None:
    async def work(clock: Clock, proxy: Proxy, bus: Bus, queue: Queue) -> None:
        proxy.lose_answers()
        waiting = await begun(*(call(bus, queue) for call in ANSWERED.values()))
        tasks = dict(zip(ANSWERED, waiting, strict=True))
        assert not any(task.done() for task in tasks.values())
        clock.ahead_s += CALL_S + 1
        await asyncio.wait(tasks.values())
        for name, task in tasks.items():
            error = task.exception()
            assert isinstance(error, NoAnswer), (name, error)
            assert str(error).startswith(name)
            assert "within 30 s" in str(error)
            assert name.startswith("no answer") or f"{proxy.address} is connected" in str(error)

    with_silence(work, tmp_path)


def test_the_wait_for_a_message_has_no_limit_but_its_own(tmp_path: Path) -> None:
    async def work(clock: Clock, proxy: Proxy, bus: Bus, queue: Queue) -> None:
        watch, events = queue.watch(), bus.subscribe()
        await watch.__aenter__()
        await events.__aenter__()
        proxy.cut()
        tasks = await begun(anext(watch), anext(events), *(call(bus, queue) for call in WAITING.values()))
        (limited,) = await begun(bus.status())
        clock.ahead_s += LONG_S
        await asyncio.wait([limited])
        assert isinstance(limited.exception(), Disconnected)
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    with_silence(work, tmp_path)


def test_an_error_says_that_the_node_is_away_and_why(tmp_path: Path) -> None:
    async def work(clock: Clock, proxy: Proxy, bus: Bus, queue: Queue) -> None:
        proxy.cut()
        (putting,) = await begun(queue.put("job"))
        clock.ahead_s += CALL_S + 1
        text = rf"put: not accepted within 30 s: {re.escape(proxy.address)} is not connected \("
        with pytest.raises(Disconnected, match=text):
            await putting

    with_silence(work, tmp_path)


def test_a_full_send_buffer_is_waited_for_no_longer_than_allowed(tmp_path: Path) -> None:
    async def work(clock: Clock, proxy: Proxy, bus: Bus, _queue: Queue) -> None:
        proxy.cut()
        await bus.publish("t", body=bytes(SEND_BUFFER_MAX // 2))
        await bus.publish("t", body=bytes(SEND_BUFFER_MAX // 2))
        (publishing,) = await begun(bus.publish("t"))
        clock.ahead_s += CALL_S + 1
        with pytest.raises(Disconnected, match="publish: not sent, as the send buffer is full, within 30 s"):
            await publishing

    with_silence(work, tmp_path)


def test_a_call_has_its_own_limit_before_that_of_the_bus() -> None:
    async def work() -> None:
        asks = Filter("type = 'ask'")
        async with tidings.open(call_timeout_s=0.01) as bus, bus.subscribe(asks, timeout_s=ANSWER_S) as asked:
            asking = asyncio.create_task(bus.request("ask", timeout_s=60))
            ask = await anext(asked)
            with pytest.raises(NoAnswer, match=r"no answer to other within 0\.01 s"):
                await bus.request("other")
            await bus.reply(ask, "answer")
            assert (await asking).type == "answer"

    run(work())


def test_a_bus_without_a_limit_waits(tmp_path: Path) -> None:
    async def work(clock: Clock) -> None:
        proxy = proxy_of(tmp_path)
        async with (
            node(tmp_path),
            proxy,
            tidings.connect(proxy.address, call_timeout_s=None, random=lambda: 0.0) as bus,
        ):
            proxy.cut()
            waiting, limited = await begun(bus.status(), bus.status(timeout_s=LONG_S))
            clock.ahead_s += LONG_S + 1
            with pytest.raises(Disconnected):
                await limited
            proxy.mend()
            assert (await waiting)["sessions"] == 1

    run_with_clock(work)


def test_the_limit_of_a_transaction_holds_while_the_node_is_away(tmp_path: Path) -> None:
    async def work(clock: Clock, proxy: Proxy, bus: Bus, queue: Queue) -> None:
        tx = await bus.transaction(timeout_s=5).__aenter__()
        other = await bus.transaction(timeout_s=5).__aenter__()
        proxy.cut()
        while bus.is_connected:
            await asyncio.sleep(0)
        tasks = await begun(tx.get(queue), tx.put(queue, "job"), other.commit())
        clock.ahead_s += 5.1
        await asyncio.wait(tasks)
        assert all(isinstance(task.exception(), Disconnected | TransactionLost) for task in tasks)
        await tx.rollback()
        proxy.mend()
        assert await queue.is_empty()

    with_silence(work, tmp_path)


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "30", True])
def test_a_limit_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(UserError, match="call_timeout_s"):
        tidings.open(call_timeout_s=limit)
