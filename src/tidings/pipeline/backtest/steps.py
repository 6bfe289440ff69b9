"""Steps of patterns in history, and what the patterns find in them: the part of tasks.

A task that reads history returns a row for each event that is a step of a pattern, with its place in the
order, the steps that it can be and the values that the pattern reads: not the event. Spark brings the rows
of each pattern and key together, in their order, and a second task passes them through the core that a node
runs. Deadlines all pass there: how far history goes is known when everything was read, so the driver leaves
out what ends later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from tidings.patterns import Pattern
from tidings.patterns.runs import KeyRuns, RefusedRow, Row, RunOutcome

if TYPE_CHECKING:
    from tidings.matching import Matches
    from tidings.pipeline.backtest.tally import Chunk

STEP_COLUMNS: Final = (
    "case long, key binary, time_us long, node string, position long, mask long, "
    "payload binary, reason string"
)
FOUND_COLUMNS: Final = (
    "case long, kind string, start_us long, end_us long, newest_us long, place string, detail string"
)
ROWS_MAX: Final = 10_000
"""Rows that a task returns at once."""
TOTAL: Final = -1
"""Number of the row of a task that counts all its events: from `time_us` to `mask`, `position` of them."""
FAR_US: Final = 1 << 62
"""Later than every deadline."""

_STEPS: Final = pa.schema([
    ("case", pa.int64()),
    ("key", pa.binary()),
    ("time_us", pa.int64()),
    ("node", pa.string()),
    ("position", pa.int64()),
    ("mask", pa.int64()),
    ("payload", pa.binary()),
    ("reason", pa.string()),
])  # fmt: skip
_FOUND: Final = pa.schema([
    ("case", pa.int64()),
    ("kind", pa.string()),
    ("start_us", pa.int64()),
    ("end_us", pa.int64()),
    ("newest_us", pa.int64()),
    ("place", pa.string()),
    ("detail", pa.string()),
])  # fmt: skip


class StepRow(NamedTuple):
    """An event that is a step, as it leaves the task that has read it; with a `reason` it can't be used."""

    case: int
    key: bytes
    time_us: int
    node: str
    position: int
    mask: int
    payload: bytes
    reason: str | None


class FoundRow(NamedTuple):
    """A match (`match`), a run that timed out (`timeout`), or events not used, by their reason (`unused`).

    `newest_us` is the time of the last event, `place` names it and the first one, and `detail` is JSON of the
    match. Of `unused`, `place` is the reason and `end_us` the number; of `total`, which counts the events
    that a task has read, `place` is the number.
    """

    case: int
    kind: str
    start_us: int
    end_us: int
    newest_us: int
    place: str
    detail: str


def step_batches(
    patterns: Sequence[str], found: Iterable[tuple[Matches[int], Chunk]]
) -> Iterator[pa.RecordBatch]:
    """Yield the events that are steps, and at the end a row that counts all events."""
    read = [Pattern(text) for text in patterns]
    rows: list[StepRow] = []
    total, first_us, last_us = 0, FAR_US, -FAR_US
    for matches, chunk in found:
        if len(chunk.times_us):
            total += len(chunk.times_us)
            first_us = min(first_us, int(chunk.times_us.min()))
            last_us = max(last_us, int(chunk.times_us.max()))
        for case, own in matches.items():
            for row in own:
                rows.append(_step_row(case, read[case], chunk, int(row)))
                if len(rows) >= ROWS_MAX:
                    yield _batch(rows, _STEPS)
                    rows = []
    yield _batch([*rows, StepRow(TOTAL, b"", first_us, "", total, last_us, b"", None)], _STEPS)


def _step_row(case: int, pattern: Pattern, chunk: Chunk, row: int) -> StepRow:
    event = chunk.event_at(row)
    place = int(chunk.times_us[row]), chunk.node, int(chunk.positions[row])
    key = pattern.key(event)
    if isinstance(key, str):
        return StepRow(case, b"", *place, 0, b"", key)
    payload = msgspec.msgpack.encode(pattern.values(event))
    return StepRow(case, msgspec.msgpack.encode(key), *place, pattern.mask(event), payload, None)


def finder(patterns: tuple[str, ...]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a task that gets steps sorted by case, key, time, node and position."""

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read = [Pattern(text) for text in patterns]
        results: list[FoundRow] = []
        for (case, key, _), rows in groupby(_steps(batches), lambda row: (row.case, row.key, row.reason)):
            if case == TOTAL:
                results += [
                    FoundRow(case, "total", r.time_us, r.mask, r.mask, str(r.position), "") for r in rows
                ]
            else:
                results += _found(case, read[case], key, rows)
            if len(results) >= ROWS_MAX:
                yield _batch(results, _FOUND)
                results = []
        if results:
            yield _batch(results, _FOUND)

    return find


def _steps(batches: Iterator[pa.RecordBatch]) -> Iterator[StepRow]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in StepRow._fields)
        yield from map(StepRow._make, zip(*columns, strict=True))


def _found(case: int, pattern: Pattern, key: bytes, rows: Iterable[StepRow]) -> Iterator[FoundRow]:
    """Yield what a pattern finds in the steps of one key; events without a key are counted only."""
    runs = KeyRuns(pattern.compiled)
    found: list[RunOutcome | RefusedRow] = []
    parts = list(msgspec.msgpack.decode(key)) if key else []
    unused: dict[str, int] = {}
    for row in rows:
        if row.reason is not None:
            unused[row.reason] = unused.get(row.reason, 0) + 1
            continue
        values = tuple(msgspec.msgpack.decode(row.payload))
        runs.use(Row(row.time_us, row.node, row.position, row.mask, values), found)
    runs.expire(FAR_US, found)
    for one in found:
        if isinstance(one, RunOutcome):
            yield _match_row(case, pattern, parts, one)
        else:
            unused[one.reason] = unused.get(one.reason, 0) + 1
    for reason, count in unused.items():
        yield FoundRow(case, "unused", 0, count, 0, reason, "")


def _match_row(case: int, pattern: Pattern, key: list[Any], one: RunOutcome) -> FoundRow:
    events = [
        {"step": pattern.steps[step].name, "time_us": row.time_us, "node": row.node, "position": row.number}
        for step, row in one.events
    ]
    last = dict(one.events)
    names = [step.name for step in pattern.steps]
    returned = {
        f"{step}.{name}": last[names.index(step)].values[pattern.columns.index(name)]
        for step, name in pattern.returns
        if names.index(step) in last
    }
    detail = {"key": key, "events": events, "returned": returned}
    text = msgspec.json.encode(detail).decode()
    first, newest = one.events[0][1], one.events[-1][1]
    place = f"{first.node} {first.number} {newest.node} {newest.number}"
    kind = "timeout" if one.is_timeout else "match"
    return FoundRow(case, kind, one.start_us, one.end_us, newest.time_us, place, text)


def _batch(rows: Sequence[StepRow] | Sequence[FoundRow], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
