"""The attributes in a table of the files, wherever they stand: in columns of their own or in the map."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.event.values import time_from_us
from tidings.log.flat import Longs, map_of, scattered
from tidings.log.schema import ATTRIBUTES, TEXTS, VALUE, kind_of_type, own_columns
from tidings.log.texts import texts


class Entries:
    """The entries of a map column, one after the other, with the row each belongs to."""

    def __init__(self, column: Any) -> None:
        """Of a column of a record batch or a table; without nulls among the values."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        begin, size = (int(offsets[0]), int(offsets[-1] - offsets[0])) if len(column) else (0, 0)
        self.rows: Longs = np.repeat(np.arange(len(column)), np.diff(offsets))
        self.keys = column.keys.slice(begin, size)
        self.items = column.items.slice(begin, size)

    @cached_property
    def names(self) -> frozenset[str]:
        """The attributes that occur."""
        return frozenset(self.keys.unique().to_pylist())

    def of(self, name: str) -> tuple[Longs, list[Any]]:
        """The rows that have an entry of that name, and its values."""
        if name not in self.names:
            return np.empty(0, np.int64), []
        places = np.flatnonzero(pc.equal(self.keys, name).to_numpy(zero_copy_only=False))
        return self.rows[places], plain_values(self.items.take(pa.array(places)))

    def texts(self) -> Any:
        """All values as texts."""
        columns = [texts_of(self.items.field(letter)) for letter in _LETTERS]
        return pc.coalesce(*columns)


_LETTERS = tuple(field.name for field in VALUE)


def plain_values(items: Any) -> list[Any]:
    """The values in a column of structs with one member set."""
    values: list[Any] = [None] * len(items)
    for letter in _LETTERS:
        member = items.field(letter)
        if member.null_count < len(member):
            for place, value in enumerate(_plain_cells(member)):
                if value is not None:
                    values[place] = value
    return values


def _plain_cells(member: Any) -> Any:
    if not pa.types.is_timestamp(member.type):
        return member.to_pylist()
    return (None if us is None else time_from_us(us) for us in member.cast(pa.int64()).to_pylist())


def texts_of(column: Any) -> Any:
    """A column of one kind of value as texts, null where it is."""
    letter = kind_of_type(column.type)
    if letter == "s":
        return column
    there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    written = pa.array(texts(letter, column.drop_null().to_pylist()), pa.string())
    return scattered(written, there, len(column))


def attributes_of(batch: Any) -> Any:
    """All attributes of each row, as the map whose values have a member for each kind."""
    entries = Entries(batch.column("attributes"))
    return _map(batch, entries, entries.items, _as_items, ATTRIBUTES)


def texts_map_of(batch: Any) -> Any:
    """All attributes of each row, as a map from names to texts."""
    entries = Entries(batch.column("attributes"))
    return _map(batch, entries, entries.texts(), texts_of, TEXTS)


def _map(batch: Any, entries: Entries, items: Any, made: Any, kind: Any) -> Any:
    rows, keys, values = [entries.rows], [entries.keys], [items]
    for name in own_columns(batch.schema):
        column = batch.column(name)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        there = column.drop_null()
        if len(there):
            rows.append(np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)))
            keys.append(pa.repeat(pa.scalar(name, pa.string()), len(there)))
            values.append(made(there))
    every = np.concatenate(rows)
    order = pa.array(np.argsort(every, kind="stable"))
    lengths = np.bincount(every, minlength=batch.num_rows)
    return map_of(
        lengths,
        pa.concat_arrays(keys).take(order),
        pa.concat_arrays(values).take(order),
        kind,
        empty_is_null=False,
    )


def _as_items(column: Any) -> Any:
    letter = kind_of_type(column.type)
    children = [column if field.name == letter else pa.nulls(len(column), field.type) for field in VALUE]
    return pa.StructArray.from_arrays(children, fields=list(VALUE))
