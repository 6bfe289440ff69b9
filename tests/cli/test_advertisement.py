"""`tidings advertisement`, with a real node beside it."""

from __future__ import annotations

import json

from cli.commands import run_command
from node.peers import Start

import tidings


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


def test_nodes_that_could_not_be_asked_are_named(start: Start) -> None:
    far = start("--port", "0", "--name", "far")
    near = start("--port", "0", "--name", "near", "--reroute-s", "1000", "--peers", f"far={far.address()}")
    address = near.address()
    environment: dict[str, str | None] = {"TIDINGS_NODE": address}
    with tidings.blocking.connect(address) as bus:
        while not bus.topology()["tree"]:
            pass
        bus.publish("lamp", on=True, delivery="transient")
        last = ("subscribe", "type = 'lamp'", "--last", "--count", "1")
        assert "could not be asked" not in run_command(*last, environment=environment)[2]
        far.process.kill()
        far.process.wait()
        while any(one["state"] == "up" for one in bus.status()["links"]):
            pass
        assert "could not be asked: far\n" in run_command(*last, environment=environment)[2]
        code, output, errors = run_command("advertisement", "list", "--json", environment=environment)
        assert (code, json.loads(output)) == (0, {"advertisements": [], "missing": ["far"]})
        assert errors == "could not be asked: far\n"
