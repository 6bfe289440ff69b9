"""How far all sensors of a gateway's report serve a filter together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.world import World, box
from tidings.gateway.coverage import KnownSensors
from tidings.gateway.messages import Sensor


def network(sensing_id: str, *ranges: tuple[float, float], **more: Any) -> dict[str, Any]:
    sensors = [{"name": f"s{n}", "type": "temp", "range": list(ends)} for n, ends in enumerate(ranges)]
    return {"sensing-id": sensing_id, "state": "here", "area": None, "sensors": sensors, **more}


def served(text: str, *networks: dict[str, Any]) -> tuple[str, dict[str, str]]:
    coverage = KnownSensors(networks).coverage(text)
    return coverage.served, dict(coverage.networks)


@pytest.mark.parametrize(
    ("text", "together", "each"),
    [
        ("type = 'temp' AND value BETWEEN 1 AND 10", "part", {"low": "part"}),
        ("type = 'temp' AND value BETWEEN 5 AND 7", "full", {"low": "full"}),
        ("type = 'temp' AND value = 37", "none", {}),
        ("type = 'temp' AND value BETWEEN 6 AND 25", "part", {"low": "part", "high": "part"}),
    ],
)
def test_what_networks_deliver_decides_how_far_a_filter_is_served(
    text: str, together: str, each: dict[str, str]
) -> None:
    assert served(text, network("low", (4, 8)), network("high", (20, 30))) == (together, each)


def test_two_networks_serve_together_what_neither_serves_alone() -> None:
    text = "type = 'temp' AND value BETWEEN 5 AND 9"
    networks = network("low", (0, 7)), network("high", (7, 10))
    assert served(text, *networks) == ("full", {"low": "part", "high": "part"})


def test_a_network_that_is_elsewhere_does_not_make_another_serve_fully() -> None:
    text = "type = 'temp' AND value BETWEEN 5 AND 9 AND posx = 1 AND posy = 1"
    here, there = [0, 0, 2, 2], [5, 5, 9, 9]
    networks = network("low", (0, 7), area=here), network("high", (7, 10), area=there)
    assert served(text, *networks) == ("part", {"low": "part"})
    assert served(text, networks[0], network("high", (7, 10), area=here))[0] == "full"


def test_a_lost_network_serves_nothing_and_one_that_never_registered_serves_in_part() -> None:
    assert served("type = 'temp'", network("n", (0, 9), state="lost")) == ("none", {})
    stranger = {"sensing-id": "n", "state": "unregistered", "area": None, "sensors": [{"type": "temp"}]}
    assert served("type = 'temp'", stranger) == ("part", {"n": "part"})
    assert served("type = 'temp' AND \"sensing-id\" = 'm'", stranger) == ("none", {})


def test_what_is_judged_by_a_report_is_what_the_gateway_judges() -> None:
    world = World()
    world.connect(1)
    sensors = Sensor("a", "temp", 0, 5), Sensor("b", "temp", 5, None), Sensor("c", "state")
    world.register(1, "net1", *sensors, area=box(0, 0, 4, 4))
    known = KnownSensors(world.gateway.overview())
    for text in (
        "type = 'temp'",
        "type = 'temp' AND value > 3",
        "type = 'state' AND posx = 1 AND posy = 1",
        "",
    ):
        assert known.coverage(text).networks == {"net1": world.gateway.serves(text, "net1")}
