"""Conversion of stores of earlier formats, when they are opened.

Up to format 2 there were no records. The state of sinks was kept in counters of systems that no client can
have, `sink:user/sink`: with epoch 0 one more than the last batch, or 0 if the sink was removed; with epoch
2**30 a digest of the query whose batch it was; with others digests of runs without batches. Archives had
their terms among the options of their cursors, and transmission queues had `sweep` and `node` among their
properties.

Both formats are spelled out here, so that this module does not change with the rest of the code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from tidings.store.interface import Counter, Durable, Operation, PutCursor, PutQueue, QueueRecord, SetRecord
from tidings.store.records import HEAD, RECORD

SCHEMA = (f"ALTER TABLE {HEAD.name} ADD COLUMN {HEAD.columns[-1]}", RECORD.schema)
"""Statements that give a database the tables of format 3."""

_SINK = "sink:"
_QUERY = 1 << 30
_TRANSMISSION = "to:"

Fields = dict[str, Any]


def converted(
    counters: Iterable[Counter], durables: Iterable[Durable], queues: Iterable[QueueRecord]
) -> tuple[list[Counter], list[Operation]]:
    """Return the counters that belong to no client, and the operations that replace them and old options."""
    sinks, records = _converted_sinks(counters)
    operations: list[Operation] = [*records]
    for durable in durables:
        operations += _converted_archive(durable)
    for queue in queues:
        operations += _converted_queue(queue)
    return sinks, operations


def _converted_sinks(counters: Iterable[Counter]) -> tuple[list[Counter], list[SetRecord]]:
    of_sinks = [one for one in counters if one.system.startswith(_SINK)]
    sinks: dict[str, Fields] = {}
    for one in sorted(of_sinks, key=lambda one: one.seen_us):
        user, _, sink = one.system.removeprefix(_SINK).partition("/")
        _learn(sinks.setdefault(_key(user, sink), {"runs": []}), one)
    records = [
        SetRecord("sink", key, msgspec.msgpack.encode(fields))
        for key, fields in sinks.items()
        if fields["runs"] or "batch" in fields
    ]
    return of_sinks, records


def _converted_archive(durable: Durable) -> list[Operation]:
    options = msgspec.msgpack.decode(durable.options) if durable.options else {}
    if not options.get("log"):
        return []
    kept = {name: options.pop(name) for name in ("log", "passive") if name in options}
    terms = SetRecord("archive", _key(durable.owner, durable.name), msgspec.msgpack.encode(options))
    return [PutCursor(replace(durable, options=msgspec.msgpack.encode(kept))), terms]


def _converted_queue(queue: QueueRecord) -> list[Operation]:
    if not queue.name.startswith(_TRANSMISSION):
        return []
    description = msgspec.msgpack.decode(queue.description)
    properties = description.get("properties", {})
    kept = {name: properties.pop(name) for name in ("sweep", "node") if name in properties}
    if not kept:
        return []
    record = SetRecord("transmission", _key(str(queue.key)), msgspec.msgpack.encode(kept))
    return [PutQueue(replace(queue, description=msgspec.msgpack.encode(description))), record]


def _learn(sink: Fields, counter: Counter) -> None:
    sink["used_us"] = counter.seen_us
    if counter.epoch == _QUERY:
        sink["query"] = counter.counter
    elif counter.epoch:
        sink["runs"].append(counter.counter)
    elif counter.counter:
        sink["batch"] = counter.counter - 1
    else:
        sink["runs"].clear()


def _key(*parts: str) -> str:
    return msgspec.json.encode(parts).decode()
