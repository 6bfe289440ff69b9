"""Sensor networks and subscribers on both sides of a gateway that is the child of a node."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from node.gateway.networks import (
    LOOK_S,
    by_udp,
    connected,
    listed,
    register,
    run_until,
    sensing,
    sensor,
    values,
    wait_until,
)
from node.gateway.webs import web_rig
from node.peers import ANSWER_S_MAX, run, running

import tidings
from tidings.node.gateway import driver
from tidings.sensors.city import Load
from tidings.sensors.link import place_of
from tidings.sensors.simulation import CityTally, Simulation


def test_what_subscribers_want_is_asked_of_the_sensors_and_arrives() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            connected(node.sensor_addresses[0]) as network,
        ):
            network.say(register("n", *(sensor(str(n), f"kind{n}") for n in (1, 2, 3))))
            async with bus.subscribe("type = 'kind1'") as first:
                asked = await network.hear()
                assert asked == {"subscribe": {"sensing-id": "n", "sensors": [{"name": "1"}]}}
                async with bus.subscribe("type = 'kind2' AND value > 3"):
                    asked = await network.hear()
                    assert asked == {"subscribe": {"sensing-id": "n", "sensors": [{"name": "2"}]}}
                    network.say(sensing("n", 1, "2.5", type="kind1"))
                    assert await values(aiter(first), 2) == [1, 2.5]
                ended = await network.hear()
                assert ended == {"unsubscribe": {"sensing-id": "n", "sensors": [{"name": "2"}]}}
                network.say({"deregister": {"sensing-id": "n", "sensors": [{"name": "1"}]}})
            async with bus.subscribe("type = 'kind3'"):
                heard = await network.hear()
                if "unsubscribe" in heard:  # the node was quicker with the end of the last subscription
                    heard = await network.hear()
                assert heard["subscribe"]["sensors"] == [{"name": "3"}]
                network.say({"unregister": {"sensing-id": "n"}}, sensing("n", 7, type="kind3"))
                network.say(b"[]\n")
                assert "error" in await network.hear()  # the connection stays when the last sensor is gone

    run(scenario())


def test_ranges_that_are_wanted_grow_and_shrink_as_subscribers_come_and_go() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            connected(node.sensor_addresses[0]) as network,
        ):
            network.say(register("n", sensor("t", min_value=0, max_value=50)))
            async with bus.subscribe("type = 'temp' AND value BETWEEN 1 AND 10"):
                told = {"name": "t", "min-value": 1, "max-value": 10}
                assert (await network.hear())["subscribe"]["sensors"] == [told]
                async with bus.subscribe("type = 'temp' AND value = 37"):
                    told = {"name": "t", "min-value": 1, "max-value": 37}
                    assert (await network.hear())["subscribe"]["sensors"] == [told]
                told = {"name": "t", "min-value": 1, "max-value": 10}
                assert (await network.hear())["subscribe"]["sensors"] == [told]
            assert (await network.hear())["unsubscribe"]["sensors"] == [{"name": "t"}]

    run(scenario())


def test_datagrams_serve_as_a_connection_does() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            by_udp(node.sensor_addresses[1]) as network,
        ):
            assert node.sensor_addresses[1].replace("udp", "tcp") == node.sensor_addresses[0]
            # An address that has not answered yet is told no more than it has said.
            network.say(register("u", sensor("t"), comment="on the roof of the old town hall"))
            async with bus.subscribe("type = 'temp'") as events:
                asked = (await network.hear())["subscribe"]
                assert asked["sensors"] == [{"name": "t"}]
                network.say(sensing("u", 21, cookie=asked["cookie"]))
                assert await values(aiter(events), 1) == [21]
            assert "unsubscribe" in await network.hear()

    run(scenario())


def test_a_reading_names_the_network_that_has_sent_it_as_its_source() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            bus.subscribe("source IN ('north', 'south')") as events,
            connected(node.sensor_addresses[0]) as network,
            by_udp(node.sensor_addresses[1]) as other,
        ):
            network.say(register("north", sensor("t")), sensing("north", 1), sensing("east", 2))
            other.say(sensing("south", 3))
            network.say(sensing("north", 4, seq=1))
            found = {
                (event["value"], event.source, event["sensing-id"])
                for event in [await anext(events) for _ in range(3)]
            }
            assert found == {(1, "north", "north"), (3, "south", "south"), (4, "north", "north")}

    run(scenario())


def test_a_network_that_never_registered_is_heard() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            bus.subscribe("type = 'temp'") as events,
            connected(node.sensor_addresses[0]) as network,
        ):
            network.say(sensing("short", 1, "2", "warm"))
            assert await values(aiter(events), 3) == [1, 2, "warm"]
            assert (await listed(bus))["short"]["state"] == "unregistered"

    run(scenario())


def test_the_gateway_answers_what_it_knows() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            connected(node.sensor_addresses[0]) as network,
            bus.subscribe("type = 'temp' AND value > 30"),
        ):
            network.say(register("n", sensor("t", min_value=0, max_value=50)))
            await network.hear()
            answer = await bus.request("tidings.gateway.list", timeout_s=ANSWER_S_MAX)
            (one,) = json.loads(answer.body or b"")
            assert (one["sensing-id"], one["state"]) == ("n", "here")
            assert one["sensors"][0]["on"] is True
            assert one["sensors"][0]["filters"] == ["type = 'temp' AND value > 30"]
            assert (answer["connections"], answer["networks"]) == (1, 1)

    run(scenario())


def test_figures_are_published_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "WAKE_S", 0.05)
    monkeypatch.setattr(driver, "FIGURES_S", 0.1)

    async def scenario() -> None:
        async with (
            web_rig() as rig,
            tidings.connect(rig.node) as bus,
            bus.subscribe("type = 'tidings.gateway.figures'", passive=True) as events,
            asyncio.timeout(ANSWER_S_MAX),
        ):
            for _ in range(2):
                event = await anext(aiter(events))
                assert (event["readings"], event["networks"]) == (0, 0)

    run(scenario())


def test_a_network_whose_connection_breaks_is_asked_again_when_it_is_back() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            bus.subscribe("type = 'temp'"),
        ):
            for _ in range(2):
                async with connected(node.sensor_addresses[0]) as network:
                    network.say(register("n", sensor("t")))
                    assert (await network.hear())["subscribe"]["sensors"] == [{"name": "t"}]
                    network.writer.transport.abort()

    run(scenario())


def test_many_connections_and_many_addresses_are_served_at_once() -> None:
    async def scenario() -> None:
        async with running(sensor_port=0) as node, tidings.connect(node.addresses[0]) as bus:
            address = node.sensor_addresses[0].split()[-1]
            for is_udp in (False, True):
                load = Load(networks=50, sensors=2, types=("temp",), rate=20, seed=1)
                simulation = Simulation(place_of(address, udp=is_udp), load)
                async with bus.subscribe("type = 'temp'") as events:
                    tally = await run_until(simulation, lambda tally: tally.readings > 500)
                    assert tally.errors == 0, tally.last_error
                    assert tally.unwanted == 0
                    got = await values(aiter(events), tally.readings)
                    assert len(got) == tally.readings

    run(scenario())


def test_a_city_of_which_nobody_wants_anything_is_silent(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(sensor_port=0, dir=str(tmp_path)) as node:
            load = Load(networks=20, sensors=2, rate=50, seed=1)
            simulation = Simulation(place_of(node.sensor_addresses[0].split()[-1]), load)

            def is_held_back(_: CityTally) -> bool:
                return any(one.core.unwanted for group in simulation.groups for one in group.networks)

            tally = await run_until(simulation, is_held_back)
            assert tally.readings == 0
            assert tally.withheld > 0

    run(scenario())


def test_the_sensor_port_is_free_again_when_the_node_has_ended() -> None:
    async def scenario() -> None:
        async with running(sensor_port=0) as node:
            gateway = node.gateway
            assert gateway is not None
            process = gateway._process
        assert process is not None
        await wait_until(lambda: process.ended is not None)
        port = int(node.sensor_addresses[0].rpartition(":")[2])
        async with running(sensor_port=port) as again:
            assert again.sensor_addresses == node.sensor_addresses

    run(scenario())


GRID = """
member = "{member}"
cell_size = 10.0
replicas = 2

[members]
here = "127.0.0.1:1"
there = "127.0.0.1:2"
"""


def test_a_network_whose_gateway_is_killed_goes_on_at_its_replica(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = {member: tmp_path / f"{member}.toml" for member in ("here", "there")}
        for member, file in files.items():
            file.write_text(GRID.format(member=member))
        async with (
            running(name="there", sensor_port=0, sensor_grid=str(files["there"])) as there,
            running(
                name="here",
                sensor_port=0,
                sensor_grid=str(files["here"]),
                peers=f"there={there.addresses[0]}",
            ) as here,
            tidings.connect(here.addresses[0]) as bus,
            bus.subscribe("type = 'temp' AND value > 3") as events,
        ):
            async with connected(here.sensor_addresses[0]) as network:
                network.say(register("n", sensor("t", min_value=0, max_value=9)))
                assert "subscribe" in await network.hear()
                gateway = here.gateway
                assert gateway is not None
                assert gateway._process is not None
                os.kill(gateway._process.pid, signal.SIGKILL)
                await network.hear_end()
            async with connected(there.sensor_addresses[0]) as network:
                asked = asyncio.ensure_future(network.hear())
                while not asked.done():  # the record may still be on its way
                    network.say(sensing("n", 1))
                    await asyncio.sleep(LOOK_S)
                wanted = {"name": "t", "min-value": 3, "max-value": 9}
                assert await asked == {"subscribe": {"sensing-id": "n", "sensors": [wanted]}}
                network.say(sensing("n", 7))
                assert await values(aiter(events), 1) == [7]

    run(scenario())
