"""Tables of several files made alike: which attributes have columns of their own may differ between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.log.entries import Entries, attributes_of
from tidings.log.flat import LETTERS, frequent, map_of, scattered
from tidings.log.schema import ATTRIBUTES, FIXED, file_schema, own_columns

Counts = dict[str, dict[str, int]]


def alike(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The tables with the same columns: those of the attributes that are frequent in all of them together."""
    counts = total_of([counts_of(table) for table in tables])
    own = frequent(counts, sum(table.num_rows for table in tables))
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
    """How many values of each kind each attribute has in a table of the files."""
    counts: Counts = {}
    for name, letter in own_columns(table.schema).items():
        there = len(table) - table.column(name).null_count
        if there:
            counts[name] = {letter: there}
    entries = Entries(table.column("attributes"))
    keys = entries.keys.dictionary_encode()
    for letter in LETTERS:
        there = entries.items.field(letter).is_valid().to_numpy(zero_copy_only=False)
        codes = keys.indices.to_numpy(zero_copy_only=False)[there]
        found = np.bincount(codes, minlength=len(keys.dictionary)).tolist()
        for name, count in zip(keys.dictionary.to_pylist(), found, strict=True):
            if count:
                counts.setdefault(name, {})[letter] = count
    return counts


def reshaped(table: pa.Table, own: dict[str, str]) -> pa.Table:
    """The same rows with columns for just these attributes (name to letter of the kind)."""
    if own_columns(table.schema) == own:
        return table
    rows = len(table)
    entries = Entries(attributes_of(table))
    left = np.ones(len(entries.rows), np.bool_)
    columns = [table.column(field.name) for field in FIXED]
    for name, letter in own.items():
        values = entries.items.field(letter)
        chosen = pc.and_(pc.equal(entries.keys, name), values.is_valid()).to_numpy(zero_copy_only=False)
        places = np.flatnonzero(chosen)
        columns.append(scattered(values.take(pa.array(places)), entries.rows[places], rows))
        left &= ~chosen
    places = np.flatnonzero(left)
    lengths = np.bincount(entries.rows[places], minlength=rows)
    keys, items = entries.keys.take(pa.array(places)), entries.items.take(pa.array(places))
    columns.append(map_of(lengths, keys, items, ATTRIBUTES, empty_is_null=True))
    return pa.Table.from_arrays(columns, schema=file_schema(own))


def map_names(table: pa.Table) -> frozenset[str]:
    """The attributes that occur in the map."""
    return Entries(table.column("attributes")).names
