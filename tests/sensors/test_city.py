from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from tests.gateway.whole import decode_object
from tidings.gateway.messages import Sensing, Sensor, SubscribeSensors
from tidings.sensors.city import CITY, DAY_S, DUST, HARBOUR_M, KINDS, SIZE_M, CityNetwork, Load, Signal, Spot


def network(number: int = 1, **options: Any) -> CityNetwork:
    given = {"sensors": 6, "readings": 2, "rate": 0.1, "seed": 3, "always": True}
    return CityNetwork(number, Load(**{**given, **options}))


def messages(of: CityNetwork, count: int) -> list[str]:
    made = (of.message("2026-05-01T08:00:00Z", 0.0) for _ in range(count))
    return [message.line for message in made if message is not None]


def test_the_same_seed_gives_the_same_readings() -> None:
    assert messages(network(), 50) == messages(network(), 50)
    assert messages(network(), 50) != messages(network(seed=4), 50)


def test_messages_are_what_a_gateway_understands() -> None:
    city = network(number=4, mobility=12.0)
    for line in messages(city, 20):
        (said,) = decode_object(line.encode())
        assert isinstance(said, Sensing)
        assert said.sensing_id == "bus-4"
        assert [reading.timestamp for reading in said.sensors] == ["2026-05-01T08:00:00Z"] * 2
        assert all(city.core.sensors[one.name].type == one.type for one in said.sensors)
        assert all(0 <= one.area[0].x <= SIZE_M for one in said.sensors if one.area)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_values_follow_the_day_and_stay_in_their_range(kind: Any) -> None:
    signal = Signal(kind, Random(1))
    day = [signal.next(step * DAY_S / 2_000) for step in range(2_000)]
    peak = int(kind.peak_hour / 24 * 2_000)
    around = [day[(peak + step) % 2_000] for step in range(-200, 200)]
    away = [day[(peak + 1_000 + step) % 2_000] for step in range(-200, 200)]
    assert kind.low <= min(day) <= max(day) <= kind.high
    assert sum(around) > sum(away)


def test_now_and_then_a_value_is_far_off() -> None:
    kind = KINDS["air.pm10"]
    signal = Signal(kind, Random(1))
    far = [value for _ in range(10_000) if (value := signal.next(0.0)) > 200]
    assert 5 <= len(far) <= 50


def test_a_bus_drives_at_its_speed_and_stays_in_town() -> None:
    spot = Spot(Random(1), 10.0)
    for _ in range(1_000):
        x, y = spot.x, spot.y
        spot.advance(5.0)
        assert abs(spot.x - x) + abs(spot.y - y) <= 75
        assert 0 <= spot.x <= SIZE_M
        assert 0 <= spot.y <= SIZE_M
    assert (spot.x, spot.y) != (x, y)


def test_only_buses_move_and_they_register_for_the_whole_town() -> None:
    street, bus = network(number=1, mobility=10.0), network(number=4, mobility=10.0)
    assert not street.spot.moves
    assert bus.core.area == CITY
    places = {
        tuple(msgspec.json.decode(line)["sensing"]["sensors"][0]["area"][0].values())
        for line in messages(bus, 9)
    }
    assert len(places) == 9


def test_who_is_not_asked_says_nothing_and_who_is_takes_turns() -> None:
    city = network(always=False)
    assert messages(city, 5) == []
    names = list(city.core.sensors)[:3]
    city.core.hear(SubscribeSensors(city.core.sensing_id, [Sensor(name) for name in names]), 0.0)
    city.switched()
    said = [msgspec.json.decode(line)["sensing"]["sensors"] for line in messages(city, 3)]
    assert sorted(one["name"] for sensors in said for one in sensors) == sorted(names * 2)


def test_values_out_of_the_range_that_was_asked_for_are_kept_back() -> None:
    city = network(always=False, readings=1)
    name = next(iter(city.core.sensors))
    city.core.hear(
        SubscribeSensors(city.core.sensing_id, [Sensor(name, min_value=-1e9, max_value=-1e6)]), 0.0
    )
    city.switched()
    assert messages(city, 10) == []
    assert city.core.unwanted == 10


def test_one_that_always_sends_knows_what_nobody_wanted() -> None:
    message = network().message("", 0.0)
    assert message is not None
    assert (message.readings, message.unwanted) == (2, 2)
    assert "timestamp" not in message.line


def test_where_there_is_smog_the_air_is_full_of_dust_and_networks_stand_close_together() -> None:
    def means(smoggy: bool) -> dict[str, float]:
        values: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for line in messages(network(number=4, mobility=12.0, smog=4 if smoggy else 0), 200):
            (said,) = decode_object(line.encode())
            assert isinstance(said, Sensing)
            for one in said.sensors:
                values[one.type].append(float(one.value))
                assert not smoggy or (one.area and max(one.area[0].x, one.area[0].y) <= HARBOUR_M)
        return {kind: sum(all_of_it) / len(all_of_it) for kind, all_of_it in values.items()}

    usual, bad = means(False), means(True)
    assert {kind for kind in KINDS if bad[kind] > 2 * usual[kind]} == set(DUST)
