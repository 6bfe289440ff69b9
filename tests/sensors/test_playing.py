from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sensors.gateways import TestGateway, run, wait_until

from tests.gateway.world import is_known
from tidings.errors import Disconnected, NoAnswer
from tidings.sensors import network, replay, speaker
from tidings.sensors.link import GatewayPlace
from tidings.sensors.recording import make_recording
from tidings.sensors.replay import Played, Player, Recording

TOTAL = 1_613
"""Readings of the recording that is played, in 807 lines."""


@pytest.fixture
def recorded(tmp_path: Path) -> Recording:
    make_recording(tmp_path / "r.csv.gz", seed=1, sensors=7, days=0.2)
    return Recording(tmp_path / "r.csv.gz")


@pytest.mark.parametrize("udp", [False, True])
def test_every_reading_arrives_with_its_own_time(recorded: Recording, udp: bool) -> None:
    reports: list[float] = []

    async def test() -> None:
        async with TestGateway().listening() as gateway:
            player = Player(recorded, gateway.place(udp), speed=0, report=lambda p: reports.append(p.share))
            played = await player.play()
            assert len(gateway.readings) == played.arrived == TOTAL
            assert {reading.timestamp[:8] for _, reading in gateway.readings} == {"2026-05-"}
            assert gateway.errors == []
            await wait_until(lambda: not is_known(gateway.core, "10000", "10000.pm10"))

    run(test())
    assert reports[-1] == 1.0


def test_links_that_break_lose_nothing_and_double_nothing(recorded: Recording) -> None:
    async def test() -> None:
        async with TestGateway(acknowledges=False).listening() as gateway:
            task = asyncio.ensure_future(Player(recorded, gateway.place(), speed=0).play())
            for _ in range(5):
                seen, links = len(gateway.readings), gateway.connections
                await wait_until(lambda seen=seen: len(gateway.readings) >= min(seen + 100, TOTAL))
                gateway.cut()
                await wait_until(lambda links=links: gateway.connections > links)
            gateway.acknowledge()
            played = await task
            assert gateway.core.figures.repeated > 0
            assert len(gateway.readings) == played.arrived == TOTAL

    run(test())


def test_only_what_was_asked_for_is_sent_if_so_wanted(recorded: Recording) -> None:
    async def test() -> None:
        async with TestGateway().listening() as gateway:
            played = await Player(recorded, gateway.place(), speed=0, only_asked=True).play()
            assert gateway.readings == []
            assert (played.arrived, played.unwanted) == (0, TOTAL)

    run(test())


def test_pauses_are_kept_at_the_speed_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(
        "time,id,type,value\n1000000000,a,x,1\n1000003600,a,x,2\n1000086400,a,x,3\n"
    )

    async def test() -> None:
        async with TestGateway().listening() as gateway:
            player = Player(Recording(tmp_path / "r.csv"), gateway.place(), speed=36_000)
            task = asyncio.ensure_future(player.play())
            await wait_until(lambda: len(gateway.readings) == 2)
            assert player.played.messages == 2
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(test())


def test_a_gateway_that_never_acknowledges_is_given_up(
    recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "ARRIVE_S_MAX", 0.1)
    monkeypatch.setattr(network, "WAITING_MAX", 10_000)

    async def test() -> None:
        async with TestGateway(acknowledges=False).listening() as gateway:
            with pytest.raises(NoAnswer, match="807 messages were not acknowledged"):
                await Player(recorded, gateway.place(), speed=0).play()

    run(test())


def test_where_no_gateway_is_the_command_says_so(
    recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speaker, "FIRST_S_MAX", 0.1)
    told: list[str] = []

    async def test() -> Played:
        return await Player(recorded, GatewayPlace("127.0.0.1", 1), on_problem=told.append).play()

    with pytest.raises(Disconnected, match=r"no gateway answers at 127\.0\.0\.1:1"):
        run(test())
    assert len(told) == 1
