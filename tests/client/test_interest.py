"""Advertising: whether anyone wants it, who, and since when."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tidings
from client.nodes import node, proxy_of, run
from tidings import Filter
from tidings.errors import Disconnected, FilterError, UserError


def test_interest_comes_and_goes_with_those_who_subscribe() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.advertise("type = 'air.pm10'") as interest:
            assert not interest.wanted
            async with bus.subscribe("type = 'air.pm10' AND value > 40"):
                await interest.wait_wanted()
                assert interest.filters == (Filter("type = 'air.pm10' AND value > 40"),)
            await interest.wait_unwanted()
            assert interest.filters == ()

    run(work())


def test_those_who_are_passive_or_want_something_else_do_not_count() -> None:
    async def work() -> None:
        async with (
            tidings.open() as bus,
            bus.subscribe(passive=True),
            bus.subscribe("type = 'noise'"),
            bus.advertise("type = 'air.pm10'") as interest,
        ):
            assert not interest.wanted

    run(work())


def test_changes_can_be_iterated_over() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.advertise() as interest:
            assert await anext(interest) == ()
            async with bus.subscribe("n > 1"):
                assert await anext(interest) == (Filter("n > 1"),)
            assert await anext(interest) == ()

    run(work())


def test_asking_for_answers_wants_nothing() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.advertise("type = 'air.pm10'") as interest:
            async with bus.listen("type = 'ask'", lambda ask: bus.reply(ask, "answer")):
                await bus.request("ask")
            assert not interest.wanted

    run(work())


def test_interest_is_known_again_after_a_cut(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with (
            node(tmp_path) as address,
            proxy,
            tidings.connect(address) as other,
            tidings.connect(proxy.address, random=lambda: 0.0) as bus,
            bus.advertise() as interest,
        ):
            proxy.reset()
            async with other.subscribe("n > 1"):
                await interest.wait_wanted()
            await interest.wait_unwanted()

    run(work())


def test_an_advertisement_ends_with_its_block() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            async with bus.advertise() as interest:
                pass
            assert (await bus.status())["advertisements"] == 0
            with pytest.raises(UserError, match="once"):
                await interest.__aenter__()
            with pytest.raises(FilterError):
                await bus.advertise("n >").__aenter__()

    run(work())


def test_waiting_for_interest_ends_when_the_bus_does() -> None:
    async def work() -> None:
        bus = await tidings.open().__aenter__()
        interest = await bus.advertise().__aenter__()
        waiting = asyncio.create_task(interest.wait_wanted())
        await asyncio.sleep(0)
        await bus.__aexit__(None, None, None)
        with pytest.raises(Disconnected):
            await waiting

    run(work())
