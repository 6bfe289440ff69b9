"""A filter on sealed rows: which row groups may have a match, and exactly which rows do.

`may_match` looks at statistics only, and may say yes when unsure. `mask` is exact: it answers for every row
what `Filter.matches` would say of the event. It is worked out column by column; only rows that have something
in the map under a name the filter reads (see `schema`) are made events and asked one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tidings.event import arrow
from tidings.event.header import EMPTY_HEADER
from tidings.event.values import HEADER_NAMES, JMS_ALIASES
from tidings.filters.constraint import FALSE, TRUE, Constraint
from tidings.filters.filter import Filter
from tidings.filters.intervals import between
from tidings.filters.kinds import Kind, kind_of
from tidings.filters.tree import names_in
from tidings.log.entries import Entries
from tidings.log.evaluation import Evaluation
from tidings.log.flat import Mask
from tidings.log.restore import events_of

# Row groups


class Span(Struct, frozen=True):
    """What is known of one column of a row group."""

    low: Any
    high: Any
    """The least and the greatest value; None when that is not known."""
    some: bool = True
    """Whether there may be values at all."""
    nulls: bool = True
    """Whether there may be rows without a value."""


class Statistics(Struct, frozen=True):
    """What is known of the rows of a row group, or of a whole file."""

    columns: Mapping[str, Span]
    map_names: frozenset[str] = frozenset()
    """The attributes that occur in the map."""


def may_match(filter: Filter, known: Statistics) -> bool:
    """Whether a row with these statistics may match; says yes when unsure."""
    return any(
        all(_may_be(name, constraint, known) for name, constraint in one.constraints.items())
        for one in filter.normal
    )


def _may_be(name: str, constraint: Constraint, known: Statistics) -> bool:
    if name in ("JMSTimestamp", "JMSDeliveryMode", "received"):
        return True  # these are made of what stands in the columns
    name = JMS_ALIASES.get(name, name)
    if name in known.map_names:
        return True
    span = known.columns.get(name)
    if span is None:
        return constraint.missing
    if constraint.missing and span.nulls:
        return True
    return span.some and (span.low is None or _reaches(constraint, span))


def _reaches(constraint: Constraint, span: Span) -> bool:
    kind = kind_of(span.low)
    if kind is Kind.BOOLEAN:
        values = (TRUE if span.high else 0) | (FALSE if not span.low else 0)
        return bool(constraint.booleans & values)
    if constraint.nan and type(span.low) is float:
        return True  # statistics pass over NaN
    line = {
        Kind.NUMBER: constraint.numbers,
        Kind.STRING: constraint.strings,
        Kind.TIME: constraint.times,
        Kind.BYTES: constraint.blobs,
    }[kind]
    return line.overlaps(between(span.low, span.high))


# Rows


def columns_for(filter: Filter, schema: pa.Schema) -> list[str]:
    """The columns of a file with that schema that `mask` reads."""
    names = {JMS_ALIASES.get(name, name) for name in names_in(filter.condition)}
    wanted = set(names)
    if names - HEADER_NAMES:
        wanted.add("attributes")
    if "received" in names:
        wanted.add("stored")
    return [field.name for field in schema if field.name in wanted]


def mask(filter: Filter, table: pa.Table) -> Mask:
    """For each row, whether it matches; the table must have the columns that `columns_for` names."""
    table = table.combine_chunks()
    answer = Evaluation(table).condition(filter.condition)
    matches: Mask = pc.fill_null(answer, False).to_numpy(zero_copy_only=False).copy()
    unsure = _rows_with(names_in(filter.condition), table)
    if len(unsure):
        events = events_of(_filled(table.take(pa.array(unsure))))
        matches[unsure] = [filter.matches(event) for event in events]
    return matches


def _rows_with(names: frozenset[str], table: pa.Table) -> Any:
    """The rows whose map has an entry of one of these names."""
    if "attributes" not in table.schema.names:
        return ()
    entries = Entries(table.column("attributes"))
    if names.isdisjoint(entries.names):
        return ()
    among = pc.is_in(entries.keys, pa.array(sorted(names), pa.string()))
    return np.unique(entries.rows[among.to_numpy(zero_copy_only=False)])


def _filled(table: pa.Table) -> pa.Table:
    """The table with all columns of an event, as the files have them; what is not read may be anything."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            plain = table.column(place).cast(field.type.value_type)
            table = table.set_column(place, field.name, plain)
    for field in (*arrow.schema(), pa.field("stored", pa.timestamp("us", "UTC"))):
        if field.name not in table.schema.names:
            value = _DEFAULTS.get(field.name)
            table = table.append_column(field.name, pa.repeat(pa.scalar(value, field.type), len(table)))
    return table


_DEFAULTS: dict[str, Any] = {
    "type": "any",
    "time": 0,
    "counter": 0,
    "epoch": 0,
    "priority": EMPTY_HEADER.priority,
    "delivery": EMPTY_HEADER.delivery,
    "route": EMPTY_HEADER.route,
    "attributes": [],
}
