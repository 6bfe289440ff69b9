"""Push and pull at both ends of channels, and channels that feed others."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count

import pytest
from node.peers import run
from overlay.real import Line

from tidings.client import channel_proxies
from tidings.client.channels import PREFETCH, Channel
from tidings.errors import NotAllowed, Refused, UserError
from tidings.event import Event


def test_pushed_and_pulled_consumers_and_suppliers_are_mixed_in_one_channel() -> None:
    async def scenario() -> None:
        async with Line("a", "b") as line:
            alice, bob = await line.bus("a"), await line.bus("b")
            pushing = await alice.create_channel("trip", delivery="reliable")
            pulled: list[int] = []
            numbers = count()

            async def source() -> Event | list[Event] | None:
                number = next(numbers)
                if number == 1:
                    return None
                if number == 2:
                    return [Event("read", x=2), Event("read", x=3)]
                return Event("read", x=number) if number < 2 else None

            async with pushing, await bob.channel("trip") as pulling, await bob.channel("trip") as watching:
                push = asyncio.create_task(pushing.push(lambda event: pulled.append(event["x"])))
                supply = asyncio.create_task(watching.supply(source, every_s=0.01))
                await pushing.send("sent", x=9)
                found = [await pulling.pull() for _ in range(4)]
                assert sorted(event["x"] for event in found if event) == [0, 2, 3, 9]
                assert {event.channel for event in found if event} == {"trip"}
                while len(pulled) < 4:
                    await asyncio.sleep(0)
                assert sorted(pulled) == [0, 2, 3, 9]
                assert await pulling.pull(timeout_s=0) is None
                supply.cancel()
            await push

    run(scenario())


def test_events_wait_between_pulls_and_a_pull_in_vain_loses_none() -> None:
    async def scenario() -> None:
        async with Line("a") as line:
            bus = await line.bus("a")
            trip = await bus.create_channel("trip")
            async with trip:
                assert await trip.pull(timeout_s=0.001) is None
                for x in range(PREFETCH + 10):
                    await trip.send("step", x=x)
                while trip.waiting < PREFETCH - 1:  # one has come to the pull before
                    await asyncio.sleep(0)
                event = await trip.pull(timeout_s=0)
                assert event is not None
                assert event["x"] == 0
                assert [(await anext(trip))["x"] for _ in range(PREFETCH + 9)] == list(
                    range(1, PREFETCH + 10)
                )
                with pytest.raises(UserError):
                    await trip.pull(timeout_s=-1)
                with pytest.raises(UserError):
                    await trip.supply(lambda: None, every_s=0)

    run(scenario())


def test_what_a_consumer_or_a_source_raises_ends_the_pushing_and_the_asking() -> None:
    def fail(*_: object) -> None:
        raise ValueError("no")

    async def scenario() -> None:
        async with Line("a") as line:
            bus = await line.bus("a")
            trip = await bus.create_channel("trip")
            async with trip:
                await trip.send("step", x=1)
                with pytest.raises(ValueError, match="no"):
                    await trip.push(fail)
                with pytest.raises(ValueError, match="no"):
                    await trip.supply(fail, every_s=0.01)

    run(scenario())


def test_a_channel_feeds_another_and_a_circle_is_refused() -> None:
    async def scenario() -> None:
        async with Line("a", "b") as line, AsyncExitStack() as stack:
            alice, bob = await line.bus("a"), await line.bus("b")
            own: dict[str, Channel] = {}
            others: dict[str, Channel] = {}
            for name in ("first", "second", "third"):
                own[name] = await stack.enter_async_context(await alice.create_channel(name))
                others[name] = await stack.enter_async_context(await bob.channel(name))
            feeds = [
                asyncio.create_task(own["first"].feed(own["second"], where="x > 1")),
                asyncio.create_task(others["second"].feed(others["third"])),
            ]
            while sum(len(line[name].driver.core.channels._feeds.all) for name in "ab") < 2:
                await asyncio.sleep(0)
            with pytest.raises(Refused, match="feeds the other one already"):
                await own["third"].feed(own["first"])
            with pytest.raises(Refused):
                await own["third"].feed(own["third"])
            for x in (1, 2):
                await others["first"].send("step", x=x)
            event = await anext(own["third"])
            passed = [own[name].id for name in ("first", "second")]
            assert (event["x"], event.channel, event["via"].split()) == (2, "third", passed)
            outside = await alice.create_channel("outside")
            with pytest.raises(NotAllowed, match="both"):
                await others["first"].feed(outside)
            for feed in feeds:
                feed.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await feed
            assert not any(line[name].driver.core.channels._feeds.all for name in "ab")

    run(scenario())


def test_a_fed_event_enters_no_channel_again_though_two_feed_each_other() -> None:
    async def scenario() -> None:
        async with Line("a") as line:
            bus = await line.bus("a")
            one, other = await bus.create_channel("one"), await bus.create_channel("other")
            async with one, other, await bus.channel("one") as again:
                feeds = [asyncio.create_task(one.feed(other)), asyncio.create_task(other.feed(one))]
                while len(line["a"].driver.core.channels._feeds.all) + sum(feed.done() for feed in feeds) < 2:
                    await asyncio.sleep(0)
                failed = [feed.exception() for feed in feeds if feed.done()]
                assert len(failed) < 2  # one of them may have been refused
                for x in range(3):
                    await again.send("step", x=x)
                assert [(await anext(again))["x"] for _ in range(3)] == [0, 1, 2]
                await again.send("step", x=9)
                assert (await anext(again))["x"] == 9
                for feed in feeds:
                    feed.cancel()

    run(scenario())


def test_an_event_that_has_passed_too_many_channels_goes_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_proxies, "PASSED_MAX", 2)

    async def scenario() -> None:
        async with Line("a") as line:
            bus = await line.bus("a")
            one, other = await bus.create_channel("one"), await bus.create_channel("other")
            async with one, other:
                feed = asyncio.create_task(one.feed(other))
                await one.send("step", x=1, via="a b")
                await one.send("step", x=2, via="a")
                assert (await anext(other))["x"] == 2
                feed.cancel()

    run(scenario())
