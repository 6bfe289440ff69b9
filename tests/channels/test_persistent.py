"""Persistent channels between real nodes: history first, then what comes; sealed files; archives."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from node.peers import run
from overlay.real import Line

from tidings.client import Bus
from tidings.client.channels import Channel
from tidings.errors import ChannelNotFound, NotAllowed, Refused, UserError

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


async def values(channel: Channel, count: int) -> list[int]:
    return [int((await anext(channel))["x"]) for _ in range(count)]


async def stored(channel: Channel) -> list[int]:
    return [int(event["x"]) async for event in channel.history()]


def test_a_member_begins_with_what_was_stored_and_goes_on_without_gap_or_overlap() -> None:
    async def scenario() -> None:
        async with Line("a", "b") as line:
            alice, bob = await line.bus("a"), await line.bus("b")
            trip = await alice.create_channel("trip", delivery="persistent")
            async with trip, await bob.channel("trip") as other:
                for x in range(10):
                    await (trip if x % 2 else other).send("step", x=x)
                late = await bob.channel("trip", since=LONG_AGO, where="x > 2")
                async with late:
                    begun = await values(late, 3)
                    for x in range(10, 20):
                        await trip.send("step", x=x)
                    assert begun + await values(late, 14) == list(range(3, 20))
                    assert await stored(late) == list(range(20))
                    assert not late.missing
                    future = datetime.now(UTC) + timedelta(days=1)
                    assert not [one async for one in late.history(since=future)]
            with pytest.raises(UserError, match="durable"):
                await bob.channel("trip", since=LONG_AGO, durable="me")

    run(scenario())


def test_events_of_channels_in_sealed_files_are_for_members_too(tmp_path: Path) -> None:
    async def read(bus: Bus, **more: str) -> list[int]:
        return [event["x"] async for _, event in bus.log.read(1, **more)]

    async def scenario() -> None:
        settings = {"a": {"dir": str(tmp_path / "a"), "log_seal_s": 3600.0}}
        async with Line("a", settings=settings) as line:
            bus = await line.bus("a")
            trip = await bus.create_channel("trip", delivery="persistent", private=True)
            async with trip:
                for x in range(3):
                    await trip.send("step", x=x)
                await bus.publish("other", x=7, delivery="persistent")
                await bus.log.seal()
                await trip.send("step", x=3)
                assert await read(bus) == await read(bus, where="x >= 0") == [7]
                assert await read(bus, channel=trip.reference) == await stored(trip) == [0, 1, 2, 3]
            with pytest.raises(NotAllowed):
                await read(bus, channel=trip.id)
            assert await stored(trip) == [0, 1, 2, 3]
            await trip.delete()
            with pytest.raises(ChannelNotFound):
                await read(bus, channel=trip.reference)
            assert await read(bus) == [7]

    run(scenario())


def test_only_a_sealer_at_the_nodes_own_socket_reads_all_that_is_in_the_log() -> None:
    async def scenario() -> None:
        async with Line("a") as line:
            bus = await line.bus("a")
            with pytest.raises(NotAllowed, match="sealer"):
                await bus.log._call("log.read", {"start": 1, "sealing": True}, None)

    run(scenario())


def test_a_node_archives_a_channel_until_that_is_ended() -> None:
    async def scenario() -> None:
        async with Line("a", "b") as line:
            alice, bob = await line.bus("a"), await line.bus("b")
            trip = await alice.create_channel("trip", delivery="reliable")
            async with trip, await bob.channel("trip", archive=True) as member:
                assert not await stored(member)
                for x in range(5):
                    await trip.send("step", x=x)
                assert await values(member, 5) == list(range(5))
                assert await stored(trip) == list(range(5))
            async with await bob.channel("trip", archive=False) as member:
                assert not await stored(member)
            quick = await alice.create_channel("quick")
            with pytest.raises(Refused, match="transient"):
                async with await alice.channel("quick", archive=True):
                    pass
            await quick.delete()

    run(scenario())


def test_history_names_the_nodes_that_can_not_be_asked() -> None:
    async def scenario() -> None:
        async with Line("a", "b") as line:
            alice, bob = await line.bus("a"), await line.bus("b")
            trip = await alice.create_channel("trip", delivery="persistent")
            async with trip, await bob.channel("trip") as member:
                await trip.send("step", x=1)
                await member.send("step", x=2)
                await values(member, 2)
                await line["a"].close()
                while line.neighbour("b", "a").is_up:  # type: ignore[union-attr]
                    await asyncio.sleep(0)
                assert await stored(member) == [2]
                assert member.missing == ["a"]

    run(scenario())
