"""The tools that speak as sensors do, against a real gateway, and a node that takes nothing for a while."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path

from node.gateway.networks import GatewayCommand, Network, connected, register, run_until, sensing, sensor
from node.peers import ANSWER_S_MAX, Start, run, running
from node.secured import TOKEN, Secured
from typer.testing import CliRunner

import tidings
from tidings.cli.app import app
from tidings.sensors.city import Load
from tidings.sensors.link import place_of
from tidings.sensors.recording import make_recording
from tidings.sensors.replay import Player, Recording
from tidings.sensors.simulation import Simulation

FLOOD = 20_000
TEXT = 2_000 * "x"
MEMORY_MAX = 200 << 20
"""Bytes a gateway may have at most, whatever is sent to it; it has a quarter of that at the start."""


def test_a_recording_arrives_whole_and_each_reading_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        made = make_recording(tmp_path / "may.csv.gz", seed=1, sensors=5, days=1)
        async with (
            running(sensor_port=0, dir=str(tmp_path / "node")) as node,
            tidings.connect(node.addresses[0]) as bus,
            bus.subscribe("type = 'pm10' OR type = 'pm25'", durable="all") as events,
        ):
            place = place_of(node.sensor_addresses[0].split()[-1])
            played = await Player(Recording(tmp_path / "may.csv.gz"), place, speed=0).play()
            assert played.arrived == made.readings
            seen = set()
            async with asyncio.timeout(ANSWER_S_MAX):
                for _ in range(made.readings):
                    event = await anext(aiter(events))
                    seen.add((event["sensing-id"], event.type, event.time))
            assert len(seen) == made.readings

    run(scenario())


def test_a_city_with_a_token_speaks_tls(secured: Secured) -> None:
    async def scenario() -> None:
        token = secured.home / "token"
        token.write_text(TOKEN)
        socket = secured.home / "node.sock"
        async with (
            running(security=str(secured.path), sensor_port=0, unix=str(socket)) as node,
            tidings.connect(f"tidings+unix://{socket}") as bus,
            bus.subscribe("type = 'temp'") as events,
        ):
            place = place_of(node.sensor_addresses[0].split()[-1], ca=secured.ca, token=token)
            load = Load(networks=5, sensors=2, types=("temp",), rate=20, seed=1)
            tally = await run_until(Simulation(place, load), lambda tally: tally.readings > 20)
            assert tally.errors == 0, tally.last_error
            async with asyncio.timeout(ANSWER_S_MAX):
                for _ in range(tally.readings):
                    await anext(aiter(events))

    run(scenario())


def test_the_command_lists_what_a_gateway_has() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            bus.subscribe("type = 'temp' AND value > 30"),
            connected(node.sensor_addresses[0]) as network,
        ):
            network.say(register("north", sensor("t", min_value=0, max_value=50)))
            await network.hear()
            command = ["sensor", "list", "--json", "--node", node.addresses[0]]
            result = await asyncio.to_thread(CliRunner().invoke, app, command)
            assert result.exit_code == 0, result.output
            (listed,) = map(json.loads, result.stdout.splitlines())
            assert listed["sensing-id"] == "north"
            assert listed["sensors"][0]["asked"] == [30, 50]

    run(scenario())


def test_what_comes_while_the_node_takes_nothing_waits_at_the_sender_and_arrives(
    start: Start, start_gateway: Callable[..., GatewayCommand]
) -> None:
    async def scenario() -> None:
        process = start("--port", "0")
        address = process.address()
        gateway = start_gateway("--node", address, "--sensor-port", "0")
        async with (
            connected(gateway.addresses()[0]) as network,
            tidings.connect(address) as bus,
            bus.subscribe("type = 'temp'", on_slow="block") as events,
        ):
            network.say(register("n", sensor("t")))
            await network.hear()
            process.process.send_signal(signal.SIGSTOP)
            network.say(*(sensing("n", f"{number} {TEXT}") for number in range(FLOOD)))
            sent = asyncio.create_task(network.writer.drain())
            memory = Path(f"/proc/{gateway.process.pid}/status")
            before = -1
            while before != (before := buffered(network)) or not is_waiting(gateway.process.pid):
                await asyncio.sleep(0.2)  # until nothing more is taken
            assert before > 0
            assert not sent.done()
            process.process.send_signal(signal.SIGCONT)
            async with asyncio.timeout(ANSWER_S_MAX):
                for number in range(FLOOD):
                    assert (await anext(aiter(events)))["value"] == f"{number} {TEXT}"
            await sent
            peak = next(line for line in memory.read_text().splitlines() if line.startswith("VmHWM"))
            assert int(peak.split()[1]) << 10 < MEMORY_MAX

    run(scenario())


def buffered(network: Network) -> int:
    return network.writer.transport.get_write_buffer_size()


def is_waiting(process: int) -> bool:
    """Whether it has nothing to do; one that has, and is not let, is no such."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "S"
