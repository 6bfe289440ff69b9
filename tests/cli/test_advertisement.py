"""`tidings advertisement`, with a real node beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from cli.commands import run_command
from node.peers import Start, starting

import tidings


@pytest.fixture
def start() -> Iterator[Start]:
    yield from starting()


def test_what_is_advertised_is_listed_and_watched(start: Start) -> None:
    address = start("--port", "0").address()
    environment: dict[str, str | None] = {"TIDINGS_NODE": address}
    nothing = (0, "", "nothing is advertised\n")
    assert run_command("advertisement", "list", environment=environment) == nothing
    with tidings.blocking.connect(address, name="quay") as bus, bus.advertise("type = 'air.pm10'"):
        code, output, _ = run_command("advertisement", "list", environment=environment)
        assert (code, output.split()) == (0, ["source", "may", "publish", "quay", "type", "=", "'air.pm10'"])
        watching = ("advertisement", "watch", "type = 'air.pm10'", "--count", "1", "--json")
        told = json.loads(run_command(*watching, environment=environment)[1])
        assert told == {"advertisements": [{"filter": "type = 'air.pm10'", "source": "quay"}], "missing": []}
        assert run_command("advertisement", "list", "type = 'water'", environment=environment) == nothing
