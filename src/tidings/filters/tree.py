"""The filter language as a tree, which the parser makes and all other modules read.

Conditions are three-valued (true, false, unknown); values are those of events. `!=`, double negation and
NOT before a comparison are gone by the time a tree exists, constants stand on the right.
Nodes are msgspec Structs outside the garbage collector: a million filters may be alive.

Nodes are built with the checks that need no event: conditions that can never be true are refused. A value is
no condition and a condition no value, kinds that are known beforehand must agree, and constant parts are
calculated once.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tidings.event.values import Value
from tidings.filters.functions import FUNCTIONS
from tidings.filters.kinds import Kind, calculate, compare, fits, kind_of

COMPARE_IT = "compare it with something"
OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class TreeNode(Struct, frozen=True, gc=False):
    """The base of all nodes."""


class Literal(TreeNode, frozen=True, gc=False):
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


class Name(TreeNode, frozen=True, gc=False):
    """Attribute or header field of that name; unknown if the event has none."""

    name: str


class Measured(TreeNode, frozen=True, gc=False):
    """A number with a unit. Only the parser has it: the comparison is written out for all units."""

    value: float
    unit: str


class Arithmetic(TreeNode, frozen=True, gc=False):
    """`left operator right` with + - * /."""

    operator: str
    left: Expression
    right: Expression


class Negative(TreeNode, frozen=True, gc=False):
    """`-operand`."""

    operand: Expression


class FunctionCall(TreeNode, frozen=True, gc=False):
    """A function of attributes and constants: STARTS_WITH(name, 'a'), DISTANCE(x, y, 1, 2)."""

    function: str
    names: tuple[str, ...]
    constants: tuple[Value, ...]  # strings and numbers


class Compare(TreeNode, frozen=True, gc=False):
    """`left operator right` with = <> < <= > >=."""

    operator: str
    left: Expression
    right: Expression


class Between(TreeNode, frozen=True, gc=False):
    """`operand BETWEEN low AND high`: short for two comparisons, >= and <=."""

    operand: Expression
    low: Expression
    high: Expression


class In(TreeNode, frozen=True, gc=False):
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


class IsNull(TreeNode, frozen=True, gc=False):
    """`name IS NULL`: never unknown."""

    name: str


class Not(TreeNode, frozen=True, gc=False):
    """`NOT operand`: unknown stays unknown."""

    operand: Condition


class And(TreeNode, frozen=True, gc=False):
    """All operands hold; at least two, none of them an And."""

    operands: tuple[Condition, ...]


class Or(TreeNode, frozen=True, gc=False):
    """Some operand holds; at least two, none of them an Or."""

    operands: tuple[Condition, ...]


Expression = Literal | Name | Arithmetic | Negative | FunctionCall
"""Expressions: nodes with a value."""
Condition = Literal | Name | FunctionCall | Compare | Between | In | IsNull | Not | And | Or
"""Conditions: true, false or unknown."""


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


# Construction


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


def as_condition(node: TreeNode, at: int) -> Condition:
    """Return the node as a condition; Trouble if it is only a value."""
    match node:
        case Literal(value=bool()) | Name():
            return node
        case Literal(value=value):
            raise Trouble(at, f"a {kind_of(value)} is no condition", COMPARE_IT)
        case Arithmetic() | Negative():
            raise Trouble(at, "a calculation is no condition", COMPARE_IT)
        case Measured():
            raise Trouble(at, "a number with a unit is no condition", COMPARE_IT)
        case FunctionCall(function=function) if FUNCTIONS[function].gives != "condition":
            raise Trouble(at, f"{function} gives a number, which is no condition", COMPARE_IT)
    return node  # type: ignore[return-value]


def as_value(node: TreeNode, at: int) -> Expression:
    """Return the node as a value; Trouble if it is a condition."""
    match node:
        case Literal() | Name() | Arithmetic() | Negative():
            return node
        case FunctionCall(function=function) if FUNCTIONS[function].gives == "number":
            return node
        case Measured():
            raise Trouble(at, "a number with a unit can't be calculated with")
    raise Trouble(at, "expected a value, found a condition")


def as_number(node: TreeNode, at: int) -> Expression:
    """Return the node as an operand of arithmetic."""
    value = as_value(node, at)
    kind = static_kind(value)
    if kind not in (None, Kind.NUMBER):
        raise Trouble(at, f"a {kind} can't be calculated with")
    return value


def join(operands: list[Condition], joint: type[And | Or], node: TreeNode, at: int) -> None:
    """Add an operand of AND or OR, and the operands of one of its own kind instead of itself."""
    if type(node) is Compare or type(node) is Between:
        operands.append(node)
    elif isinstance(node, joint):
        operands += node.operands
    else:
        operands.append(as_condition(node, at))
