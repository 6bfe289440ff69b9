"""How far networks serve filters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.test_interest import IDS, NAMES, PLACES, TYPES, VALUES, Kind, areas, filters, kinds
from tests.gateway.world import World, box
from tidings.event import Event
from tidings.filters import Filter
from tidings.gateway.areas import AreaBox
from tidings.gateway.messages import Sensor


def world_with(*sensors: Sensor, area: AreaBox | None = None) -> World:
    world = World()
    world.connect(1)
    world.register(1, "net1", *sensors, area=None if area is None else box(*area))
    return world


@pytest.mark.parametrize(
    ("text", "served"),
    [
        ("type = 'temp' AND value BETWEEN 1 AND 9", "full"),
        ("type = 'temp' AND value BETWEEN 1 AND 11", "part"),
        ("type = 'temp' AND value > 12", "none"),
        ("type = 'temp'", "part"),
        ("type IN ('temp', 'state') AND value = 3", "full"),
        ("type IN ('temp', 'sound') AND value = 3", "part"),
        ("type = 'state' AND value = 'open'", "full"),
        ("type = 'temp' AND value IN (3, 'open')", "part"),
        ("value = 3", "part"),
        ("type = 'temp' AND value = 3 AND \"sensing-id\" = 'net1'", "full"),
        ("type = 'temp' AND value = 3 AND \"sensing-id\" = 'net2'", "none"),
        ("type = 'temp' AND value = 3 AND humidity > 5", "full"),
        ("type = 'temp' AND value = 3 OR type = 'sound'", "part"),
        ("type = 'temp' AND value = 3 OR type = 'state'", "full"),
        ("FALSE", "none"),
    ],
)
def test_two_sensors_serve_together_what_neither_serves_alone(text: str, served: str) -> None:
    world = world_with(Sensor("a", "temp", 0, 5), Sensor("b", "temp", 5, 10), Sensor("c", "state"))
    assert world.gateway.serves(text, "net1") == served
    assert world.gateway.serves(text, "unheard of") == "none"


def test_a_network_of_an_area_serves_fully_only_what_is_wanted_within_it() -> None:
    world = world_with(Sensor("a", "temp"), area=AreaBox(0, 0, 4, 4))
    assert world.gateway.serves("type = 'temp' AND posx > 1 AND posx < 2 AND posy = 3", "net1") == "full"
    assert world.gateway.serves("type = 'temp' AND posx > 1", "net1") == "part"
    assert world.gateway.serves("type = 'temp' AND posx > 5", "net1") == "none"
    assert world.gateway.serves("type = 'temp'", "net1") == "part"


@settings(deadline=None)
@given(filters, st.dictionaries(st.sampled_from(NAMES), kinds, min_size=1), areas)
def test_full_means_that_all_wanted_readings_could_come_from_there_and_none_that_no_sensor_is_on(
    text: str, sensors: dict[str, Kind], area: AreaBox | None
) -> None:
    world = world_with(*[Sensor(name, kind[0], *kind[1]) for name, kind in sensors.items()], area=area)
    world.demand(text)
    served = world.gateway.serves(text, IDS[0])
    assert (served == "none") == (not world.on.get(IDS[0]))
    if served != "full":
        return
    for event in EVENTS:
        if Filter(text).matches(event):
            assert area is None or AreaBox(
                event["posx"], event["posy"], event["posx"], event["posy"]
            ).overlaps(area)
            assert any(delivers(kind, event) for kind in sensors.values())


def delivers(kind: Kind, event: Event) -> bool:
    type, (low, high) = kind
    value = event["value"]
    if type != event.type:
        return False
    if low is None and high is None:
        return True
    is_number = isinstance(value, float)
    return is_number and (low is None or value >= low) and (high is None or value <= high)


EVENTS = [
    Event(type, {"sensing-id": IDS[0], "name": name, "value": value, "posx": x, "posy": y, "battery": 10})
    for type in TYPES
    for name in NAMES[:1]
    for value in [*VALUES, "on", True]
    for x in PLACES
    for y in PLACES
]
