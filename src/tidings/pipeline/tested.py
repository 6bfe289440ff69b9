"""A condition that Spark has no equal for, tested by tidings itself in Spark's Python workers.

Slower than a condition of Spark's own, and tidings must be installed where the workers run, but with the very
same answers. Times go there as microseconds: as times Spark would hand them over in some time zone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as sf

from tidings.event.model import Event
from tidings.event.values import Value, time_from_us
from tidings.filters.evaluate import condition_test
from tidings.filters.tree import (
    Arithmetic,
    Between,
    Call,
    Compare,
    Condition,
    Expression,
    Name,
    Negative,
)
from tidings.pipeline.held import Names


def tested(condition: Condition, names: Names) -> Column:
    """The condition as a function of all kinds of all names in it."""
    new = {name: f"v{number}" for number, name in enumerate(sorted(names_in(condition)))}
    places: list[tuple[str, str]] = []
    columns: list[Column] = []
    for name, attribute in new.items():
        for letter, column in names.held(name).kinds.items():
            places.append((attribute, letter))
            columns.append(sf.unix_micros(column) if letter == "t" else column)
    if not columns:
        return sf.lit(None).cast("boolean")
    # Without Arrow: on its way through pandas, an integer that may be NULL would become a float.
    test = sf.udf(_test_of(renamed(condition, new), places), "boolean", useArrow=False)
    return test(*columns)


def _test_of(condition: Condition, places: list[tuple[str, str]]) -> Callable[..., bool | None]:
    prepared: list[Callable[[Event], bool | None]] = []  # made by the worker: it can't be sent there

    def test(*cells: Any) -> bool | None:
        if not prepared:
            prepared.append(condition_test(condition))
        values = {
            name: _value(letter, cell)
            for (name, letter), cell in zip(places, cells, strict=True)
            if cell is not None
        }
        return prepared[0](Event.unchecked(0, "tested", 0, values))

    return test


def _value(letter: str, cell: Any) -> Value:
    if letter == "t":
        return time_from_us(cell)
    value: Value = bytes(cell) if letter == "x" else cell
    return value


def names_in(node: Condition | Expression) -> set[str]:
    """The names in a simple condition, or in an expression."""
    match node:
        case Name(name):
            return {name}
        case Call(names=names):
            return set(names)
        case Compare(_, left, right) | Arithmetic(_, left, right):
            return names_in(left) | names_in(right)
        case Between(operand, low, high):
            return names_in(operand) | names_in(low) | names_in(high)
        case Negative(operand):
            return names_in(operand)
    return set()


def renamed(node: Any, new: dict[str, str]) -> Any:
    """The same with other names: those of header fields can't be given to attributes."""
    match node:
        case Name(name):
            return Name(new[name])
        case Call(function, names, constants):
            return Call(function, tuple(new[name] for name in names), constants)
        case Compare(operator, left, right):
            return Compare(operator, renamed(left, new), renamed(right, new))
        case Arithmetic(operator, left, right):
            return Arithmetic(operator, renamed(left, new), renamed(right, new))
        case Between(operand, low, high):
            return Between(renamed(operand, new), renamed(low, new), renamed(high, new))
        case Negative(operand):
            return Negative(renamed(operand, new))
    return node
