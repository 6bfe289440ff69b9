"""How much a gateway carries from how many sensor networks, beside a broker that is fed the same messages.

Gateway, node and load are processes of their own on the loopback address; one subscription at the node covers
everything. A rate is from the first byte sent to the last reading received, the best of ROUNDS. As all of
them share the cores of one machine, it is also given by the processor time of the gateway alone: what it
would do with a core of its own. A reading that is lost over TCP fails the run; over UDP losses are counted.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from benchmarks import load, neighbours, peers
from benchmarks.figures import Figure, Report, gather
from benchmarks.gateway_load import (
    Flood,
    Many,
    SensingMqttWire,
    fast,
    flood,
    hear,
    paced,
    sensing,
    stay,
    steady,
)
from benchmarks.wires import TOPICS, TidingsWire, Wire
from tidings.errors import PeerError
from tidings.node import compiled
from tidings.node.gateway.config import GatewayConfig

COUNT = 1_000_000
"""Readings of a load."""
ROUNDS = 3
LOADS = ((1, 1, 400_000.0), (110, 1, 400_000.0), (1, 10, 80_000.0), (43, 10, 80_000.0))
"""Connections, readings of a message, and messages a second that are asked for."""
RATE = 1_000
"""Messages a second of each connection, where their number grows."""
CURVES = {1: (1, 50, 110, 200, 300, 400, 500, 600, 700), 10: (1, 10, 25, 43, 60, 80, 100, 120)}
"""For so many readings of a message: how many connections there are."""
CURVE_S = 2.0
TURN_S = 0.02
TCP_NETWORKS, UDP_NETWORKS = 10_000, 20_000
PART = 10_000
"""Networks of one process: more sockets than that are seldom allowed."""
HOLD_S, QUICK_HOLD_S = 60, 5
STAYING = 5_000
"""Networks whose memory is measured."""
SETTLE_S = 1.5
LATENCY_CONNECTIONS = 10
LATENCY_S = 5.0
MQTT_COUNT = 250_000
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""What the system counts processor time by."""
PIECE = 100

Figures = dict[str, Any]
Curves = list[dict[str, Any]]


@dataclass(frozen=True)
class Stage:
    """What is measured, and how much is asked of it."""

    node: peers.Broker
    gateway: peers.Broker
    mosquitto: peers.Broker | None
    part: int  # by which sizes are divided
    curves: Curves = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """How often rates are measured."""
        return ROUNDS if self.part == 1 else 1


class Carried(NamedTuple):
    """Messages a second, by the clock and by the processor time of the broker."""

    rate: float
    rate_of_core: float


def run(quick: bool, report: Report) -> Figures:
    """Measure everything, telling lines of progress; quick: a tenth of the load, in one round."""
    has_compiled = compiled.is_installed()
    has_mosquitto = peers.is_installed("mosquitto")
    report(f"messages of {len(sensing(0, 1))} bytes with one reading, {len(sensing(0, 10))} with ten")
    if not has_mosquitto:
        report("mosquitto is not installed: left out")
    curves: Curves = []
    facts = {"quick": quick, "compiled": has_compiled, "mosquitto": has_mosquitto, "curves": curves}
    return gather(_all(quick, has_compiled, has_mosquitto, curves), facts, report)


def _all(quick: bool, has_compiled: bool, has_mosquitto: bool, curves: Curves) -> Iterator[Figure]:
    with ExitStack() as stack:
        node, gateway = stack.enter_context(running(has_compiled))
        mosquitto = stack.enter_context(peers.peer("mosquitto")) if has_mosquitto else None
        stage = Stage(node, gateway, mosquitto, 10 if quick else 1, curves)
        yield from _memory(stage)
        _carry(stage, fast(1, 1, COUNT // stage.part))  # so that all are warm
        for workload in (_rates, _mosquitto, _latency, _curves, _held):
            yield from workload(stage)


@contextmanager
def running(has_compiled: bool) -> Iterator[tuple[peers.Broker, peers.Broker]]:
    """A node, and a gateway that is a client of it over its Unix socket."""
    with TemporaryDirectory(prefix="tidings-bench-") as home:
        path, port = f"{home}/node.sock", peers.free_port()
        config = GatewayConfig(node=f"tidings+unix://{path}", port=port)
        command = [sys.executable, "-m", "tidings.node.gateway.main", msgspec.json.encode(config).decode()]
        with (
            neighbours.node(peers.free_port(), unix=path, compiled=has_compiled) as node,
            peers.running("gateway", port, command) as gateway,
        ):
            yield node, gateway


@contextmanager
def _subscribed(wire: Wire) -> Iterator[socket.socket]:
    """A subscriber to everything."""
    with load.call(wire, wire.subscribe(None)) as channel:
        yield channel


def processor_s(broker: peers.Broker) -> float:
    """Seconds that the process has been at work, in itself and in the system."""
    told = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) * TICK_S


# Rates


def _carry(stage: Stage, plan: Flood) -> Carried:
    """What a gateway makes of a load; PeerError if a reading does not arrive."""
    taken, started, _, core_s = _run_flood(stage, plan)
    took_s = max(taken.last_at - started, plan.duration_s)
    return Carried(plan.messages / took_s, plan.messages / max(core_s, TICK_S))


def _run_flood(stage: Stage, plan: Flood) -> tuple[load.Taken, float, list[float], float]:
    """(what was received, when it was begun, when each turn was, processor time of the gateway)."""
    with (
        _subscribed(TidingsWire(stage.node.port)) as channel,
        load.Child(flood, stage.gateway.port, plan) as child,
    ):
        child.receive()
        before_s = processor_s(stage.gateway)
        child.send("go")
        taken = hear(channel, plan.total)
        core_s = processor_s(stage.gateway) - before_s
        started, sent_at = child.receive()
        _end(child)
    if taken.count != plan.total:
        raise PeerError(f"{taken.count} of {plan.total} readings arrived")
    return taken, started, sent_at, core_s


def _end(*children: load.Child) -> None:
    """Have them look whether they were told anything, which would be a mistake, and end."""
    for child in children:
        child.send("enough")
        child.receive()


def _rates(stage: Stage) -> Iterator[Figure]:
    """As much as a gateway takes, over few connections and many."""
    plans = {
        (connections, readings): fast(connections, readings, COUNT // readings // stage.part)
        for connections, readings, _ in LOADS
    }
    turns = [{name: _carry(stage, plan) for name, plan in plans.items()} for _ in range(stage.rounds)]
    for connections, readings, asked in LOADS:
        found = [turn[connections, readings] for turn in turns]
        name = f"{_count(readings, 'reading')} a message, {_count(connections, 'connection')}"
        unit = "messages/s" if readings == 1 else "readings/s"
        core = readings * max(one.rate_of_core for one in found)
        rate = readings * max(one.rate for one in found)
        yield Figure(f"{name}, of one core", unit, core, readings * asked, {})
        yield Figure(f"{name}, by the clock", unit, rate, readings * asked, {})


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _mosquitto(stage: Stage) -> Iterator[Figure]:
    """The same messages, of one connection, through a broker to one who subscribes."""
    broker = stage.mosquitto
    if broker is None:
        return
    for readings in (1, 10):
        count = max(1, MQTT_COUNT // readings // stage.part // TOPICS) * TOPICS
        plan = fast(1, readings, COUNT // readings // stage.part)
        turns = [(_carry(stage, plan), _carry_mqtt(broker, readings, count)) for _ in range(stage.rounds)]
        ours, theirs = (max(one.rate for one in column) for column in zip(*turns, strict=True))
        beside = {
            "messages/s": ours,
            "mosquitto": theirs,
            "mosquitto of one core": max(their.rate_of_core for _, their in turns),
        }
        name = f"{_count(readings, 'reading')} a message, over Mosquitto"
        # A message of ten readings is ten events here, and there no more than a longer message.
        yield Figure(name, "× Mosquitto", ours / theirs, 3.0 if readings == 1 else None, beside)


def _carry_mqtt(broker: peers.Broker, readings: int, count: int) -> Carried:
    wire = SensingMqttWire(broker.port, readings)
    with (
        _subscribed(wire) as channel,
        load.Child(load.feed, wire, count, PIECE, range(TOPICS), None) as child,
    ):
        child.receive()
        before_s = processor_s(broker)
        child.send("go")
        taken = hear(channel, count * readings)
        core_s = processor_s(broker) - before_s
        started, _ = child.receive()
    lost = count - taken.count // readings
    if lost:
        raise PeerError(f"{lost} of {count} messages did not arrive from Mosquitto")
    return Carried(count / (taken.last_at - started), count / max(core_s, TICK_S))


def _curves(stage: Stage) -> Iterator[Figure]:
    """More and more connections of RATE messages a second each, until the gateway can't keep up."""
    duration_s = CURVE_S if stage.part == 1 else CURVE_S / 4
    for readings, numbers in CURVES.items():
        points = []
        for connections in numbers if stage.part == 1 else numbers[:: len(numbers) - 1]:
            carried = _carry(stage, paced(connections, readings, RATE, duration_s, TURN_S))
            points.append({"connections": connections, "messages": round(carried.rate)})
        stage.curves.append({"readings": readings, "rate": RATE, "points": points})
        most = max(point["messages"] for point in points)
        name = f"{_count(readings, 'reading')} a message, connections of {RATE:,} messages/s each"
        yield Figure(f"{name}, the most", "messages/s", most, None, {})


# Time and memory


def _latency(stage: Stage) -> Iterator[Figure]:
    """From before the send to after the receive, at a rate that is no strain."""
    import numpy as np

    plan = paced(LATENCY_CONNECTIONS, 1, RATE, LATENCY_S / stage.part, 1 / RATE)
    taken, _, sent_at, _ = _run_flood(stage, plan)
    at, had = (np.array(column) for column in zip(*taken.arrivals, strict=True))
    arrived_at = at[np.searchsorted(had, np.arange(1, plan.total + 1))]
    took_ms = 1e3 * (arrived_at - np.repeat(sent_at, plan.total // plan.turns))
    rate = LATENCY_CONNECTIONS * RATE
    for name, value in (("median", np.median(took_ms)), ("99th percentile", np.percentile(took_ms, 99))):
        label = f"latency at {rate:,} messages/s, {name}"
        yield Figure(label, "ms", float(value), None, {}, less_is_better=True, rate=rate)


def _memory(stage: Stage) -> Iterator[Figure]:
    """What networks that are there and silent add to the gateway."""
    count, first = STAYING // stage.part, 0
    with _subscribed(TidingsWire(stage.node.port)), ExitStack() as stack:
        for sensors, goal in ((1, 10.0), (10, None)):
            before_kb = stage.gateway.memory_kb
            child = stack.enter_context(
                load.Child(stay, stage.gateway.port, Many(first, count, udp=False, sensors=sensors))
            )
            child.receive()
            time.sleep(SETTLE_S)
            each_kb = (stage.gateway.memory_kb - before_kb) / count
            name = f"memory of a network with {_count(sensors, 'sensor')}"
            yield Figure(name, "KB", each_kb, goal, {}, less_is_better=True)
            first += count


# Many networks


def _held(stage: Stage) -> Iterator[Figure]:
    """Very many networks that send a message a second each, for a while."""
    duration_s = HOLD_S if stage.part == 1 else QUICK_HOLD_S
    for name, udp, networks in (("TCP", False, TCP_NETWORKS), ("UDP", True, UDP_NETWORKS)):
        sent = networks // stage.part * duration_s
        taken, took_s, core_s = _hold(stage, udp, networks // stage.part, duration_s)
        share = core_s / took_s
        label = f"{networks // stage.part:,} {name} networks for {duration_s} s"
        yield Figure(
            f"{label}, lost", "messages", sent - taken, None if udp else 0.0, {}, less_is_better=True
        )
        yield Figure(
            f"{label}, of a core", "×", share, None, {}, less_is_better=True, rate=round(sent / took_s)
        )


def _hold(stage: Stage, udp: bool, networks: int, duration_s: int) -> tuple[int, float, float]:
    """(messages that arrived, seconds in which they were sent, processor time of the gateway)."""
    parts = [Many(first, min(PART, networks - first), udp) for first in range(0, networks, PART)]
    with ExitStack() as stack:
        channel = stack.enter_context(_subscribed(TidingsWire(stage.node.port)))
        children = [
            stack.enter_context(load.Child(steady, stage.gateway.port, many, duration_s)) for many in parts
        ]
        for child in children:
            child.receive()
        before_s = processor_s(stage.gateway)
        for child in children:
            child.send("go")
        taken = hear(channel, networks * duration_s)
        core_s = processor_s(stage.gateway) - before_s
        found: Sequence[tuple[float, float]] = [child.receive() for child in children]
        _end(*children)
    return taken.count, max(end for _, end in found) - min(begin for begin, _ in found), core_s
