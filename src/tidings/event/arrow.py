"""Events as Arrow record batches, for the log's Parquet files, Spark and pandas.

A column for each header field, typed; `time` and `received` are timestamps in UTC. The attributes are a map
from name to a struct with one nullable member for each kind of value, of which one is set: `b` bool,
`i` int64, `f` float64, `s` string, `t` timestamp, `x` binary. Unions would be smaller, but Parquet and Spark
know none. Decoding gives the same events. pyarrow is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tidings.errors import CodecError, EventError, MissingExtra
from tidings.event.header import EMPTY_HEADER, SHOWN_FIELDS, Header, header_of, read_field
from tidings.event.model import Event
from tidings.event.values import Value, add_value, check_type, time_from_us
from tidings.ids import NUMBER_MAX, Origin, check_system, make_id

if TYPE_CHECKING:
    import pyarrow as pa

_TEXTS = ("channel", "subject", "reply_to", "correlation_id", "object_class", "content_type")
_NUMBERS = ("ttl_s", "keep_s", "reliability")
_WORDS = ("delivery", "route")
_KINDS: dict[type, str] = {bool: "b", int: "i", float: "f", str: "s", datetime: "t", bytes: "x"}


def schema() -> pa.Schema:
    """Return the columns of a record batch of events."""
    pa = _pyarrow()
    time = pa.timestamp("us", "UTC")
    members = {
        "b": pa.bool_(),
        "i": pa.int64(),
        "f": pa.float64(),
        "s": pa.string(),
        "t": time,
        "x": pa.binary(),
    }
    columns = [
        pa.field("type", pa.string(), nullable=False),
        pa.field("time", time, nullable=False),
        pa.field("id", pa.string()),
        pa.field("source", pa.string()),
        pa.field("received", time),
        pa.field("priority", pa.int8(), nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in _WORDS),
        *(pa.field(name, pa.float64()) for name in _NUMBERS),
        *(pa.field(name, pa.string()) for name in _TEXTS),
        pa.field("body", pa.binary()),
        pa.field("system", pa.string()),
        pa.field("epoch", pa.int64()),
        pa.field("counter", pa.int64(), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.struct(members)), nullable=False),
    ]
    return pa.schema(columns)


def to_arrow(events: Sequence[Event]) -> pa.RecordBatch:
    """Return the events as one record batch with the columns of `schema()`."""
    pa = _pyarrow()
    columns = schema()
    arrays = [pa.array([_cell(event, field.name) for event in events], field.type) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _cell(event: Event, name: str) -> Any:
    if name in ("system", "epoch"):
        # An event without origin has no epoch, while epoch 0 is an epoch.
        return None if event.origin is None else getattr(event.origin, name)
    if name == "attributes":
        return [(own, {_KINDS[type(value)]: value}) for own, value in event.values.items()]
    return getattr(event, name)


def from_arrow(batch: pa.RecordBatch) -> list[Event]:
    """Return the events of a record batch with the columns of `schema()`; CodecError names row and column."""
    pa = _pyarrow()
    _check_columns(batch)
    row = 0
    try:
        columns = {field.name: _cells(pa, batch.column(field.name)) for field in schema()}
        events = []
        for row, values in enumerate(_attribute_dicts(pa, batch.column("attributes"))):
            events.append(_event(row, columns, values))
    except EventError as error:
        raise CodecError(f"$[{row}]{error.place[1:]}", error.problem) from None
    except CodecError:
        raise
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise CodecError(f"$[{row}]", f"can't be read: {error}") from None
    return events


def _check_columns(batch: pa.RecordBatch) -> None:
    for field in schema():
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            raise CodecError(f"$.{field.name}", "the column is missing")
        if batch.schema.field(index).type != field.type:
            raise CodecError(f"$.{field.name}", f"is {batch.schema.field(index).type}, not {field.type}")


def _cells(pa: Any, column: Any) -> list[Any]:
    """Return a column as a list, times as microseconds; nothing for the attributes, which are read apart."""
    if pa.types.is_map(column.type):
        return []
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    cells: list[Any] = column.to_pylist()
    return cells


def _attribute_dicts(pa: Any, column: Any) -> Iterator[dict[str, Value]]:
    """Yield the attributes of each row; every map entry must have exactly one kind of value."""
    names = column.keys.to_pylist()
    values: list[Any] = [None] * len(names)
    counts = [0] * len(names)
    for index, field in enumerate(column.items.type):
        for at, value in enumerate(_cells(pa, column.items.field(index))):
            if value is not None:
                values[at] = time_from_us(value) if field.name == "t" else value
                counts[at] += 1
    for row, (start, end) in enumerate(pairwise(column.offsets.to_pylist())):
        attributes: dict[str, Value] = {}
        for at in range(start, end):
            if counts[at] != 1:
                raise CodecError(f"$[{row}].{names[at]}", f"has {counts[at]} values, not one")
            add_value(attributes, names[at], values[at])
        yield attributes


def _event(row: int, columns: dict[str, list[Any]], values: dict[str, Value]) -> Event:
    cell = {name: cells[row] for name, cells in columns.items() if cells}
    if None in (cell["type"], cell["time"], cell["counter"]) or not 0 <= cell["counter"] <= NUMBER_MAX:
        raise EventError("$", "has no type, time or counter")
    origin = None if cell["epoch"] is None else origin_in(cell["system"], cell["epoch"], cell["source"])
    time_from_us(cell["time"])
    return Event.unchecked(
        cell["counter"],
        check_type(cell["type"]),
        cell["time"],
        values,
        _header(cell, origin),
        cell["body"],
        origin,
    )


def origin_in(system: str | None, epoch: int, source: str | None) -> Origin:
    """Return the origin in these cells; EventError if there can't be one."""
    if system is not None:
        check_system(system)
    if epoch < 0:
        raise EventError("$.epoch", f"{epoch} is below 0")
    return Origin(system, epoch, source)


def _header(cell: dict[str, Any], origin: Origin | None) -> Header | None:
    fields = {name: cell[name] for name in ("id", *SHOWN_FIELDS)}
    numbered = origin is not None and origin.system is not None and cell["counter"]
    if numbered and cell["id"] == make_id(cell["system"], cell["epoch"], cell["counter"]):
        del fields["id"]  # an id made of the counter is not one given from outside
    return header_in(fields, cell["received"])


def header_in(cells: Mapping[str, Any], received_us: int | None) -> Header | None:
    """Return the header with these fields, as far as they are set; EventError for an invalid one."""
    fields: dict[str, Any] = {}
    for name, value in cells.items():
        if value is not None and value != getattr(EMPTY_HEADER, name):
            fields[name] = read_field(name, value)[1]
    if received_us is not None:
        time_from_us(received_us)
        fields["received"] = received_us
    return header_of(fields) if fields else None


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtra("Arrow", "node") from None
    return pa
