"""Row groups of a file: their statistics, and reading only the requested columns and rows of one.

Most columns of the header have one value or none in a row group, and then the statistics say everything: such
a column is made, not read. With a filter, its columns are read first, and the others only if some row
matches; then strings are read as dictionaries, and ids are made where they can be, since making a string for
each row would cost more than all the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from tidings.event.values import JMS_ALIASES, time_from_us, us_from_time
from tidings.filters.constraint import FALSE, TRUE, Constraint
from tidings.filters.filter import Filter
from tidings.filters.intervals import between
from tidings.filters.kinds import Kind, kind_of
from tidings.filters.tree import Literal, names_in
from tidings.log.arrow.attributes import whole
from tidings.log.arrow.ids import made_ids
from tidings.log.evaluation import columns_for, mask

if TYPE_CHECKING:
    from tidings.log.segment_file import Footer


class ColumnRange(Struct, frozen=True):
    """Statistics of one column of a row group."""

    low: Any
    high: Any
    """Least and greatest value; None if unknown."""
    some: bool = True
    """Whether there may be values at all."""
    nulls: bool = True
    """Whether there may be rows without a value."""


class Statistics(Struct, frozen=True):
    """Statistics of the rows of a row group, or of a whole file."""

    columns: Mapping[str, ColumnRange]
    map_names: frozenset[str] = frozenset()
    """Attributes that occur in the map."""


def may_match(filter: Filter, known: Statistics) -> bool:
    """Whether a row with these statistics may match; True when unsure."""
    return any(
        all(_may_be(name, constraint, known) for name, constraint in one.constraints.items())
        for one in filter.normal
    )


def _may_be(name: str, constraint: Constraint, known: Statistics) -> bool:
    if name in ("JMSTimestamp", "JMSDeliveryMode", "received"):
        return True  # these are made of other columns
    name = JMS_ALIASES.get(name, name)
    if name in known.map_names:
        return True
    span = known.columns.get(name)
    if span is None:
        return constraint.missing
    if constraint.missing and span.nulls:
        return True
    return span.some and (span.low is None or _reaches(constraint, span))


def _reaches(constraint: Constraint, span: ColumnRange) -> bool:
    kind = kind_of(span.low)
    if kind is Kind.BOOLEAN:
        values = (TRUE if span.high else 0) | (FALSE if not span.low else 0)
        return bool(constraint.booleans & values)
    if constraint.nan and type(span.low) is float:
        return True  # statistics ignore NaN
    line = {
        Kind.NUMBER: constraint.numbers,
        Kind.STRING: constraint.strings,
        Kind.TIME: constraint.times,
        Kind.BYTES: constraint.blobs,
    }[kind]
    return line.overlaps(between(span.low, span.high))


def statistics_of(metadata: pq.FileMetaData, group: int, map_names: frozenset[str]) -> Statistics:
    """Return the statistics of a row group."""
    chunks = metadata.row_group(group)
    columns: dict[str, ColumnRange] = {}
    for at in range(chunks.num_columns):
        chunk = chunks.column(at)
        if not chunk.path_in_schema.startswith("attributes."):
            columns[chunk.path_in_schema] = _span(chunk, chunks.num_rows)
    return Statistics(columns, map_names)


def _span(chunk: Any, rows: int) -> ColumnRange:
    known = chunk.statistics
    if known is None or not known.has_null_count:
        return ColumnRange(None, None)
    some, nulls = known.null_count < rows, known.null_count > 0
    if not (some and known.has_min_max):
        return ColumnRange(None, None, some, nulls)
    return ColumnRange(_plain(known.min), _plain(known.max), some, nulls)


def _plain(value: Any) -> Any:
    """Return a value of the statistics as events have it."""
    return time_from_us(us_from_time(value)) if isinstance(value, datetime) else value


class RowGroups:
    """Row groups of one open file."""

    def __init__(self, file: pq.ParquetFile, footer: Footer, open_coded: Callable[[list[str]], Any]) -> None:
        """`open_coded` opens the file once more, to read columns of strings as dictionaries."""
        self._file = file
        self.schema: pa.Schema = file.schema_arrow
        self._footer = footer
        self._open_coded = open_coded
        self._known = [
            statistics_of(file.metadata, group, footer.map_names)
            for group in range(file.metadata.num_row_groups)
        ]
        self._rows = [file.metadata.row_group(group).num_rows for group in range(len(self._known))]

    def __len__(self) -> int:
        return len(self._known)

    @cached_property
    def _coded(self) -> pq.ParquetFile:
        texts = [field.name for field in self.schema if pa.types.is_string(field.type)]
        return self._open_coded([name for name in texts if name != "id"])

    def positions(self, group: int) -> tuple[int, int]:
        """Return the first and the last position of a row group; (0, -1) if it is empty."""
        span = self._known[group].columns["position"]
        return (0, -1) if span.low is None else (span.low, span.high)

    def span(self, group: int, column: str) -> ColumnRange:
        """Return the statistics of a column of a row group."""
        return self._known[group].columns[column]

    def read(
        self, group: int, first: int, end: int, filter: Filter, columns: Sequence[str] | None = None
    ) -> pa.Table | None:
        """Return the rows at positions from `first` on and before `end` that match; None without any."""
        low, high = self.positions(group)
        if high < first or low >= end or not may_match(filter, self._known[group]):
            return None
        wanted = self.schema.names if columns is None else list(columns)
        is_cut = low < first or high >= end
        if not is_cut and filter.condition == Literal(True):
            return self.columns(group, wanted)
        looked_at = columns_for(filter, self.schema)
        if "attributes" in looked_at and names_in(filter.condition).isdisjoint(self._footer.map_names):
            looked_at.remove("attributes")
        if is_cut or not looked_at:
            looked_at.append("position")
        seen = self._columns(self._coded, group, looked_at)
        rows = _rows(self._seen_table(seen), first, end, filter, is_cut=is_cut)
        return self._taken(group, wanted, seen, rows) if len(rows) else None

    def _taken(self, group: int, wanted: list[str], seen: dict[str, Any], rows: Any) -> pa.Table:
        """Return the wanted columns of these rows, of which some have been read."""
        needed = list(wanted)
        is_made = "id" in wanted and self._footer.made_ids
        if is_made:
            needed += [name for name in _OF_IDS if name not in needed]
            needed.remove("id")
        taken = {name: self._single(group, name, len(rows)) for name in needed}
        unread = [name for name in needed if taken[name] is None and name not in seen]
        read = seen | (self._columns(self._coded, group, unread) if unread else {})
        chosen = pa.array(rows)
        for name in needed:
            if taken[name] is None:
                taken[name] = _plain_column(read[name].take(chosen))
        if is_made:
            taken["id"] = made_ids(*(taken[name] for name in _OF_IDS))
        return self._table(wanted, taken)

    def columns(self, group: int, names: Sequence[str]) -> pa.Table:
        """Return columns of a row group; those of a single value are not read."""
        return self._table(names, self._columns(self._file, group, names))

    def _columns(self, file: pq.ParquetFile, group: int, names: Sequence[str]) -> dict[str, Any]:
        columns = {name: self._single(group, name, self._rows[group]) for name in names}
        read = [name for name in names if columns[name] is None]
        if read:
            table = file.read_row_group(group, columns=read)
            columns |= {name: table.column(name) for name in read}
        return columns

    def _single(self, group: int, name: str, rows: int) -> Any | None:
        """Return so many rows of a column if its statistics show that it has one value, or none."""
        kind, known = self.schema.field(name).type, self._known[group]
        if name == "attributes":
            return None if known.map_names else pa.nulls(rows, kind)
        span = known.columns[name]
        if not span.some:
            return pa.nulls(rows, kind)
        # Statistics of floats ignore NaN and have one zero for two.
        if span.low is None or span.nulls or span.low != span.high or pa.types.is_floating(kind):
            return None
        return pa.repeat(pa.scalar(span.low, kind), rows)

    def _seen_table(self, columns: dict[str, Any]) -> pa.Table:
        """Return columns as they were read, maybe as dictionaries, with the metadata of their fields."""
        fields = [self.schema.field(name).with_type(column.type) for name, column in columns.items()]
        return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))

    def _table(self, names: Sequence[str], columns: dict[str, Any]) -> pa.Table:
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.Table.from_arrays([columns[name] for name in names], schema=schema)


_OF_IDS = ("system", "epoch", "counter")


def _plain_column(column: Any) -> Any:
    """Return a column in one piece, with its strings as such."""
    column = whole(column)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _rows(seen: pa.Table, first: int, end: int, filter: Filter, *, is_cut: bool) -> Any:
    matches = mask(filter, seen)
    if is_cut:
        positions = seen.column("position").to_numpy()
        matches &= (positions >= first) & (positions < end)
    return np.flatnonzero(matches)
