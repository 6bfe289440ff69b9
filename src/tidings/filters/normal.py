"""The normal form of a filter: alternatives, each a set of values per attribute, and what does not fit.

A filter takes an event when its condition is true; false and unknown are the same to it. So the condition is
pushed down to its leaves together with the question asked of it, 'when is it true?' or, under NOT, 'when is
it false?'. Each leaf answers with the values its attribute must have, exactly, and never with 'unknown':
`NOT (x < 5)` wants a number from 5 on. What relates several attributes, or needs a look at the whole value
(`a < b`, LIKE '%x'), stays as a *residue* to be evaluated, beside the constraints it implies.

The rule kept: the normal form is exact, and its size is bounded. Where multiplying alternatives out would
pass DISJUNCTS_MAX, the larger factor stays whole as a residue.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from tidings.event.values import Value
from tidings.filters.build import static_kind
from tidings.filters.constraint import (
    ANY_NUMBER,
    FALSE,
    MISSING,
    PRESENT,
    TRUE,
    Constraint,
)
from tidings.filters.functions import FUNCTIONS
from tidings.filters.intervals import Intervals, between, compared, intersection_of, points, union_of
from tidings.filters.kinds import Kind, kind_of
from tidings.filters.tree import (
    OPPOSITE,
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
    negated,
)

DISJUNCTS_MAX = 64
"""How many alternatives a normal form may have."""


class Conjunction(Struct, frozen=True):
    """One alternative: every constraint admits its attribute's value, and every residue is true."""

    constraints: dict[str, Constraint] = {}
    residues: tuple[Condition, ...] = ()


Normal = tuple[Conjunction, ...]
ALWAYS: Normal = (Conjunction(),)
NEVER: Normal = ()


def normal_form(condition: Condition) -> Normal:
    """The alternatives of which one must hold for the condition to be true."""
    return _when(condition, True)


def _when(node: Condition, wanted: bool) -> Normal:
    """When the condition is `wanted`: true or false, not unknown."""
    match node:
        case Compare():
            return _when_compared(node, wanted)
        case And(operands):
            return (_every if wanted else _some)(operands, wanted)
        case Or(operands):
            return (_some if wanted else _every)(operands, wanted)
        case Not(operand):
            return _when(operand, not wanted)
        case Literal(value):
            return ALWAYS if value is wanted else NEVER
        case Name(name):
            return _one(name, Constraint(booleans=TRUE if wanted else FALSE))
        case IsNull(name):
            return _one(name, MISSING if wanted else PRESENT)
        case Between(operand, low, high):
            both = Compare(">=", operand, low), Compare("<=", operand, high)
            return (_every if wanted else _some)(both, wanted)
        case In(name, values):
            return _when_listed(name, values, wanted)
        case Call():
            return _when_called(node, wanted)


def _one(name: str, constraint: Constraint) -> Normal:
    return NEVER if constraint.is_empty else (Conjunction({name: constraint}),)


# Leaves


def _when_compared(node: Compare, wanted: bool) -> Normal:
    if isinstance(node.left, Name) and isinstance(node.right, Literal):
        return _one(node.left.name, _compared_with(node, wanted))
    kinds = {static_kind(node.left), static_kind(node.right)} - {None}
    if len(kinds) > 1:
        return NEVER  # unknown for every event
    residue = node if wanted else Compare(OPPOSITE[node.operator], node.left, node.right)
    implied = dict.fromkeys(_names(node.left), _implied(node.left))
    implied |= dict.fromkeys(_names(node.right), _implied(node.right))
    return (Conjunction(implied, (residue,)),)


def _compared_with(node: Compare, wanted: bool) -> Constraint:
    """The values for which a comparison with a constant is true, or false."""
    operator = node.operator if wanted else OPPOSITE[node.operator]
    value = node.right.value  # type: ignore[union-attr]
    kind = kind_of(value)
    if kind is Kind.BOOLEAN:
        return Constraint(booleans=TRUE if (operator == "=") is value else FALSE)
    return _of_kind(kind, compared(operator, value))


def _of_kind(kind: Kind, line: Intervals) -> Constraint:
    if kind is Kind.NUMBER:
        return Constraint(line)
    if kind is Kind.STRING:
        return Constraint(strings=line)
    return Constraint(times=line) if kind is Kind.TIME else Constraint(blobs=line)


def _when_listed(name: str, values: tuple[Value, ...], wanted: bool) -> Normal:
    """A value is outside a list only if it could be compared with every member: all of one kind."""
    kinds = {kind_of(value) for value in values}
    if wanted:
        listed = (_listed(kind, [v for v in values if kind_of(v) is kind]) for kind in kinds)
        return _one(name, union_of(list(listed)))
    if len(kinds) > 1:
        return NEVER
    (kind,) = kinds
    if kind is Kind.BOOLEAN:
        return NEVER  # a list of booleans has both, since one alone is an equality
    return _one(name, _of_kind(kind, points(values).complement()))


def _listed(kind: Kind, values: list[Value]) -> Constraint:
    if kind is Kind.BOOLEAN:
        return Constraint(booleans=sum(TRUE if value else FALSE for value in values))
    return _of_kind(kind, points(values))


def _when_called(node: Call, wanted: bool) -> Normal:
    implied = FUNCTIONS[node.function].implied
    assert implied is not None, "a function that is a condition says what it implies"
    constraints, exact = implied(len(node.names), *node.constants)
    if exact and len(node.names) == 1:
        (constraint,) = constraints
        if wanted:
            return _one(node.names[0], constraint)
        # False for the other values of the kinds it can be asked of; a function asks one kind of value.
        others = Constraint(strings=constraint.strings.complement())
        return _one(node.names[0], others)
    if wanted:
        return (Conjunction(_all_of_names(node.names, constraints), () if exact else (node,)),)
    return (Conjunction(dict.fromkeys(node.names, PRESENT), (Not(node),)),)


def _all_of_names(names: Iterable[str], constraints: Iterable[Constraint]) -> dict[str, Constraint]:
    united: dict[str, Constraint] = {}
    for name, constraint in zip(names, constraints, strict=True):
        united[name] = united[name].intersect(constraint) if name in united else constraint
    return united


def _names(node: Expression) -> list[str]:
    """The attributes an expression reads."""
    match node:
        case Name(name):
            return [name]
        case Arithmetic(_, left, right):
            return _names(left) + _names(right)
        case Negative(operand):
            return _names(operand)
        case Call(_, names, _):
            return list(names)
    return []


def _implied(node: Expression) -> Constraint:
    """What the attributes of an expression must be for it to have a value at all."""
    return PRESENT if isinstance(node, Name) else ANY_NUMBER


# Joining


def _some(operands: tuple[Condition, ...], wanted: bool) -> Normal:
    """Alternatives side by side, those on one and the same attribute united."""
    alternatives: list[Conjunction] = []
    lines: dict[str, list[Constraint]] = {}
    for operand in operands:
        for alternative in _when(operand, wanted):
            if not alternative.constraints and not alternative.residues:
                return ALWAYS
            if len(alternative.constraints) == 1 and not alternative.residues:
                ((name, constraint),) = alternative.constraints.items()
                lines.setdefault(name, []).append(constraint)
            else:
                alternatives.append(alternative)
    for name, constraints in lines.items():
        united = union_of(constraints)
        if united.is_anything:
            return ALWAYS
        alternatives.append(Conjunction({name: united}))
    if len(alternatives) <= DISJUNCTS_MAX:
        return tuple(alternatives)
    return _whole(Or(operands) if wanted else Not(And(operands)))


def _every(operands: tuple[Condition, ...], wanted: bool) -> Normal:
    """Alternatives of all operands multiplied out, the few before the many, within the bound."""
    lines: dict[str, list[Constraint]] = {}
    residues: list[Condition] = []
    several: list[tuple[Condition, Normal]] = []
    for operand in operands:
        if (simple := _simple(operand, wanted)) is not None:
            lines.setdefault(simple[0], []).append(simple[1])
            continue
        normal = _when(operand, wanted)
        if len(normal) != 1:
            several.append((operand, normal))
            continue
        for name, constraint in normal[0].constraints.items():
            lines.setdefault(name, []).append(constraint)
        residues += normal[0].residues
    single = {name: each[0] if len(each) == 1 else intersection_of(each) for name, each in lines.items()}
    if any(constraint.is_empty for constraint in single.values()):
        return NEVER
    return _multiplied(single, residues, several, wanted)


def _simple(node: Condition, wanted: bool) -> tuple[str, Constraint] | None:
    """Name and values of a condition on one attribute, if it is one of the two that nearly all are."""
    if type(node) is Compare:
        if type(node.left) is Name and type(node.right) is Literal:
            return node.left.name, _compared_with(node, wanted)
    elif type(node) is Between and type(node.operand) is Name and wanted:
        low, high = node.low, node.high
        if (
            type(low) is Literal
            and type(high) is Literal
            and (kind := kind_of(low.value)) is kind_of(high.value)
        ):
            return node.operand.name, _of_kind(kind, between(low.value, high.value))
    return None


def _multiplied(
    single: dict[str, Constraint],
    residues: list[Condition],
    several: list[tuple[Condition, Normal]],
    wanted: bool,
) -> Normal:
    result: Normal = (Conjunction(single),)
    for operand, normal in sorted(several, key=lambda pair: len(pair[1])):
        if len(result) * len(normal) > DISJUNCTS_MAX:
            residues.append(operand if wanted else negated(operand))
        else:
            result = tuple(_products(result, normal))
    more = tuple(residues)
    return tuple(Conjunction(one.constraints, one.residues + more) for one in result) if more else result


def _whole(condition: Condition) -> Normal:
    return (Conjunction({}, (condition,)),)


def _products(left: Normal, right: Normal) -> Iterable[Conjunction]:
    for one in left:
        for other in right:
            constraints = dict(one.constraints)
            if _narrow_all(constraints, other.constraints):
                yield Conjunction(constraints, one.residues + other.residues)


def _narrow_all(constraints: dict[str, Constraint], more: dict[str, Constraint]) -> bool:
    """Intersect in place; False if an attribute is left without any value."""
    for name, constraint in more.items():
        known = constraints.get(name)
        constraints[name] = constraint if known is None else known.intersect(constraint)
        if constraints[name].is_empty:
            return False
    return True
