"""Tables of several files made alike: which attributes have columns of their own may differ between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.event.values import EXACT_MAX
from tidings.log.entries import Entries, attributes_of, own_column
from tidings.log.flat import (
    LETTERS,
    Counts,
    Mask,
    frequent,
    is_large,
    is_whole,
    map_of,
    scattered,
)
from tidings.log.schema import ATTRIBUTES, FIXED, Kinds, file_schema, own_columns


def alike(tables: Sequence[pa.Table], kinds: Kinds | None = None) -> list[pa.Table]:
    """The tables with the same columns: those of the attributes that are frequent in all of them together."""
    counts = total_of([counts_of(table) for table in tables])
    own = frequent(counts, sum(table.num_rows for table in tables), kinds)
    return [reshaped(table, own) for table in tables]


def total_of(several: Sequence[Counts]) -> Counts:
    """The counts of several tables, added up."""
    total: Counts = {}
    for counts in several:
        for name, kinds in counts.items():
            known = total.setdefault(name, {})
            for letter, count in kinds.items():
                known[letter] = known.get(letter, 0) + count
    return total


def counts_of(table: pa.Table) -> Counts:
    """How many values of each class each attribute has in a table of the files."""
    counts: Counts = {}
    entries = Entries(table.column("attributes"))
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
    """The classes of the values of a column of that letter, and which values are of each."""
    if letter not in "nfi":
        return [(letter, np.ones(len(values), np.bool_))]
    numbers = values.to_numpy()
    special = is_large(numbers) if letter == "i" else is_whole(numbers)
    named = {"n": ("i", "f"), "f": ("w", "f"), "i": ("I", "i")}[letter]
    return [(named[0], special), (named[1], ~special)]


def reshaped(table: pa.Table, own: dict[str, str]) -> pa.Table:
    """The same rows with columns for just these attributes (name to letter of the kind)."""
    if own_columns(table.schema) == own:
        return table
    rows = len(table)
    entries = Entries(attributes_of(table))
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
    """What a column of that letter takes of values in the map, and which stay there as well."""
    if letter not in "nf":
        return items.field(letter), np.False_
    integers, floats = items.field("i"), items.field("f")
    is_exact = pc.and_(pc.less_equal(integers, EXACT_MAX), pc.greater_equal(integers, -EXACT_MAX))
    exact = pc.if_else(is_exact, integers, pa.scalar(None, pa.int64()))
    stays = integers.is_valid().to_numpy(zero_copy_only=False) if letter == "f" else np.False_
    return pc.coalesce(floats, exact.cast(pa.float64())), stays


def map_names(table: pa.Table) -> frozenset[str]:
    """The attributes that occur in the map."""
    return Entries(table.column("attributes")).names
