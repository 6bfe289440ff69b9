"""Filters on sealed rows, evaluated column by column, with null for unknown, as in Arrow.

`mask` is exact: it gives for every row the result of `Filter.matches` for the event. Only rows that have
something in the map under a name the filter reads (see `schema`) are decoded and evaluated one by one.

Comparisons, IN, IS NULL and their junctions are done by Arrow, functions once for each distinct value, and
conditions that relate several attributes or calculate with them row by row, for the rows that all others
leave. The rule: a result is that of `tidings.filters.evaluate` for an event with exactly these values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.event import arrow
from tidings.event.header import EMPTY_HEADER
from tidings.event.values import EXACT_MAX, HEADER_NAMES, INT_MAX, INT_MIN, JMS_ALIASES, Value
from tidings.filters import tree
from tidings.filters.filter import Filter
from tidings.filters.fold import Fold
from tidings.filters.functions import FUNCTIONS
from tidings.filters.kinds import Kind, by_kind, calculate, compare, kind_of, negate
from tidings.filters.tree import Condition, Expression
from tidings.log.arrow.attributes import Mask, whole
from tidings.log.arrow.decode_rows import events_of
from tidings.log.arrow.map_column import MapEntries, numbers_of
from tidings.log.schema import NUMBERS, own_columns


def columns_for(filter: Filter, schema: pa.Schema) -> list[str]:
    """Return the columns of a file with that schema that `mask` reads."""
    names = {JMS_ALIASES.get(name, name) for name in tree.names_in(filter.condition)}
    wanted = set(names)
    if names - HEADER_NAMES:
        wanted.add("attributes")
    if "received" in names:
        wanted.add("stored")
    return [field.name for field in schema if field.name in wanted]


def mask(filter: Filter, table: pa.Table) -> Mask:
    """Return for each row whether it matches; the table must have the columns that `columns_for` names."""
    table = table.combine_chunks()
    answer = Evaluation(table).condition(filter.condition)
    matches: Mask = pc.fill_null(answer, False).to_numpy(zero_copy_only=False).copy()
    unsure = _rows_with(tree.names_in(filter.condition), table)
    if len(unsure):
        events = events_of(_filled(table.take(pa.array(unsure))))
        matches[unsure] = [filter.matches(event) for event in events]
    return matches


def _rows_with(names: frozenset[str], table: pa.Table) -> Any:
    """Return a mask of the rows whose map has an entry of one of these names."""
    if "attributes" not in table.schema.names:
        return ()
    entries = MapEntries(table.column("attributes"))
    if names.isdisjoint(entries.names):
        return ()
    among = pc.is_in(entries.keys, pa.array(sorted(names), pa.string()))
    return np.unique(entries.rows[among.to_numpy(zero_copy_only=False)])


def _filled(table: pa.Table) -> pa.Table:
    """Return the table with all columns of an event as in the files; unread ones may hold anything."""
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


class Operand(NamedTuple):
    """Values of an expression: floats if all are floats, null for unknown, and cells."""

    floats: Any | None
    cells: Callable[[], list[Any]]
    """One for each row, None without a value; made only if there are no floats."""


class Evaluation(Fold[Any, Operand]):
    """Conditions on the columns of one table; a result is an array of true, false and null for unknown."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._own = own_columns(table.schema)

    def all_of(self, operands: tuple[Condition, ...]) -> Any:
        """Evaluate conditions that go row by row last, and only for rows that no other has decided."""
        ordered = sorted(operands, key=_goes_by_rows)
        answer = self.condition(ordered[0])
        for operand in ordered[1:]:
            if not _goes_by_rows(operand):
                answer = pc.and_kleene(answer, self.condition(operand))
                continue
            open_rows = np.flatnonzero(pc.fill_null(answer, True).to_numpy(zero_copy_only=False))
            left = self._table.take(pa.array(open_rows))
            held = Evaluation(left.combine_chunks()).condition(operand)
            decided = np.full(len(self._table), -1)
            decided[open_rows] = np.arange(len(open_rows))
            # A row that is decided already is false, whatever comes here.
            answer = pc.and_kleene(answer, held.take(pa.array(decided, mask=decided < 0)))
        return answer

    def any_of(self, operands: tuple[Condition, ...]) -> Any:
        return reduce(pc.or_kleene, map(self.condition, operands))

    def opposite(self, operand: Condition) -> Any:
        return pc.invert(self.condition(operand))

    def compared_with(self, operator: str, name: str, constant: Value) -> Any:
        return _by_values(self._column(name), lambda column: _compare(operator, column, constant))

    def compared(self, operator: str, left: Expression, right: Expression) -> Any:
        first, second = self.value(left), self.value(right)
        if first.floats is not None and second.floats is not None:
            return _OPERATORS[operator](first.floats, second.floats)
        pairs = zip(first.cells(), second.cells(), strict=True)
        return pa.array([compare(operator, *pair) for pair in pairs], pa.bool_())

    def among(self, name: str, values: tuple[Value, ...]) -> Any:
        column = self._column(name)
        lists = [
            _by_values(column, partial(_listed, kind=kind, values=alike))
            for kind, alike in by_kind(values).items()
        ]
        return reduce(pc.or_kleene, lists)

    def is_null(self, name: str) -> Any:
        return self._column(name, nan=True).is_null()

    def always(self, answer: bool | None) -> Any:
        return pa.repeat(pa.scalar(answer, pa.bool_()), len(self._table))

    def is_true(self, name: str) -> Any:
        column = self._column(name)
        return column if pa.types.is_boolean(column.type) else self.always(None)

    def holds(self, call: tree.FunctionCall) -> Any:
        test = FUNCTIONS[call.function].prepare(*call.constants)
        gives = _GIVES[FUNCTIONS[call.function].gives]
        columns = [self._column(name, nan=True) for name in call.names]
        if len(columns) > 1:
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            return pa.array([None if None in row else test(*row) for row in rows], gives)
        different = columns[0].dictionary_encode()
        answers = [test(value) for value in different.dictionary.to_pylist()]
        return pa.array(answers, gives).take(different.indices)

    # Expressions

    def named(self, name: str) -> Operand:
        column = self._column(name)
        is_mixed = self._own.get(name) == NUMBERS

        def cells() -> list[Any]:
            values: list[Any] = self._column(name, nan=True).to_pylist()
            return numbers_of(values) if is_mixed else values

        return Operand(column if pa.types.is_floating(column.type) and not is_mixed else None, cells)

    def constant(self, value: Value) -> Operand:
        is_float = type(value) is float or (type(value) is int and abs(value) <= EXACT_MAX)
        rows = len(self._table)
        floats = pa.repeat(pa.scalar(float(value), pa.float64()), rows) if is_float else None  # type: ignore[arg-type]
        return Operand(floats, lambda: [value] * rows)

    def calculated(self, operator: str, left: Expression, right: Expression) -> Operand:
        first, second = self.value(left), self.value(right)

        def cells() -> list[Any]:
            pairs = zip(first.cells(), second.cells(), strict=True)
            return [calculate(operator, *pair) for pair in pairs]

        if first.floats is None or second.floats is None or not (tree.names_in(left) or tree.names_in(right)):
            return Operand(None, cells)
        return Operand(_calculated(operator, first.floats, second.floats), cells)

    def negative(self, operand: Expression) -> Operand:
        inner = self.value(operand)
        floats = None if inner.floats is None else pc.negate(inner.floats)
        return Operand(floats, lambda: [negate(value) for value in inner.cells()])

    def called(self, call: tree.FunctionCall) -> Operand:
        return Operand(None, lambda: self.holds(call).to_pylist())

    # Columns

    def _column(self, name: str, *, nan: bool = False) -> Any:
        """Return the values of an attribute or header field, null without one or, unless `nan`, for NaN."""
        column = self._read(name)
        if not nan and pa.types.is_floating(column.type):
            return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        return column

    def _read(self, name: str) -> Any:
        field = JMS_ALIASES.get(name, name)
        if field not in self._own and field not in HEADER_NAMES:
            return pa.nulls(len(self._table), pa.bool_())
        column = whole(self._table.column(field))
        if name == "JMSTimestamp":
            return pa.array(column.cast(pa.int64()).to_numpy() // 1000)
        if name == "JMSDeliveryMode":
            column = column.cast(pa.string())
            return pc.if_else(pc.equal(column, "transient"), "NON_PERSISTENT", "PERSISTENT")
        if name == "received":  # null if it only repeats when the event was stored
            stored = whole(self._table.column("stored"))
            return pc.if_else(stored.is_valid(), column, pa.scalar(None, column.type))
        return column.cast(pa.int64()) if pa.types.is_integer(column.type) else column


def _compare(operator: str, column: Any, value: Value) -> Any:
    kind = _kind_of(column.type)
    if kind is not kind_of(value):
        return pa.nulls(len(column), pa.bool_())
    if kind is not Kind.NUMBER:
        return _OPERATORS[operator](column, pa.scalar(value, column.type))
    exact = _exact(operator, column.type, value)  # type: ignore[arg-type]
    if exact is None:
        return pa.array([compare(operator, cell, value) for cell in column.to_pylist()], pa.bool_())
    return _OPERATORS[exact[0]](column, pa.scalar(exact[1], column.type))


def _listed(column: Any, kind: Kind, values: list[Value]) -> Any:
    """Return whether each value is among these, which are all of one kind."""
    if _kind_of(column.type) is not kind:
        return pa.nulls(len(column), pa.bool_())
    if kind is Kind.NUMBER:
        return reduce(pc.or_kleene, [_compare("=", column, value) for value in values])
    found = pc.is_in(column, pa.array(values, column.type))
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.bool_()))


def _calculated(operator: str, left: Any, right: Any) -> Any:
    """Calculate with floats as `tidings.filters.kinds` does: division by zero and NaN are unknown."""
    if operator == "/":
        right = pc.if_else(pc.equal(right, 0.0), pa.scalar(None, pa.float64()), right)
    result = _CALCULATIONS[operator](left, right)
    return pc.if_else(pc.is_nan(result), pa.scalar(None, pa.float64()), result)


def _by_values(column: Any, test: Callable[[Any], Any]) -> Any:
    """Return the result of a test for each row; a dictionary column is tested once for each value."""
    if not pa.types.is_dictionary(column.type):
        return test(column)
    return test(column.dictionary).take(column.indices)


def _goes_by_rows(node: Condition) -> bool:
    """Whether a condition is evaluated row by row, at least in part."""
    match node:
        case tree.Compare(_, tree.Name(), tree.Literal()) | tree.Between(
            tree.Name(), tree.Literal(), tree.Literal()
        ):
            return False
        case tree.Compare() | tree.Between():
            return True
        case tree.FunctionCall(_, names, _):
            return len(names) > 1
    return any(map(_goes_by_rows, tree.parts_of(node)))


def _kind_of(kind: Any) -> Kind:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return Kind.NUMBER
    if pa.types.is_timestamp(kind):
        return Kind.TIME
    return {pa.bool_(): Kind.BOOLEAN, pa.string(): Kind.STRING, pa.binary(): Kind.BYTES}[kind]


def _exact(operator: str, kind: Any, value: float) -> tuple[str, float] | None:
    """Return the equivalent comparison with a constant of the column's own type, if there is one."""
    if pa.types.is_floating(kind):
        return (operator, float(value)) if type(value) is float or abs(value) <= EXACT_MAX else None
    if type(value) is int:
        return operator, value
    if value == math.floor(value) and INT_MIN <= value <= INT_MAX - 1024:
        return operator, int(value)
    if operator in ("=", "<>") or abs(value) >= EXACT_MAX:
        return None
    return ("<=" if operator in ("<", "<=") else ">"), math.floor(value)


_CALCULATIONS = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}
_GIVES = {"condition": pa.bool_(), "number": pa.float64()}
_OPERATORS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
