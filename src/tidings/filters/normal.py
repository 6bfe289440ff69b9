"""Normal form of a filter: alternatives, each a set of values per attribute, and residues.

A filter matches an event when its condition is true; false and unknown are the same to it. So the condition
is pushed down to its leaves together with a question, 'when is it true?' or, under NOT, 'when is it false?'.
Each leaf answers with the values its attribute must have, exactly, and never with 'unknown': `NOT (x < 5)`
wants a number from 5 on. A condition that relates several attributes, or needs the whole value (`a < b`, LIKE
'%x'), stays as a *residue* to be evaluated, beside the constraints it implies.

The rule kept: the normal form is exact, and its size is bounded. Where multiplying alternatives out would
pass DISJUNCTS_MAX, the larger factor stays whole as a residue. A normal form is written as a condition again
(`condition_of`), so that merged and simplified filters have text too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from tidings.event.values import EPOCH, Value
from tidings.filters import tree
from tidings.filters.constraint import ANY_NUMBER, FALSE, MISSING, PRESENT, TRUE, Constraint
from tidings.filters.fold import Fold
from tidings.filters.functions import FUNCTIONS
from tidings.filters.intervals import Intervals, Piece, between, compared, intersection_of, points, union_of
from tidings.filters.kinds import Kind, by_kind, kind_of
from tidings.filters.tokens import LIST_MAX
from tidings.filters.tree import Condition, Expression

DISJUNCTS_MAX = 64
"""Alternatives of a normal form."""


class Conjunction(Struct, frozen=True):
    """One alternative: every constraint admits its attribute's value, and every residue is true."""

    constraints: dict[str, Constraint] = {}
    residues: tuple[Condition, ...] = ()


Normal = tuple[Conjunction, ...]
ALWAYS: Normal = (Conjunction(),)
NEVER: Normal = ()


class When(Fold[Normal, dict[str, Constraint]]):
    """Events for which a condition is `wanted`, true or false, and the values an expression needs."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted

    def all_of(self, operands: tuple[Condition, ...]) -> Normal:
        return self._every(operands) if self._wanted else self._some(operands)

    def any_of(self, operands: tuple[Condition, ...]) -> Normal:
        return self._some(operands) if self._wanted else self._every(operands)

    def opposite(self, operand: Condition) -> Normal:
        return (_WHEN_FALSE if self._wanted else _WHEN_TRUE).condition(operand)

    def compared_with(self, operator: str, name: str, constant: Value) -> Normal:
        return _one(name, self._admitted(operator, constant))

    def _admitted(self, operator: str, constant: Value) -> Constraint:
        operator = operator if self._wanted else tree.OPPOSITE[operator]
        kind = kind_of(constant)
        if kind is Kind.BOOLEAN:
            return Constraint(booleans=TRUE if (operator == "=") is constant else FALSE)
        return _of_kind(kind, compared(operator, constant))

    def compared(self, operator: str, left: Expression, right: Expression) -> Normal:
        kinds = {tree.static_kind(left), tree.static_kind(right)} - {None}
        if len(kinds) > 1:
            return NEVER  # unknown for every event
        residue = tree.Compare(operator if self._wanted else tree.OPPOSITE[operator], left, right)
        return (Conjunction(self.value(left) | self.value(right), (residue,)),)

    def among(self, name: str, values: tuple[Value, ...]) -> Normal:
        """A value is outside a list only if it can be compared with every member: all of one kind."""
        kinds = by_kind(values)
        if self._wanted:
            return _one(name, union_of([_listed(kind, alike) for kind, alike in kinds.items()]))
        if len(kinds) > 1 or Kind.BOOLEAN in kinds:
            return NEVER  # a list of booleans has both, since one alone is an equality
        (kind,) = kinds
        return _one(name, _of_kind(kind, points(values).complement()))

    def is_null(self, name: str) -> Normal:
        return _one(name, MISSING if self._wanted else PRESENT)

    def always(self, answer: bool) -> Normal:
        return ALWAYS if answer is self._wanted else NEVER

    def is_true(self, name: str) -> Normal:
        return _one(name, Constraint(booleans=TRUE if self._wanted else FALSE))

    def holds(self, call: tree.FunctionCall) -> Normal:
        implied = FUNCTIONS[call.function].implied
        assert implied is not None, "a function that is a condition says what it implies"
        constraints, exact = implied(len(call.names), *call.constants)
        if exact and len(call.names) == 1:
            (constraint,) = constraints
            # False for the other values of the kinds it can be asked of; a function asks one kind of value.
            others = constraint if self._wanted else Constraint(strings=constraint.strings.complement())
            return _one(call.names[0], others)
        if self._wanted:
            return (Conjunction(_all_of_names(call.names, constraints), () if exact else (call,)),)
        return (Conjunction(dict.fromkeys(call.names, PRESENT), (tree.Not(call),)),)

    # Values that the attributes of an expression need for it to have a value at all

    def named(self, name: str) -> dict[str, Constraint]:
        return {name: PRESENT}

    def constant(self, _value: Value) -> dict[str, Constraint]:
        return {}

    def calculated(self, _operator: str, left: Expression, right: Expression) -> dict[str, Constraint]:
        return dict.fromkeys((*self.value(left), *self.value(right)), ANY_NUMBER)

    def negative(self, operand: Expression) -> dict[str, Constraint]:
        return dict.fromkeys(self.value(operand), ANY_NUMBER)

    def called(self, call: tree.FunctionCall) -> dict[str, Constraint]:
        return dict.fromkeys(call.names, ANY_NUMBER)

    # Joining

    def _some(self, operands: tuple[Condition, ...]) -> Normal:
        """Return alternatives side by side, those on one and the same attribute united."""
        alternatives: list[Conjunction] = []
        lines: dict[str, list[Constraint]] = {}
        for operand in operands:
            for alternative in self.condition(operand):
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
        return (Conjunction({}, (tree.Or(operands) if self._wanted else tree.Not(tree.And(operands)),)),)

    def _every(self, operands: tuple[Condition, ...]) -> Normal:
        """Return the alternatives of all operands multiplied out, few before many, within the bound."""
        lines: dict[str, list[Constraint]] = {}
        residues: list[Condition] = []
        several: list[tuple[Condition, Normal]] = []
        for operand in operands:
            if (simple := self._simple(operand)) is not None:
                lines.setdefault(simple[0], []).append(simple[1])
                continue
            normal = self.condition(operand)
            if len(normal) != 1:
                several.append((operand, normal))
                continue
            for name, constraint in normal[0].constraints.items():
                lines.setdefault(name, []).append(constraint)
            residues += normal[0].residues
        single = {name: each[0] if len(each) == 1 else intersection_of(each) for name, each in lines.items()}
        if any(constraint.is_empty for constraint in single.values()):
            return NEVER
        return self._multiplied(single, residues, several)

    def _simple(self, node: Condition) -> tuple[str, Constraint] | None:
        """Return name and values of a condition on one attribute, if it is one of the two commonest kinds."""
        if type(node) is tree.Compare:
            if type(node.left) is tree.Name and type(node.right) is tree.Literal:
                return node.left.name, self._admitted(node.operator, node.right.value)
        elif type(node) is tree.Between and type(node.operand) is tree.Name and self._wanted:
            low, high = node.low, node.high
            if (
                type(low) is tree.Literal
                and type(high) is tree.Literal
                and (kind := kind_of(low.value)) is kind_of(high.value)
            ):
                return node.operand.name, _of_kind(kind, between(low.value, high.value))
        return None

    def _multiplied(
        self,
        single: dict[str, Constraint],
        residues: list[Condition],
        several: list[tuple[Condition, Normal]],
    ) -> Normal:
        result: Normal = (Conjunction(single),)
        for operand, normal in sorted(several, key=lambda pair: len(pair[1])):
            if len(result) * len(normal) > DISJUNCTS_MAX:
                residues.append(operand if self._wanted else tree.negated(operand))
            else:
                result = tuple(_products(result, normal))
        more = tuple(residues)
        return tuple(Conjunction(one.constraints, one.residues + more) for one in result) if more else result


_WHEN_TRUE, _WHEN_FALSE = When(True), When(False)
normal_form = _WHEN_TRUE.condition
"""Return the alternatives of which one must hold for a condition to be true."""


def _one(name: str, constraint: Constraint) -> Normal:
    return NEVER if constraint.is_empty else (Conjunction({name: constraint}),)


def _of_kind(kind: Kind, line: Intervals) -> Constraint:
    if kind is Kind.NUMBER:
        return Constraint(line)
    if kind is Kind.STRING:
        return Constraint(strings=line)
    return Constraint(times=line) if kind is Kind.TIME else Constraint(blobs=line)


def _listed(kind: Kind, values: list[Value]) -> Constraint:
    if kind is Kind.BOOLEAN:
        return Constraint(booleans=sum(TRUE if value else FALSE for value in values))
    return _of_kind(kind, points(values))


def _all_of_names(names: Iterable[str], constraints: Iterable[Constraint]) -> dict[str, Constraint]:
    united: dict[str, Constraint] = {}
    for name, constraint in zip(names, constraints, strict=True):
        united[name] = united[name].intersect(constraint) if name in united else constraint
    return united


def _products(left: Normal, right: Normal) -> Iterable[Conjunction]:
    for one in left:
        for other in right:
            constraints = dict(one.constraints)
            if _narrow_all(constraints, other.constraints):
                yield Conjunction(constraints, one.residues + other.residues)


def _narrow_all(constraints: dict[str, Constraint], more: dict[str, Constraint]) -> bool:
    """Intersect in place; return False if an attribute is left without any value."""
    for name, constraint in more.items():
        known = constraints.get(name)
        constraints[name] = constraint if known is None else known.intersect(constraint)
        if constraints[name].is_empty:
            return False
    return True


# Written as a condition again

MIDDLES: tuple[Value, ...] = (0, "", EPOCH, b"")
"""Any value of each ordered kind."""


def condition_of(normal: Normal) -> Condition:
    """Return a condition that is true for exactly the events that the normal form matches."""
    alternatives: list[Condition] = []
    for one in normal:
        admitted = [_admitted(name, constraint) for name, constraint in one.constraints.items()]
        alternatives.append(_all([*admitted, *one.residues]))
    return _any(alternatives)


def _admitted(name: str, constraint: Constraint) -> Condition:
    """Return the condition that an attribute is in the set."""
    if constraint.covers(PRESENT):
        return tree.Literal(True) if constraint.missing else tree.Not(tree.IsNull(name))
    ways = list(_ways(name, constraint))
    if constraint.covers(MISSING):
        ways.append(tree.IsNull(name))
    return _any(ways)


def _ways(name: str, constraint: Constraint) -> Iterator[Condition]:
    if constraint.booleans:
        both = ((FALSE, False), (TRUE, True))
        yield tree.membership(name, [value for bit, value in both if constraint.booleans & bit])
    for line, middle in zip(constraint.lines, MIDDLES, strict=True):
        if not line.is_empty:
            yield from _on_line(name, line, middle)


def _on_line(name: str, line: Intervals, middle: Value) -> Iterator[Condition]:
    """Yield conditions of which one holds for the values of one kind in the set; `middle` is any value."""
    if line.is_all:  # every value of a kind lies on one side of any of them, or on the other
        yield from (
            tree.Compare("<=", tree.Name(name), tree.Literal(middle)),
            tree.Compare(">", tree.Name(name), tree.Literal(middle)),
        )
        return
    excluded = line.complement().points()
    if excluded is not None:
        yield _all([tree.negated(listed) for listed in _lists(name, excluded)])
        return
    pieces = list(line.pieces())
    single = [piece.low for piece in pieces if piece.is_point]
    yield from _lists(name, single)
    yield from (_between(name, piece) for piece in pieces if not piece.is_point)


def _lists(name: str, values: list[Value]) -> Iterator[Condition]:
    """Yield IN lists of all these values, none of them too long."""
    for start in range(0, len(values), LIST_MAX):
        yield tree.membership(name, values[start : start + LIST_MAX])


def _between(name: str, piece: Piece) -> Condition:
    if piece.low_closed and piece.high_closed:
        return tree.Between(tree.Name(name), tree.Literal(piece.low), tree.Literal(piece.high))
    ends: list[Condition] = []
    if piece.low is not None:
        ends.append(tree.Compare(">=" if piece.low_closed else ">", tree.Name(name), tree.Literal(piece.low)))
    if piece.high is not None:
        ends.append(
            tree.Compare("<=" if piece.high_closed else "<", tree.Name(name), tree.Literal(piece.high))
        )
    return _all(ends)


def _all(conditions: list[Condition]) -> Condition:
    parts: list[Condition] = []
    for condition in conditions:
        if isinstance(condition, tree.And):
            parts += condition.operands
        elif condition != tree.Literal(True):
            parts.append(condition)
    return tree.And(tuple(parts)) if len(parts) > 1 else parts[0] if parts else tree.Literal(True)


def _any(conditions: list[Condition]) -> Condition:
    parts: list[Condition] = []
    for condition in conditions:
        parts += condition.operands if isinstance(condition, tree.Or) else (condition,)
    return tree.Or(tuple(parts)) if len(parts) > 1 else parts[0] if parts else tree.Literal(False)
