"""Several gateways that share the world by a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from node.gateway.networks import connected, register, sensor
from node.peers import run, running

import tidings
from tidings.errors import ConfigError
from tidings.gateway.areas import AreaBox
from tidings.node.gateway.config import GatewayConfig, policy_of

FILE = """
member = "here"
cell_size = 10
[members]
here = "10.0.0.1:4242"
there = "10.0.0.2:4242"
[cells]
here = [[0, 0], [1, 0]]
there = [[5, 5]]
"""


def settings(file: Path | None) -> GatewayConfig:
    return GatewayConfig("tidings://127.0.0.1:1", grid=None if file is None else str(file), max_rate=2.0)


def test_a_network_of_another_cell_is_told_where_to_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = tmp_path / "grid.toml"
        file.write_text(FILE)
        async with (
            running(sensor_port=0, sensor_grid=str(file)) as node,
            tidings.connect(node.addresses[0]) as bus,
            bus.subscribe("type = 'temp'"),
            connected(node.sensor_addresses[0]) as network,
        ):
            network.say(register("far", sensor("t"), area=[{"x": 55, "y": 55}]))
            assert await network.hear() == {"redirect": {"sensing-id": "far", "address": "10.0.0.2:4242"}}
            network.say(register("near", sensor("t"), area=[{"x": 5, "y": 5}]))
            assert (await network.hear())["subscribe"]["sensing-id"] == "near"

    run(scenario())


def test_the_file_says_whose_a_cell_is(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(FILE)
    policy = policy_of(settings(file), strangers=False)
    assert policy.grid is not None
    assert policy.max_rate == policy_of(settings(None), strangers=False).max_rate == 2.0
    assert policy.grid.members_for("n", AreaBox(55, 55, 56, 56)) == ["there"]
    assert (policy.member, policy.elsewhere, policy.strangers) == ("here", "redirect", False)
    assert policy_of(settings(None), strangers=True).grid is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("member = ", "does not say how gateways share the world"),
        (FILE.replace("cell_size = 10", 'cell_size = "ten"'), "cell_size"),
        (FILE.replace("cell_size = 10", "cell_size = 0"), "cell_size: 0.0 is no size"),
        (FILE.replace('member = "here"', 'member = "nobody"'), "'nobody' is not one of the gateways"),
        (FILE.replace("there = [[5, 5]]", "there = [[0, 0]]"), "is both"),
        (FILE + 'nobody = "x"\n', "cells"),
        ("colour = 1\n" + FILE, "colour"),
    ],
)
def test_a_mistake_in_the_file_is_told(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        policy_of(settings(file), strangers=True)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        policy_of(settings(tmp_path / "grid.toml"), strangers=True)
