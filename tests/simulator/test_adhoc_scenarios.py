"""Scenarios with hosts that move: the same seed is the same run, and what comes out is what it should be."""

from math import inf
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from effort import often

from tidings.adhoc.strategies import STRATEGIES
from tidings.errors import UserError
from tidings.simulator.adhoc_map import draw_map
from tidings.simulator.adhoc_scenarios import adhoc_run, make_run
from tidings.simulator.mobility import Movers, Terrain, meetings, tracks


def test_hosts_stay_in_the_area_and_keep_to_streets():
    terrain = Terrain(400.0, 300.0, 100.0)
    track = tracks(terrain, (Movers(5, (1.0, 2.0), (0.0, 10.0)),), 500.0, 7)
    assert track.shape == (501, 5, 2)
    assert (track >= 0).all()
    assert (track[..., 0] <= 400).all()
    assert (track[..., 1] <= 300).all()
    off = np.abs(track / 100 - np.round(track / 100)) * 100
    assert (off.min(axis=2) < 0.1).all()
    speeds = np.linalg.norm(np.diff(track, axis=0), axis=2)
    assert speeds.max() < 2.01
    assert speeds.max() > 0.9


def test_hosts_meet_when_they_are_within_range_of_each_other():
    track = np.zeros((10, 3, 2), np.float32)
    track[:, 1, 0] = [50, 40, 9, 9, 9, 40, 40, 5, 5, 5]
    track[:, 2, 0] = 1_000
    assert meetings(track, 10.0).tolist() == [[0, 1, 2, 5], [0, 1, 7, 10]]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(often(4)))
def test_messages_are_delivered_at_most_once_and_purging_takes_no_last_copy(strategy, seed):
    run, scenario, _ = make_run(
        seed, "emma", strategy, 100.0, "unlimited", 12, 0.2
    )  # asserts that it is once
    assert any(sent.delivered_at < inf for sent in run.messages.values())
    for id, sent in run.messages.items():
        if sent.delivered_at == inf and run.now - sent.sent_at < scenario.ttl_s:
            assert any(id in host.buffer for host in run.hosts), f"no copy of {id} is left"


def test_the_same_seed_is_the_same_run():
    options = {"scenario": "emma", "strategy": "budget", "hosts": 12, "duration": 0.1}
    assert adhoc_run(3, **options) == adhoc_run(3, **options) != adhoc_run(4, **options)


def test_persistent_messages_of_high_priority_do_best_where_buffers_are_small():
    small = {"hosts": 25, "buffer": "6", "range": 60.0, "interval": 125.0}
    found = adhoc_run(1, scenario="emma", strategy="epidemic", **small)
    assert found["delivery_persistent_9"] > found["delivery_persistent_0"] > found["delivery_plain_0"]
    assert found["delivery_persistent_9"] > found["delivery_plain_9"]


def test_delay_falls_with_range():
    short, far = (
        {"scenario": "vahdat", "duration": 0.1, "hosts": 15, "range": metres} for metres in (50.0, 200.0)
    )
    assert adhoc_run(1, **short)["delay_s"] > adhoc_run(1, **far)["delay_s"]


def test_with_small_buffers_delivery_rises_and_then_falls_with_density():
    small = {"scenario": "emma", "buffer": "6", "range": 30.0, "interval": 600.0, "duration": 0.5}
    few, some, many = (
        sum(adhoc_run(seed, hosts=hosts, **small)["delivery"] for seed in range(8)) for hosts in (6, 16, 60)
    )
    assert few < some > many


def test_a_map_moves_and_follows_a_message():
    run, scenario, track = make_run(1, "emma", "epidemic", hosts=12, duration_h=0.2)
    root = ET.fromstring(draw_map(run, scenario.terrain, track, scenario.range_m))
    space = "{http://www.w3.org/2000/svg}"
    circles = root.findall(f"{space}circle")
    assert len(circles) == 12
    assert all(len(circle.findall(f"{space}animate")) >= 2 for circle in circles)
    fills = [one for one in root.iter(f"{space}animate") if one.get("attributeName") == "fill"]
    assert len(fills) >= 2
    assert any("#2b8a3e" in one.get("values") for one in fills)


def test_a_scenario_or_a_strategy_that_there_is_not_is_refused():
    with pytest.raises(UserError, match="one, vahdat, emma"):
        adhoc_run(0, scenario="moon")
    with pytest.raises(UserError, match="direct"):
        adhoc_run(0, strategy="magic")


def test_messages_to_an_area_are_delivered_by_the_hosts_within_and_by_no_others():
    found = {
        strategy: adhoc_run(2, scenario="area", strategy=strategy, duration=0.5)
        for strategy in ("direct", "epidemic")
    }
    for one in found.values():
        assert one["delivered_outside"] == 0
        assert 0 < one["delivered"] <= one["hosts_within"]
    assert found["direct"]["delivery"] < found["epidemic"]["delivery"]
