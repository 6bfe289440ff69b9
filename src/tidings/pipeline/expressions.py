"""A Spark Column read as a filter, as far as it consists of operations that filters have too.

Comparisons, AND, OR, NOT, IN, IS NULL, BETWEEN, LIKE, startswith, endswith, contains, and + - * / on columns
and constants. The filter means the same as the Column, with a filter's rules: kinds are not cast, NaN
compares with nothing. Columns of Spark and of Spark Connect are built differently; each has a reader here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from pyspark.sql import Column

from tidings.errors import FilterError
from tidings.event.values import time_from_us
from tidings.filters import Filter
from tidings.filters.text import write_literal, write_name

DEPTH_MAX = 500
"""Deepest nesting of a Column."""


class Operation(NamedTuple):
    """A function with its arguments, or an operator with its operands."""

    name: str
    arguments: list[Any]


class Reference(NamedTuple):
    """A column, by its name."""

    name: str


class Constant(NamedTuple):
    """A value."""

    value: Any


PredicatePart = Operation | Reference | Constant


def from_column(column: Column) -> Filter:
    """Return the Column as a filter; FilterError names the part that no filter has."""
    return Filter(_condition(_part(column)))


def _part(column: Any) -> PredicatePart:
    # By its class: a Column returns a field of a struct for any attribute that it lacks.
    if ".connect." in type(column).__module__:
        return _read_connected(column._expr, 0)
    return _read_java(column._jc.node(), 0)


# Reading


def _read_java(node: Any, depth: int) -> PredicatePart:
    """Read a node of a Column of this process's own Spark, which is a Java object."""
    kind = node.getClass().getSimpleName()
    if depth > DEPTH_MAX:
        raise FilterError(f"a Column nested more than {DEPTH_MAX} deep")
    if kind == "UnresolvedFunction":
        return Operation(
            node.functionName(), [_read_java(each, depth + 1) for each in _items(node.arguments())]
        )
    if kind == "UnresolvedAttribute":
        return Reference(".".join(_items(node.nameParts())))
    if kind == "Literal":
        return Constant(_java_value(node.value()))
    raise _refused(kind)


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _java_value(value: Any) -> Any:
    if not hasattr(value, "getClass"):
        return value
    kind = value.getClass().getName()
    if kind == "java.sql.Timestamp":
        value, kind = value.toInstant(), "java.time.Instant"
    if kind == "java.time.Instant":
        return time_from_us(value.getEpochSecond() * 1_000_000 + value.getNano() // 1_000)
    if kind == "java.time.LocalDateTime":
        return datetime.fromisoformat(value.toString())
    raise FilterError(f"a constant of Java's type {kind} can't stand in a filter")


def _read_connected(node: Any, depth: int) -> PredicatePart:
    """Read an expression of Spark Connect."""
    kind = type(node).__name__
    if depth > DEPTH_MAX:
        raise FilterError(f"a Column nested more than {DEPTH_MAX} deep")
    if kind == "UnresolvedFunction":
        return Operation(node._name, [_read_connected(each, depth + 1) for each in node._args])
    if kind == "ColumnReference":
        return Reference(_unquoted(node._unparsed_identifier))
    if kind == "LiteralExpression":
        value = node._value
        is_time = type(node._dataType).__name__ == "TimestampType"
        return Constant(time_from_us(value) if is_time and type(value) is int else value)
    raise _refused(kind)


def _unquoted(name: str) -> str:
    """Parse a name as `col` takes it: between dots, a part may stand in backticks."""
    if name.startswith("`") and name.endswith("`"):
        return name[1:-1].replace("``", "`")
    return name


# Writing


def _condition(part: PredicatePart) -> str:
    match part:
        case Operation(name, arguments):
            write = _CONDITIONS.get(name.lower())
            if write is None:
                raise _refused(name)
            return write(*arguments)
        case Reference(name):
            return write_name(name)
        case Constant(bool() as value):
            return write_literal(value)
    raise FilterError("a constant that is no boolean is no condition")


def _value(part: PredicatePart) -> str:
    match part:
        case Reference(name):
            return write_name(name)
        case Constant(value):
            return _literal(value)
        case Operation(name, [left, right]) if name in ("+", "-", "*", "/"):
            return f"({_value(left)} {name} {_value(right)})"
        case Operation("negative" | "-", [operand]):
            return f"(-{_value(operand)})"
        case Operation(name):
            raise _refused(name)


def _literal(value: Any) -> str:
    """Return a constant as filters write it; it is checked when the filter is made."""
    if isinstance(value, Decimal):
        value = int(value) if value == int(value) else float(value)
    if isinstance(value, bool | int | float | str | datetime | bytes | bytearray):
        return write_literal(bytes(value) if isinstance(value, bytearray) else value)
    raise FilterError(f"a constant of type {type(value).__name__} can't stand in a filter")


def _compared(operator: str) -> Callable[[PredicatePart, PredicatePart], str]:
    return lambda left, right: f"{_value(left)} {operator} {_value(right)}"


def _joined(word: str) -> Callable[[PredicatePart, PredicatePart], str]:
    return lambda left, right: f"({_condition(left)} {word} {_condition(right)})"


def _called(function: str) -> Callable[[PredicatePart, PredicatePart], str]:
    return lambda text, part: f"{function}({_value(text)}, {_value(part)})"


def _like(text: PredicatePart, pattern: PredicatePart, escape: PredicatePart = Constant("\\")) -> str:  # noqa: B008 - never changes
    written, character = _value(pattern), _value(escape)
    needed = isinstance(escape, Constant) and str(escape.value) in written
    return f"{_value(text)} LIKE {written}" + (f" ESCAPE {character}" if needed else "")


_CONDITIONS: dict[str, Callable[..., str]] = {
    **{operator: _compared(operator) for operator in ("=", "<", "<=", ">", ">=", "!=", "<>")},
    "==": _compared("="),
    "and": _joined("AND"),
    "or": _joined("OR"),
    "not": lambda operand: f"NOT ({_condition(operand)})",
    "!": lambda operand: f"NOT ({_condition(operand)})",
    "in": lambda tested, *values: f"{_value(tested)} IN ({', '.join(map(_value, values))})",
    "isnull": lambda tested: f"{_value(tested)} IS NULL",
    "isnotnull": lambda tested: f"{_value(tested)} IS NOT NULL",
    "like": _like,
    "startswith": _called("STARTS_WITH"),
    "endswith": _called("ENDS_WITH"),
    "contains": _called("CONTAINS"),
}


def _refused(name: str) -> FilterError:
    return FilterError(f"no filter has {name}", hint="write the filter as text, or leave this part to Spark")
