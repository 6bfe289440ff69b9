"""A tree written as text again: one spelling for each tree, with as few brackets as possible.

`parse(write(tree)) == tree`, so filters travel, are stored and are compared as text.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from tidings.event.values import Value
from tidings.filters.fold import Fold
from tidings.filters.tokens import BINDING, KEYWORDS, NAME
from tidings.filters.tree import Condition, Expression, FunctionCall, Literal, Name, Negative, Or

NAMES_KEPT = 1_024
"""Names of which it is remembered how they are written."""

_PLAIN_NAME = re.compile(rf"{NAME}\Z")
_SIGN = 2


class WrittenExpression(NamedTuple):
    """Expression as text, and how tightly its outermost operator binds."""

    text: str
    binding: int = _SIGN + 1

    def within(self, binding: int) -> str:
        """Return the text, in brackets if the operator around it binds tighter."""
        return f"({self.text})" if self.binding < binding else self.text


class _Writer(Fold[str, WrittenExpression]):
    """Conditions as text, with NOT where each has it; expressions as text too."""

    def __init__(self, negation: str) -> None:
        self._not = negation

    def all_of(self, operands: tuple[Condition, ...]) -> str:
        parts = [f"({write(part)})" if isinstance(part, Or) else write(part) for part in operands]
        return self._joined(" AND ".join(parts))

    def any_of(self, operands: tuple[Condition, ...]) -> str:
        return self._joined(" OR ".join(map(write, operands)))

    def _joined(self, text: str) -> str:
        return f"NOT ({text})" if self._not else text

    def opposite(self, operand: Condition) -> str:
        return self._not + _NEGATED.condition(operand)

    def compared_with(self, operator: str, name: str, constant: Value) -> str:
        return f"{self._not}{write_name(name)} {operator} {write_literal(constant)}"

    def compared(self, operator: str, left: Expression, right: Expression) -> str:
        return f"{self._not}{self._text(left)} {operator} {self._text(right)}"

    def between(self, operand: Expression, low: Expression, high: Expression) -> str:
        if type(operand) is Name and type(low) is Literal and type(high) is Literal:  # most, quicker
            ends = f"{write_literal(low.value)} AND {write_literal(high.value)}"
            return f"{write_name(operand.name)} {self._not}BETWEEN {ends}"
        return f"{self._text(operand)} {self._not}BETWEEN {self._text(low)} AND {self._text(high)}"

    def among(self, name: str, values: tuple[Value, ...]) -> str:
        return f"{write_name(name)} {self._not}IN ({', '.join(map(write_literal, values))})"

    def is_null(self, name: str) -> str:
        return f"{write_name(name)} IS {self._not}NULL"

    def always(self, answer: bool) -> str:
        return self._not + write_literal(answer)

    def is_true(self, name: str) -> str:
        return self._not + write_name(name)

    def holds(self, call: FunctionCall) -> str:
        if call.function != "LIKE":
            return self._not + self.called(call).text
        pattern, *escape = map(write_literal, call.constants)
        text = f"{write_name(call.names[0])} {self._not}LIKE {pattern}"
        return text + "".join(f" ESCAPE {character}" for character in escape)

    # Expressions

    def _text(self, node: Expression) -> str:
        return self.value(node).text

    def named(self, name: str) -> WrittenExpression:
        return WrittenExpression(write_name(name))

    def constant(self, value: Value) -> WrittenExpression:
        return WrittenExpression(write_literal(value))

    def calculated(self, operator: str, left: Expression, right: Expression) -> WrittenExpression:
        own = BINDING[operator]
        first, second = self.value(left).within(own), self.value(right).within(own + 1)
        return WrittenExpression(f"{first} {operator} {second}", own)

    def negative(self, operand: Expression) -> WrittenExpression:
        sign, inner = ("+", operand.operand) if isinstance(operand, Negative) else ("-", operand)
        return WrittenExpression(sign + self.value(inner).within(_SIGN + 1), _SIGN)

    def called(self, call: FunctionCall) -> WrittenExpression:
        arguments = [*map(write_name, call.names), *map(write_literal, call.constants)]
        return WrittenExpression(f"{call.function}({', '.join(arguments)})")


write = _Writer("").condition
"""Return a condition as text."""
_NEGATED = _Writer("NOT ")


@lru_cache(maxsize=NAMES_KEPT)
def write_name(name: str) -> str:
    """Return a name, quoted if it would not be read as one."""
    if _PLAIN_NAME.match(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def write_literal(value: Value) -> str:
    """Return a constant as text."""
    if type(value) is float or type(value) is int:  # most, quicker
        return repr(value)
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"TIMESTAMP '{value.isoformat()}'"
        case bytes():
            return f"X'{value.hex()}'"
    return repr(value)
