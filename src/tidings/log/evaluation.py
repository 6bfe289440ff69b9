"""Conditions worked out column by column, with true, false and null for unknown, as Arrow has them too.

Comparisons, IN, IS NULL and their joints are done by Arrow, functions once for each different value, and what
relates several attributes or calculates with them row by row, for the rows that all else leaves. The rule: an
answer is what `tidings.filters.evaluate` gives for an event that has exactly these values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.event.values import EXACT_MAX, HEADER_NAMES, INT_MAX, INT_MIN, JMS_ALIASES, Value
from tidings.filters.arithmetic import calculate, compare, negate
from tidings.filters.functions import FUNCTIONS
from tidings.filters.kinds import Kind, kind_of
from tidings.filters.tree import (
    And,
    Arithmetic,
    Between,
    Call,
    Compare,
    Condition,
    Expression,
    In,
    IsNull,
    Literal,
    Name,
    Negative,
    Not,
    Or,
)
from tidings.log.entries import numbers_of
from tidings.log.schema import NUMBERS, own_columns


def names_in(node: Condition | Expression) -> frozenset[str]:
    """The attributes and header fields that a condition reads, as it spells them."""
    match node:
        case Name(name) | In(name, _) | IsNull(name):
            return frozenset({name})
        case Call(_, names, _):
            return frozenset(names)
        case And(operands) | Or(operands):
            return _names_in(operands)
        case Not(operand) | Negative(operand):
            return names_in(operand)
        case Compare(_, left, right) | Arithmetic(_, left, right):
            return _names_in((left, right))
        case Between(operand, low, high):
            return _names_in((operand, low, high))
    return frozenset()


def _names_in(nodes: Iterable[Condition | Expression]) -> frozenset[str]:
    return frozenset().union(*map(names_in, nodes))


class Evaluation:
    """Conditions on the columns of one table; an answer is an array of true, false and null for unknown."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._own = own_columns(table.schema)

    def condition(self, node: Condition) -> Any:
        """The answers of a condition."""
        match node:
            case And(operands):
                return self._all_of(operands)
            case Or(operands):
                return reduce(pc.or_kleene, map(self.condition, operands))
            case Not(operand):
                return pc.invert(self.condition(operand))
            case Compare(operator, Name(name), Literal(value)):
                return self._compared(operator, name, value)
            case Compare(operator, left, right):
                first, second = self._floats(left), self._floats(right)
                if first is not None and second is not None:
                    return _OPERATORS[operator](first, second)
                pairs = zip(self._values(left), self._values(right), strict=True)
                return pa.array([compare(operator, *pair) for pair in pairs], pa.bool_())
            case Between(operand, low, high):
                return self._all_of((Compare(">=", operand, low), Compare("<=", operand, high)))
            case In(name, values):
                return self._among(name, values)
            case IsNull(name):
                return self._column(name, nan=True).is_null()
            case Literal(value):
                return self._everywhere(value is True)
            case Name(name):
                column = self._column(name)
                return column if pa.types.is_boolean(column.type) else self._everywhere(None)
            case Call():
                return self._called(node)

    def _everywhere(self, answer: bool | None) -> Any:
        return pa.repeat(pa.scalar(answer, pa.bool_()), len(self._table))

    def _all_of(self, operands: Iterable[Condition]) -> Any:
        """What goes row by row comes last, and only for rows that nothing else has decided."""
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
            # A row that is decided already is false, whatever is said here.
            answer = pc.and_kleene(answer, held.take(pa.array(decided, mask=decided < 0)))
        return answer

    # Columns

    def _column(self, name: str, *, nan: bool = False) -> Any:
        """The values of an attribute or header field, null where there is none or, unless asked for, NaN."""
        column = self._read(name)
        if not nan and pa.types.is_floating(column.type):
            return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        return column

    def _read(self, name: str) -> Any:
        field = JMS_ALIASES.get(name, name)
        if field not in self._own and field not in HEADER_NAMES:
            return pa.nulls(len(self._table), pa.bool_())
        column = _whole(self._table.column(field))
        if name == "JMSTimestamp":
            return pa.array(column.cast(pa.int64()).to_numpy() // 1000)
        if name == "JMSDeliveryMode":
            column = column.cast(pa.string())
            return pc.if_else(pc.equal(column, "transient"), "NON_PERSISTENT", "PERSISTENT")
        if name == "received":  # null where it only tells when the event was stored
            stored = _whole(self._table.column("stored"))
            return pc.if_else(stored.is_valid(), column, pa.scalar(None, column.type))
        return column.cast(pa.int64()) if pa.types.is_integer(column.type) else column

    def _values(self, node: Expression) -> list[Any]:
        """The values of an expression, one for each row, None where it has none."""
        match node:
            case Name(name):
                cells: list[Any] = self._column(name, nan=True).to_pylist()
                return numbers_of(cells) if self._own.get(name) == NUMBERS else cells
            case Literal(value):
                return [value] * len(self._table)
            case Arithmetic(operator, left, right):
                pairs = zip(self._values(left), self._values(right), strict=True)
                return [calculate(operator, *pair) for pair in pairs]
            case Negative(operand):
                return [negate(value) for value in self._values(operand)]
            case Call():
                return self._called(node).to_pylist()  # type: ignore[no-any-return]

    def _floats(self, node: Expression) -> Any | None:
        """The values of an expression that is float all through, null where unknown; else None."""
        match node:
            case Name(name):
                column = self._column(name)
                is_float = pa.types.is_floating(column.type) and self._own.get(name) != NUMBERS
                return column if is_float else None
            case Literal(float() as value):
                return self._constant(value)
            case Literal(int() as value) if type(value) is int and abs(value) <= EXACT_MAX:
                return self._constant(float(value))
            case Negative(operand):
                inner = self._floats(operand)
                return None if inner is None else pc.negate(inner)
            case Arithmetic(operator, left, right) if names_in(left) or names_in(right):
                first, second = self._floats(left), self._floats(right)
                if first is not None and second is not None:
                    return _calculated(operator, first, second)
        return None

    def _constant(self, value: float) -> Any:
        return pa.repeat(pa.scalar(value, pa.float64()), len(self._table))

    # Leaves

    def _called(self, node: Call) -> Any:
        test = FUNCTIONS[node.function].prepare(*node.constants)
        gives = _GIVES[FUNCTIONS[node.function].gives]
        columns = [self._column(name, nan=True) for name in node.names]
        if len(columns) > 1:
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            return pa.array(
                [None if None in row else test(*row) for row in rows], _GIVES[FUNCTIONS[node.function].gives]
            )
        different = columns[0].dictionary_encode()
        answers = [test(value) for value in different.dictionary.to_pylist()]
        return pa.array(answers, gives).take(different.indices)

    def _compared(self, operator: str, name: str, value: Value) -> Any:
        return _by_values(self._column(name), lambda column: self._compare(operator, column, value))

    def _compare(self, operator: str, column: Any, value: Value) -> Any:
        kind = _kind_of(column.type)
        if kind is not kind_of(value):
            return pa.nulls(len(column), pa.bool_())
        if kind is not Kind.NUMBER:
            return _OPERATORS[operator](column, pa.scalar(value, column.type))
        exact = _exact(operator, column.type, value)  # type: ignore[arg-type]
        if exact is None:
            return pa.array([compare(operator, cell, value) for cell in column.to_pylist()], pa.bool_())
        return _OPERATORS[exact[0]](column, pa.scalar(exact[1], column.type))

    def _among(self, name: str, values: tuple[Value, ...]) -> Any:
        """IN is short for equalities joined by OR, so it is unknown while one of them is and none is true."""
        return reduce(
            pc.or_kleene, [self._listed(name, kind, values) for kind in {kind_of(v) for v in values}]
        )

    def _listed(self, name: str, kind: Kind, values: tuple[Value, ...]) -> Any:
        alike = [value for value in values if kind_of(value) is kind]

        def listed(column: Any) -> Any:
            if _kind_of(column.type) is not kind:
                return pa.nulls(len(column), pa.bool_())
            if kind is Kind.NUMBER:
                return reduce(pc.or_kleene, [self._compare("=", column, value) for value in alike])
            found = pc.is_in(column, pa.array(alike, column.type))
            return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.bool_()))

        return _by_values(self._column(name), listed)


def _calculated(operator: str, left: Any, right: Any) -> Any:
    """Floats calculated with as `tidings.filters.arithmetic` does: division by zero and NaN are unknown."""
    if operator == "/":
        right = pc.if_else(pc.equal(right, 0.0), pa.scalar(None, pa.float64()), right)
    result = _CALCULATIONS[operator](left, right)
    return pc.if_else(pc.is_nan(result), pa.scalar(None, pa.float64()), result)


def _by_values(column: Any, test: Callable[[Any], Any]) -> Any:
    """What a test gives for each row, asked once for each different value if that is how they are kept."""
    if not pa.types.is_dictionary(column.type):
        return test(column)
    return test(column.dictionary).take(column.indices)


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _goes_by_rows(node: Condition) -> bool:
    """Whether a condition is worked out row by row, at least in part."""
    match node:
        case And(operands) | Or(operands):
            return any(map(_goes_by_rows, operands))
        case Not(operand):
            return _goes_by_rows(operand)
        case Compare(_, left, right):
            return not (isinstance(left, Name) and isinstance(right, Literal))
        case Between(operand, low, high):
            return _goes_by_rows(Compare(">=", operand, low)) or _goes_by_rows(Compare("<=", operand, high))
        case Call(_, names, _):
            return len(names) > 1
    return False


def _kind_of(kind: Any) -> Kind:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return Kind.NUMBER
    if pa.types.is_timestamp(kind):
        return Kind.TIME
    return {pa.bool_(): Kind.BOOLEAN, pa.string(): Kind.STRING, pa.binary(): Kind.BYTES}[kind]


def _exact(operator: str, kind: Any, value: float) -> tuple[str, float] | None:
    """The comparison with a constant of the column's own type that says the same, if there is one."""
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
