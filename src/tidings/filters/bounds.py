"""Bounds of numbers before a conversion, for a comparison that their conversion is to meet.

A conversion keeps the order of numbers, so the doubles whose conversion meets a comparison lie on one side of
a bound, which is found by bisection.

The rule kept: a number is within the bounds exactly if its conversion meets the comparison. Integers are
rounded to doubles first, which matters past 2^53; there the bound is an integer, half-way between doubles.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import lru_cache

from tidings.event.values import INT_MAX, INT_MIN
from tidings.filters import tree
from tidings.filters.conversion import EXACT_MAX, Conversion

EDGES_KEPT = 4_096
"""Bounds of which the edges are remembered: to find them takes a hundred conversions."""
_HIGHEST = 0x7FEF_FFFF_FFFF_FFFF  # the number of the greatest finite double, counted from 0


def bounded(name: str, operator: str, bound: float, convert: Conversion) -> tree.Condition | None:
    """Return the condition on the attribute that holds if its conversion does; None if no number meets it."""
    least, above = _edges(bound, convert)
    match operator:
        case ">=":
            return _from(name, least)
        case ">":
            return _above(name, above)
        case "<":
            return tree.negated(_from(name, least))
        case "<=":
            return tree.negated(_above(name, above))
    equal = _within(name, least, above)
    return equal if operator == "=" else opposite(name, equal)


def ranged(name: str, low: float, high: float, convert: Conversion) -> tree.Condition | None:
    """Return the condition that holds if the conversion is between the two, inclusive; None if none is."""
    return _within(name, _edges(low, convert)[0], _edges(high, convert)[1])


def opposite(name: str, condition: tree.Condition | None) -> tree.Condition:
    """Return NOT condition; of None, that the attribute is any number."""
    if condition is None:
        return tree.Not(tree.Between(tree.Name(name), tree.Literal(1), tree.Literal(0)))
    return tree.negated(condition)


# Doubles are counted in their order: 0 is 0, 1 the least positive one, _HIGHEST + 1 infinity.


@lru_cache(maxsize=EDGES_KEPT)
def _edges(bound: float, convert: Conversion) -> tuple[int, int]:
    """Return the numbers of the least doubles whose conversion is at least the bound, and is above it."""
    return _first(lambda x: convert(x) >= bound), _first(lambda x: convert(x) > bound)


def _first(holds: Callable[[float], bool]) -> int:
    """Return the number of the least finite double for which this holds, as it does for all above it."""
    low, high = -_HIGHEST, _HIGHEST + 1
    while low < high:
        middle = (low + high) // 2
        if holds(_double(middle)):
            high = middle
        else:
            low = middle + 1
    return low


def _double(number: int) -> float:
    (value,) = struct.unpack("<d", struct.pack("<q", abs(number)))
    return math.copysign(value, number)


def _literal(number: int, is_low: bool) -> tree.Literal:
    """Return the double as a constant; past 2^53, the least or greatest integer that is rounded to it."""
    value = _double(number)
    if abs(value) >= EXACT_MAX and INT_MIN <= value <= float(INT_MAX):
        whole = _farthest(int(value), int(_double(number - 1 if is_low else number + 1)))
        if INT_MIN <= whole <= INT_MAX:
            return tree.Literal(whole)
    return tree.Literal(int(value) if value.is_integer() and abs(value) < EXACT_MAX else value)


def _farthest(whole: int, beyond: int) -> int:
    """Return the integer farthest from `whole`, towards the next double, that is rounded to `whole`."""
    middle = (whole + beyond) // 2 if beyond < whole else -((-whole - beyond) // 2)
    step = 1 if whole > beyond else -1
    while float(middle) != float(whole):
        middle += step
    return middle


def _from(name: str, least: int) -> tree.Compare:
    """Return the condition that the number is at least this one; infinity is."""
    if least > _HIGHEST:
        return tree.Compare(">", tree.Name(name), _literal(_HIGHEST, is_low=False))
    return tree.Compare(">=", tree.Name(name), _literal(least, is_low=True))


def _above(name: str, above: int) -> tree.Compare:
    """Return the condition that the number is greater than the one before this."""
    if above == -_HIGHEST:
        return tree.Compare(">=", tree.Name(name), _literal(above, is_low=True))
    return tree.Compare(">", tree.Name(name), _literal(above - 1, is_low=False))


def _within(name: str, least: int, above: int) -> tree.Condition | None:
    """Return the condition that the number is one of those from `least` on and before `above`."""
    if least >= above:
        return None
    first, last = _literal(least, is_low=True), _literal(above - 1, is_low=False)
    if first == last:
        return tree.Compare("=", tree.Name(name), first)
    return tree.Between(tree.Name(name), first, last)
