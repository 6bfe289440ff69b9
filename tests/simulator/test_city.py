"""A city in virtual time: what the gateway asks for, against an oracle that knows of every change at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from effort import often
from typer.testing import CliRunner

from tidings.cli.simulate import app
from tidings.gateway.commands import Asker
from tidings.gateway.gateway import Gateway
from tidings.gateway.messages import UnsubscribeSensors
from tidings.gateway.reading import Mapper
from tidings.simulator.city import LATE_MAX, CityStorm, city
from tidings.simulator.storm import run_storm
from tidings.simulator.world import Conditions

SEEDS = range(often(6))
SOURCE = Path(__file__).parents[2] / "src"
SMALL = 40


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_wanted_arrives_little_is_sent_in_vain_and_in_the_end_all_are_silent(seed: int) -> None:
    verdict = city(seed, 30.0, SMALL)
    assert verdict.moves > 0
    assert verdict.cuts > 0
    assert verdict.left > 0


def test_a_thousand_sensors_send_one_per_cent_more_than_an_oracle_would_have_them_at_most() -> None:
    verdict = city(1_000_003)
    assert verdict.sensors == 1_000
    assert verdict.oracle > 10_000
    assert 0 < verdict.late <= LATE_MAX * verdict.oracle, "changes take their time, but not long"
    assert verdict.sent < 0.9 * verdict.made, "most of the rest is kept back"
    assert verdict.delivered > verdict.wanted, "some are wanted by several"
    assert verdict.asked < verdict.sent / 5, "asking costs less than it saves"


def test_the_same_seed_is_the_same_city_and_another_one_is_not() -> None:
    first, second, other = (city(seed, 10.0, 20) for seed in (7, 7, 8))
    assert first == second
    assert first.trace != other.trace


def test_a_seed_means_the_same_in_another_process() -> None:
    code = "from tidings.simulator.city import city; print(repr(city(7, 10.0, 20)))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": str(SOURCE), "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert told == {repr(city(7, 10.0, 20))}


def test_a_gateway_that_tells_nobody_to_stop_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    tell = Asker._send

    def forget(self: Asker, network: Any, kind: Any, asks: Any, effects: Any) -> None:
        tell(self, network, kind, [] if kind is UnsubscribeSensors else asks, effects)

    monkeypatch.setattr(Asker, "_send", forget)
    with pytest.raises(AssertionError, match=r"yet .* networks are on") as failed:
        city(3, 30.0, SMALL)
    assert failed.value.__notes__[0].startswith("seed 3; the last that happened:")


def test_a_gateway_that_does_not_heed_a_demand_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    demanded = Gateway.demanded
    monkeypatch.setattr(
        Gateway, "demanded", lambda self, number, filters: demanded(self, number, [*filters][1:])
    )
    with pytest.raises(AssertionError, match="are missing"):
        city(3, 30.0, SMALL)


def test_a_gateway_that_takes_one_reading_for_another_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Mapper.map

    def shifted(self: Mapper, messages: Any, *more: Any) -> Any:
        for message in messages:
            for reading in message.sensors:
                reading.others["n"] += 1
        return make(self, messages, *more)

    monkeypatch.setattr(Mapper, "map", shifted)
    with pytest.raises(AssertionError, match=r"arrived as|is of type"):
        city(3, 30.0, SMALL)


def test_networks_that_are_slow_to_hear_send_more_than_is_allowed() -> None:
    """The share that is allowed is there because of latency, so with a lot of it, it is passed."""
    slow = CityStorm(3, SMALL)
    for station in slow.stations:
        station.link.conditions = Conditions(delay_s=0.7)
    with pytest.raises(AssertionError, match="were sent too late"):
        run_storm(slow, 30.0)


def test_the_command_tells_of_each_city_and_of_its_seed_if_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    told = CliRunner().invoke(app, ["city", "--seed", "5", "--runs", "1", "--duration-s", "5", "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["seed"] == 5
    monkeypatch.setattr("tidings.simulator.city.LATE_MAX", -1.0)
    failed = CliRunner().invoke(app, ["city", "--seed", "5", "--runs", "1", "--duration-s", "5"])
    assert failed.exit_code == 1
    assert "seed 5: FAILED" in failed.stderr
