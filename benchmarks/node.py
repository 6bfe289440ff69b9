"""How much a node carries, how fast, in how much memory; beside other brokers on the same machine.

Every broker is a process of its own on the loopback address, and so is every publisher and subscriber. The
'wire' figures are of prebuilt frames on raw sockets, the 'API' figures of the client library. They are the
best of ROUNDS, in which the brokers take turns, since a machine is not equally free all the time. A rate is
from the first byte sent to the last event received; an event that does not arrive fails the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import clients, footprint, load, peers
from benchmarks.figures import Figure, Report, gather
from benchmarks.wires import EVENT_SIZE, PAYLOAD, TOPICS, WIRES, TidingsWire, Wire
from tidings.errors import PeerError
from tidings.node import compiled

COUNT = 1_000_000
"""Events of a load; slower ways take a part of it."""
ROUNDS = 3
PIECE = 100
"""Events in a batch frame, and in what is sent at once when it is paced."""
RATE = 500_000
"""Events a second at which latency is measured."""
PEERS = ("nats", "mosquitto", "redis")
REQUESTS = 5_000
OUTSTANDING = 100
CONNECTIONS = 1_000
"""Connections whose memory is measured."""

Figures = dict[str, Any]
Topics = Sequence[Sequence[int] | None]


@dataclass(frozen=True)
class Stage:
    """The brokers that are measured, and how much is asked of them."""

    node: peers.Broker  # with compiled code, where there is any
    plain: peers.Broker
    storing: peers.Broker
    others: dict[str, peers.Broker]
    count: int
    rounds: int

    def wire(self, name: str) -> Wire:
        """How a peer is spoken to."""
        wire: Wire = WIRES[name](self.others[name].port)
        return wire


def run(quick: bool, report: Report) -> Figures:
    """Measure everything, telling lines of progress; quick: a tenth of the load, in one round."""
    has_compiled = compiled.is_installed()
    found = [name for name in PEERS if peers.is_installed(name)]
    report(
        f"events of {EVENT_SIZE} bytes, peers' payloads of {len(PAYLOAD)}; best of {1 if quick else ROUNDS}"
    )
    for name in PEERS:
        if name not in found:
            report(f"{peers.PEERS[name]} is not installed: left out")
    if not has_compiled:
        report("numba is not installed: there is no compiled code")
    facts = {"quick": quick, "compiled": has_compiled, "peers": found, "event_bytes": EVENT_SIZE}
    return gather(_all(quick, has_compiled, found), facts, report)


def _all(quick: bool, has_compiled: bool, found: list[str]) -> Iterator[Figure]:
    yield from footprint.imports(rounds=3 if quick else 15)
    yield from footprint.memory(CONNECTIONS // (10 if quick else 1), has_compiled)
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="tidings-bench-")))
        stage = Stage(
            node=stack.enter_context(peers.node(compiled=has_compiled)),
            plain=stack.enter_context(peers.node(compiled=False)),
            storing=stack.enter_context(peers.node(compiled=has_compiled, directory=home)),
            others={name: stack.enter_context(peers.peer(name)) for name in found},
            count=COUNT // (10 if quick else 1),
            rounds=1 if quick else ROUNDS,
        )
        if has_compiled:
            _warm(stage.node)
            yield footprint.with_compiled(stage.node)
        for workload in (_one_to_one, _fan_out, _latency, _requests, _api):
            yield from workload(stage)


def _warm(node: peers.Broker) -> None:
    """Keep a node busy until it has loaded its compiled code."""
    carry(TidingsWire(node.port), COUNT // 4)
    node.wait_log(peers.COMPILED)


# Wire


def carry(wire: Wire, count: int, topics: Topics = (None,)) -> float:
    """Events a second from one publisher to subscribers with these topics."""
    taken, started, _ = _carry(wire, count, topics, None)
    return count / (taken.last_at - started)


def _carry(
    wire: Wire, count: int, topics: Topics, rate: float | None
) -> tuple[load.Taken, float, list[float]]:
    """What was received, when the first byte was sent, and when each piece was, if there is a rate."""
    with (
        load.Child(load.tap, wire, count, topics) as tap,
        load.Child(load.feed, wire, count, PIECE, range(TOPICS), rate) as feed,
    ):
        _go(tap, feed)
        taken: load.Taken = tap.receive()
        started, sent_at = feed.receive()
    if taken.count != count:
        raise PeerError(f"{taken.count} of {count} events arrived from {wire}")
    return taken, started, sent_at


def _go(*children: load.Child) -> None:
    """Have all begin when all are ready, subscribers first."""
    for child in children:
        child.receive()
    for child in children:
        child.send("go")


def _part(count: int, divisor: int) -> int:
    """A part of a load that still goes round in all topics."""
    return max(1, count // divisor // TOPICS) * TOPICS


def _best(
    rounds: int, measures: Mapping[str, Callable[[], float]], best: Callable[..., float] = max
) -> dict[str, float]:
    """The best value of each, taking turns."""
    turns = [{name: measure() for name, measure in measures.items()} for _ in range(rounds)]
    return {name: best(turn[name] for turn in turns) for name in measures}


def _one_to_one(stage: Stage) -> Iterator[Figure]:
    """One publisher, one subscriber to everything, with acceptance."""
    node, plain, count = stage.node.port, stage.plain.port, stage.count
    slow = _part(count, 4)
    measures = {
        "batch": partial(carry, TidingsWire(node, PIECE), count),
        "single": partial(carry, TidingsWire(node, 1), count),
        "plain batch": partial(carry, TidingsWire(plain, PIECE), slow),
        "plain single": partial(carry, TidingsWire(plain, 1), slow),
    }
    for name in stage.others:
        measures[name] = partial(carry, stage.wire(name), count if name == "nats" else slow)
    rates = _best(stage.rounds, measures)
    beside = {name: rates[name] for name in stage.others}
    nats, mosquitto = rates.get("nats"), rates.get("mosquitto")
    goals = [1.0 * nats] if nats else []
    goals += [6.0 * mosquitto] if mosquitto else []
    yield Figure("wire, batch frames", "events/s", rates["batch"], max(goals, default=None), beside)
    for name, key, part in (
        ("wire, one event a frame", "single", 0.7),
        ("wire, batch frames, plain", "plain batch", 0.5),
        ("wire, one event a frame, plain", "plain single", None),
    ):
        goal = part * nats if part and nats else None
        yield Figure(name, "events/s", rates[key], goal, beside)


def _fan_out(stage: Stage) -> Iterator[Figure]:
    """Each event is for one in TOPICS: of connections with a content filter each, or of filters on one."""
    node = TidingsWire(stage.node.port)
    count = _part(stage.count, 2)
    alone, together = [[topic] for topic in range(TOPICS)], [range(TOPICS)]
    for name, goal, topics in (
        (f"wire, {TOPICS:,} connections with a filter each", 200_000.0, alone),
        (f"wire, {TOPICS:,} filters on one connection", 500_000.0, together),
    ):
        measures = {"node": partial(carry, node, count, topics)}
        if "nats" in stage.others:
            measures["nats"] = partial(carry, stage.wire("nats"), count, topics)
        rates = _best(stage.rounds, measures)
        beside = {"nats": rates["nats"]} if "nats" in rates else {}
        yield Figure(name, "events/s", rates["node"], goal, beside)
        if beside and topics is alone:
            yield Figure(f"{name}, level with NATS", "× NATS", rates["node"] / rates["nats"], 1.0, {})


# Time


def _latency(stage: Stage) -> Iterator[Figure]:
    """How long events take at a steady rate, from the call that sends them to the one that receives them."""
    wires: dict[str, Wire] = {"node": TidingsWire(stage.node.port)}
    if "nats" in stage.others:
        wires["nats"] = stage.wire("nats")
    turns = [
        {name: _latencies_ms(wire, stage.count) for name, wire in wires.items()} for _ in range(stage.rounds)
    ]
    beside = {name: min(turn[name] for turn in turns) for name in wires}
    node = beside.pop("node")
    for place, (name, goal) in enumerate((("median", 0.3), ("99th percentile", 5.0))):
        others = {peer: found[place] for peer, found in beside.items()}
        label = f"latency at {RATE:,} events/s, {name}"
        yield Figure(label, "ms", node[place], goal, others, less_is_better=True, rate=round(node[2]))


def _latencies_ms(wire: Wire, count: int) -> tuple[float, float, float]:
    """(median, 99th percentile, events a second that were really sent)."""
    import numpy as np

    taken, started, sent_at = _carry(wire, count, (None,), RATE)
    at, had = (np.array(column) for column in zip(*taken.arrivals, strict=True))
    arrived_at = at[np.searchsorted(had, np.arange(1, count + 1))]
    took_ms = 1e3 * (arrived_at - np.repeat(sent_at, PIECE))
    rate = count / (sent_at[-1] - started)
    return float(np.median(took_ms)), float(np.percentile(took_ms, 99)), rate


def _requests(stage: Stage) -> Iterator[Figure]:
    """One request at a time, there and back through the broker twice."""
    count = max(100, REQUESTS * stage.count // COUNT)
    measures = {"node": partial(_asked_ms, load.answer, load.ask, TidingsWire(stage.node.port, 1), count)}
    if "nats" in stage.others:
        measures["nats"] = partial(_asked_ms, load.answer, load.ask, stage.wire("nats"), count)
    beside = _best(stage.rounds, measures, min)
    node = beside.pop("node")
    goal = 1.3 * beside["nats"] if beside else None
    yield Figure("wire, request and reply, median", "ms", node, goal, beside, less_is_better=True)
    api = _asked_ms(clients.answer, clients.ask, stage.node.address, count)
    yield Figure("API, request and reply, median", "ms", api, None, {}, less_is_better=True)


def _asked_ms(answer: Callable[..., None], ask: Callable[..., None], where: object, count: int) -> float:
    with load.Child(answer, where, count) as answering, load.Child(ask, where, count) as asking:
        _go(answering, asking)
        took_s: list[float] = asking.receive()
        return 1e3 * median(took_s)


# API


def _api(stage: Stage) -> Iterator[Figure]:
    """The client library at both ends; reliable events are stored for a durable subscriber."""
    ways: tuple[tuple[clients.Way, float, int], ...] = (
        ("lists", 500_000.0, stage.count),
        ("one by one", 300_000.0, stage.count),
        ("reliable", 25_000.0, _part(stage.count, 10)),
    )
    for way, goal, count in ways:
        storing = way == "reliable"
        node = stage.storing if storing else stage.node
        rate = max(_through_clients(node.address, way, count) for _ in range(stage.rounds))
        name = f"API, {OUTSTANDING} outstanding reliable publications" if storing else f"API, {way}"
        yield Figure(name, "events/s", rate, goal, {})


def _through_clients(address: str, way: clients.Way, count: int) -> float:
    with (
        load.Child(clients.subscribe, address, way, count) as subscriber,
        load.Child(clients.publish, address, way, count, OUTSTANDING) as publisher,
    ):
        _go(subscriber, publisher)
        started, accepted_at = publisher.receive()
        arrived_at: float = subscriber.receive()
        took_s: float = max(arrived_at, accepted_at) - started
        return count / took_s
