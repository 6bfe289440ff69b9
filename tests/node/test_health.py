"""What supervisors ask and are told: the pages of health, and notifications to systemd."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from effort import ANSWER_S
from node.peers import Start, running
from node.secured import Secured
from node.test_metrics import fetch

from tidings.node.config import NodeConfig
from tidings.node.finding import Finding
from tidings.node.main import Notifier
from tidings.node.server import Node


async def page(node: Node, path: str) -> tuple[int, str]:
    assert node.metrics_address is not None
    port = node.metrics_address.removesuffix("/metrics").rpartition(":")[2]
    return await fetch(node.metrics_address, f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n")


def test_a_node_that_serves_is_healthy_and_ready() -> None:
    async def scenario() -> None:
        async with running(http_port=0) as node:
            assert await page(node, "/healthz") == (200, "ok\n")
            assert await page(node, "/readyz") == (200, "ready\n")
            assert (await page(node, "/health"))[0] == 404

    asyncio.run(scenario())


def test_a_node_with_security_tells_everybody_that_it_is_ready(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(http_port=0, security=str(Secured(tmp_path).path)) as node:
            assert await page(node, "/readyz") == (200, "ready\n")

    asyncio.run(scenario())


def test_a_node_is_healthy_but_not_ready_before_all_ports_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[int, str]] = []

    async def scenario() -> None:
        async def look(_finding: Finding) -> None:
            """Called in the place of what follows the HTTP port."""
            found.extend([await page(node, "/healthz"), await page(node, "/readyz")])

        monkeypatch.setattr(Finding, "_discover", look)
        node = Node(NodeConfig(port=0, http_port=0, mdns=True, compiled=False))
        await node.start()
        await node.close()

    asyncio.run(scenario())
    assert found == [(200, "ok\n"), (503, "starting\n")]


def test_a_node_that_ends_is_healthy_but_not_ready_until_everything_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with running(http_port=0) as node:
            end = node.driver.close

            async def look() -> None:
                assert await page(node, "/healthz") == (200, "ok\n")
                assert await page(node, "/readyz") == (503, "stopping\n")
                await end()
                assert await page(node, "/metrics") == (503, "stopping\n")

            monkeypatch.setattr(node.driver, "close", look)

    asyncio.run(scenario())


# -- systemd


class Supervisor:
    """A socket such as systemd's; its address, and what it is told."""

    def __init__(self, place: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(ANSWER_S)
        self.socket.bind(place.replace("@", "\0") if place.startswith("@") else place)
        self.place = place

    def heard(self) -> list[str]:
        return self.socket.recv(4_096).decode().split("\n")


@pytest.fixture(params=["path", "abstract"])
def supervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Supervisor]:
    place = str(tmp_path / "notify") if request.param == "path" else f"@tidings-test-{os.getpid()}"
    made = Supervisor(place)
    yield made
    made.socket.close()


def test_a_node_says_when_it_is_ready_that_it_lives_and_when_it_stops(
    start: Start, supervisor: Supervisor
) -> None:
    environment = {"NOTIFY_SOCKET": supervisor.place, "WATCHDOG_USEC": "3600000000"}
    node = start("--port", "0", environment=environment)
    address = node.address()
    assert supervisor.heard() == ["READY=1", f"STATUS=listening on {address}"]
    assert supervisor.heard() == ["WATCHDOG=1"]
    code, _ = node.stop(signal.SIGTERM)
    assert code == 0
    assert supervisor.heard() == ["STOPPING=1"]


@pytest.mark.parametrize(
    ("environment", "beat_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_signs_of_life_come_twice_in_the_time_that_is_said(
    environment: dict[str, str], beat_s: float | None
) -> None:
    assert Notifier({"NOTIFY_SOCKET": "/run/notify", **environment}).beat_s == beat_s
    assert Notifier(environment).beat_s is None


def test_signs_of_life_go_on_until_the_node_stops(supervisor: Supervisor) -> None:
    async def scenario() -> None:
        notifier = Notifier({"NOTIFY_SOCKET": supervisor.place, "WATCHDOG_USEC": "2000"})
        notifier.ready("listening")
        heard = [await asyncio.to_thread(supervisor.heard) for _ in range(4)]
        assert heard == [["READY=1", "STATUS=listening"], *[["WATCHDOG=1"]] * 3]
        await notifier.stopping()
        while (last := await asyncio.to_thread(supervisor.heard)) == ["WATCHDOG=1"]:
            pass
        assert last == ["STOPPING=1"]

    asyncio.run(scenario())


def test_a_supervisor_that_is_gone_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "none")})
    notifier.notify("READY=1")
    notifier.notify("STOPPING=1")
    assert [record.getMessage() for record in caplog.records] == ["systemd can't be notified"]


def test_without_a_supervisor_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        notifier = Notifier({})
        notifier.ready("listening")
        assert notifier.beat_s is None
        await notifier.stopping()

    asyncio.run(scenario())
    assert caplog.records == []
