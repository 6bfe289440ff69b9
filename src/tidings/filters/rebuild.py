"""A normal form written as a condition again, so that merged and simplified filters have text too."""

from __future__ import annotations

from collections.abc import Iterator

from tidings.event.values import EPOCH, Value
from tidings.filters.build import membership
from tidings.filters.constraint import FALSE, MISSING, PRESENT, TRUE, Constraint
from tidings.filters.intervals import Intervals, Piece
from tidings.filters.normal import Conjunction, Normal
from tidings.filters.reader import LIST_MAX
from tidings.filters.tree import And, Between, Compare, Condition, IsNull, Literal, Name, Not, Or, negated

MIDDLES: tuple[Value, ...] = (0, "", EPOCH, b"")
"""Any value of each ordered kind."""


def condition_of(normal: Normal) -> Condition:
    """A condition that is true for exactly the events the normal form takes."""
    return _any([_all(_demands(conjunction)) for conjunction in normal])


def _demands(conjunction: Conjunction) -> list[Condition]:
    demands = [_admitted(name, constraint) for name, constraint in conjunction.constraints.items()]
    return demands + list(conjunction.residues)


def _admitted(name: str, constraint: Constraint) -> Condition:
    """The condition that an attribute is in the set."""
    if constraint.covers(PRESENT):
        return Literal(True) if constraint.missing else Not(IsNull(name))
    ways = list(_ways(name, constraint))
    if constraint.covers(MISSING):
        ways.append(IsNull(name))
    return _any(ways)


def _ways(name: str, constraint: Constraint) -> Iterator[Condition]:
    if constraint.booleans:
        both = ((FALSE, False), (TRUE, True))
        yield membership(name, [value for bit, value in both if constraint.booleans & bit])
    for line, middle in zip(constraint.lines, MIDDLES, strict=True):
        if not line.is_empty:
            yield from _on_line(name, line, middle)


def _on_line(name: str, line: Intervals, middle: Value) -> Iterator[Condition]:
    """Conditions of which one holds for the values of one kind in the set; `middle` is any value."""
    if line.is_all:  # every value of a kind lies on one side of any of them, or on the other
        yield from (Compare("<=", Name(name), Literal(middle)), Compare(">", Name(name), Literal(middle)))
        return
    excluded = line.complement().points()
    if excluded is not None:
        yield _all([negated(listed) for listed in _listed(name, excluded)])
        return
    pieces = list(line.pieces())
    single = [piece.low for piece in pieces if piece.is_point]
    yield from _listed(name, single)
    yield from (_between(name, piece) for piece in pieces if not piece.is_point)


def _listed(name: str, values: list[Value]) -> Iterator[Condition]:
    """IN lists of all these values, none of them longer than it may be."""
    for start in range(0, len(values), LIST_MAX):
        yield membership(name, values[start : start + LIST_MAX])


def _between(name: str, piece: Piece) -> Condition:
    if piece.low_closed and piece.high_closed:
        return Between(Name(name), Literal(piece.low), Literal(piece.high))
    ends: list[Condition] = []
    if piece.low is not None:
        ends.append(Compare(">=" if piece.low_closed else ">", Name(name), Literal(piece.low)))
    if piece.high is not None:
        ends.append(Compare("<=" if piece.high_closed else "<", Name(name), Literal(piece.high)))
    return _all(ends)


def _all(conditions: list[Condition]) -> Condition:
    parts: list[Condition] = []
    for condition in conditions:
        if isinstance(condition, And):
            parts += condition.operands
        elif condition != Literal(True):
            parts.append(condition)
    return And(tuple(parts)) if len(parts) > 1 else parts[0] if parts else Literal(True)


def _any(conditions: list[Condition]) -> Condition:
    parts: list[Condition] = []
    for condition in conditions:
        parts += condition.operands if isinstance(condition, Or) else (condition,)
    return Or(tuple(parts)) if len(parts) > 1 else parts[0] if parts else Literal(False)
