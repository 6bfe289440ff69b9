"""Columns of events in Arrow, for the log's Parquet files and Spark, and the decoding of their cells.

A column for each header field, typed; `time` and `received` are timestamps in UTC. The attributes are a map
from name to a struct with one nullable member for each kind of value, of which one is set: `b` bool,
`i` int64, `f` float64, `s` string, `t` timestamp, `x` binary. Unions would be smaller, but Parquet and Spark
know none. pyarrow is imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidings.errors import EventError, MissingExtra
from tidings.event.header import EMPTY_HEADER, Header, header_of, read_field
from tidings.event.values import time_from_us
from tidings.ids import Origin, check_system

if TYPE_CHECKING:
    import pyarrow as pa

_TEXTS = ("channel", "subject", "reply_to", "correlation_id", "object_class", "content_type")
_NUMBERS = ("ttl_s", "keep_s", "reliability")
_WORDS = ("delivery", "route")


def schema() -> pa.Schema:
    """Return the columns of a record batch of events."""
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtra("Arrow", "node") from None
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


def origin_in(system: str | None, epoch: int, source: str | None) -> Origin:
    """Return the origin in these cells; EventError if there can't be one."""
    if system is not None:
        check_system(system)
    if epoch < 0:
        raise EventError("$.epoch", f"{epoch} is below 0")
    return Origin(system, epoch, source)


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
