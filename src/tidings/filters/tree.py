"""The filter language as a tree, which the parser makes and all other modules read.

Conditions are three-valued (true, false, unknown); values are those of events. `!=`, double negation and
NOT before a comparison are gone by the time a tree exists, constants stand on the right.
Nodes are msgspec Structs outside the garbage collector: a million filters may be alive.
"""

from __future__ import annotations

from msgspec import Struct

from tidings.event.values import Value


class Node(Struct, frozen=True, gc=False):
    """The base of all nodes."""


class Literal(Node, frozen=True, gc=False):
    """A constant."""

    value: Value

    def __eq__(self, other: object) -> bool:
        """Equal literals have the same kind too: TRUE is not 1, though 1.0 is 1."""
        return (
            isinstance(other, Literal)
            and self.value == other.value
            and isinstance(self.value, bool) == isinstance(other.value, bool)
        )

    def __hash__(self) -> int:
        return hash(self.value)


class Name(Node, frozen=True, gc=False):
    """Attribute or header field of that name; unknown if the event has none."""

    name: str


class Arithmetic(Node, frozen=True, gc=False):
    """`left operator right` with + - * /."""

    operator: str
    left: Expression
    right: Expression


class Negative(Node, frozen=True, gc=False):
    """`-operand`."""

    operand: Expression


class FunctionCall(Node, frozen=True, gc=False):
    """A function of attributes and constants: STARTS_WITH(name, 'a'), DISTANCE(x, y, 1, 2)."""

    function: str
    names: tuple[str, ...]
    constants: tuple[Value, ...]  # strings and numbers


class Compare(Node, frozen=True, gc=False):
    """`left operator right` with = <> < <= > >=."""

    operator: str
    left: Expression
    right: Expression


class Between(Node, frozen=True, gc=False):
    """`operand BETWEEN low AND high`: short for two comparisons, >= and <=."""

    operand: Expression
    low: Expression
    high: Expression


class In(Node, frozen=True, gc=False):
    """`name IN (values…)`: values sorted by kind and size, each once."""

    name: str
    values: tuple[Value, ...]

    def __eq__(self, other: object) -> bool:
        """Equal lists have the same kinds too: (TRUE, 2) is not (1, 2)."""
        return (
            isinstance(other, In)
            and (self.name, self.values) == (other.name, other.values)
            and all(
                (type(a) is bool) is (type(b) is bool) for a, b in zip(self.values, other.values, strict=True)
            )
        )

    def __hash__(self) -> int:
        return hash((self.name, self.values))


class IsNull(Node, frozen=True, gc=False):
    """`name IS NULL`: never unknown."""

    name: str


class Not(Node, frozen=True, gc=False):
    """`NOT operand`: unknown stays unknown."""

    operand: Condition


class And(Node, frozen=True, gc=False):
    """All operands hold; at least two, none of them an And."""

    operands: tuple[Condition, ...]


class Or(Node, frozen=True, gc=False):
    """Some operand holds; at least two, none of them an Or."""

    operands: tuple[Condition, ...]


Expression = Literal | Name | Arithmetic | Negative | FunctionCall
"""Expressions: nodes with a value."""
Condition = Literal | Name | FunctionCall | Compare | Between | In | IsNull | Not | And | Or
"""Conditions: true, false or unknown."""


OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def negated(condition: Condition) -> Condition:
    """Return NOT condition, in its one shape: three-valued logic lets a comparison be turned round."""
    match condition:
        case Not(operand):
            return operand
        case Compare(operator, left, right):
            return Compare(OPPOSITE[operator], left, right)
        case Literal(value):
            return Literal(not value)
    return Not(condition)


def ends_of(operand: Expression, low: Expression, high: Expression) -> tuple[Compare, Compare]:
    """Return the two comparisons that BETWEEN is short for."""
    return Compare(">=", operand, low), Compare("<=", operand, high)


def names_in(node: Condition | Expression) -> frozenset[str]:
    """Return the attributes and header fields that a condition or expression reads, as it spells them."""
    match node:
        case Name(name) | In(name, _) | IsNull(name):
            return frozenset((name,))
        case FunctionCall(_, names, _):
            return frozenset(names)
        case Literal():
            return frozenset()
        case And(operands) | Or(operands):
            return frozenset().union(*map(names_in, operands))
        case Not(operand) | Negative(operand):
            return names_in(operand)
        case Compare(_, left, right) | Arithmetic(_, left, right):
            return names_in(left) | names_in(right)
        case Between(operand, low, high):
            return names_in(operand) | names_in(low) | names_in(high)


def parts_of(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions that a condition is joined from; none for one that is simple."""
    match condition:
        case And(operands) | Or(operands):
            return operands
        case Not(operand):
            return (operand,)
    return ()


def depth_of(condition: Condition) -> int:
    """Return how deep AND, OR and NOT are nested."""
    depth, level = 0, parts_of(condition)
    while level:
        depth += 1
        level = tuple(part for operand in level for part in parts_of(operand))
    return depth


def size_of(condition: Condition) -> int:
    """Return the size of a condition: simple conditions, and values in lists."""
    if isinstance(condition, In):
        return len(condition.values)
    return sum(map(size_of, parts_of(condition))) or 1
