"""Construction of nodes, with the checks that need no event: conditions that can never be true are refused.

A value is no condition and a condition no value, kinds that are known beforehand must agree, and constant
parts are calculated once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidings.event.values import Value
from tidings.filters.functions import FUNCTIONS
from tidings.filters.kinds import Kind, calculate, compare, fits, kind_of
from tidings.filters.tree import (
    And,
    Arithmetic,
    Between,
    Compare,
    Condition,
    Expression,
    FunctionCall,
    In,
    Literal,
    Name,
    Negative,
    Node,
    Or,
)

COMPARE_IT = "compare it with something"
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Trouble(Exception):
    """A fault at the token of that index."""

    def __init__(self, index: int, problem: str, hint: str | None = None) -> None:
        self.index, self.problem, self.hint = index, problem, hint


def membership(name: str, values: Sequence[Value]) -> Condition:
    """Return `name IN (values)`, with each value once in a fixed order; one value is an equality."""
    distinct = {(kind_of(value), value): value for value in values}
    ordered = tuple(distinct[key] for key in sorted(distinct))
    return In(name, ordered) if len(ordered) > 1 else Compare("=", Name(name), Literal(ordered[0]))


def comparison(operator: str, left: Expression, right: Expression, at: int) -> Condition:
    """Return `left operator right`, with a constant on the right; `at` is the place of the right side."""
    operator = "<>" if operator == "!=" else operator
    if isinstance(left, Literal) and not isinstance(right, Literal):
        left, right, operator = right, left, MIRRORED[operator]
    one, other = static_kind(left), static_kind(right)
    if Kind.BOOLEAN in (one, other):
        if one is not other and None not in (one, other):
            raise Trouble(at, f"a {one} is compared with a {other}, which can never be true")
        if operator not in ("=", "<>"):
            raise Trouble(at, "booleans have no order", "compare them with = or <>")
    match left, right:
        case Literal(first), Literal(second) if one is other:
            return Literal(bool(compare(operator, first, second)))
        case Arithmetic("-", Name(first), Name(second)), Literal(str()):
            raise Trouble(
                at,
                "a difference is compared with a string",
                f'a name with a hyphen is written "{first}-{second}"',
            )
    return Compare(operator, left, right)


def signed(operand: Expression, negative: bool) -> Expression:
    """Return `-operand` or `+operand`; the second only checks that it is a number."""
    match operand:
        case Negative(Negative() as once) if negative:
            return once
        case Name() if not negative:
            return Negative(Negative(operand))
    return Negative(operand) if negative else operand


def arithmetic(operator: str, left: Expression, right: Expression) -> Expression:
    """Return `left operator right`, calculated if both are constants and the result is one."""
    if isinstance(left, Literal) and isinstance(right, Literal):
        result = calculate(operator, left.value, right.value)
        if result is not None and fits(result):
            return Literal(result)
    return Arithmetic(operator, left, right)


def static_kind(node: Expression) -> Kind | None:
    """Return the kind of a value, if it is known before any event is seen."""
    if isinstance(node, Name):
        return None
    return kind_of(node.value) if isinstance(node, Literal) else Kind.NUMBER


def as_condition(node: Node, at: int) -> Condition:
    """Return the node as a condition; Trouble if it is only a value."""
    match node:
        case Literal(value=bool()) | Name():
            return node
        case Literal(value=value):
            raise Trouble(at, f"a {kind_of(value)} is no condition", COMPARE_IT)
        case Arithmetic() | Negative():
            raise Trouble(at, "a calculation is no condition", COMPARE_IT)
        case FunctionCall(function=function) if FUNCTIONS[function].gives != "condition":
            raise Trouble(at, f"{function} gives a number, which is no condition", COMPARE_IT)
    return node  # type: ignore[return-value]


def as_value(node: Node, at: int) -> Expression:
    """Return the node as a value; Trouble if it is a condition."""
    match node:
        case Literal() | Name() | Arithmetic() | Negative():
            return node
        case FunctionCall(function=function) if FUNCTIONS[function].gives == "number":
            return node
    raise Trouble(at, "expected a value, found a condition")


def as_number(node: Node, at: int) -> Expression:
    """Return the node as an operand of arithmetic."""
    value = as_value(node, at)
    kind = static_kind(value)
    if kind not in (None, Kind.NUMBER):
        raise Trouble(at, f"a {kind} can't be calculated with")
    return value


def join(operands: list[Condition], joint: type[And | Or], node: Node, at: int) -> None:
    """Add an operand of AND or OR, and the operands of one of its own kind instead of itself."""
    if type(node) is Compare or type(node) is Between:
        operands.append(node)
    elif isinstance(node, joint):
        operands += node.operands
    else:
        operands.append(as_condition(node, at))
