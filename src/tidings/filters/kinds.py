"""Kinds of value that an event may have, with comparison and arithmetic; None is unknown.

Values of different kinds don't compare, and booleans have no order. Comparing an integer with a float is
exact. Integers are exact while they fit 64 bits and become floats beyond, as SQLite does it; `5/2` is 2.5;
dividing by zero is unknown, and so is any result that is NaN.
"""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable, Iterable
from datetime import datetime
from enum import IntEnum
from typing import Any, TypeGuard

from tidings.errors import EventError
from tidings.event.values import INT_MAX, INT_MIN, Value, plain_moment, plain_value, time_from_us


class Kind(IntEnum):
    """In the order in which IN lists are written."""

    BOOLEAN = 0
    NUMBER = 1
    STRING = 2
    TIME = 3
    BYTES = 4

    def __str__(self) -> str:
        return self.name.lower()


KINDS: dict[type, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    str: Kind.STRING,
    datetime: Kind.TIME,
    bytes: Kind.BYTES,
}
"""The types of plain values, and their kinds."""


def kind_of(value: Value) -> Kind:
    """Return the kind of a plain value."""
    return KINDS[type(value)]


def by_kind(values: Iterable[Value]) -> dict[Kind, list[Value]]:
    """Return the values of each kind, in their order."""
    kinds: dict[Kind, list[Value]] = {}
    for value in values:
        kinds.setdefault(kind_of(value), []).append(value)
    return kinds


def read_time(text: str) -> datetime:
    """Parse a time literal: ISO 8601, in UTC if no zone is written; a date alone is its first moment."""
    try:
        return time_from_us(plain_moment(text, "$"))
    except EventError as error:
        raise ValueError(error.problem) from None


def read_bytes(text: str) -> bytes:
    """Parse a bytes literal: pairs of hexadecimal digits."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError("it takes pairs of hexadecimal digits") from None


def fits(value: float) -> bool:
    """Whether a number may stand in a filter: 64 bits, or a finite float."""
    return INT_MIN <= value <= INT_MAX if isinstance(value, int) else math.isfinite(value)


def plain(value: object) -> Value:
    """Return a program's value as a filter has it; ValueError says why it can't."""
    plainly = plain_value(value, "the value")
    if isinstance(plainly, float) and not math.isfinite(plainly):
        raise ValueError(f"{plainly} can't be written in a filter")
    return plainly


# Comparing and calculating

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": op.eq,
    "<>": op.ne,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
}


def compare(operator: str, left: Value | None, right: Value | None) -> bool | None:
    """Return `left operator right`; None stands for an absent value, and for unknown."""
    if left is None or right is None:
        return None
    kind = kind_of(left)
    if kind is not kind_of(right) or left != left or right != right:
        return None
    if kind is Kind.BOOLEAN and operator not in ("=", "<>"):
        return None
    return OPERATORS[operator](left, right)


def calculate(operator: str, left: Value | None, right: Value | None) -> int | float | None:
    """Return `left operator right` for + - * /; unknown unless both are numbers."""
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
    """Return `-value`; unknown unless it is a number."""
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
