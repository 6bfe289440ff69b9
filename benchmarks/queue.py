"""How fast queues take messages in and hand them out, how they search, and what a waiting message costs.

Every broker is a process of its own on the loopback address, and so are those who put and those who get. The
'wire' figures are of prebuilt frames on raw sockets, the 'API' figures of the client library. All brokers are
warmed up, and then take turns; a figure is the median of its rounds. One put and its get count as one, from
the first byte sent to the last acknowledgement; a message that does not arrive fails the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import footprint, peers, queue_clients, queue_later, queue_load, queue_peers
from benchmarks.figures import Figure, Report, gather
from benchmarks.load import Child
from benchmarks.queue_wires import BODY, QueueWire, TidingsQueueWire
from tidings.node import compiled

COUNT = 60_000
"""Messages of a load; slower brokers take a part of it."""
PARTS = {"activemq": 4, "rabbitmq": 2}
"""Which part, so that a round takes each a few seconds."""
WARM = 20_000
"""Messages that each broker carries before anything is measured: a virtual machine compiles what is used."""
ROUNDS = 3
PEERS = tuple(queue_peers.PROGRAMS)
CONNECTIONS = 100
OUTSTANDING = 1_000
WAITING = 100_000
"""Messages in the queue that is searched, and in the one whose memory is measured."""
DELAYED = 1_000_000
"""Messages that are delayed beside those that are measured."""
SEARCHES = 15
OPERATIONS = 1_000
"""Messages for each of the operations."""
CONDITIONS = {
    "equality": "number = {last}",
    "range": "number > {before}",
    "IN": "name IN ('job {last:06d} of today', 'nothing')",
}
RESIDUES = {
    "LIKE": "name LIKE '%{last:06d}%'",
    "arithmetic": "number * 2 - 1 = {last} + {before}",
}
"""Conditions that no index helps with: every message is a candidate."""

Figures = dict[str, Any]
Seconds = dict[str, float]


@dataclass(frozen=True)
class Stage:
    """The brokers that are measured, and how much is asked of them."""

    node: peers.Broker
    others: dict[str, peers.Broker]
    count: int
    rounds: int

    @property
    def wires(self) -> dict[str, QueueWire]:
        """How each is spoken to, the node first."""
        found: dict[str, QueueWire] = {"tidings": TidingsQueueWire(self.node.port)}
        return found | {name: queue_peers.WIRES[name](broker.port) for name, broker in self.others.items()}

    def part(self, name: str) -> int:
        """How much of the load a broker takes; each connection has its share."""
        return max(1, self.count // PARTS.get(name, 1) // OUTSTANDING) * OUTSTANDING


def run(quick: bool, report: Report) -> Figures:
    """Measure everything, telling lines of progress; quick: a tenth of the load, in one round."""
    has_compiled = compiled.is_installed()
    found = [name for name in PEERS if queue_peers.is_installed(name)]
    report(f"messages of {len(BODY)} bytes; median of {1 if quick else ROUNDS}")
    for name in PEERS:
        if name not in found:
            report(f"{queue_peers.PROGRAMS[name][0]} is not installed: left out")
    facts = {"quick": quick, "compiled": has_compiled, "peers": found, "body_bytes": len(BODY)}
    return gather(_all(quick, has_compiled, found), facts, report)


def _all(quick: bool, has_compiled: bool, found: list[str]) -> Iterator[Figure]:
    part = 10 if quick else 1
    yield _memory(WAITING // part)
    yield from queue_later.figures(COUNT // part, DELAYED // part, 1 if quick else ROUNDS)
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="tidings-bench-")))
        stage = Stage(
            node=stack.enter_context(peers.node(compiled=has_compiled, directory=home)),
            others={name: stack.enter_context(queue_peers.peer(name)) for name in found},
            count=COUNT // part,
            rounds=1 if quick else ROUNDS,
        )
        for wire in stage.wires.values():
            queue_load.carry(wire, WARM // part, CONNECTIONS, 1)
        for workload in (_through_wire, _through_clients, _lists, _operations):
            yield from workload(stage)
        for persistent in (False, True):
            yield from _search(stage.node.address, persistent, WAITING // part, stage.rounds)


def _medians(rounds: int, measures: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The median of each, taking turns."""
    turns = [{name: measure() for name, measure in measures.items()} for _ in range(rounds)]
    return {name: median(turn[name] for turn in turns) for name in measures}


# Put and get


def _through_wire(stage: Stage) -> Iterator[Figure]:
    """Persistent messages, each accepted when it is stored; got by one who acknowledges a batch at a time."""
    for name, connections, outstanding, goal in (
        (f"wire, put and get, {CONNECTIONS} connections", CONNECTIONS, 1, 25_000.0),
        (f"wire, put and get, {OUTSTANDING:,} outstanding on one", 1, OUTSTANDING, 45_000.0),
    ):
        measures = {
            who: partial(queue_load.carry, wire, stage.part(who), connections, outstanding)
            for who, wire in stage.wires.items()
        }
        beside = _medians(stage.rounds, measures)
        rate = beside.pop("tidings")
        yield Figure(name, "messages/s", rate, goal, beside)
        if "activemq" in beside and connections > 1:
            yield Figure(f"{name}, over ActiveMQ", "× ActiveMQ", rate / beside["activemq"], 8.0, {})


def _through_clients(stage: Stage) -> Iterator[Figure]:
    """The same with the client library at both ends."""
    count, address = stage.part("tidings"), stage.node.address
    for name, connections, outstanding in (
        (f"API, put and get, {CONNECTIONS} connections", CONNECTIONS, 1),
        (f"API, put and get, {OUTSTANDING:,} outstanding on one", 1, OUTSTANDING),
    ):
        measure = partial(_carried, address, count, connections, outstanding)
        rate = _medians(stage.rounds, {name: measure})[name]
        yield Figure(name, "messages/s", rate, None, {})


def _carried(address: str, count: int, connections: int, outstanding: int) -> float:
    with (
        Child(queue_clients.get, address, count) as getting,
        Child(queue_clients.put, address, count, connections, outstanding) as putting,
    ):
        return queue_load.rate(count, getting, putting)


def _lists(stage: Stage) -> Iterator[Figure]:
    with Child(queue_clients.lists, stage.node.address, 10 * stage.rounds) as child:
        volatile_s, persistent_s = child.receive()
    beside = {"volatile ms": 1e3 * volatile_s, "persistent ms": 1e3 * persistent_s}
    name = f"put_all of {queue_clients.LIST_SIZE:,}, persistent over volatile"
    yield Figure(name, "×", persistent_s / volatile_s, 3.0, beside, less_is_better=True)


# One operation after the other


def _operations(stage: Stage) -> Iterator[Figure]:
    """Six operations on messages of 1,000 bytes, in a node of this process and in another."""
    unit = f"ms for {OPERATIONS:,}"
    for place in ("local", "remote"):
        for kind in ("volatile", "persistent"):
            ours = _our_operations(stage, place == "local", kind == "persistent")
            alike = {}
            if (place, kind) == ("remote", "persistent"):
                alike = {who: _wire_operations(wire, stage.rounds) for who, wire in stage.wires.items()}
            for name, took_s in ours.items():
                beside = {who: 1e3 * found[name] for who, found in alike.items() if name in found}
                label = f"API, {name}, {kind}, {place}"
                yield Figure(label, unit, 1e3 * took_s, None, beside, less_is_better=True)


def _our_operations(stage: Stage, is_local: bool, persistent: bool) -> Seconds:
    with TemporaryDirectory(prefix="tidings-bench-") as home:
        where = (Path(home) if persistent else None) if is_local else stage.node.address
        with Child(queue_clients.operations, where, persistent, OPERATIONS, stage.rounds) as child:
            found: Seconds = child.receive()
    return found


def _wire_operations(wire: QueueWire, rounds: int) -> Seconds:
    """Those that all brokers have, with prebuilt frames: one at a time, and as many as may be under way."""
    single = replace(wire, at_once=1)
    queue_load.prepare(wire)
    turns = [
        {
            "put": queue_load.fill(single, OPERATIONS, 1),
            "get": queue_load.drain(single, OPERATIONS),
            "put all": queue_load.fill(wire, OPERATIONS, OPERATIONS),
            "get all": queue_load.drain(wire, OPERATIONS),
        }
        for _ in range(rounds)
    ]
    return {name: median(turn[name] for turn in turns) for name in turns[0]}


# Searching


def _search(address: str, persistent: bool, waiting: int, rounds: int) -> Iterator[Figure]:
    """Only the last message matches; what is compared with is a `get` of the first one."""
    places = {"last": waiting - 1, "before": waiting - 2}
    conditions = {name: text.format(**places) for name, text in {**CONDITIONS, **RESIDUES}.items()}
    arguments = (address, persistent, waiting, conditions, SEARCHES if rounds > 1 else 3)
    with Child(queue_clients.search, *arguments) as child:
        took_s: Seconds = child.receive()
    kind = "persistent" if persistent else "volatile"
    for name in CONDITIONS:
        beside = {"get ms": 1e3 * took_s[""], "get(where) ms": 1e3 * took_s[name]}
        label = f"get(where) over get, {waiting:,} {kind}, {name}"
        yield Figure(label, "×", took_s[name] / took_s[""], 3.0, beside, less_is_better=True)
    for name in RESIDUES:
        label = f"get(where), {waiting:,} {kind}, residue {name}"
        yield Figure(label, "µs a candidate", 1e6 * took_s[name] / waiting, None, {}, less_is_better=True)


# Memory


def _memory(waiting: int) -> Figure:
    """What a message in a volatile queue adds to a node, beyond its body."""
    with (
        peers.node(compiled=False) as node,
        Child(queue_clients.fill, node.address, waiting) as child,
    ):
        child.receive()
        time.sleep(footprint.SETTLE_S)
        before_kb = node.memory_kb
        child.send("go")
        child.receive()
        time.sleep(footprint.SETTLE_S)
        each = 1024 * (node.memory_kb - before_kb) / waiting - len(BODY)
        child.send("go")
    name = f"memory of a volatile message beyond its body, {waiting:,}"
    return Figure(name, "bytes", each, 500.0, {}, less_is_better=True)
