"""Rows of sealed files decoded to events, exactly those that were stored.

Types, names, headers and origins are few and recur: each is decoded once. The rule is that of
`tidings.event.wire`: every resulting event could have been made by `Event(...)`, else CodecError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import CodecError, EventError
from tidings.event.arrow import header_in, origin_in
from tidings.event.header import SHOWN_FIELDS, Header
from tidings.event.model import Event
from tidings.event.values import ATTRIBUTES_MAX, Value, check_name, check_type, time_from_us
from tidings.event.wire import encode_events
from tidings.ids import Origin
from tidings.log.arrow.attributes import whole
from tidings.log.arrow.ids import made_ids
from tidings.log.arrow.map_column import MapEntries, numbers_of, own_column, plain_values
from tidings.log.schema import HEADER_TYPES, NUMBERS, TIME, VALUE, own_columns
from tidings.store.interface import StoredBatch

_NEVER_NULL: Final = ("type", "time", "counter", "epoch", "priority", "delivery", "route")


def events_of(table: pa.Table) -> list[Event]:
    """Return the events in a table with all columns of the files; CodecError for an invalid row."""
    try:
        return _events(table.combine_chunks())
    except EventError as error:
        raise CodecError(error.place, error.problem) from None
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise CodecError("$", f"can't be read: {error}") from None


def _events(table: pa.Table) -> list[Event]:
    columns = {name: whole(table.column(name)) for name in HEADER_TYPES}
    for name in _NEVER_NULL:
        if columns[name].null_count:
            raise EventError(f"$.{name}", "is missing in some row")
    types, times, counters = (_cells(columns[name]) for name in ("type", "time", "counter"))
    for kind in set(types):
        check_type(kind)
    for time_us in (min(times, default=0), max(times, default=0)):
        time_from_us(time_us)
    if min(counters, default=0) < 0:
        raise EventError("$.counter", "is below 0")
    bodies, headers, origins = _cells(columns["body"]), _headers(columns), _origins(columns)
    rows = zip(counters, types, times, _values(table), headers, bodies, origins, strict=True)
    return [Event.unchecked(*row) for row in rows]


def _cells(column: Any) -> list[Any]:
    """Return a column as a list, times as microseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    cells: list[Any] = column.to_pylist()
    return cells


def _headers(columns: dict[str, Any]) -> Iterator[Header | None]:
    ids, stored = columns["id"], columns["stored"]
    made = made_ids(columns["system"], columns["epoch"], columns["counter"])
    # An id that equals the numbered one was not given; and `stored` shows whether there is a `received`.
    is_made = pc.fill_null(pc.equal(ids, made), False)
    given = pc.if_else(is_made, pa.scalar(None, pa.string()), ids)
    received = pc.if_else(stored.is_valid(), columns["received"], pa.scalar(None, TIME))
    cells = [_cells(given), _cells(received), *(_cells(columns[name]) for name in SHOWN_FIELDS)]
    known: dict[tuple[Any, ...], Header | None] = {}
    for row in zip(*cells, strict=True):
        if row not in known:
            given_id, received_us, *others = row
            fields = dict(zip(SHOWN_FIELDS, others, strict=True), id=given_id)
            known[row] = header_in(fields, received_us)
        yield known[row]


def _origins(columns: dict[str, Any]) -> Iterator[Origin]:
    known: dict[tuple[str | None, int, str | None], Origin] = {}
    for whence in zip(*(_cells(columns[name]) for name in ("system", "epoch", "source")), strict=True):
        if whence not in known:
            known[whence] = origin_in(*whence)
        yield known[whence]


def _values(table: pa.Table) -> list[dict[str, Value]]:
    """Return the attributes of each row."""
    values: list[dict[str, Value]] = [{} for _ in range(len(table))]
    entries = MapEntries(table.column("attributes"))
    count = 0
    for name, letter in own_columns(table.schema).items():
        check_name(name)
        column = own_column(table, name, letter, entries)
        count += len(column) - column.null_count
        for held, value in zip(values, _plain(column, letter), strict=True):
            if value is not None:
                held[name] = value
    _check_entries(entries)
    for row, name, value in zip(
        entries.rows.tolist(), entries.keys.to_pylist(), plain_values(entries.items), strict=True
    ):
        values[row][name] = value
    if sum(map(len, values)) != count + len(entries.rows):
        raise EventError("$.attributes", "an attribute is given twice")
    if max(map(len, values), default=0) > ATTRIBUTES_MAX:
        raise EventError("$.attributes", f"an event has at most {ATTRIBUTES_MAX} attributes")
    return values


def _plain(column: Any, letter: str) -> Iterable[Value | None]:
    if letter == NUMBERS:
        return numbers_of(column.to_pylist())
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    return (None if us is None else time_from_us(us) for us in _cells(column))


def _check_entries(entries: MapEntries) -> None:
    for name in entries.names:
        check_name(name)
    kinds = np.zeros(len(entries.rows), np.int64)
    for field in VALUE:
        kinds += entries.items.field(field.name).is_valid().to_numpy(zero_copy_only=False)
    if (kinds != 1).any():
        raise EventError("$.attributes", "an attribute has no value, or several")


def raw_batches(table: pa.Table) -> list[StoredBatch]:
    """Return the rows as the batches of a store: events of one origin at consecutive positions."""
    events = events_of(table)
    positions = table.column("position").to_pylist()
    times = pc.coalesce(table.column("stored"), table.column("received")).cast(pa.int64()).to_pylist()
    batches = []
    for begin, end in pairwise(_borders(table)):
        origin = events[begin].origin
        assert origin is not None, "every row of a file has an epoch"
        raw = encode_events(events[begin:end])
        batches.append(
            StoredBatch(
                positions[begin],
                end - begin,
                origin.system,
                origin.epoch,
                origin.source,
                times[begin],
                True,
                raw,
            )
        )
    return batches


def _borders(table: pa.Table) -> list[int]:
    """Return the beginning of each batch, and the end of the last one."""
    if not len(table):
        return [0]
    positions = table.column("position").to_numpy()
    changed = np.diff(positions) != 1
    stored = pc.coalesce(table.column("stored"), table.column("received")).cast(pa.int64())
    for column in (table.column("system"), table.column("epoch"), table.column("source"), stored):
        codes = column.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        changed |= np.diff(codes) != 0
    return [0, *(np.flatnonzero(changed) + 1).tolist(), len(table)]
