"""A tree written as text again: one spelling for each tree, as few brackets as it takes.

`parse(write(tree)) == tree`, so filters travel, are stored and are compared as text.
"""

from __future__ import annotations

import re
from datetime import datetime

from tidings.event.values import Value
from tidings.filters.tokens import BINDING, KEYWORDS, NAME
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

_PLAIN_NAME = re.compile(rf"{NAME}\Z")
_SIGN = 2


def write(node: Condition) -> str:
    """The condition as text."""
    match node:
        case Or(operands):
            return " OR ".join(write(operand) for operand in operands)
        case And(operands):
            return " AND ".join(_inside_and(operand) for operand in operands)
        case Not(operand):
            return _write_not(operand)
        case Compare(operator, left, right):
            return f"{write_value(left)} {operator} {write_value(right)}"
        case Between(operand, low, high):
            return f"{write_value(operand)} BETWEEN {write_value(low)} AND {write_value(high)}"
        case In(name, values):
            return f"{write_name(name)} IN {_write_list(values)}"
        case IsNull(name):
            return f"{write_name(name)} IS NULL"
        case Call("LIKE", (name,), constants):
            return f"{write_name(name)} {_write_like(constants)}"
        case Literal() | Name() | Call():
            return write_value(node)


def write_value(node: Expression, binding: int = 0) -> str:
    """The expression as text, in brackets where what stands around it binds tighter."""
    match node:
        case Literal(value):
            return write_literal(value)
        case Name(name):
            return write_name(name)
        case Negative(Negative(operand)):
            text, own = "+" + write_value(operand, _SIGN + 1), _SIGN
        case Negative(operand):
            text, own = "-" + write_value(operand, _SIGN + 1), _SIGN
        case Arithmetic(operator, left, right):
            own = BINDING[operator]
            text = f"{write_value(left, own)} {operator} {write_value(right, own + 1)}"
        case Call(function, names, constants):
            arguments = [*map(write_name, names), *map(write_literal, constants)]
            return f"{function}({', '.join(arguments)})"
    return f"({text})" if own < binding else text


def write_name(name: str) -> str:
    """A name, quoted where it would not be read as one."""
    if _PLAIN_NAME.match(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def write_literal(value: Value) -> str:
    """A constant."""
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


def _inside_and(node: Condition) -> str:
    return f"({write(node)})" if isinstance(node, Or) else write(node)


def _write_not(operand: Condition) -> str:
    match operand:
        case IsNull(name):
            return f"{write_name(name)} IS NOT NULL"
        case Between(tested, low, high):
            return f"{write_value(tested)} NOT BETWEEN {write_value(low)} AND {write_value(high)}"
        case In(name, values):
            return f"{write_name(name)} NOT IN {_write_list(values)}"
        case Call("LIKE", (name,), constants):
            return f"{write_name(name)} NOT {_write_like(constants)}"
        case And() | Or():
            return f"NOT ({write(operand)})"
    return f"NOT {write(operand)}"


def _write_list(values: tuple[Value, ...]) -> str:
    return f"({', '.join(map(write_literal, values))})"


def _write_like(constants: tuple[Value, ...]) -> str:
    pattern, *escape = map(write_literal, constants)
    return f"LIKE {pattern}" + "".join(f" ESCAPE {character}" for character in escape)
