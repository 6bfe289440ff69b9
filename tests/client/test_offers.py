"""Consumers look for what is advertised, and see it come and go."""

from __future__ import annotations

from pathlib import Path

import tidings
from client.nodes import node, proxy_of, run
from tidings.filters import Filter


def test_what_others_advertise_is_listed_by_what_it_overlaps() -> None:
    async def work() -> None:
        async with tidings.open(name="quay") as bus, bus.advertise("type = 'air.pm10' AND value < 90"):
            (offer,) = await bus.advertisements("type = 'air.pm10'")
            assert (offer.filter, offer.source) == (Filter("type = 'air.pm10' AND value < 90"), "quay")
            assert await bus.advertisements(Filter("type = 'water'")) == []
        with tidings.blocking.open(name="quay") as blocking, blocking.advertise("type = 'noise'"):
            assert [one.text for one in blocking.advertisements()] == ["type = 'noise'"]
            assert [one.text for one in next(blocking.watch_advertisements())] == ["type = 'noise'"]

    run(work())


def test_a_consumer_sees_advertisements_come_and_go() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            offers = bus.watch_advertisements("type = 'air'")
            assert await anext(offers) == []
            async with bus.advertise("type = 'water'"), bus.advertise("type = 'air'"):
                assert [one.text for one in await anext(offers)] == ["type = 'air'"]
            assert await anext(offers) == []

    run(work())


def test_a_watch_goes_on_after_a_cut(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            node(tmp_path) as address,
            proxy_of(tmp_path) as proxy,
            tidings.connect(address) as maker,
            tidings.connect(proxy.address) as bus,
            maker.advertise("n = 1"),
        ):
            offers = bus.watch_advertisements()
            assert [one.text for one in await anext(offers)] == ["n = 1"]
            proxy.reset()
            async with maker.advertise("n = 2"):
                assert [one.text for one in await anext(offers)] == ["n = 1", "n = 2"]

    run(work())
