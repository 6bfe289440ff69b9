"""A filter as a Spark Column that is true, false or NULL where the filter is true, false or unknown.

Each simple condition is translated for the kinds of value that its names may have in the DataFrame; the
results for several kinds are joined by `coalesce`, as at most one kind is there in a row. AND, OR and NOT are
Spark's own, which has the same three values. Conditions without an equivalent in Spark are tested by tidings
in Spark's Python workers, or refused if the caller wants none of that. All of it is made of
`pyspark.sql.functions`, so that the columns are those of Spark Connect if the session is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from operator import and_, or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as sf

from tidings.errors import FilterError
from tidings.event.model import Event
from tidings.event.values import Value, time_from_us, us_from_time
from tidings.filters.evaluate import EventTest, Read, Tests
from tidings.filters.fold import Fold
from tidings.filters.functions import FUNCTIONS
from tidings.filters.intervals import Piece
from tidings.filters.kinds import Kind, by_kind, kind_of
from tidings.filters.tree import Between, Compare, Condition, Expression, FunctionCall, Literal, names_in
from tidings.pipeline.attribute_columns import AttributeValue, ColumnTypes, Names
from tidings.pipeline.conditions import (
    NoEqual,
    calculate,
    compare_number,
    compare_numbers,
    negative,
    related,
    text_condition,
)

LETTER_OF = {Kind.BOOLEAN: "b", Kind.STRING: "s", Kind.TIME: "t", Kind.BYTES: "x"}


def to_column(
    condition: Condition,
    columns: ColumnTypes | None = None,
    attributes: str | None = None,
    python: bool = True,
) -> Column:
    """Return the condition over a DataFrame with these columns; see `Filter.to_spark`."""
    return _Translation(Names(columns, attributes), python).condition(condition)


class _Translation(Fold[Column, AttributeValue]):
    """Translation of one filter to a Column."""

    def __init__(self, names: Names, python: bool) -> None:
        self._names = names
        self._python = python

    def all_of(self, operands: tuple[Condition, ...]) -> Column:
        return by_halves([self.condition(operand) for operand in operands], and_)

    def any_of(self, operands: tuple[Condition, ...]) -> Column:
        return by_halves([self.condition(operand) for operand in operands], or_)

    def opposite(self, operand: Condition) -> Column:
        return ~self.condition(operand)

    def compared_with(self, operator: str, name: str, constant: Value) -> Column:
        return compare_with(operator, self.named(name), constant)

    def compared(self, operator: str, left: Expression, right: Expression) -> Column:
        return self._or_tested(Compare(operator, left, right), lambda: self._compared(operator, left, right))

    def _compared(self, operator: str, left: Expression, right: Expression) -> Column:
        if isinstance(right, Literal) and not isinstance(left, Literal):
            return compare_with(operator, self.value(left), right.value)
        return compare(operator, self.value(left), self.value(right))

    def between(self, operand: Expression, low: Expression, high: Expression) -> Column:
        return self._or_tested(
            Between(operand, low, high),
            lambda: self._compared(">=", operand, low) & self._compared("<=", operand, high),
        )

    def among(self, name: str, values: tuple[Value, ...]) -> Column:
        return among(self.named(name), values)

    def is_null(self, name: str) -> Column:
        return self.named(name).there.isNull()

    def always(self, answer: bool) -> Column:
        return sf.lit(answer)

    def is_true(self, name: str) -> Column:
        return _answer([self.named(name).get("b")])

    def holds(self, call: FunctionCall) -> Column:
        return self._or_tested(call, lambda: _called(call, [self.named(name) for name in call.names]))

    def _or_tested(self, node: Condition, translate: Callable[[], Column]) -> Column:
        """Return Spark's equivalent, or else the condition tested in its Python workers."""
        try:
            return translate()
        except NoEqual as error:
            if not self._python:
                raise FilterError(
                    f"Spark has no equal for {error}",
                    hint="leave out python=False, or give the filter to the source as the option where",
                ) from None
        return _tested(node, self._names)

    def named(self, name: str) -> AttributeValue:
        return self._names.held(name)

    def constant(self, value: Value) -> AttributeValue:
        return constant_held(value)

    def calculated(self, operator: str, left: Expression, right: Expression) -> AttributeValue:
        return calculate(operator, self.value(left), self.value(right))

    def negative(self, operand: Expression) -> AttributeValue:
        return negative(self.value(operand))

    def called(self, call: FunctionCall) -> AttributeValue:
        raise NoEqual(call.function)


# Conditions without an equivalent in Spark


def _tested(condition: Condition, names: Names) -> Column:
    """Return the condition as a function of all kinds of all its names, which Spark's Python workers call.

    Slower than a condition of Spark's own, and tidings must be installed where the workers run, but with the
    very same results. Times go there as microseconds: as times Spark would convert them to some time zone.
    """
    places: list[tuple[str, str]] = []
    columns: list[Column] = []
    for name in sorted(names_in(condition)):
        for letter, column in names.held(name).kinds.items():
            places.append((name, letter))
            columns.append(sf.unix_micros(column) if letter == "t" else column)
    if not columns:
        return sf.lit(None).cast("boolean")
    # Without Arrow: on its way through pandas, an integer that may be NULL would become a float.
    return sf.udf(_test_of(condition, places), "boolean", useArrow=False)(*columns)


class _CellTests(Tests):
    """Tests of an event whose values are the cells, those of header fields too."""

    def named(self, name: str) -> Read:
        return lambda event: event.values.get(name)


def _test_of(condition: Condition, places: list[tuple[str, str]]) -> Callable[..., bool | None]:
    prepared: list[EventTest] = []  # made by the worker: it can't be sent there

    def test(*cells: Any) -> bool | None:
        if not prepared:
            prepared.append(_CellTests().condition(condition))
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


# Conditions of Spark's own


def by_halves(parts: Sequence[Column], joint: Callable[[Column, Column], Column]) -> Column:
    """Join in pairs, again and again: Spark walks an expression recursively, so it must not be deep."""
    joined = list(parts)
    while len(joined) > 1:
        odd = joined[-1:] if len(joined) & 1 else []
        joined = [joint(a, b) for a, b in zip(joined[::2], joined[1::2], strict=False)] + odd
    return joined[0]


def _answer(answers: Sequence[Column | None]) -> Column:
    """Return the one result that is not NULL; unknown if there is none."""
    known = [answer for answer in answers if answer is not None]
    if not known:
        return sf.lit(None).cast("boolean")
    return known[0] if len(known) == 1 else sf.coalesce(*known)


def constant_column(value: Value) -> Column:
    """Return a constant; times and bytes in a form that no time zone and no driver changes."""
    if isinstance(value, datetime):
        return sf.timestamp_micros(sf.lit(us_from_time(value)))
    return sf.unhex(sf.lit(value.hex())) if isinstance(value, bytes) else sf.lit(value)


def constant_held(value: Value) -> AttributeValue:
    """Return a constant as an operand."""
    column = constant_column(value)
    if type(value) is int:
        return AttributeValue(column, {"i": column}, value, value)
    letter = "f" if type(value) is float else LETTER_OF[kind_of(value)]
    return AttributeValue(column, {letter: column})


def compare_with(operator: str, held: AttributeValue, constant: Value) -> Column:
    """Return `held operator constant`."""
    if type(constant) is int or type(constant) is float:
        return _answer(compare_number(operator, held, constant))
    column = held.get(LETTER_OF[kind_of(constant)])
    return _answer([None if column is None else related(operator, column, constant_column(constant))])


def compare(operator: str, left: AttributeValue, right: AttributeValue) -> Column:
    """Return `left operator right`: only values of one kind compare, and booleans have no order."""
    answers = compare_numbers(operator, left, right)
    for letter in "bstx":
        one, other = left.get(letter), right.get(letter)
        if one is not None and other is not None and (letter != "b" or operator in ("=", "<>")):
            answers.append(related(operator, one, other))
    return _answer(answers)


def among(held: AttributeValue, values: tuple[Value, ...]) -> Column:
    """Return `held IN (values)`: with values of several kinds it is true or unknown, never false."""
    kinds = by_kind(values)
    answers: list[Column | None] = []
    for kind, members in kinds.items():
        if kind is Kind.NUMBER:
            answers += _among_numbers(held, members)
        elif (column := held.get(LETTER_OF[kind])) is not None:
            answers.append(column.isin(*map(constant_column, members)))
    answer = _answer(answers)
    return answer if len(kinds) == 1 else sf.when(answer, sf.lit(True))


def _among_numbers(held: AttributeValue, members: Sequence[Value]) -> list[Column]:
    wholes = [int(member) for member in members if member == int(member)]  # type: ignore[arg-type]
    reals = [float(member) for member in members if member == float(member)]  # type: ignore[arg-type]
    answers = []
    if (whole := held.get("i")) is not None:
        fitting = [number for number in wholes if -(2**63) <= number < 2**63]
        answers.append(whole.isin(*fitting) if fitting else sf.when(whole.isNotNull(), sf.lit(False)))
    if (real := held.real) is not None:
        answers.append(real.isin(*reals) if reals else sf.when(real.isNotNull(), sf.lit(False)))
    return answers


def within(call: FunctionCall, place: Sequence[AttributeValue]) -> Column:
    """Return WITHIN an upright rectangle: two comparisons per coordinate, unknown unless both are there."""
    implied = FUNCTIONS["WITHIN"].implied
    assert implied is not None
    constraints, exact = implied(len(place), *call.constants)
    if not exact or len(place) == 1:
        raise NoEqual("WITHIN an area that is no upright rectangle")
    inside = [
        _in_range(held, next(iter(constraint.numbers.pieces())))
        for held, constraint in zip(place, constraints, strict=True)
    ]
    return sf.when(inside[0].isNotNull() & inside[1].isNotNull(), inside[0] & inside[1])


def _called(call: FunctionCall, arguments: Sequence[AttributeValue]) -> Column:
    if call.function == "WITHIN":
        return within(call, arguments)
    text = arguments[0].get("s")
    return _answer([None if text is None else text_condition(call, text)])


def _in_range(held: AttributeValue, piece: Piece) -> Column:
    low, high = compare_number(">=", held, piece.low), compare_number("<=", held, piece.high)
    return _answer(low) & _answer(high)
