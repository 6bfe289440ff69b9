"""The attributes in a table of the files, wherever they stand: in columns of their own or in the map."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.event.values import EXACT_MAX, time_from_us
from tidings.log.flat import Longs, map_of, scattered, texts
from tidings.log.schema import ATTRIBUTES, NUMBERS, TEXTS, VALUE, own_columns


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
        columns = [texts_of(self.items.field(letter), letter) for letter in _LETTERS]
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


def own_column(batch: Any, name: str, letter: str, entries: Entries) -> Any:
    """An attribute's own column, null where the map has the value: see `tidings.log.schema`."""
    column = batch.column(name)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if letter != "f" or name not in entries.names:
        return column
    is_there = np.zeros(len(column), np.bool_)
    is_there[entries.of(name)[0]] = True
    return pc.if_else(pa.array(is_there), pa.scalar(None, column.type), column)


def parted(column: Any) -> tuple[Any, Any]:
    """The whole numbers of a column of doubles, as integers, and the others; null where it is the other's."""
    whole = pc.and_(pc.equal(pc.floor(column), column), pc.less_equal(pc.abs(column), float(EXACT_MAX)))
    integers = pc.if_else(whole, column, pa.scalar(None, pa.float64())).cast(pa.int64())
    return integers, pc.if_else(whole, pa.scalar(None, pa.float64()), column)


def numbers_of(cells: list[float | None]) -> list[float | None]:
    """The cells of a column of NUMBERS: whole ones are integers."""
    return [int(cell) if cell is not None and cell.is_integer() else cell for cell in cells]


def texts_of(column: Any, letter: str) -> Any:
    """A column of that letter as texts, null where it is."""
    if letter == "s":
        return column
    if letter == NUMBERS:
        integers, others = parted(column)
        return pc.coalesce(texts_of(integers, "i"), texts_of(others, "f"))
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
    for name, letter in own_columns(batch.schema).items():
        column = own_column(batch, name, letter, entries)
        there = column.drop_null()
        if len(there):
            rows.append(np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)))
            keys.append(pa.repeat(pa.scalar(name, pa.string()), len(there)))
            values.append(made(there, letter))
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


def _as_items(column: Any, letter: str) -> Any:
    members = dict(zip("if", parted(column), strict=True)) if letter == NUMBERS else {letter: column}
    children = [members.get(field.name, pa.nulls(len(column), field.type)) for field in VALUE]
    return pa.StructArray.from_arrays(children, fields=list(VALUE))
