#!/usr/bin/env python3
"""Write down a store of the format that is in use, with all kinds of records, and what it holds.

    python -m scripts.make_format_fixture [FOLDER]

makes `format-N.db.xz` and `format-N.json` in tests/store/formats. A later tidings must find in the first what
the second says, which is taken from the operations and not from the store. A pair that is there stays as it
is: what was written by a release does not change.
"""

from __future__ import annotations

import lzma
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.store.samples import Model, batch, message
from tidings.store import interface as store
from tidings.store.records import FORMAT
from tidings.store.sqlite import SqliteStore

FOLDER = Path(__file__).parents[1] / "tests" / "store" / "formats"


class Content(Struct, frozen=True):
    """What a store holds."""

    node: str
    position: int
    batches: list[store.StoredBatch]
    durables: list[store.Durable]
    counters: list[store.Counter]
    queues: list[store.QueueRecord]
    messages: list[store.StoredMessage]
    records: list[store.SetRecord] = []  # since format 3


def commits() -> Iterator[list[store.Operation]]:
    """Some of everything that a node has stored: changed, dropped, trimmed, long, short and compressed."""
    yield [store.PutQueue(store.QueueRecord(key, f"queue {key}", 0, b"\x80")) for key in (1, 2, 3)]
    yield [store.PutCursor(store.Durable(name, "ann", "value > 40", 0, 0)) for name in ("all", "gone", "ä")]
    yield [
        store.CountProducer(store.Counter("sensor", epoch, 7, 1_000_000, b"\x90")) for epoch in (0, 1, 2**62)
    ]
    for number, size in enumerate((0, 1, 40, 300, 4061, 5000, 9000) * 2, start=1):
        stored = batch(number * 10, count=1 + number % 9, size=size, persistent=number % 3 == 0, source=None)
        whole, part = number * 100, number * 100 + 1
        yield [
            store.Append(stored),
            store.Enqueue(message(whole, size=size % 6000, queue=1 + number % 2)),
            store.Enqueue(message(part, raw=b"x" * size, compress=True, part_of=whole)),
        ]
    yield [store.Revise(message(number * 100, deliveries=2, size=50)) for number in range(1, 14, 4)]
    yield [store.Dequeue(number * 100 + 1) for number in range(1, 14, 2)]
    yield [store.PutCursor(store.Durable("all", "ann", "value > 40", 90, 145, b"\x81\xa1x\x01"))]
    yield [store.PutQueue(store.QueueRecord(1, "queue 1", 2_000, b"\x80")), store.DropQueue(3)]
    for key, value in (("", b""), ("ä", b"v" * 300), ("long" * 1024, b"v" * 9000), ("gone", b"v")):
        yield [store.SetRecord(kind, key, value) for kind in ("sink", "archive")]
    yield [store.SetRecord("sink", "", b"changed"), store.DropRecord("archive", "gone")]
    yield [store.Drop("gone", "ann"), store.Trim(80)]
    yield [store.Discard(60)]


def write(folder: Path) -> Path:
    """Write the pair for the format in use; FileExistsError if it is there."""
    with tempfile.TemporaryDirectory() as home:
        opened, model = SqliteStore(Path(home) / "node"), Model()
        for operations in commits():
            model.commit(operations)
            opened.commit(operations)
        opened.close()
        database = (Path(home) / "node" / "tidings.db").read_bytes()
    content = msgspec.json.encode(content_of(model, opened.state.node))
    folder.mkdir(exist_ok=True)
    place = folder / f"format-{FORMAT}.db.xz"
    with place.open("xb") as file, place.with_name(f"format-{FORMAT}.json").open("xb") as told:
        file.write(lzma.compress(database, preset=9))
        told.write(msgspec.json.format(content, indent=1) + b"\n")
    return place


def content_of(model: Model, node: str) -> Content:
    """What a store must hold that was given the same operations as the model."""
    return Content(
        node,
        model.position,
        model.batches,
        list(model.durables.values()),
        list(model.counters.values()),
        list(model.queues.values()),
        [model.messages[number] for number in sorted(model.messages)],
        [store.SetRecord(*key, value) for key, value in model.records.items()],
    )


if __name__ == "__main__":
    print(write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
