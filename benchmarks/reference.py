"""What the index is compared with: filters as plain Python closures, tried one after another.

Fixed code, written once for comparison and used by nothing else, so that a figure beside it means the same in
every version. It reads a filter's normal form; of the residues it knows only sums, differences and products,
compared.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tidings import Event, Filter
from tidings.event import HEADER_READERS
from tidings.filters.constraint import FALSE, TRUE, Constraint
from tidings.filters.intervals import Intervals, Piece
from tidings.filters.normal import Conjunction
from tidings.filters.tree import Arithmetic, Compare, Condition, Expression, Literal, Name

Test = Callable[[Event], bool]
Read = Callable[[Event], Any]

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CALCULATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def compiled(wanted: Filter) -> Test:
    """The filter as one function of an event."""
    alternatives = [_conjunction(one) for one in wanted.normal]
    if len(alternatives) == 1:
        return alternatives[0]
    return lambda event: any(test(event) for test in alternatives)


def _conjunction(conjunction: Conjunction) -> Test:
    tests = [_constraint(_read(name), one) for name, one in conjunction.constraints.items()]
    tests += [_residue(residue) for residue in conjunction.residues]
    if len(tests) == 1:
        return tests[0]

    def test(event: Event) -> bool:
        for one in tests:  # noqa: SIM110 - all() takes twice as long, and this is what is compared with
            if not one(event):
                return False
        return True

    return test


def _read(name: str) -> Read:
    if name in HEADER_READERS:
        return HEADER_READERS[name]
    return lambda event: event.values.get(name)


def _constraint(read: Read, constraint: Constraint) -> Test:
    lines = {
        (int, float): _pieces(constraint.numbers),
        (str,): _pieces(constraint.strings),
        (datetime,): _pieces(constraint.times),
        (bytes,): _pieces(constraint.blobs),
    }
    by_type = {kind: line for kinds, line in lines.items() for kind in kinds}
    truths = {True: bool(constraint.booleans & TRUE), False: bool(constraint.booleans & FALSE)}

    def test(event: Event) -> bool:
        value = read(event)
        if value is None:
            return constraint.missing
        if value is True or value is False:
            return truths[value]
        if value != value:
            return constraint.nan
        return by_type[value.__class__](value)

    return test


def _pieces(line: Intervals) -> Callable[[Any], bool]:
    pieces = [_piece(piece) for piece in line.pieces()]
    if len(pieces) == 1:
        return pieces[0]
    return lambda value: any(piece(value) for piece in pieces)


def _piece(piece: Piece) -> Callable[[Any], bool]:
    low, low_closed, high, high_closed = piece
    above = _COMPARISONS[">=" if low_closed else ">"]
    below = _COMPARISONS["<=" if high_closed else "<"]
    if low is None and high is None:
        return lambda _: True
    if low is None:
        return lambda value: below(value, high)
    if high is None:
        return lambda value: above(value, low)
    return lambda value: above(value, low) and below(value, high)


def _residue(condition: Condition) -> Test:
    if not isinstance(condition, Compare) or not isinstance(condition.left, Arithmetic):
        raise ValueError(f"the reference knows no {condition}")
    left, right = _number(condition.left), _number(condition.right)
    compare = _COMPARISONS[condition.operator]

    def test(event: Event) -> bool:
        one, other = left(event), right(event)
        return one is not None and other is not None and compare(one, other)

    return test


def _number(expression: Expression) -> Read:
    """The number an expression gives, None for anything else."""
    match expression:
        case Literal(value):
            return lambda _: value
        case Name(name):
            read = _read(name)

            def number(event: Event) -> Any:
                value = read(event)
                return value if value.__class__ in (int, float) and value == value else None

            return number
        case Arithmetic(sign, left, right) if sign in _CALCULATIONS:
            one, other, calculate = _number(left), _number(right), _CALCULATIONS[sign]

            def result(event: Event) -> Any:
                a, b = one(event), other(event)
                return None if a is None or b is None else calculate(a, b)

            return result
    raise ValueError(f"the reference knows no {expression}")
