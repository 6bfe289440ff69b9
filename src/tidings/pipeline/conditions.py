"""Conditions of Spark's own on numbers and on strings, with the results that filters give.

Spark casts an integer to a double before it compares the two, puts NaN above all numbers, and by default
raises an error if a sum leaves 64 bits or something is divided by zero. Filters compare exactly, with NaN
nothing compares, a sum of integers that leaves 64 bits becomes a float, and a division by zero is unknown.

If the set of strings that a function accepts is given by its ends, the column is compared with these: Spark
has statistics of files for that. LIKE is Spark's own, with its escape character; patterns of topics
become regular expressions of Java, built from parts that mean the same there. An expression of MATCHES is
RE2's, which Java reads differently, so only the simplest are translated.

If there is no equivalent, `NoEqual` is raised before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import reduce
from operator import add, and_, mul, or_, sub
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as sf

from tidings.event.values import EXACT_MAX, INT_MAX, INT_MIN
from tidings.filters.functions import FUNCTIONS
from tidings.filters.intervals import Intervals, Piece
from tidings.filters.kinds import OPERATORS
from tidings.filters.topics import SLASHES, read_topic
from tidings.filters.tree import FunctionCall
from tidings.pipeline.attribute_columns import AttributeValue

INT_END = float(2**63)
"""First double past the integers of 64 bits."""
_WHOLE = "decimal(19,0)"
"""Decimal that holds every integer of 64 bits; sums and products of two of them fit Spark's widest one."""
PIECES_MAX = 100
"""Parts of a set of strings that are written as comparisons: a taxonomy may make thousands."""
ESCAPE = "\\"
"""Escape character of Spark's LIKE."""


class NoEqual(Exception):
    """Spark has no equivalent; the text names the part that can't be translated."""


# Comparing numbers


def compare_number(operator: str, held: AttributeValue, constant: float) -> list[Column]:
    """Return `held operator constant`, once for each kind of number it may be."""
    answers = []
    if (whole := held.get("i")) is not None:
        answers.append(_whole_with(operator, whole, constant))
    if (real := held.get("f")) is not None:
        answers.append(_real_with(operator, real, constant))
    return answers


def _whole_with(operator: str, column: Column, constant: float) -> Column:
    if not float(constant).is_integer():
        if operator in ("=", "<>"):
            return _always(operator == "<>", column)
        return column <= math.floor(constant) if "<" in operator else column >= math.ceil(constant)
    whole = int(constant)
    if not INT_MIN <= whole <= INT_MAX:
        return _always(OPERATORS[operator](0, whole), column)
    return related(operator, column, sf.lit(whole))


def _real_with(operator: str, column: Column, constant: float) -> Column:
    near = float(constant)
    if near != constant:  # an integer between two doubles
        if operator in ("=", "<>"):
            return _always(operator == "<>", sf.when(~sf.isnan(column), column))
        below, above = sorted((near, math.nextafter(near, -math.inf if near > constant else math.inf)))
        operator, near = ("<=", below) if "<" in operator else (">=", above)
    # Spark's result for NaN may be false or true. Written like this it becomes NULL, and the optimizer
    # still sees a plain comparison, which it can push down to Parquet.
    unknown = sf.when(sf.isnan(column), sf.lit(None).cast("boolean"))
    answer = related(operator, column, sf.lit(near))
    if operator in ("=", "<", "<="):
        return answer | unknown.otherwise(sf.lit(False))
    return answer & unknown.otherwise(sf.lit(True))


def _always(answer: bool, column: Column) -> Column:
    """Return the same result wherever the column has a value."""
    return sf.when(column.isNotNull(), sf.lit(answer))


def compare_numbers(operator: str, left: AttributeValue, right: AttributeValue) -> list[Column]:
    """Return `left operator right` for each pair of kinds of number, none of them a constant."""
    whole, other_whole, real, other_real = left.get("i"), right.get("i"), left.real, right.real
    answers = []
    if whole is not None and other_whole is not None:
        answers.append(related(operator, whole, other_whole))
    if real is not None and other_real is not None:
        answers.append(related(operator, real, other_real))
    if whole is not None and other_real is not None:
        answers.append(related(operator, _order(whole, other_real), sf.lit(0)))
    if real is not None and other_whole is not None:
        answers.append(related(operator, sf.lit(0), _order(other_whole, real)))
    return answers


def _order(whole: Column, real: Column) -> Column:
    """Return -1, 0 or 1 as the integer is less than the double, equal or greater; exact, unlike a cast."""
    order = (
        sf.when(real >= INT_END, sf.lit(-1))
        .when(real < -INT_END, sf.lit(1))
        .when(whole < sf.ceil(real), sf.lit(-1))
        .when(whole > sf.floor(real), sf.lit(1))
        .otherwise(sf.lit(0))
    )
    return sf.when(whole.isNotNull() & real.isNotNull(), order)


def related(operator: str, left: Column, right: Column) -> Column:
    """Return `left operator right` of two columns of one type."""
    relation: Callable[..., Any] = OPERATORS[operator]  # of Columns they give Columns
    answer: Column = relation(left, right)
    return answer


# Calculating with numbers


def negative(operand: AttributeValue) -> AttributeValue:
    """Return `-operand`; the least integer has no opposite and becomes a float."""
    kinds: dict[str, Column] = {}
    whole, real = operand.get("i"), operand.real
    if real is not None:
        kinds["f"] = -real
    if whole is not None:
        whole = whole.cast("bigint")
        kinds["i"] = whole if operand.low > INT_MIN else sf.when(whole != INT_MIN, whole)
        kinds["i"] = -kinds["i"]
        if operand.low == INT_MIN:
            float_end = sf.when(whole == INT_MIN, sf.lit(INT_END))
            kinds["f"] = float_end if real is None else sf.coalesce(kinds["f"], float_end)
    return AttributeValue(sf.lit(None), kinds, max(-operand.high, INT_MIN), min(-operand.low, INT_MAX))


def calculate(operator: str, left: AttributeValue, right: AttributeValue) -> AttributeValue:
    """Return `left operator right` with + - * /, where each side is known to be an integer or a float."""
    one, other = _only_kind(left), _only_kind(right)
    if "" in (one, other):
        return AttributeValue(sf.lit(None), {})
    if one == other == "i":
        return _quotient(left, right) if operator == "/" else _whole_result(operator, left, right)
    return AttributeValue(sf.lit(None), {"f": _combined(operator, _as_real(left), _as_real(right))})


def _only_kind(held: AttributeValue) -> str:
    numbers = [letter for letter in "if" if letter in held.kinds]
    if len(numbers) > 1:
        raise NoEqual("a calculation with what may be an integer or a float")
    return numbers[0] if numbers else ""


def _as_real(held: AttributeValue) -> Column:
    real = held.real
    return held.kinds["i"].cast("double") if real is None else real


def _combined(operator: str, left: Column, right: Column) -> Column:
    return sf.try_divide(left, right) if operator == "/" else _CALCULATIONS[operator](left, right)


def _quotient(left: AttributeValue, right: AttributeValue) -> AttributeValue:
    """Divide integers exactly and round once, as Python does; so do doubles that are those integers."""
    if max(abs(left.low), abs(left.high), abs(right.low), abs(right.high)) > EXACT_MAX:
        raise NoEqual("a division of integers of more than 53 bits")
    return AttributeValue(sf.lit(None), {"f": _combined("/", _as_real(left), _as_real(right))})


def _whole_result(operator: str, left: AttributeValue, right: AttributeValue) -> AttributeValue:
    """Return an integer within 64 bits, beyond it a float: that of the exact result, rounded once.

    One step only: Spark reorders the steps of a longer calculation, and they may overflow then.
    """
    if left.calculated or right.calculated:
        raise NoEqual("a calculation with integers in several steps")
    ends = [_CALCULATIONS[operator](a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    low, high = min(ends), max(ends)
    one, other = left.kinds["i"].cast("bigint"), right.kinds["i"].cast("bigint")
    if low >= INT_MIN and high <= INT_MAX:
        return AttributeValue(
            sf.lit(None), {"i": _CALCULATIONS[operator](one, other)}, low, high, calculated=True
        )
    whole = _TRIED[operator](one, other)
    exact = _CALCULATIONS[operator](one.cast(_WHOLE), other.cast(_WHOLE))
    return AttributeValue(sf.lit(None), {"i": whole, "f": sf.when(whole.isNull(), exact.cast("double"))})


_CALCULATIONS: dict[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul}
_TRIED: dict[str, Callable[[Column, Column], Column]] = {
    "+": sf.try_add,
    "-": sf.try_subtract,
    "*": sf.try_multiply,
}


# Strings


def text_condition(call: FunctionCall, text: Column) -> Column:
    """Return a function of one string; raises NoEqual without an equivalent in Spark."""
    constants = tuple(str(constant) for constant in call.constants)
    plain = _PLAIN.get(call.function)
    if plain is not None:
        return plain(text, *constants)
    implied = FUNCTIONS[call.function].implied
    assert implied is not None
    (constraint,), exact = implied(1, *constants)
    if exact:
        return _among(call.function, text, constraint.strings)
    expression = _EXPRESSIONS.get(call.function)
    if expression is None:
        raise NoEqual(call.function)
    return text.rlike(expression(*constants))


def _among(function: str, text: Column, strings: Intervals) -> Column:
    pieces = list(strings.pieces())
    if len(pieces) > PIECES_MAX:
        raise NoEqual(f"{function} with more than {PIECES_MAX} terms")
    if not pieces:
        return sf.when(text.isNotNull(), sf.lit(False))
    return reduce(or_, (_in_piece(text, piece) for piece in pieces))


def _in_piece(text: Column, piece: Piece) -> Column:
    if piece.is_point:
        return text == sf.lit(piece.low)
    ends = []
    if piece.low is not None:
        ends.append(text >= sf.lit(piece.low) if piece.low_closed else text > sf.lit(piece.low))
    if piece.high is not None:
        ends.append(text <= sf.lit(piece.high) if piece.high_closed else text < sf.lit(piece.high))
    return reduce(and_, ends) if ends else sf.when(text.isNotNull(), sf.lit(True))


# Patterns


def like_symbols(pattern: str, escape: str | None = None) -> Iterator[tuple[str, bool]]:
    """Yield the characters of a valid LIKE pattern, each with whether it is a wildcard."""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            yield next(characters), False
        else:
            yield character, character in "%_"


def _like(text: Column, pattern: str, escape: str | None = None) -> Column:
    written = "".join(
        character if wild or character not in ("%", "_", ESCAPE) else ESCAPE + character
        for character, wild in like_symbols(pattern, escape)
    )
    return text.like(written)


def under_expression(pattern: str, escape: str | None = None) -> str:
    """Return UNDER as a Java expression: each further name may be absent, and all below the last present."""
    levels = ["".join(_in_level(name, escape)) for name in pattern.split(".")]
    rest = r"(?:\..*)?"
    for level in reversed(levels[1:]):
        rest = rf"(?:\.{level}{rest})?"
    return rf"(?s)\A{levels[0]}{rest}\z"


def _in_level(name: str, escape: str | None) -> Iterator[str]:
    for character, wild in like_symbols(name, escape):
        yield ("[^.]*" if character == "%" else "[^.]") if wild else literal(character)


def topic_expression(pattern: str) -> str:
    """Return TOPIC as a Java expression."""
    topic = read_topic(pattern)
    separator = literal(topic.spelling.separator)
    one = f"[^{topic.spelling.separator}]*"
    levels = separator.join(one if level is None else literal(level) for level in topic.levels)
    hidden = r"(?!\$)" if topic.hides else ""
    rest = ""
    if topic.is_open:
        rest = f"{separator}.*" if topic.levels else ".*"
        if topic.spelling is SLASHES:
            rest = f"(?:{rest})?"
    return rf"(?s)\A{hidden}{levels}{rest}\z"


def literal(text: str) -> str:
    """Return a Java expression for just this text."""
    return "".join(c if c.isalnum() or not c.isascii() else f"\\{c}" for c in text)


_PLAIN: dict[str, Callable[..., Column]] = {
    "STARTS_WITH": lambda text, part: text.startswith(sf.lit(part)),
    "ENDS_WITH": lambda text, part: text.endswith(sf.lit(part)),
    "CONTAINS": lambda text, part: text.contains(sf.lit(part)),
    "LIKE": _like,
}
_EXPRESSIONS: dict[str, Callable[..., str]] = {"TOPIC": topic_expression, "UNDER": under_expression}
