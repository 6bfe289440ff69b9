"""Events over real links: nodes in line, each a process, beside one node and beside a leaf node of NATS.

A ratio is of two measurements of one run, taken in turns, each the best of ROUNDS. Processor time is that of
a node's process, and does not depend on what else the machine does; rates do.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import clients, load, neighbours, peers
from benchmarks.figures import Figure
from benchmarks.wires import TOPICS, NatsWire, TidingsWire, Wire
from tidings.client import blocking
from tidings.errors import PeerError
from tidings.protocol.frames import encode
from tidings.protocol.messages import Ping
from tidings.testing import Proxy

COUNT = 1_000_000
"""Events of a load; slower ways take a part of it."""
ROUNDS = 3
PIECE = 100
"""Events in a batch frame, and in what is sent at once when it is paced."""
RATE = 50_000
"""Events a second at which the time of a hop is to be short."""
CALM_RATE = 5_000
"""The same at which nodes have nothing to do most of the time, and a hop takes the waking of one as well."""
OUTSTANDING = 100
LENGTH = 8
"""Nodes of the longest line."""
SUBSCRIBER_FILTERS = 5_000
"""Filters of one connection."""
LOOK_S = 0.02
TICK_S = 0.01
SETTLE_S = 0.5
"""How long a link of NATS is given to learn of a subscriber, and ours to say what it has to."""
COST_MAX = 1.3
RELIABLE_MIN = 0.5
HOP_MS_MAX = 0.3
READY_S_MAX = 10.0
AGAIN_BYTES_MAX = 1_024.0


@dataclass(frozen=True)
class Carried:
    """What a load has cost: events a second, and processor time of each broker in seconds an event."""

    rate: float
    processor_s: tuple[float, ...]
    median_ms: float = 0.0


@dataclass(frozen=True)
class Chain:
    """Brokers in line: events are published at the first and received at the last."""

    brokers: tuple[peers.Broker, ...]
    wire: Callable[[int], Wire]
    settle: Callable[[int], None]
    """Waits until the first broker knows that there are so many subscribers behind it."""

    def carry(self, count: int, rate: float | None = None) -> Carried:
        """Carry so many events from one publisher to one subscriber."""
        first, last = self.wire(self.brokers[0].port), self.wire(self.brokers[-1].port)
        self.settle(0)
        with (
            load.Child(load.tap, last, count, (None,)) as tap,
            load.Child(load.feed, first, count, PIECE, range(TOPICS), rate) as feed,
        ):
            tap.receive()
            self.settle(1)
            feed.receive()
            before = [broker.processor_s for broker in self.brokers]
            tap.send("go")
            feed.send("go")
            taken: load.Taken = tap.receive()
            started, sent_at = feed.receive()
            after = [broker.processor_s for broker in self.brokers]
        if taken.count != count:
            raise PeerError(f"{taken.count} of {count} events arrived over {len(self.brokers)} brokers")
        took = tuple((then - now) / count for now, then in zip(before, after, strict=True))
        median_ms = 0.0 if rate is None else _median_ms(taken, sent_at)
        return Carried(count / (taken.last_at - started), took, median_ms)


def _median_ms(taken: load.Taken, sent_at: Sequence[float]) -> float:
    """How long events took, from the call that sent them to the one that received them."""
    import numpy as np

    at, had = (np.array(column) for column in zip(*taken.arrivals, strict=True))
    arrived_at = at[np.searchsorted(had, np.arange(1, had[-1] + 1))]
    return float(np.median(1e3 * (arrived_at - np.repeat(sent_at, PIECE))))


def figures(filters: int, quick: bool, has_compiled: bool) -> Iterator[Figure]:
    """Measure everything; quick: a tenth of the load, in one round."""
    count, rounds = COUNT // (10 if quick else 1), 1 if quick else ROUNDS
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="tidings-bench-")))
        one, two = (stack.enter_context(line(length, has_compiled)) for length in (1, 2))
        for chain in (one, two):
            warm(chain, has_compiled)
        kept = _nats(count, rounds)
        if kept is not None:
            yield kept
        yield from _carried(one, two, count, rounds, None if kept is None else kept.value)
        yield _hop(one, two, _part(count, 5), rounds, RATE, HOP_MS_MAX)
        yield _hop(one, two, _part(count, 50), rounds, CALM_RATE, None)
        yield _reliable(home, has_compiled, _part(count, 10), rounds)
        yield _long(one, has_compiled, _part(count, 10))
    yield from _announced(filters, has_compiled)


def _part(count: int, divisor: int) -> int:
    return max(1, count // divisor // TOPICS) * TOPICS


# Lines of nodes


@contextlib.contextmanager
def line(length: int, has_compiled: bool, home: Path | None = None, single: bool = False) -> Iterator[Chain]:
    """Nodes of which each dials the next one."""
    with ExitStack() as stack:
        brokers: list[peers.Broker] = []
        for place in reversed(range(length)):
            following = f"n{place + 1}={brokers[0].address}" if brokers else None
            directory = None if home is None else str(home / f"{length}-{place}")
            settings: dict[str, Any] = {"peers": following, "dir": directory, "compiled": has_compiled}
            node = neighbours.node(peers.free_port(), name=f"n{place}", **settings)
            brokers.insert(0, stack.enter_context(node))
        bus = stack.enter_context(blocking.connect(brokers[0].address))
        _wait(lambda: length == 1 or _is_up(bus))
        yield Chain(
            tuple(brokers),
            lambda port: TidingsWire(port, 1 if single else PIECE),
            lambda wanted: _wait(lambda: length == 1 or _wanted(bus) == wanted),
        )


def warm(chain: Chain, has_compiled: bool) -> None:
    """Keep nodes busy until they have loaded their compiled code."""
    chain.carry(COUNT // 10)
    if has_compiled:
        for broker in chain.brokers:
            broker.wait_log(peers.COMPILED)


def _wait(is_so: Callable[[], bool], seconds: float = 3 * load.WAIT_S_MAX) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise PeerError("a link did not become what was waited for")
        time.sleep(LOOK_S)


def _is_up(bus: blocking.Bus) -> bool:
    return any(one["state"] == "up" for one in bus.status()["links"])


def _wanted(bus: blocking.Bus) -> int:
    return sum(one["wanted"] for one in bus.status()["links"])


# Rates


def _carried(one: Chain, two: Chain, count: int, rounds: int, kept: float | None) -> Iterator[Figure]:
    """Transient events through two nodes beside one: what is left of the rate, and what each node does.

    NATS has `kept` this part of its rate.
    """
    for name, frame_events, part in (("batch frames", PIECE, 1), ("one event a frame", 1, 1)):
        chains = [Chain(chain.brokers, _framing(frame_events), chain.settle) for chain in (one, two)]
        turns = [[chain.carry(_part(count, part)) for chain in chains] for _ in range(rounds)]
        rates = [max(turn[place].rate for turn in turns) for place in (0, 1)]
        # A tick of the clock that counts processor time is the least there can be.
        alone = max(TICK_S / _part(count, part), min(turn[0].processor_s[0] for turn in turns))
        near, far = (min(turn[1].processor_s[place] for turn in turns) for place in (0, 1))
        beside = {"two nodes, events/s": rates[1], "one node, events/s": rates[0]}
        yield Figure(f"two nodes in line over one, {name}", "×", rates[1] / rates[0], kept, beside)
        beside = {
            "from client to link, µs": near * 1e6,
            "from link to client, µs": far * 1e6,
            "from client to client, µs": alone * 1e6,
        }
        for what, took in (("to a link", near), ("from a link", far)):
            label = f"processor time of an event {what} over one between clients, {name}"
            yield Figure(label, "×", took / alone, COST_MAX, beside, less_is_better=True)


def _framing(frame_events: int) -> Callable[[int], Wire]:
    return lambda port: TidingsWire(port, frame_events)


def _nats(count: int, rounds: int) -> Figure | None:
    """What NATS keeps of its rate over the link of a leaf node, if it is installed."""
    if not peers.is_installed("nats"):
        return None
    with peers.leaf_pair() as (hub, leaf):
        chains = [
            Chain(brokers, NatsWire, lambda wanted: time.sleep(SETTLE_S if wanted else 0.0))
            for brokers in ((hub,), (hub, leaf))
        ]
        turns = [[chain.carry(count).rate for chain in chains] for _ in range(rounds)]
    rates = [max(turn[place] for turn in turns) for place in (0, 1)]
    beside = {"hub and leaf, events/s": rates[1], "one server, events/s": rates[0]}
    return Figure("two servers of NATS in line over one", "×", rates[1] / rates[0], None, beside)


def _hop(one: Chain, two: Chain, count: int, rounds: int, rate: int, goal: float | None) -> Figure:
    """How much longer an event takes through two nodes than through one."""
    turns = [[chain.carry(count, rate).median_ms for chain in (one, two)] for _ in range(rounds)]
    alone, both = (min(turn[place] for turn in turns) for place in (0, 1))
    beside = {"two nodes, ms": both, "one node, ms": alone}
    name = f"added by a hop at {rate:,} events/s, median"
    return Figure(name, "ms", both - alone, goal, beside, less_is_better=True)


def _reliable(home: Path, has_compiled: bool, count: int, rounds: int) -> Figure:
    """Reliable events, stored by each node, to a durable subscription."""
    with line(1, has_compiled, home) as one, line(2, has_compiled, home) as two:
        turns = [[_through_clients(chain, count) for chain in (one, two)] for _ in range(rounds)]
    alone, both = (max(turn[place] for turn in turns) for place in (0, 1))
    beside = {"two nodes, events/s": both, "one node, events/s": alone}
    return Figure("reliable events, two nodes in line over one", "×", both / alone, RELIABLE_MIN, beside)


def _through_clients(chain: Chain, count: int) -> float:
    first, last = chain.brokers[0].address, chain.brokers[-1].address
    with (
        load.Child(clients.subscribe, last, "reliable", count) as subscriber,
        load.Child(clients.publish, first, "reliable", count, OUTSTANDING) as publisher,
    ):
        subscriber.receive()
        chain.settle(1)
        publisher.receive()
        subscriber.send("go")
        publisher.send("go")
        started, accepted_at = publisher.receive()
        took_s: float = max(subscriber.receive(), accepted_at) - started
    return count / took_s


def _long(one: Chain, has_compiled: bool, count: int) -> Figure:
    """A line of many nodes: everything arrives."""
    with line(LENGTH, has_compiled) as chain:
        rate = chain.carry(count).rate
        beside = {"one node, events/s": one.carry(count).rate}
    return Figure(f"{LENGTH} nodes in line", "events/s", rate, None, beside)


# Filters


def _announced(size: int, has_compiled: bool) -> Iterator[Figure]:
    """Filters that neither cover one another nor merge, announced over a new link; then what a cut costs."""
    with ExitStack() as stack:
        far = stack.enter_context(neighbours.node(peers.free_port(), name="far", compiled=has_compiled))
        channels = [stack.enter_context(one) for one in _subscribed(far.port, size)]
        proxy = stack.enter_context(Proxy(far.address))
        port = peers.free_port()
        settings = {"name": "near", "peers": f"far={proxy.address}", "compiled": has_compiled}
        near = stack.enter_context(neighbours.node(port, **settings))
        bus = stack.enter_context(blocking.connect(near.address, call_timeout_s=10 * load.WAIT_S_MAX))
        _wait(lambda: _is_up(bus))
        begun = time.monotonic()
        _wait(lambda: _alive(channels) and _wanted(bus) == size)
        took_s, passed = time.monotonic() - begun, proxy.bytes_passed
        beside = {"filters": 1.0 * size, "bytes": 1.0 * passed}
        yield Figure("a new link is ready", "s", took_s, READY_S_MAX, beside, less_is_better=True)
        time.sleep(SETTLE_S)
        passed, links = proxy.bytes_passed, proxy.connections
        proxy.reset()
        _wait(lambda: _alive(channels) and proxy.connections > links and _is_up(bus))
        time.sleep(SETTLE_S)
        if _wanted(bus) != size:
            raise PeerError(f"{_wanted(bus)} of {size} filters are left after a cut")
        again = 1.0 * (proxy.bytes_passed - passed)
        name = "bytes that an unchanged link exchanges after a cut"
        yield Figure(name, "bytes", again, AGAIN_BYTES_MAX, {}, less_is_better=True)


def _subscribed(port: int, size: int) -> list[socket.socket]:
    """Connections that have so many filters together."""
    wire, step = TidingsWire(port), SUBSCRIBER_FILTERS
    filters = [f"station = 's{place}' AND value > {place}" for place in range(size)]
    parts = [filters[start : start + step] for start in range(0, size, step)]
    return [load.call(wire, wire.subscribe_to(part)) for part in parts]


def _alive(channels: list[socket.socket]) -> bool:
    """Let the node hear from these connections, which have nothing to say otherwise."""
    for channel in channels:
        channel.sendall(encode(Ping(1)))
        with contextlib.suppress(BlockingIOError):
            channel.recv(load.RECEIVE_SIZE, socket.MSG_DONTWAIT)
    return True
