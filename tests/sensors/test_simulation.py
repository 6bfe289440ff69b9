from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
import uvloop
from effort import ANSWER_S
from sensors.gateways import TestGateway, wait_until

from tidings.errors import Disconnected, UserError
from tidings.sensors import simulation
from tidings.sensors.city import Load
from tidings.sensors.link import GatewayPlace
from tidings.sensors.simulation import CityTally, Simulation, stamp_of

PATIENCE_S = ANSWER_S
DUST = "type = 'air.pm10'"


def run(work: Any, runner: Any = asyncio.run) -> None:
    runner(asyncio.wait_for(work, PATIENCE_S))


async def simulated(city: Simulation, gateway: TestGateway, *then: Any) -> CityTally:
    """Let a city run until the test has seen what it waits for."""
    task = asyncio.ensure_future(city.run())
    try:
        for is_so in then:
            await wait_until(is_so)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return city.tally


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("udp", [False, True])
def test_a_city_sends_what_it_is_asked_for_and_nothing_else(udp: bool, runner: Any) -> None:
    async def test() -> None:
        async with TestGateway().listening() as gateway:
            gateway.demand(DUST + " AND value < 500")
            city = Simulation(gateway.place(udp), Load(networks=20, rate=50, mobility=10.0))
            tally = await simulated(city, gateway, lambda: len(gateway.readings) > 200)
            assert {reading.type for _, reading in gateway.readings} == {"air.pm10"}
            assert max(reading.value for _, reading in gateway.readings) <= 500
            assert len({owner for owner, _ in gateway.readings}) > 10
            assert tally.unwanted == 0
            assert gateway.errors == []

    run(test(), runner)


def test_sensors_are_switched_off_when_nobody_wants_them_any_more() -> None:
    async def test() -> None:
        async with TestGateway().listening() as gateway:
            gateway.demand(DUST)
            city = Simulation(gateway.place(), Load(networks=5, rate=50))
            task = asyncio.ensure_future(city.run())
            await wait_until(lambda: len(gateway.readings) > 50)
            gateway.demand()
            cores = [one.core for group in city.groups for one in group.networks]
            await wait_until(lambda: not any(core.asked for core in cores))
            sent = city.tally.readings
            await wait_until(lambda: len(gateway.readings) == sent)
            gateway.demand(DUST)
            await wait_until(lambda: len(gateway.readings) > sent)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(test())


def test_one_that_always_sends_counts_what_nobody_wanted() -> None:
    async def test() -> None:
        async with TestGateway().listening() as gateway:
            load = Load(networks=3, rate=50, readings=10, always=True, duration_s=0.3)
            tally = await Simulation(gateway.place(), load).run()
            assert tally.messages > 0
            assert tally.readings == tally.unwanted == 10 * tally.messages
            await wait_until(lambda: len(gateway.readings) == tally.readings)

    run(test())


@pytest.mark.parametrize("udp", [False, True])
def test_without_a_rate_it_sends_as_fast_as_it_goes_and_still_obeys(udp: bool) -> None:
    async def test() -> None:
        async with TestGateway().listening() as gateway:
            load = Load(networks=6, rate=0, readings=2, connections=2)
            city = Simulation(gateway.place(udp), load)
            task = asyncio.ensure_future(city.run())
            await wait_until(lambda: city.tally.connections == 2)
            assert gateway.readings == []
            gateway.demand(DUST)
            await wait_until(lambda: len(gateway.readings) > 5_000)
            assert {reading.type for _, reading in gateway.readings} == {"air.pm10"}
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(test())


def test_networks_that_leave_are_followed_by_others_or_come_back() -> None:
    async def test() -> None:
        async with TestGateway().listening() as gateway:
            gateway.demand(DUST)
            city = Simulation(gateway.place(), Load(networks=4, rate=20, churn=6_000))
            await simulated(
                city,
                gateway,
                lambda: city.tally.left > 20,
                lambda: gateway.connections > 6,
                lambda: len({owner for owner, _ in gateway.readings}) > 6,
            )
            assert gateway.errors == []

    run(test())


def test_networks_say_farewell_when_the_time_is_over() -> None:
    async def test() -> None:
        reports: list[int] = []
        async with TestGateway().listening() as gateway:
            load = Load(networks=4, rate=50, duration_s=0.2)
            tally = await Simulation(gateway.place(), load, lambda one: reports.append(one.networks)).run()
            await wait_until(lambda: gateway.core.overview() == [])
            assert tally.elapsed_s >= 0.1
            assert reports[-1] == 4

    run(test())


def test_everybody_gets_a_turn_of_equal_length() -> None:
    async def test() -> None:
        async with TestGateway().listening() as gateway:
            load = Load(networks=50, connections=5, rate=20, always=True, duration_s=1.0)
            await Simulation(gateway.place(), load).run()
            turns = Counter(owner for owner, _ in gateway.readings)
            assert len(turns) == 50
            assert max(turns.values()) <= min(turns.values()) + 5

    run(test())


def test_where_no_gateway_is_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "CONNECT_S_MAX", 0.1)

    async def test() -> None:
        await Simulation(GatewayPlace("127.0.0.1", 1), Load()).run()

    with pytest.raises(Disconnected, match="no gateway answers"):
        run(test())


def test_a_city_without_anyone_is_refused() -> None:
    async def test() -> None:
        Simulation(GatewayPlace("127.0.0.1", 1), Load(types=()))

    with pytest.raises(UserError, match="at least one network"):
        run(test())


def test_a_time_is_told_to_the_second() -> None:
    assert stamp_of(1_556_668_805) == stamp_of(1_556_668_805) == "2019-05-01T00:00:05Z"
