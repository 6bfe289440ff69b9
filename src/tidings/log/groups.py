"""The row groups of a file: what their statistics say, and reading of one just what is asked for.

Of most columns of the header a row group has one value or none, and then the statistics say all there is to
know: such a column is made, not read. With a filter the columns it reads come first, and the others only if
some row matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidings.event.values import time_from_us, us_from_time
from tidings.filters.filter import Filter
from tidings.filters.tree import Literal
from tidings.log.predicate import Span, Statistics, columns_for, mask, may_match


def statistics_of(metadata: pq.FileMetaData, group: int, map_names: frozenset[str]) -> Statistics:
    """What a row group's statistics say."""
    chunks = metadata.row_group(group)
    columns: dict[str, Span] = {}
    for at in range(chunks.num_columns):
        chunk = chunks.column(at)
        if not chunk.path_in_schema.startswith("attributes."):
            columns[chunk.path_in_schema] = _span(chunk, chunks.num_rows)
    return Statistics(columns, map_names)


def _span(chunk: Any, rows: int) -> Span:
    known = chunk.statistics
    if known is None or not known.has_null_count:
        return Span(None, None)
    some, nulls = known.null_count < rows, known.null_count > 0
    if not (some and known.has_min_max):
        return Span(None, None, some, nulls)
    return Span(_plain(known.min), _plain(known.max), some, nulls)


def _plain(value: Any) -> Any:
    """A value of the statistics as events have it."""
    return time_from_us(us_from_time(value)) if isinstance(value, datetime) else value


class Groups:
    """The row groups of one open file."""

    def __init__(self, file: pq.ParquetFile, map_names: frozenset[str]) -> None:
        self._file = file
        self.schema: pa.Schema = file.schema_arrow
        self._known = [
            statistics_of(file.metadata, group, map_names) for group in range(file.metadata.num_row_groups)
        ]
        self._rows = [file.metadata.row_group(group).num_rows for group in range(len(self._known))]

    def __len__(self) -> int:
        return len(self._known)

    def positions(self, group: int) -> tuple[int, int]:
        """The first and the last position of a row group; (0, -1) if it is empty."""
        span = self._known[group].columns["position"]
        return (0, -1) if span.low is None else (span.low, span.high)

    def span(self, group: int, column: str) -> Span:
        """What is known of a column of a row group."""
        return self._known[group].columns[column]

    def read(
        self, group: int, first: int, end: int, filter: Filter, columns: Sequence[str] | None = None
    ) -> pa.Table | None:
        """The rows at positions from `first` on and before `end` that match; None if there are none."""
        low, high = self.positions(group)
        if high < first or low >= end or not may_match(filter, self._known[group]):
            return None
        wanted = self.schema.names if columns is None else list(columns)
        looked_at = columns_for(filter, self.schema)
        is_cut = low < first or high >= end
        if not is_cut and filter.condition == Literal(True):
            return self.columns(group, wanted)
        if is_cut or not looked_at:
            looked_at.append("position")
        seen = self.columns(group, looked_at)
        rows = _rows(seen, first, end, filter, is_cut=is_cut)
        return self._taken(group, wanted, seen, rows) if len(rows) else None

    def _taken(self, group: int, wanted: list[str], seen: pa.Table, rows: Any) -> pa.Table:
        """The wanted columns of these rows, of which some have been read."""
        others = self.columns(group, [name for name in wanted if name not in seen.schema.names])
        all_rows = len(rows) == self._rows[group]
        parts = (seen, others) if all_rows else (seen.take(pa.array(rows)), others.take(pa.array(rows)))
        arrays = [(parts[0] if name in seen.schema.names else parts[1]).column(name) for name in wanted]
        return pa.Table.from_arrays(arrays, schema=pa.schema([self.schema.field(name) for name in wanted]))

    def columns(self, group: int, names: Sequence[str]) -> pa.Table:
        """Columns of a row group, those of a single value without being read."""
        rows, known = self._rows[group], self._known[group]
        made: dict[str, Any] = {}
        for name in names:
            column = _made(self.schema.field(name).type, known, name, rows)
            if column is not None:
                made[name] = column
        read = [name for name in names if name not in made]
        if read:
            table = self._file.read_row_group(group, columns=read)
            made |= {name: table.column(name) for name in read}
        arrays = [made[name] for name in names]
        return pa.Table.from_arrays(arrays, schema=pa.schema([self.schema.field(name) for name in names]))


def _made(kind: Any, known: Statistics, name: str, rows: int) -> Any | None:
    """A column whose statistics tell all of it, or None."""
    if name == "attributes":
        return None if known.map_names else pa.nulls(rows, kind)
    span = known.columns[name]
    if not span.some:
        return pa.nulls(rows, kind)
    # Statistics of floats pass over NaN and have one zero for two.
    if span.low is None or span.nulls or span.low != span.high or pa.types.is_floating(kind):
        return None
    return pa.repeat(pa.scalar(span.low, kind), rows)


def _rows(seen: pa.Table, first: int, end: int, filter: Filter, *, is_cut: bool) -> Any:
    matches = mask(filter, seen)
    if is_cut:
        positions = seen.column("position").to_numpy()
        matches &= (positions >= first) & (positions < end)
    return np.flatnonzero(matches)
