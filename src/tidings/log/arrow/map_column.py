"""Attributes in a table of the files, in columns of their own or in the map.

Files may differ in the attributes that have columns of their own, so tables of several are made alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.event.values import EXACT_MAX, time_from_us
from tidings.log.arrow.attributes import (
    LETTERS,
    Counts,
    Longs,
    Mask,
    frequent,
    is_large,
    is_whole,
    map_of,
    scattered,
    texts,
    whole,
)
from tidings.log.schema import ATTRIBUTES, FIXED, NUMBERS, TEXTS, VALUE, Kinds, file_schema, own_columns


class MapEntries:
    """Entries of a map column, one after the other, with the row of each."""

    def __init__(self, column: Any) -> None:
        """`column` is of a record batch or a table; without nulls among the values."""
        column = whole(column)
        offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        begin, size = (int(offsets[0]), int(offsets[-1] - offsets[0])) if len(column) else (0, 0)
        self.rows: Longs = np.repeat(np.arange(len(column)), np.diff(offsets))
        self.keys = column.keys.slice(begin, size)
        self.items = column.items.slice(begin, size)

    @cached_property
    def names(self) -> frozenset[str]:
        """Attributes that occur."""
        return frozenset(self.keys.unique().to_pylist())

    def of(self, name: str) -> tuple[Longs, list[Any]]:
        """Return the rows that have an entry of that name, and its values."""
        rows, items = self.items_of(name)
        return rows, plain_values(items)

    def items_of(self, name: str) -> tuple[Longs, Any]:
        """Return the rows that have an entry of that name, and its values with a member for each kind."""
        places = self._places.get(name)
        if places is None:
            return np.empty(0, np.int64), self.items.slice(0, 0)
        return self.rows[places], self.items.take(pa.array(places))

    @cached_property
    def _places(self) -> dict[str, Longs]:
        """Places of the entries of each name, in one pass for all: readers may want a thousand names."""
        encoded = self.keys.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        # Small unsigned numbers are sorted in time linear in their count.
        order = np.argsort(codes.astype(np.min_scalar_type(len(names))), kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))
        return dict(zip(names, np.split(order, ends[:-1]), strict=True)) if names else {}

    def texts(self) -> Any:
        """Return all values as texts."""
        columns = [texts_of(self.items.field(letter), letter) for letter in LETTERS]
        return pc.coalesce(*columns)


def plain_values(items: Any) -> list[Any]:
    """Return the values in a column of structs with one member set."""
    values: list[Any] = [None] * len(items)
    for letter in LETTERS:
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


def own_column(batch: Any, name: str, letter: str, entries: MapEntries) -> Any:
    """Return an attribute's own column, null where the map has the value: see `tidings.log.schema`."""
    column = whole(batch.column(name))
    if letter != "f" or name not in entries.names:
        return column
    is_there = np.zeros(len(column), np.bool_)
    is_there[entries.of(name)[0]] = True
    return pc.if_else(pa.array(is_there), pa.scalar(None, column.type), column)


def parted(column: Any) -> tuple[Any, Any]:
    """Return the whole numbers of a column of doubles as integers, and the others; null in others' rows."""
    whole = pc.and_(pc.equal(pc.floor(column), column), pc.less_equal(pc.abs(column), float(EXACT_MAX)))
    integers = pc.if_else(whole, column, pa.scalar(None, pa.float64())).cast(pa.int64())
    return integers, pc.if_else(whole, pa.scalar(None, pa.float64()), column)


def numbers_of(cells: list[float | None]) -> list[float | None]:
    """Return the cells of a column of NUMBERS, whole ones as integers."""
    return [int(cell) if cell is not None and cell.is_integer() else cell for cell in cells]


def texts_of(column: Any, letter: str) -> Any:
    """Return a column of that letter as texts, null where it is."""
    if letter == "s":
        return column
    if letter == NUMBERS:
        integers, others = parted(column)
        return pc.coalesce(texts_of(integers, "i"), texts_of(others, "f"))
    there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    written = pa.array(texts(letter, column.drop_null().to_pylist()), pa.string())
    return scattered(written, there, len(column))


def attributes_of(batch: Any) -> Any:
    """Return all attributes of each row, as the map whose values have a member for each kind."""
    entries = MapEntries(batch.column("attributes"))
    return _map(batch, entries, entries.items, _as_items, ATTRIBUTES)


def texts_map_of(batch: Any) -> Any:
    """Return all attributes of each row, as a map from names to texts."""
    entries = MapEntries(batch.column("attributes"))
    return _map(batch, entries, entries.texts(), texts_of, TEXTS)


def _map(batch: Any, entries: MapEntries, items: Any, made: Any, kind: Any) -> Any:
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


# Tables made alike


def alike(tables: Sequence[pa.Table], kinds: Kinds | None = None) -> list[pa.Table]:
    """Return the tables with equal columns: those of the attributes that are frequent in all together."""
    counts = total_of([counts_of(table) for table in tables])
    own = frequent(counts, sum(table.num_rows for table in tables), kinds)
    return [reshaped(table, own) for table in tables]


def total_of(several: Sequence[Counts]) -> Counts:
    """Return the sum of the counts of several tables."""
    total: Counts = {}
    for counts in several:
        for name, kinds in counts.items():
            known = total.setdefault(name, {})
            for letter, count in kinds.items():
                known[letter] = known.get(letter, 0) + count
    return total


def counts_of(table: pa.Table) -> Counts:
    """Return the number of values of each class, by attribute, in a table of the files."""
    counts: Counts = {}
    entries = MapEntries(table.column("attributes"))
    for name, letter in own_columns(table.schema).items():
        classes = _classes(own_column(table, name, letter, entries).drop_null(), letter)
        counts[name] = {one: int(there.sum()) for one, there in classes if there.any()}
    keys = entries.keys.dictionary_encode()
    for letter in LETTERS:
        values = entries.items.field(letter)
        places = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        codes = keys.indices.to_numpy(zero_copy_only=False)[places]
        for one, there in _classes(values.drop_null(), letter):
            found = np.bincount(codes[there], minlength=len(keys.dictionary)).tolist()
            for name, count in zip(keys.dictionary.to_pylist(), found, strict=True):
                if count:
                    known = counts.setdefault(name, {})
                    known[one] = known.get(one, 0) + count
    return {name: kinds for name, kinds in counts.items() if kinds}


def _classes(values: Any, letter: str) -> list[tuple[str, Mask]]:
    """Return the classes of the values of a column of that letter, and a mask for each."""
    if letter not in "nfi":
        return [(letter, np.ones(len(values), np.bool_))]
    numbers = values.to_numpy()
    special = is_large(numbers) if letter == "i" else is_whole(numbers)
    named = {"n": ("i", "f"), "f": ("w", "f"), "i": ("I", "i")}[letter]
    return [(named[0], special), (named[1], ~special)]


def reshaped(table: pa.Table, own: dict[str, str]) -> pa.Table:
    """Return the same rows with columns for just these attributes (name to letter of the kind)."""
    if own_columns(table.schema) == own:
        return table
    rows = len(table)
    entries = MapEntries(attributes_of(table))
    left = np.ones(len(entries.rows), np.bool_)
    columns = [table.column(field.name) for field in FIXED]
    for name, letter in own.items():
        values, stays = _taken(entries.items, letter)
        chosen = pc.and_(pc.equal(entries.keys, name), values.is_valid()).to_numpy(zero_copy_only=False)
        places = np.flatnonzero(chosen)
        columns.append(scattered(values.take(pa.array(places)), entries.rows[places], rows))
        left &= ~chosen | stays
    places = np.flatnonzero(left)
    lengths = np.bincount(entries.rows[places], minlength=rows)
    keys, items = entries.keys.take(pa.array(places)), entries.items.take(pa.array(places))
    columns.append(map_of(lengths, keys, items, ATTRIBUTES, empty_is_null=True))
    return pa.Table.from_arrays(columns, schema=file_schema(own))


def _taken(items: Any, letter: str) -> tuple[Any, Any]:
    """Return the values in the map that a column of that letter takes, and a mask of those that stay too."""
    if letter not in "nf":
        return items.field(letter), np.False_
    integers, floats = items.field("i"), items.field("f")
    is_exact = pc.and_(pc.less_equal(integers, EXACT_MAX), pc.greater_equal(integers, -EXACT_MAX))
    exact = pc.if_else(is_exact, integers, pa.scalar(None, pa.int64()))
    stays = integers.is_valid().to_numpy(zero_copy_only=False) if letter == "f" else np.False_
    return pc.coalesce(floats, exact.cast(pa.float64())), stays


def map_names(table: pa.Table) -> frozenset[str]:
    """Return the attributes that occur in the map."""
    return MapEntries(table.column("attributes")).names
