"""What the order of a channel costs: its wire rate at one node, beside that of a plain subscription.

Publishers and subscriber are members of a channel, each in a process of its own; the plain events have a
`channel` of the same length, which is no channel, so all rates are of the same bytes. The kinds take turns,
and each rate is the best of ROUNDS. What does not arrive, or arrives twice, fails the run. Then come costs in
a network of nodes (`channel_network.py`), and those of spaces at several nodes (`channel_spaces.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from benchmarks import load, neighbours, peers
from benchmarks.channel_network import network_figures
from benchmarks.channel_spaces import space_figures
from benchmarks.figures import Figure, Report, gather
from benchmarks.wires import CREDIT, LAST_PING, TOPICS, Step, TidingsWire, event_of
from tidings.channels.description import ChannelOrder
from tidings.client import blocking
from tidings.errors import PeerError
from tidings.event import Event
from tidings.event.header import EMPTY_HEADER
from tidings.node import compiled
from tidings.protocol.channels import MARK
from tidings.protocol.frames import encode
from tidings.protocol.messages import Ping, Pong, Request

COUNT = 500_000
"""Events of a load."""
ROUNDS = 3
PIECE = 100
"""Events in a frame."""
SENDERS = 10
FIFO_MIN = 0.7
CAUSAL_MIN = 0.9
TOTAL_MIN = 0.5
TOTAL_RATE_MIN = 50_000.0

ORDERS: tuple[ChannelOrder, ...] = ("fifo", "causal", "total")


@dataclass(frozen=True)
class ChannelWire(TidingsWire):
    """The native protocol, of a member of a channel; without one, of a plain subscriber."""

    channel: str = ""

    @property
    def _name(self) -> str:
        return MARK + self.channel if self.channel else "~" * (len(MARK) + 24)

    def event_of(self, topic: int) -> Event:
        """An event of the load, with the channel that it is for."""
        event = event_of(topic)
        return structs.replace(event, header=structs.replace(EMPTY_HEADER, channel=self._name))

    def begin(self) -> list[Step]:
        """A publisher joins, and takes nothing."""
        return super().begin() if not self.channel else self._join(0)

    def subscribe_to(self, filters: Any) -> list[Step]:
        """A subscriber joins, and takes all."""
        return super().subscribe_to(filters) if not self.channel else self._join(CREDIT)

    def _join(self, credit: int) -> list[Step]:
        wanted = {"number": 1, "filter": "", "credit": credit, "channel": self.channel}
        said = self._hello() + encode(Request(1, "subscribe", wanted)) + encode(Ping(LAST_PING))
        return [(said, encode(Pong(LAST_PING)))]


def run(quick: bool, report: Report) -> dict[str, Any]:
    """Measure everything, telling lines of progress; quick: a tenth of the load, in one round."""
    has_compiled = compiled.is_installed()
    count, rounds = COUNT // (10 if quick else 1), 1 if quick else ROUNDS
    report(f"{count:,} transient events in frames of {PIECE}; best of {rounds}")
    facts = {"quick": quick, "compiled": has_compiled, "count": count}
    return gather(_figures(count, rounds, has_compiled, quick), facts, report)


def _figures(count: int, rounds: int, has_compiled: bool, quick: bool) -> Iterator[Figure]:
    with ExitStack() as stack:
        node = stack.enter_context(neighbours.node(peers.free_port(), name="bench", compiled=has_compiled))
        bus = stack.enter_context(blocking.connect(node.address))
        wires = {"plain": ChannelWire(node.port, PIECE)}
        for order in ORDERS:
            channel = bus.create_channel(order, order=order)
            wires[order] = ChannelWire(node.port, PIECE, channel.id)
        carry(wires["plain"], count)
        if has_compiled:
            node.wait_log(peers.COMPILED)
        rates = dict.fromkeys(wires, 0.0)
        for _ in range(rounds):
            for kind, wire in wires.items():
                rates[kind] = max(rates[kind], carry(wire, count))
        for kind, beside, least in (
            ("fifo", "plain", FIFO_MIN),
            ("causal", "fifo", CAUSAL_MIN),
            ("total", "fifo", TOTAL_MIN),
        ):
            about = {f"{one}, events/s": rates[one] for one in (kind, beside)}
            yield Figure(f"{kind} over {beside}", "×", rates[kind] / rates[beside], least, about)
        each = count // SENDERS // TOPICS * TOPICS
        many = max(carry(wires["total"], each, SENDERS) for _ in range(rounds))
        yield Figure(f"total, {SENDERS} senders", "events/s", many, TOTAL_RATE_MIN, {})
    yield from network_figures(quick)
    yield from space_figures(quick)


def carry(wire: ChannelWire, count: int, senders: int = 1) -> float:
    """Return the events a second from so many senders, each of which sends `count`, to one member."""
    with ExitStack() as stack:
        tap = stack.enter_context(load.Child(load.tap, wire, count * senders, (None,)))
        feeds = [
            stack.enter_context(load.Child(load.feed, wire, count, PIECE, range(TOPICS), None))
            for _ in range(senders)
        ]
        for child in (tap, *feeds):
            child.receive()
        for child in (tap, *feeds):
            child.send("go")
        taken: load.Taken = tap.receive()
        started: float = min(feed.receive()[0] for feed in feeds)
    if taken.count != count * senders:
        raise PeerError(f"{taken.count} of {count * senders} events arrived")
    return count * senders / (taken.last_at - started)
