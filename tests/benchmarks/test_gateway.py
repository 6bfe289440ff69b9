from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from benchmarks import gateway, gateway_load, load, peers
from benchmarks.figures import Figure
from benchmarks.gateway_load import Flood, Many, SensingMqttWire, fast, paced, register, sensing
from benchmarks.wires import MARKER
from tests.gateway.whole import feed
from tidings.errors import PeerError
from tidings.gateway.intake import NetworkReader
from tidings.gateway.messages import Register, Sensing

ROWS = [
    "memory of a network with 1 sensor",
    "memory of a network with 10 sensors",
    "1 reading a message, 1 connection, of one core",
    "1 reading a message, 1 connection, by the clock",
    "1 reading a message, 110 connections, of one core",
    "1 reading a message, 110 connections, by the clock",
    "10 readings a message, 1 connection, of one core",
    "10 readings a message, 1 connection, by the clock",
    "10 readings a message, 43 connections, of one core",
    "10 readings a message, 43 connections, by the clock",
    "latency at 10,000 messages/s, median",
    "latency at 10,000 messages/s, 99th percentile",
    "1 reading a message, connections of 1,000 messages/s each, the most",
    "10 readings a message, connections of 1,000 messages/s each, the most",
    "5 TCP networks for 1 s, lost",
    "5 TCP networks for 1 s, of a core",
    "7 UDP networks for 1 s, lost",
    "7 UDP networks for 1 s, of a core",
]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without a peer and compiled code, in sizes that take no time."""
    sizes = {"COUNT": 50_000, "TCP_NETWORKS": 50, "UDP_NETWORKS": 70, "STAYING": 50, "PART": 4}
    for name, value in {
        **sizes,
        "SETTLE_S": 0.0,
        "QUICK_HOLD_S": 1,
        "CURVES": {1: (1, 2), 10: (1, 3)},
    }.items():
        monkeypatch.setattr(gateway, name, value)
    monkeypatch.setattr("tidings.node.compiled.is_installed", lambda: False)
    monkeypatch.setattr(peers, "is_installed", lambda _name: False)


@pytest.mark.slow
def test_a_small_run_measures_every_workload(tiny: None) -> None:
    lines: list[str] = []
    figures = gateway.run(True, lines.append)
    assert [one["name"] for one in figures["workloads"]] == ROWS
    for one in figures["workloads"]:
        assert {"name", "unit", "value", "target", "reached", "beside"} <= set(one)
        assert (one["reached"] is None) == (one["target"] is None)
    assert [(curve["readings"], len(curve["points"])) for curve in figures["curves"]] == [(1, 2), (10, 2)]
    assert json.loads(json.dumps(figures)) == figures
    assert "mosquitto is not installed: left out" in lines


Started = tuple[peers.Broker, peers.Broker]


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    """A node and its gateway, as processes."""
    with gateway.running(False) as both:
        yield both


@pytest.mark.slow
def test_mosquitto_is_fed_the_same_messages_where_it_is_installed(started: Started) -> None:
    if not peers.is_installed("mosquitto"):
        pytest.skip("mosquitto is not installed")
    with peers.peer("mosquitto") as broker:
        found = list(gateway._mosquitto(gateway.Stage(*started, broker, part=100)))
    assert [one.unit for one in found] == ["× Mosquitto", "× Mosquitto"]
    assert all(isinstance(one, Figure) and one.value > 0 for one in found)


@pytest.mark.parametrize("readings", [1, 10])
def test_a_load_is_messages_of_one_size_that_a_gateway_understands(readings: int) -> None:
    plan = Flood(connections=3, readings=readings, piece=1_500, turns=2)
    data = plan.data(2)
    said = feed(NetworkReader(), register(2) + data)
    assert isinstance(said[0], Register)
    messages = [one for one in said[1:] if isinstance(one, Sensing)]
    assert len(messages) == len(said) - 1 == plan.piece
    assert {message.sensing_id for message in messages} == {said[0].sensing_id}
    assert {len(message.sensors) for message in messages} == {readings}
    assert data.count(MARKER) == plan.piece * readings
    assert len({len(line) for line in data.splitlines()}) == 1
    assert (plan.messages, plan.total) == (9_000, 9_000 * readings)


@pytest.mark.parametrize(("connections", "readings"), [(1, 1), (110, 1), (43, 10)])
def test_as_much_is_sent_as_was_asked_for_more_or_less(connections: int, readings: int) -> None:
    assert 950_000 <= fast(connections, readings, 1_000_000).messages <= 1_000_000
    assert paced(connections, readings, 1_000, 2.0, 0.02).messages == connections * 2_000


def test_mosquitto_gets_the_bytes_that_a_gateway_gets() -> None:
    for readings in (1, 10):
        published = SensingMqttWire(0, readings).message(7)
        assert published.endswith(b"t/0007" + sensing(7, readings, 7))
        assert published[1] % 128 + published[2] * 128 == len(published) - 3


def test_what_is_lost_is_found_when_nothing_more_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_load, "IDLE_S_MAX", 0.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(MARKER * 5)
        assert gateway_load.hear(ours, 6).count == 5


def test_a_gateway_that_ends_fails_the_run() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        with pytest.raises(PeerError, match="closed"):
            gateway_load.hear(ours, 1)


@pytest.mark.slow
def test_a_load_that_is_answered_with_a_mistake_fails_the_run(started: Started) -> None:
    node, authenticator = started
    with (
        gateway._subscribed(gateway.TidingsWire(node.port)),
        load.Child(gateway_load.stay, authenticator.port, Many(0, 2, udp=False)) as child,
        gateway_load.join(authenticator.port, 5) as channel,
    ):
        assert child.receive() == "ready"
        channel.sendall(b"[]\n")
        channel.recv(1, socket.MSG_PEEK)  # the answer is there
        with pytest.raises(PeerError, match="the gateway said"):
            gateway_load._check_untold([channel])
