"""Asking and being answered, by whoever it may be."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tidings
from client.nodes import node, proxy_of, run
from tidings import Event
from tidings.client import Bus
from tidings.errors import Disconnected, EventError, NoAnswer


async def double(bus: Bus, ask: Event) -> None:
    await bus.reply(ask, "doubled", n=2 * ask["n"])


def test_a_request_is_answered() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.listen("type = 'ask'", lambda ask: double(bus, ask)):
            answer = await bus.request(Event("ask", n=21), timeout_s=30)
            assert (answer.type, answer["n"]) == ("doubled", 42)

    run(work())


def test_many_requests_at_once_get_their_own_answers() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.listen("type = 'ask'", lambda ask: double(bus, ask)):
            answers = await asyncio.gather(*(bus.request("ask", n=n) for n in range(200)))
            assert [answer["n"] for answer in answers] == [2 * n for n in range(200)]
            assert (await bus.status())["subscriptions"] == 2  # one for questions, one for all answers

    run(work())


def test_whoever_subscribes_may_answer_and_the_first_answer_wins() -> None:
    async def work() -> None:
        async with (
            tidings.open() as bus,
            bus.listen("type = 'ask'", lambda ask: bus.reply(ask, "first")),
            bus.listen("n > 1", lambda ask: bus.reply(ask, "second")),
        ):
            kinds = {(await bus.request("ask", n=5)).type for _ in range(10)}
            assert kinds <= {"first", "second"}
            assert (await bus.request("ask", n=0)).type == "first"

    run(work())


def test_without_an_answer_the_wait_ends() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(NoAnswer, match=r"no answer to ask within 0\.05 s"):
                await bus.request("ask", timeout_s=0.05)
            with pytest.raises(TimeoutError):
                await bus.request("ask", timeout_s=0)

    run(work())


def test_an_answer_that_comes_late_is_let_go() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe("type = 'ask'") as asks:
            impatient = asyncio.create_task(bus.request("ask", n=1, timeout_s=1))
            late = await anext(asks)
            with pytest.raises(NoAnswer):
                await impatient
            waiting = asyncio.create_task(bus.request("ask", n=2))
            await double(bus, late)
            await double(bus, await anext(asks))
            assert (await waiting)["n"] == 4

    run(work())


def test_after_a_restart_of_the_node_requests_are_made_from_a_new_inbox(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            bus = await tidings.connect(address, random=lambda: 0.0).__aenter__()
            answering = await bus.listen("type = 'ask'", lambda ask: double(bus, ask)).__aenter__()
            asks = await bus.subscribe("type IN ('ask', 'unanswered')").__aenter__()
            assert (await bus.request("ask", n=1))["n"] == 2
            waiting = asyncio.create_task(bus.request("unanswered", n=5))
            inboxes = {(await anext(asks)).reply_to for _ in range(2)}
        async with node(tmp_path):
            assert (await bus.request("ask", n=2))["n"] == 4
            inboxes.add((await anext(asks)).reply_to)
            assert len(inboxes) == 2
            assert (await bus.status())["subscriptions"] == 4, "an answer may still come to the former one"
            waiting.cancel()
            await asyncio.wait([waiting])
            assert (await bus.request("ask", n=3))["n"] == 6
            assert (await bus.status())["subscriptions"] == 3
            await answering.__aexit__(None, None, None)
            await asks.leave()
            await bus.__aexit__(None, None, None)

    run(work())


def test_an_event_that_asks_for_nothing_can_t_be_answered() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(EventError, match="reply_to"):
                await bus.reply(Event("t"), Event("answer"))

    run(work())


def test_answers_come_after_a_cut_too(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with (
            node(tmp_path) as address,
            proxy,
            tidings.connect(address) as server,
            tidings.connect(proxy.address, random=lambda: 0.0) as bus,
            server.listen("type = 'ask'", lambda ask: double(server, ask)),
        ):
            for n in range(5):
                assert (await bus.request("ask", n=n, delivery="reliable"))["n"] == 2 * n
                proxy.reset()

    run(work())


def test_a_request_ends_with_the_bus() -> None:
    async def work() -> None:
        bus = await tidings.open().__aenter__()
        waiting = asyncio.create_task(bus.request("ask"))
        await bus.status()
        await bus.__aexit__(None, None, None)
        with pytest.raises(Disconnected):
            await waiting

    run(work())
