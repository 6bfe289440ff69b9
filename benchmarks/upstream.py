"""How much less reaches Spark if the nodes collapse their readings: a row a minute and key, not sixty.

Both ways read the same log of one node, live, as the tasks of Spark's source do, but without Spark: what a
task gets from the node is the bytes of its replies, and what Spark gets of the task is the bytes of its Arrow
batches. Both must have all readings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks import neighbours, peers
from benchmarks.figures import Figure
from tidings.client import blocking
from tidings.errors import PeerError
from tidings.event import Event
from tidings.log.arguments import CollapseTerms
from tidings.log.chunks import LivePart, ReplyPart

KEYS, MINUTES, SECONDS = 1_000, 10, 60
"""Keys, and for how long each has a reading a second."""
QUICK = 10
"""How much less a quick measurement takes."""
LIST_SIZE = 1_000
READ_SIZE = 2 << 20
"""Bytes that a task requests at once."""
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
WINDOW_US = 60_000_000
RULES = {"n": "count()", "high": "highest(value)", "sum": "total(value)", "last": "latest(value)"}
TERMS = CollapseTerms({"station": "string", "value": "double"}, ["station"], RULES, WINDOW_US)
WANTED = 0.1
"""Most that may reach Spark, of the bytes of all readings."""


def collapsed_bytes(home: Path, quick: bool, has_compiled: bool) -> Figure:
    """The bytes that Spark gets of readings that a node has collapsed, over those of the readings."""
    keys = KEYS // QUICK if quick else KEYS
    with neighbours.node(peers.free_port(), dir=str(home), compiled=has_compiled, log_seal_s=0) as node:
        _publish(node.address, keys)
        with blocking.connect(node.address) as bus:
            each, collapsed = _Taken(_readings(bus)), _Taken(_collapsed(bus))
    wanted = keys * MINUTES * SECONDS
    if (each.rows, collapsed.readings) != (wanted, wanted):
        raise PeerError(f"{each.rows} readings, and {collapsed.readings} collapsed ones, are not {wanted}")
    beside = {
        "readings": 1.0 * wanted,
        "partial rows": 1.0 * collapsed.rows,
        "bytes": 1.0 * each.size,
        "bytes collapsed": 1.0 * collapsed.size,
        "× from the node to the task": collapsed.sent / each.sent,
    }
    name = "bytes to Spark of a collapse by the minute, over those of its readings"
    return Figure(name, "×", collapsed.size / each.size, WANTED, beside, less_is_better=True)


class _Taken:
    """What a task has taken: rows, the readings that they stand for, bytes from the node and to Spark."""

    def __init__(self, replies: Iterable[tuple[int, list[Any]]]) -> None:
        self.rows = self.readings = self.sent = self.size = 0
        for sent, batches in replies:
            self.sent += sent
            for batch in batches:
                self.rows += len(batch)
                self.size += batch.nbytes
                if "n" in batch.schema.names:
                    self.readings += sum(batch.column("n").to_pylist())


def _readings(bus: blocking.Bus) -> Iterator[tuple[int, list[Any]]]:
    import pyarrow as pa

    from tidings.log.columns import Decoder
    from tidings.log.schema import TIME

    fields = [("time", TIME), ("node", pa.string()), ("position", pa.int64())]
    decoder = Decoder(pa.schema([*fields, ("station", pa.string()), ("value", pa.float64())]), "node")
    for parts, _ in bus.log.parts(1, size=READ_SIZE, columns=decoder.wanted):
        yield _size(parts), list(decoder.batches(parts))


def _collapsed(bus: blocking.Bus) -> Iterator[tuple[int, list[Any]]]:
    from tidings.log.collapse import Collapser, partial_rows

    collapser = Collapser(TERMS, "node")
    for parts, _ in bus.log.collapsed(1, None, "", TERMS):
        yield _size(parts), list(partial_rows(parts, collapser))


def _size(parts: Iterable[ReplyPart]) -> int:
    return sum(len(part.raw if isinstance(part, LivePart) else part.table) for part in parts)


def _publish(address: str, keys: int) -> None:
    """Publish a reading of each key for each second."""
    with blocking.connect(address) as bus:
        held: list[Event] = []
        for second in range(MINUTES * SECONDS):
            time = BEGIN + timedelta(seconds=second)
            for key in range(keys):
                values = {"station": f"station-{key:04d}", "value": (second * 7 + key) % 400 / 8}
                held.append(Event("air.pm10", values, delivery="persistent", time=time))
            while len(held) >= LIST_SIZE or (held and second == MINUTES * SECONDS - 1):
                bus.publish_all(held[:LIST_SIZE])
                held = held[LIST_SIZE:]
