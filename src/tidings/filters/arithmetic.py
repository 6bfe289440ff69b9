"""Calculating and comparing values, with the result None where it is unknown.

Integers are exact while they fit 64 bits and become floats beyond, as SQLite does it; `5/2` is 2.5; dividing
by zero is unknown, and so is whatever gives NaN. Comparing an integer with a float is exact. Values of
different kinds don't compare, and booleans have no order.
"""

from __future__ import annotations

import operator as op
from collections.abc import Callable
from typing import Any, TypeGuard

from tidings.event.values import INT_MAX, INT_MIN, Value
from tidings.filters.kinds import Kind, kind_of

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": op.eq,
    "<>": op.ne,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
}


def compare(operator: str, left: Value | None, right: Value | None) -> bool | None:
    """`left operator right`; None stands for a value that is not there, and for unknown."""
    if left is None or right is None:
        return None
    kind = kind_of(left)
    if kind is not kind_of(right) or left != left or right != right:
        return None
    if kind is Kind.BOOLEAN and operator not in ("=", "<>"):
        return None
    return OPERATORS[operator](left, right)


def calculate(operator: str, left: Value | None, right: Value | None) -> int | float | None:
    """`left operator right` for + - * /; unknown unless both are numbers."""
    if not (is_number(left) and is_number(right)):
        return None
    try:
        result = _CALCULATIONS[operator](left, right)
    except (ZeroDivisionError, OverflowError):
        return None
    if type(result) is int and not INT_MIN <= result <= INT_MAX:
        return float(result)
    return None if result != result else result


def negate(value: Value | None) -> int | float | None:
    """`-value`; unknown unless it is a number."""
    if not is_number(value) or value != value:
        return None
    return -value if value != INT_MIN else -float(value)


def is_number(value: Value | None) -> TypeGuard[int | float]:
    """Whether the value is an integer or a float; a boolean is not."""
    return type(value) in (int, float)


_CALCULATIONS: dict[str, Callable[..., int | float]] = {
    "+": op.add,
    "-": op.sub,
    "*": op.mul,
    "/": op.truediv,
}
