"""The gateway as the child of a node: it is watched, and ends with the node however that ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec
import pytest
from effort import ANSWER_S
from node.gateway.networks import Object, by_udp, child_of, connected, sensing, wait_until
from node.peers import ANSWER_S_MAX, Start, run, running

from tidings.errors import ConfigError, UserError
from tidings.node.gateway.config import GatewayConfig
from tidings.node.settings import load


def test_a_gateway_that_dies_is_started_again_at_the_same_port() -> None:
    async def scenario() -> None:
        async with running(sensor_port=0) as node:
            gateway = node.gateway
            assert gateway is not None
            before = node.sensor_addresses
            for starts in (2, 3):
                assert gateway._process is not None
                os.kill(gateway._process.pid, signal.SIGKILL)
                await wait_until(lambda starts=starts: gateway.starts == starts)  # type: ignore[misc]
                await wait_answer(before[0])
            assert node.sensor_addresses == before

    run(scenario())


async def wait_answer(address: str) -> None:
    """Wait until a gateway acknowledges something."""
    while True:
        try:
            async with connected(address) as network:
                network.say(sensing("n", 1, seq=1))
                assert "ack" in await network.hear()
                return
        except (OSError, AssertionError):
            await asyncio.sleep(0.01)


def test_a_port_that_is_taken_keeps_the_node_from_starting() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(UserError, match=f"can't listen on tcp 127.0.0.1:{port}: .*in use"):
                async with running(sensor_port=port):
                    pass

    run(scenario())


def test_the_first_lines_say_where_sensors_speak_and_the_end_is_in_good_order(start: Start) -> None:
    process = start("--port", "0", "--sensor-port", "0")
    process.address()
    lines = [process.line(), process.line()]
    assert [line.split()[:3] for line in lines] == [["sensors", "on", "tcp"], ["sensors", "on", "udp"]]
    child = child_of(process)
    code, errors = process.stop()
    assert code == 0
    assert "error" not in errors, errors
    assert not is_running(child)


def test_a_gateway_ends_when_its_node_is_killed(start: Start) -> None:
    async def scenario() -> None:
        process = start("--port", "0", "--sensor-port", "0")
        process.address()
        process.line()
        child = child_of(process)
        process.stop(signal.SIGKILL)
        await wait_until(lambda: not is_running(child))

    run(scenario())


def test_a_gateway_that_never_found_its_node_ends_when_that_is_gone(tmp_path: Path) -> None:
    config = GatewayConfig(node=f"tidings+unix://{tmp_path / 'none'}", is_child=True)
    command = [sys.executable, "-m", "tidings.node.gateway.main", msgspec.json.encode(config).decode()]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(ANSWER_S) == 0


def test_a_gateway_comes_by_a_private_socket_or_by_the_nodes_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        for settings in ({}, {"unix": str(tmp_path / "node.sock")}):
            async with (
                running(sensor_port=0, **settings) as node,
                by_udp(node.sensor_addresses[1]) as network,
            ):
                assert len(node.addresses) == 1 + len(settings)
                private = node._private
                assert private is not None
                network.say(sensing("n", 1, seq=1, comment="enough to be answered"))
                assert "ack" in await network.hear()
            assert not private.path.exists()

    run(scenario())


def test_networks_may_speak_http_at_a_port_that_stays_too() -> None:
    async def scenario() -> None:
        async with running(sensor_port=0, sensor_http_port=0) as node:
            tcp, _, http = node.sensor_addresses
            assert http.startswith("http://127.0.0.1:")
            assert http.endswith("/sensors")
            port = int(http.removesuffix("/sensors").rpartition(":")[2])
            gateway = node.gateway
            assert gateway is not None
            assert gateway._process is not None
            for _ in range(2):
                await wait_answer(tcp)
                status, said = await asyncio.to_thread(post, port, sensing("h", 1, seq=1))
                assert (status, said) == (200, [{"ack": {"sensing-id": "h", "seq": 1}}])
                os.kill(gateway._process.pid, signal.SIGKILL)
                await wait_until(lambda: gateway.starts > 1)

    run(scenario())


def test_a_port_for_http_alone_starts_no_gateway_and_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^--sensor-http-port: .*--sensor-port"):
        load(flags={"sensor_http_port": 0})
    assert load(flags={"sensor_http_port": 0, "sensor_port": 0}).sensor_http_port == 0


def post(port: int, message: Object) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=ANSWER_S_MAX)
    with contextlib.closing(connection):
        connection.request("POST", "/sensors", json.dumps(message))
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_the_metrics_of_the_node_have_what_its_gateway_counts() -> None:
    async def scenario() -> None:
        async with running(sensor_port=0, http_port=0) as node:
            gateway = node.gateway
            assert gateway is not None
            await wait_until(lambda: "readings" in gateway.figures)
            assert node.metrics_address is not None
            port = int(node.metrics_address.removesuffix("/metrics").rpartition(":")[2])
            page = await asyncio.to_thread(get, port, "/metrics")
            assert "tidings_gateway_readings_total 0" in page
            assert "# TYPE tidings_gateway_networks gauge" in page
            assert "tidings_gateway_starts_total 1" in page

    run(scenario())


def get(port: int, path: str) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=ANSWER_S_MAX)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read().decode()
