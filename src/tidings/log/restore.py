"""Rows of sealed files made events again, exactly those that were stored."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.event import arrow
from tidings.event.model import Event
from tidings.event.wire import encode_events
from tidings.log.entries import attributes_of
from tidings.log.schema import TIME
from tidings.store.interface import StoredBatch


def events_of(table: pa.Table) -> list[Event]:
    """The events in the rows of a table with all columns of the files; CodecError where a row is none."""
    table = table.combine_chunks()
    batch = pa.RecordBatch.from_arrays(
        [_event_column(table, field.name) for field in arrow.schema()], schema=arrow.schema()
    )
    return arrow.from_arrow(batch)


def _event_column(table: pa.Table, name: str) -> Any:
    if name == "attributes":
        return attributes_of(table)
    column = table.column(name)
    if name == "received":  # in a file it is always set; `stored` tells whether the header has it
        column = pc.if_else(table.column("stored").is_valid(), column, pa.scalar(None, TIME))
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def raw_batches(table: pa.Table) -> list[StoredBatch]:
    """The rows as the batches a store keeps: events of one origin at positions that follow each other."""
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
    """Where a batch begins, and at last where the last one ends."""
    if not len(table):
        return [0]
    positions = table.column("position").to_numpy()
    changed = np.diff(positions) != 1
    stored = pc.coalesce(table.column("stored"), table.column("received")).cast(pa.int64())
    for column in (table.column("system"), table.column("epoch"), table.column("source"), stored):
        codes = column.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        changed |= np.diff(codes) != 0
    return [0, *(np.flatnonzero(changed) + 1).tolist(), len(table)]
