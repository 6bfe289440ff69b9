from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec

import pytest

from benchmarks import load, node, peers, wires
from benchmarks.figures import Figure
from benchmarks.wires import (
    COUNTER_FIRST,
    MARKER,
    PAYLOAD,
    MqttWire,
    NatsWire,
    RedisWire,
    TidingsWire,
    Wire,
)
from tidings.errors import PeerError
from tidings.event import Batch
from tidings.protocol.frames import FRAME_MAX, FrameReader, encode
from tidings.protocol.messages import Accepted, Bye, Publish


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without peers and compiled code, in sizes that take no time."""
    monkeypatch.setattr(node, "COUNT", 10_000)
    monkeypatch.setattr(node, "REQUESTS", 100)
    monkeypatch.setattr(node, "CONNECTIONS", 20)
    monkeypatch.setattr(node, "TOPICS", 100)
    monkeypatch.setattr(node, "PEERS", ())
    monkeypatch.setattr("tidings.node.compiled.is_installed", lambda: False)
    monkeypatch.setattr("benchmarks.footprint.SETTLE_S", 0.0)


@pytest.mark.slow
def test_a_small_run_measures_every_workload(tiny: None) -> None:
    lines: list[str] = []
    figures = node.run(True, lines.append)
    assert [one["name"] for one in figures["workloads"]] == [
        "import tidings",
        "import tidings, and its client",
        "memory of an idle node",
        "memory of an idle node with a directory",
        "memory of a connection",
        "memory of a connection with a filter",
        "wire, batch frames",
        "wire, one event a frame",
        "wire, batch frames, plain",
        "wire, one event a frame, plain",
        "wire, 100 connections with a filter each",
        "wire, 100 filters on one connection",
        "latency at 500,000 events/s, median",
        "latency at 500,000 events/s, 99th percentile",
        "wire, request and reply, median",
        "API, request and reply, median",
        "API, lists",
        "API, one by one",
        "API, 100 outstanding reliable publications",
    ]
    for one in figures["workloads"]:
        assert {"name", "unit", "value", "target", "reached", "beside"} <= set(one)
        assert (one["reached"] is None) == (one["target"] is None)
    assert json.loads(json.dumps(figures)) == figures
    assert "numba is not installed: there is no compiled code" in lines


@pytest.mark.slow
@pytest.mark.parametrize("name", list(peers.PEERS))
def test_a_peer_that_is_installed_carries_the_load(name: str) -> None:
    if not peers.is_installed(name):
        pytest.skip(f"{peers.PEERS[name]} is not installed")
    with peers.peer(name) as broker:
        wire: Wire = wires.WIRES[name](broker.port)
        assert node.carry(wire, 1000) > 0
        assert node.carry(wire, 1000, [range(500), range(500, 1000)]) > 0
    assert broker.process.poll() is not None


@pytest.mark.parametrize("frame_events", [1, 100])
@pytest.mark.parametrize("topics", [range(1000), range(100), (0,)])
def test_a_load_has_all_events_in_order_and_pieces_of_one_size(
    frame_events: int, topics: Sequence[int]
) -> None:
    load = TidingsWire(0, frame_events).load(2000, 100, topics)
    frames = list(FrameReader(FRAME_MAX).feed(load.data))
    assert all(isinstance(message, Publish) for message, _ in frames)
    events = [event for _, raw in frames for event in Batch(raw)]
    assert [event.counter for event in events] == list(range(COUNTER_FIRST, COUNTER_FIRST + 2000))
    assert [event["station"] for event in events] == [f"s{topics[n % len(topics)]:04d}" for n in range(2000)]
    assert len(load.data) == load.piece_size * 20


@pytest.mark.parametrize("wire", [TidingsWire(0), NatsWire(0), MqttWire(0), RedisWire(0)])
def test_every_wire_carries_payloads_of_one_size_with_one_marker_each(wire: Wire) -> None:
    load = wire.load(1000, 100, range(1000))
    assert load.data.count(MARKER) == 1000
    assert len(load.data) == load.piece_size * 10
    assert len(PAYLOAD) == wires.EVENT_SIZE


def test_a_publisher_hears_what_was_accepted_however_it_is_cut() -> None:
    hear = TidingsWire(0).hearing()
    said = encode(Accepted(COUNTER_FIRST + 9)) + encode(Accepted(COUNTER_FIRST + 99))
    assert [hear(said[n : n + 1]) for n in range(len(said))][-1] == 100


def test_a_publisher_that_is_refused_fails() -> None:
    with pytest.raises(PeerError, match="limit"):
        TidingsWire(0).hearing()(encode(Bye("limit", "too much")))


@pytest.mark.parametrize("name", load.CHILD_MODULES)
def test_a_module_that_children_are_to_have_already_is_there(name: str) -> None:
    assert find_spec(f"benchmarks.{name}") is not None  # one that is missing is passed over in silence


def test_a_target_is_missed_above_it_where_less_is_better() -> None:
    assert Figure("rate", "events/s", 11.0, 10.0, {}).reached is True
    assert Figure("time", "ms", 11.0, 10.0, {}, less_is_better=True).reached is False
    assert Figure("time", "ms", 11.0, None, {}).reached is None


def test_a_figure_is_told_with_what_it_stands_beside_and_its_verdict() -> None:
    line = Figure("wire", "events/s", 1500.0, 2000.4, {"nats": 2000.4}).line
    assert line.split() == ["wire", "1,500", "events/s,", "nats", "2,000;", "target", "2,000", "MISSED"]
