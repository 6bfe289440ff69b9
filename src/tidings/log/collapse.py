"""Collapse of events where they lie: one partial row for each key, and window of time, instead of its events.

A partial row merges with others of its key by sum, minimum or maximum, so the result is the same in whatever
parts the events are collapsed: at several nodes, in several replies, or in Spark alone.

| rule | in a partial row | merges by |
| --- | --- | --- |
| `count()`, `count(c)` | number of events, or of those that have a value | sum |
| `numbers(c)` | number of values that `total(c)` takes | sum |
| `total(c)` | decimal(38, 0): the sum of integers, or of others in units of 1e-9 | sum |
| `lowest(c)`, `highest(c)` | a value; NaN is above all numbers, as in Spark | min, max |
| `first(c)`, `latest(c)` | a value with the time, node and position of its event | min, max |

Values that are null, or don't fit their columns, are left out. Those that don't fit are counted by the
decoder, and for each event in the column `mismatches`, which rules can read. In units of 1e-9 a number
below 2^33 is rounded to a whole number of them, one below 2^63 to a whole number; others, and NaN, are left
out.

A collapser holds at most GROUPS_MAX partial rows, and those of one more batch: then it is full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import ConfigError
from tidings.log.arguments import CollapseTerms
from tidings.log.chunks import CollapsedPart, ReplyPart
from tidings.log.collapse_rules import (
    FINE_END,
    TOTAL_END,
    UNIT,
    CollapseRule,
    decimal_digits,
    normal_type,
    parse_rule,
)
from tidings.log.columns import Decoder
from tidings.log.paging import stream_of
from tidings.log.schema import HEADER_TYPES, TIME

GROUPS_MAX = 100_000
"""Partial rows of a collapse in one reply, about; the next reply begins anew."""
START, NODE = "start", "node"
"""Columns of a partial row beside its key and rules: the begin of the window, and the node."""
WHOLE: Final = pa.decimal128(38, 0)

_TYPES: Final = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": TIME,
    "date": pa.date32(),
    "binary": pa.binary(),
}
_PLACE: Final = {"time": TIME, "position": pa.int64()}
_MISMATCHES: Final = b"mismatches"
"""Key of the metadata of a reply's table: the decoder's counts at the node."""
_COUNTS: Final = ("count", "numbers")
_SUMS: Final = (*_COUNTS, "total")
_EXTREMES: Final = {"lowest": "min", "highest": "max"}
_PLACED: Final = {"first": "min", "latest": "max"}
RULES: Final = (*_SUMS, *_EXTREMES, *_PLACED)
"""Names of all rules."""


class Collapser:
    """Collapses record batches of events of one node; ConfigError if the terms can't be met.

    `decoder` makes the batches, `schema` has the columns of the result.
    """

    def __init__(self, terms: CollapseTerms, node: str = "") -> None:
        self.terms = terms
        self._node = node
        self._types = {name: _type(name, word) for name, word in terms.columns.items()} | _PLACE
        self._rules = {name: self._rule(name, text) for name, text in terms.rules.items()}
        self._check()
        self.decoder = Decoder(pa.schema(list(self._types.items())), node)
        self._keys = [f"k{number}" for number in range(len(terms.by))]
        self._keys += [START] if terms.window_us is not None else []
        self._held: list[pa.Table] = []

    # Terms

    def _rule(self, name: str, text: str) -> CollapseRule:
        try:
            rule = parse_rule(text)
        except ValueError as error:
            raise _error(name, str(error)) from None
        if rule.kind not in RULES:
            raise _error(name, f"{text!r} is no rule; the rules are {', '.join(RULES)}, as in highest(value)")
        if rule.column is None and rule.kind != "count":
            raise _error(name, f"{rule.kind} needs a column, as in {rule.kind}(value)")
        if rule.column is not None:
            kind = self._type_of(rule.column)
            if rule.kind in ("total", "numbers") and not _is_number(kind):
                raise _error(name, f"{text} needs numbers, not {kind}")
        return rule

    def _type_of(self, name: str) -> Any:
        if name not in self._types:
            raise _error(name, f"is no column of the collapse; there are {', '.join(self._types)}")
        return self._types[name]

    def _check(self) -> None:
        for name, given in (("by", self.terms.by), ("rules", self.terms.rules)):
            if not given:
                raise _error(name, "is empty; a collapse needs a key and a rule")
        for name in self.terms.by:
            if name == NODE:
                raise _error(name, "is in every partial row; leave it out of 'by'")
            kind = self._type_of(name)
            if pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_binary(kind):
                raise _error(name, f"is {kind}, and can't be a key")
        names = [*self.terms.by, *((START,) if self.terms.window_us else ()), NODE, *self.terms.rules]
        for name in names:
            if [one.lower() for one in names].count(name.lower()) > 1:
                raise _error(name, "is the name of two columns of the result; rename one")

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the result: the key, the begin of the window if there is one, the node, the rules."""
        fields = [(name, self._types[name]) for name in self.terms.by]
        fields += [(START, TIME)] if self.terms.window_us is not None else []
        rules = [(name, self._result_type(rule)) for name, rule in self._rules.items()]
        return pa.schema([*fields, (NODE, pa.string()), *rules])

    def _result_type(self, rule: CollapseRule) -> Any:
        if rule.kind in _SUMS:
            return WHOLE if rule.kind == "total" else pa.int64()
        assert rule.column is not None
        kind = self._types[rule.column]
        if rule.kind in _EXTREMES:
            return kind
        return pa.struct([("time", TIME), ("node", pa.string()), ("position", pa.int64()), ("value", kind)])

    # Collapsing

    @property
    def is_full(self) -> bool:
        """Whether it has as many partial rows as it should."""
        return sum(map(len, self._held)) >= GROUPS_MAX and len(self._merged()) >= GROUPS_MAX

    def add(self, batch: pa.RecordBatch) -> None:
        """Collapse a batch of the decoder's."""
        if len(batch):
            self._held.append(self._merge(self._lifted(batch)))

    def add_within(self, batches: Iterable[pa.RecordBatch], size_max: int) -> bool:
        """Collapse batches, unless all partial rows would have more than `size_max` bytes: False then."""
        before, mismatches = list(self._held), Counter(self.decoder.mismatches)
        for batch in batches:
            self.add(batch)
        if self._size > size_max and self._held:
            self._merged()
        if self._size <= size_max:
            return True
        self._held, self.decoder.mismatches = before, mismatches
        return False

    @property
    def _size(self) -> int:
        return sum(table.nbytes for table in self._held)

    def take(self) -> pa.Table:
        """Return the partial rows, and begin anew."""
        made = self._merged() if self._held else None
        self._held = []
        return self.schema.empty_table() if made is None else self._result(made)

    def _merged(self) -> pa.Table:
        if len(self._held) > 1:
            self._held = [self._merge(pa.concat_tables(_unified(self._held)))]
        return self._held[0]

    def _lifted(self, batch: pa.RecordBatch) -> pa.Table:
        """Return one partial row for each event."""
        columns: dict[str, Any] = {}
        for key, name in zip(self._keys, self.terms.by, strict=False):
            columns[key] = batch.column(name)
        if self.terms.window_us is not None:
            times = batch.column("time").view(pa.int64()).to_numpy()
            columns[START] = pa.array(times // self.terms.window_us * self.terms.window_us)
        for number, rule in enumerate(self._rules.values()):
            columns |= _lift(f"r{number}", rule, batch)
        return pa.table(columns)

    def _merge(self, table: pa.Table) -> pa.Table:
        """Return one partial row for each key."""
        asked: list[tuple[str, str]] = []
        orders: dict[str, Any] = {}
        for number, rule in enumerate(self._rules.values()):
            name = f"r{number}"
            if rule.kind in _SUMS:
                table = _safe_to_add(table, name)
                asked.append((name, "sum"))
            elif rule.kind in _EXTREMES:
                asked.append((name, _EXTREMES[rule.kind]))
                if pa.types.is_floating(table.column(name).type):
                    flags = pc.is_nan(table.column(name))
                    table = table.append_column(f"{name}n", flags)
                    asked.append((f"{name}n", "max" if rule.kind == "highest" else "min"))
            else:
                orders[name], ranks = _ranked(table, name)
                table = table.append_column(f"{name}o", ranks)
                asked.append((f"{name}o", _PLACED[rule.kind]))
        grouped = table.group_by(self._keys, use_threads=False).aggregate(asked)
        columns = {key: grouped.column(key) for key in self._keys}
        for number, rule in enumerate(self._rules.values()):
            columns |= _merged_rule(f"r{number}", rule, table, grouped, orders)
        return pa.table(columns)

    def _result(self, merged: pa.Table) -> pa.Table:
        columns = [merged.column(key) for key in self._keys]
        if self.terms.window_us is not None:
            columns[-1] = columns[-1].cast(pa.int64()).cast(TIME)
        columns.append(pa.chunked_array([pa.repeat(self._node, len(merged))]))
        for number, rule in enumerate(self._rules.values()):
            kind, name = self._result_type(rule), f"r{number}"
            if rule.kind in _PLACED:
                columns.append(self._placed(merged, name, kind))
            else:
                columns.append(merged.column(name).cast(kind))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _placed(self, merged: pa.Table, name: str, kind: Any) -> Any:
        value, time, position = (merged.column(f"{name}{part}").combine_chunks() for part in "vtp")
        nodes = pa.repeat(self._node, len(merged))
        is_null = pc.is_null(value)
        return pa.StructArray.from_arrays([time, nodes, position, value], fields=list(kind), mask=is_null)


def _lift(name: str, rule: CollapseRule, batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the columns of a rule, for each event."""
    if rule.column is None:
        return {name: pa.repeat(pa.scalar(1, pa.int64()), len(batch))}
    column = batch.column(rule.column)
    if rule.kind in _PLACED:
        return {f"{name}v": column, f"{name}t": batch.column("time"), f"{name}p": batch.column("position")}
    if rule.kind in _EXTREMES:
        return {name: column}
    counted = column if rule.kind == "count" else _units(column)
    return {name: counted if rule.kind == "total" else pc.is_valid(counted).cast(pa.int64())}


def _units(column: Any) -> Any:
    """Return numbers as they are added up: integers as they are, others in units of 1e-9."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    numbers = column.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    sizes = np.abs(numbers)
    fine, coarse = sizes < FINE_END, (sizes >= FINE_END) & (sizes < TOTAL_END)
    units = pa.array(np.rint(np.where(fine, numbers, 0.0) * UNIT).astype(np.int64), mask=~fine)
    if not coarse.any():
        return units
    whole = pa.array(np.rint(np.where(coarse, numbers, 0.0)).astype(np.int64), mask=~coarse)
    # Made here, and not once: the first scalar that Arrow makes of a Python object imports pandas, which is
    # much of what a Spark stream would import to plan its batches.
    unit = pa.scalar(Decimal(UNIT), pa.decimal128(10, 0))
    scaled = pc.multiply(whole.cast(pa.decimal128(19, 0)), unit)
    return pc.coalesce(units.cast(WHOLE), scaled.cast(WHOLE))


def _safe_to_add(table: pa.Table, name: str) -> pa.Table:
    """Return the table with a column whose sums can't overflow."""
    column = table.column(name)
    if pa.types.is_decimal(column.type):
        return table
    ends = pc.min_max(column)
    most = max(abs(ends[side].as_py() or 0) for side in ("min", "max"))
    if most * len(table) < 1 << 63:
        return table
    return table.set_column(table.schema.get_field_index(name), name, column.cast(WHOLE))


def _ranked(table: pa.Table, name: str) -> tuple[Any, Any]:
    """Return the rows in the order of time and position, and the place in it of each that has a value."""
    times = table.column(f"{name}t").cast(pa.int64()).fill_null(0).to_numpy()
    positions = table.column(f"{name}p").fill_null(0).to_numpy()
    order = np.lexsort((positions, times))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    is_null = pc.is_null(table.column(f"{name}v")).to_numpy()
    return order, pa.array(ranks, mask=is_null)


def _merged_rule(
    name: str, rule: CollapseRule, table: pa.Table, grouped: pa.Table, orders: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the columns of a rule, for each key."""
    if rule.kind in _SUMS:
        return {name: grouped.column(f"{name}_sum")}
    if rule.kind in _EXTREMES:
        side = _EXTREMES[rule.kind]
        found = grouped.column(f"{name}_{side}")
        if pa.types.is_floating(found.type):
            flags = grouped.column(f"{name}n_{side}")
            found = pc.if_else(pc.fill_null(flags, False), pa.scalar(np.nan, found.type), found)
        return {name: found}
    ranks = grouped.column(f"{name}o_{_PLACED[rule.kind]}").combine_chunks()
    rows = pc.take(pa.array(orders[name]), ranks)
    return {f"{name}{part}": table.column(f"{name}{part}").take(rows) for part in "vtp"}


def _unified(tables: list[pa.Table]) -> list[pa.Table]:
    """Return the tables with one type for each column: totals are integers in some, decimals in others."""
    wanted = tables[0].schema
    for place, field in enumerate(wanted):
        if any(table.schema.field(place).type != field.type for table in tables):
            wanted = wanted.set(place, pa.field(field.name, WHOLE))
    return [table if table.schema == wanted else table.cast(wanted) for table in tables]


def _type(name: str, word: str) -> Any:
    type = normal_type(word)
    if type is None:
        raise _error(name, f"{word!r} is no type; use one such as string, bigint or double")
    digits = decimal_digits(type)
    kind = _TYPES[type] if digits is None else pa.decimal128(*digits)
    own = _PLACE.get(name) or HEADER_TYPES.get(name)
    if own is not None and own != kind:
        raise _error(name, f"is {own} in every event, and not {word}")
    return kind


def _is_number(kind: Any) -> bool:
    return any(is_so(kind) for is_so in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def _error(name: str, problem: str) -> ConfigError:
    return ConfigError("collapse", name, problem)


# Replies


def collapsed_part(collapser: Collapser) -> CollapsedPart:
    """Return the partial rows of a collapser, and what its decoder has counted, as a part of a reply."""
    counts = msgspec.json.encode(collapser.decoder.mismatches)
    return CollapsedPart(stream_of(collapser.take().replace_schema_metadata({_MISMATCHES: counts})))


def partial_rows(parts: Sequence[ReplyPart], collapser: Collapser) -> Iterator[pa.RecordBatch]:
    """Yield the partial rows of a reply; an older node, or one that lacks Arrow, has sent events.

    The mismatches that the node has counted are added to those of the collapser's decoder.
    """
    events = [part for part in parts if not isinstance(part, CollapsedPart)]
    for batch in collapser.decoder.batches(events):
        collapser.add(batch)
    yield from collapser.take().to_batches()
    for part in parts:
        if isinstance(part, CollapsedPart):
            with pa.ipc.open_stream(part.table) as table:
                counts = (table.schema.metadata or {}).get(_MISMATCHES, b"{}")
                collapser.decoder.mismatches.update(msgspec.json.decode(counts, type=dict[str, int]))
                yield from (batch.cast(collapser.schema) for batch in table)
