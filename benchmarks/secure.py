"""What security costs, and how nodes do that know each other.

Every node is a process of its own on the loopback address, and so is every publisher and subscriber. What TLS
and rules cost is a ratio of two rates of one run, in which both take turns; each is the best of ROUNDS. The
processor time beside it is that of the node alone: on a machine with two cores the clients, who encrypt too,
take part of what the node could have. What does not arrive, or arrives twice, fails the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import edge, load, neighbours, peers
from benchmarks.figures import Figure, Report, gather
from benchmarks.secure_load import carry, through_clients
from benchmarks.secured import ADMIN, RULE, Login, Secured, TlsWire, log_in, make_secured
from benchmarks.wires import EVENT_SIZE, TidingsWire, event_of
from tidings.event import Batch
from tidings.event.wire import check
from tidings.exchange import Exchange, Grant, NodeSubscription
from tidings.filters import Filter
from tidings.node import compiled

COUNT = 1_000_000
"""Events of a load."""
ROUNDS = 5
FORWARDED = 100_000
"""Messages that are put for a node which is away."""
FORWARDINGS = 3
"""How often that is done, for the best of them."""
PEERS = 100
LOOKUPS = 20
READINGS = 1_000
"""Events that a device publishes."""
LOGINS = 1_000
PASSWORDS = 60
"""Hosts from which one comes with a password: each has it checked, as it is not known there yet."""
BATCH = 1_000
MATCHES = 200
"""How often a batch is matched, for the best of them."""
SUBSCRIPTIONS = ("value > 50", "")
"""What a rule is matched with: what has to be looked at anyway, or what need not be."""

Figures = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """The nodes that are measured, and how much is asked of them."""

    plain: peers.Broker
    tls: peers.Broker
    secured: Secured
    count: int
    rounds: int

    @property
    def tls_address(self) -> str:
        """Where clients find the node that has security."""
        return f"tidings+tls://{load.HOST}:{self.tls.port}"

    def tls_wire(self, token: str) -> TlsWire:
        """How that node is spoken to by one of its users."""
        return TlsWire(self.tls.port, ca=self.secured.ca, token=token)


def run(quick: bool, report: Report) -> Figures:
    """Measure everything, telling lines of progress; quick: a tenth of the load, in one round."""
    has_compiled = compiled.is_installed()
    rounds = "one round" if quick else f"best of {ROUNDS}, forwarding of {FORWARDINGS}"
    report(f"events of {EVENT_SIZE} bytes; {rounds}")
    if not has_compiled:
        report("numba is not installed: there is no compiled code")
    facts = {"quick": quick, "compiled": has_compiled, "event_bytes": EVENT_SIZE}
    return gather(_all(quick, has_compiled), facts, report)


def _all(quick: bool, has_compiled: bool) -> Iterator[Figure]:
    part, rounds = (10, 1) if quick else (1, ROUNDS)
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="tidings-bench-")))
        secured = make_secured(home / "security", "bench")
        settings = {"compiled": has_compiled}
        stage = Stage(
            plain=stack.enter_context(neighbours.node(peers.free_port(), **settings)),
            tls=stack.enter_context(
                neighbours.node(peers.free_port(), security=str(secured.path), **settings)
            ),
            secured=secured,
            count=COUNT // part,
            rounds=rounds,
        )
        if has_compiled:
            _warm(stage)
        for workload in (_encryption, _rule, _device, _logins):
            yield from workload(stage)
    yield from _rule_alone(has_compiled, 10 if quick else MATCHES)
    yield from _forwarding(FORWARDED // part, has_compiled, min(rounds, FORWARDINGS))
    yield _lookup(PEERS // part, LOOKUPS, has_compiled)


def _warm(stage: Stage) -> None:
    """Keep both nodes busy until they have loaded their compiled code."""
    for broker, wire in (
        (stage.plain, TidingsWire(stage.plain.port)),
        (stage.tls, stage.tls_wire(stage.secured.token)),
    ):
        carry(wire, wire, COUNT // 4)
        broker.wait_log(peers.COMPILED)


# What it costs to be safe


def _encryption(stage: Stage) -> Iterator[Figure]:
    """One publisher, one subscriber to everything, with TLS and without."""
    wires = {"TLS": stage.tls_wire(stage.secured.token), "plain": TidingsWire(stage.plain.port)}
    brokers = {"TLS": stage.tls, "plain": stage.plain}
    before_s = {name: broker.processor_s for name, broker in brokers.items()}
    rates = _best(
        stage.rounds, {name: partial(carry, wire, wire, stage.count) for name, wire in wires.items()}
    )
    each_us = {
        name: 1e6 * (broker.processor_s - before_s[name]) / (stage.count * stage.rounds)
        for name, broker in brokers.items()
    }
    yield Figure("wire, TLS over plain", "× plain", rates["TLS"] / rates["plain"], 0.6, rates)
    name, beside = "processor time of the node for an event, TLS", {"plain": each_us["plain"]}
    yield Figure(name, "µs", each_us["TLS"], None, beside, less_is_better=True)
    proof = {"token": stage.secured.token, "ca": stage.secured.ca}
    measures = {
        "TLS": partial(through_clients, stage.tls_address, proof, stage.count),
        "plain": partial(through_clients, stage.plain.address, {}, stage.count),
    }
    rates = _best(stage.rounds, measures)
    yield Figure("API, lists, TLS over plain", "× plain", rates["TLS"] / rates["plain"], None, rates)


def _best(rounds: int, measures: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The highest of each, taking turns."""
    turns = [{name: measure() for name, measure in measures.items()} for _ in range(rounds)]
    return {name: max(turn[name] for turn in turns) for name in measures}


def _rule(stage: Stage) -> Iterator[Figure]:
    """The same load by one whose events are held against a rule, and one who may publish everything.

    The one who subscribes is the latter both times.
    """
    free = stage.tls_wire(stage.secured.token)
    measures = {
        "rule": partial(carry, stage.tls_wire(stage.secured.bounded_token), free, stage.count),
        "no rule": partial(carry, free, free, stage.count),
    }
    rates = _best(stage.rounds, measures)
    yield Figure("wire, a publish rule over none", "×", rates["rule"] / rates["no rule"], None, rates)


def _rule_alone(has_compiled: bool, rounds: int) -> Iterator[Figure]:
    """What a rule adds to checking and matching a batch in this process, beside what that takes without."""
    with load.Child(match, has_compiled, rounds) as child:
        found: dict[str, tuple[float, float]] = child.receive()
    for text, (granted, alone) in found.items():
        name = f"a publish rule, beside a subscription to {text or 'everything'}"
        beside = {"without it": alone}
        yield Figure(name, "µs an event", max(0.0, granted - alone), 0.1, beside, less_is_better=True)


def match(pipe: load.Pipe, has_compiled: bool, rounds: int) -> None:
    """Send the microseconds an event takes with a rule and without, for each of the subscriptions."""
    if has_compiled:
        compiled.compile_now()
        compiled.exercise()
    raw = Batch.of([event_of(place % 500, place + 1) for place in range(BATCH)]).raw
    pipe.send({text: _matched_us(raw, text, rounds) for text in SUBSCRIPTIONS})


def _matched_us(raw: bytes, subscription: str, rounds: int) -> tuple[float, float]:
    exchanges = (_exchange(subscription, (RULE,)), _exchange(subscription, ()))
    turns = [[_match_us(exchange, raw) for exchange in exchanges] for _ in range(rounds)]
    granted, alone = (min(column) for column in zip(*turns, strict=True))
    return granted, alone


def _exchange(subscription: str, rules: Sequence[str]) -> Exchange:
    exchange = Exchange()
    exchange.subscribe(NodeSubscription(Filter(subscription), Grant()))
    for rule in rules:
        exchange.grant(Filter(rule))
    return exchange


def _match_us(exchange: Exchange, raw: bytes) -> float:
    started = time.perf_counter()
    exchange.match(Batch(raw, None, check(raw).offsets))
    return 1e6 * (time.perf_counter() - started) / BATCH


def _logins(stage: Stage) -> Iterator[Figure]:
    """Clients that come, are let in and go; the first kind goes when it has shaken hands."""
    count, port, ca = max(8, LOGINS * stage.count // COUNT), stage.tls.port, stage.secured.ca
    for name, login, times in (
        ("handshakes", Login(port, ca), count),
        ("logins by token", Login(port, ca, secret=stage.secured.token), count),
        ("logins by password", Login(port, ca, ADMIN, stage.secured.password, PASSWORDS), PASSWORDS),
    ):
        with load.Child(log_in, login, times) as child:
            yield Figure(name, "a second", child.receive(), None, {})


# Other nodes


def _device(stage: Stage) -> Iterator[Figure]:
    """Memory of a device that stores and forwards, on the bare install."""
    token = stage.secured.path / "device.token"
    with TemporaryDirectory(prefix="tidings-bench-") as home:
        found = {
            "TLS": edge.measure(Path(home) / "1", stage.tls_address, READINGS, stage.secured.ca, token),
            "plain": edge.measure(Path(home) / "2", stage.plain.address, READINGS),
        }
    memory = {name: 1024 * kb / 1e6 for name, kb in found.items()}
    name = f"memory of a device with {READINGS:,} events sent upstream, TLS"
    yield Figure(name, "MB", memory.pop("TLS"), 40.0, memory, less_is_better=True)


def _forwarding(count: int, has_compiled: bool, rounds: int) -> Iterator[Figure]:
    """Messages that were put while the other node was away, from the first to arrive to the last."""
    for name, is_secured in (("TLS", True), ("plain", False)):
        rates = []
        for _ in range(rounds):
            with TemporaryDirectory(prefix="tidings-bench-") as home:
                rates.append(neighbours.forward(Path(home), is_secured, has_compiled, count))
        label = f"{count:,} messages of {len(neighbours.BODY)} bytes forwarded, {name}"
        yield Figure(label, "messages/s", max(rates), 20_000.0, {})


def _lookup(count: int, rounds: int, has_compiled: bool) -> Figure:
    took_ms = neighbours.lookup_ms(count, rounds, has_compiled)
    return Figure(f"lookup at {count} peers, median", "ms", took_ms, 50.0, {}, less_is_better=True)
