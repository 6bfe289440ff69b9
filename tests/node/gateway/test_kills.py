"""Numbered readings are acknowledged after they are stored, and counted once whoever is killed meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from node.gateway.networks import (
    GatewayCommand,
    Network,
    Object,
    child_of,
    connected,
    listed,
    sensing,
    values,
)
from node.peers import ANSWER_S_MAX, Process, Start, run

import tidings

COUNT = 200
WANTED = "type = 'temp' OR type = 'end'"


def started(process: Process) -> tuple[str, str]:
    """The address of a node, and that of its sensor port."""
    address = process.address()
    line = process.line()
    assert line.startswith("sensors on tcp "), line
    assert process.line().startswith("sensors on udp ")
    return address, line


async def send_all(network: Network, seqs: range) -> None:
    """Send messages with these numbers, and wait until all are acknowledged."""
    network.say(*(sensing("n", seq, seq=seq) for seq in seqs))
    await acknowledged(network, set(seqs))


async def acknowledged(network: Network, seqs: set[int]) -> None:
    while seqs:
        seqs.discard((await network.hear())["ack"]["seq"])


async def reached(address: str, attempt: Callable[[Network], Any]) -> None:
    """Do something over a connection, and again over another one if that breaks or can't be made."""
    async with asyncio.timeout(ANSWER_S_MAX):
        while True:
            try:
                async with connected(address) as network:
                    await attempt(network)
                    return
            except (OSError, AssertionError):
                await asyncio.sleep(0.01)


async def all_of(address: str, durable: str) -> list[int]:
    """What a durable subscription has, up to the event that says that this is all."""
    found: list[int] = []
    async with tidings.connect(address) as bus, bus.subscribe(WANTED, durable=durable) as events:
        await bus.publish("end", delivery="persistent")
        async with asyncio.timeout(ANSWER_S_MAX):
            async for event in events:
                if event.type == "end":
                    return found
                found.append(event["value"])
    raise AssertionError("the subscription has ended")


async def subscribe(address: str) -> None:
    async with (
        tidings.connect(address) as bus,
        bus.subscribe(WANTED, durable="all"),
    ):
        pass


async def gone(network: Network) -> None:
    """Wait until whoever is at the other end is there no longer; what was not read there resets it."""
    with contextlib.suppress(ConnectionError):
        await network.reader.read()


def test_what_a_killed_gateway_had_handed_on_counts_once_when_it_is_sent_again(
    start: Start, tmp_path: Path
) -> None:
    async def scenario() -> None:
        process = start("--port", "0", "--sensor-port", "0", "--dir", str(tmp_path / "node"))
        address, port = started(process)
        await subscribe(address)
        async with connected(port) as network:
            await send_all(network, range(COUNT))
            network.say(*(sensing("n", seq, seq=seq) for seq in range(COUNT, 2 * COUNT)))
            await network.hear()  # some of these are stored, others are on their way
            os.kill(child_of(process), signal.SIGKILL)
            await gone(network)
        await reached(port, lambda network: send_all(network, range(2 * COUNT)))
        assert sorted(await all_of(address, "all")) == list(range(2 * COUNT))
        code, errors = process.stop()
        assert code == 0
        assert "a child has died and is started again child=gateway" in errors

    run(scenario())


def test_what_was_stored_by_a_node_that_is_killed_counts_once_when_it_is_sent_again(
    start: Start, tmp_path: Path
) -> None:
    async def scenario() -> None:
        flags = ("--port", "0", "--sensor-port", "0", "--dir", str(tmp_path / "node"))
        process = start(*flags)
        address, port = started(process)
        await subscribe(address)
        async with connected(port) as network:
            await send_all(network, range(COUNT))
            network.say(*(sensing("n", seq, seq=seq) for seq in range(COUNT, 2 * COUNT)))
            await network.hear()
            process.stop(signal.SIGKILL)
            await gone(network)  # the gateway ends with its node
        address, port = started(start(*flags))
        await reached(port, lambda network: send_all(network, range(2 * COUNT)))
        assert sorted(await all_of(address, "all")) == list(range(2 * COUNT))

    run(scenario())


def test_a_gateway_by_itself_waits_for_a_node_that_was_killed(
    start: Start, start_gateway: Callable[..., GatewayCommand], tmp_path: Path
) -> None:
    async def scenario() -> None:
        directory = str(tmp_path / "node")
        process = start("--port", "0", "--dir", directory)
        address = process.address()
        await subscribe(address)
        gateway = start_gateway("--node", address, "--sensor-port", "0")
        async with connected(gateway.addresses()[0]) as network:
            await send_all(network, range(COUNT))
            process.stop(signal.SIGKILL)
            network.say(*(sensing("n", seq, seq=seq) for seq in range(COUNT, 2 * COUNT)))
            again = start("--port", address.rpartition(":")[2], "--dir", directory)
            assert again.address() == address
            await acknowledged(network, set(range(COUNT, 2 * COUNT)))
        assert sorted(await all_of(address, "all")) == list(range(2 * COUNT))
        code, errors = gateway.stop()
        assert code == 0, errors

    run(scenario())


def test_what_is_asked_of_a_network_is_said_again_by_a_new_gateway(start: Start) -> None:
    async def scenario() -> None:
        process = start("--port", "0", "--sensor-port", "0")
        address, port = started(process)
        wish: Object = {"name": "t", "type": "temp"}
        message = {"register": {"sensing-id": "n", "sensors": [wish]}}

        async def asked(network: Network) -> None:
            network.say(message)
            assert (await network.hear())["subscribe"]["sensors"] == [{"name": "t"}]

        async with tidings.connect(address) as bus, bus.subscribe("type = 'temp'") as events:
            await reached(port, asked)
            os.kill(child_of(process), signal.SIGKILL)
            await reached(port, asked)
            assert list(await listed(bus)) == ["n"]
            async with connected(port) as network:
                network.say(sensing("n", 5))
                assert await values(aiter(events), 1) == [5]

    run(scenario())


def test_a_gateway_stops_in_good_order_and_hands_on_what_it_has(
    start: Start, start_gateway: Callable[..., GatewayCommand]
) -> None:
    async def scenario() -> None:
        address = start("--port", "0").address()
        gateway = start_gateway("--node", address, "--sensor-port", "0")
        async with (
            connected(gateway.addresses()[0]) as network,
            tidings.connect(address) as bus,
            bus.subscribe("type = 'temp'") as events,
        ):
            network.say(sensing("n", *range(100)))
            assert await values(aiter(events), 100) == list(range(100))
            stopped = asyncio.create_task(asyncio.to_thread(gateway.stop))
            assert await network.hear_end() == []
            code, errors = await stopped
            assert code == 0, errors

    run(scenario())
