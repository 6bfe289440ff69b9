"""Covering, overlapping and merging: the relations of two filters that routing needs.

All three work on normal forms. `covers` may say no when unsure and `overlaps` may say yes when unsure, so
routing built on them sends too much at worst, never too little. `unite` always covers both, and returns
whether it matches nothing more.
"""

from __future__ import annotations

from tidings.filters.constraint import ANYTHING, Constraint
from tidings.filters.functions import FUNCTIONS
from tidings.filters.intervals import Intervals
from tidings.filters.normal import Conjunction, Normal
from tidings.filters.tree import Condition, FunctionCall, Not, size_of

UNITED_MAX = 16
"""Alternatives of a merged filter before it is made coarser."""
PIECES_MAX = 200
"""Separate intervals of one attribute of a merged filter before they are joined."""
POINTS_MAX = 5_000
"""The same if all of them are single values."""
RESIDUE_MAX = 50
"""Conditions in a residue of a merged filter, and residues of an alternative."""
TRIED_MAX = 100
"""Single values that are tried on a residue."""


def covers(wide: Normal, narrow: Normal) -> bool:
    """Whether `wide` matches everything that `narrow` does; may say no when unsure."""
    if covers_singly(wide, narrow):
        return True
    joined = simplify(wide)
    return len(joined) < len(wide) and covers_singly(joined, narrow)


def covers_singly(wide: Normal, narrow: Normal) -> bool:
    """Whether each alternative of `narrow` is covered by one of `wide`; `covers`, if that is simplified."""
    return all(any(_covers_one(other, one) for other in wide) for one in narrow)


def overlaps(one: Normal, other: Normal) -> bool:
    """Whether both may match some event; may say yes when unsure."""
    return any(_meet(mine, theirs) for mine in one for theirs in other)


def unite(one: Normal, other: Normal) -> tuple[Normal, bool]:
    """Return a normal form that covers both, and whether it matches nothing more."""
    kept = list(simplify(one + other))
    exact = len(kept) <= UNITED_MAX
    while len(kept) > UNITED_MAX:
        newest = kept.pop()
        alike = min(range(len(kept)), key=lambda place: _strangeness(newest, kept[place]))
        _insert(kept, _slimmer(_coarser(newest, kept.pop(alike))))
    slim = tuple(_slimmer(alternative) for alternative in kept)
    return slim, exact and slim == tuple(kept)


def simplify(normal: Normal) -> Normal:
    """Return the same events as fewer alternatives.

    Covered ones are dropped, and those that differ in one attribute joined. Costs the square of the number of
    alternatives, which normal forms bound.
    """
    kept: list[Conjunction] = []
    for alternative in normal:
        _insert(kept, alternative)
    return tuple(kept)


def _insert(kept: list[Conjunction], candidate: Conjunction) -> None:
    """Add an alternative to others, none of which covers another or could be joined with it exactly."""
    place: int | None = 0
    while place is not None:
        if any(_covers_one(known, candidate) for known in kept):
            return
        kept[:] = [known for known in kept if not _covers_one(candidate, known)]
        place = None
        for index, known in enumerate(kept):
            if (joined := _joined(known, candidate)) is not None:
                place, candidate = index, joined
                del kept[index]
                break
    kept.append(candidate)


def _covers_one(wide: Conjunction, narrow: Conjunction) -> bool:
    theirs = narrow.constraints
    if not all(c.covers(theirs.get(name, ANYTHING)) for name, c in wide.constraints.items()):
        return False
    known = set(narrow.residues) if wide.residues else ()
    return all(residue in known or _ensured(residue, narrow) for residue in wide.residues)


def _ensured(residue: Condition, by: Conjunction) -> bool:
    """Whether a residue is true for every event of the conjunction, by trying its single strings."""
    call = residue.operand if isinstance(residue, Not) else residue
    if not isinstance(call, FunctionCall) or len(call.names) != 1:
        return False
    strings = _only_strings(by.constraints.get(call.names[0], ANYTHING))
    if strings is None or len(strings) > TRIED_MAX:
        return False
    test = FUNCTIONS[call.function].prepare(*call.constants)
    return all(test(value) is (call is residue) for value in strings)


def _only_strings(constraint: Constraint) -> list[str] | None:
    """Return the strings that the constraint amounts to, or None if it admits more."""
    values = constraint.strings.points()
    return values if constraint == Constraint(strings=constraint.strings) else None


def _meet(one: Conjunction, other: Conjunction) -> bool:
    theirs = other.constraints
    return all(name not in theirs or c.overlaps(theirs[name]) for name, c in one.constraints.items())


def _joined(one: Conjunction, other: Conjunction) -> Conjunction | None:
    """Return exactly the events of both in one conjunction, if they differ in one attribute only."""
    if one.residues != other.residues or one.constraints.keys() != other.constraints.keys():
        return None
    different = [name for name, c in one.constraints.items() if c != other.constraints[name]]
    if len(different) != 1:
        return None
    return _with(one.constraints, {different[0]: _either(one, other, different[0])}, one.residues)


def _coarser(one: Conjunction, other: Conjunction) -> Conjunction:
    """Return one conjunction that covers both: their common demands, each attribute as wide as either."""
    shared = {name: _either(one, other, name) for name in one.constraints if name in other.constraints}
    return _with({}, shared, tuple(residue for residue in one.residues if residue in other.residues))


def _either(one: Conjunction, other: Conjunction, name: str) -> Constraint:
    return one.constraints[name].union(other.constraints[name])


def _with(
    constraints: dict[str, Constraint], changes: dict[str, Constraint], residues: tuple[Condition, ...]
) -> Conjunction:
    """Return a conjunction without the constraints that admit anything."""
    changed = constraints | changes
    return Conjunction({n: c for n, c in changed.items() if not c.is_anything}, residues)


def _strangeness(one: Conjunction, other: Conjunction) -> tuple[int, int]:
    """Return the loss when two are joined: attributes that only one has, then few in common."""
    mine, theirs = one.constraints.keys(), other.constraints.keys()
    return len(mine ^ theirs), -len(mine & theirs)


def _slimmer(conjunction: Conjunction) -> Conjunction:
    """Return the conjunction with lines of too many pieces joined, and without very long residues."""
    slim = {name: _hulled(constraint) for name, constraint in conjunction.constraints.items()}
    residues = tuple(residue for residue in conjunction.residues if size_of(residue) <= RESIDUE_MAX)
    return _with({}, slim, residues[:RESIDUE_MAX])


def _hulled(constraint: Constraint) -> Constraint:
    numbers, strings, times, blobs = (_shorter(line) for line in constraint.lines)
    return Constraint(numbers, strings, times, blobs, constraint.booleans, constraint.nan, constraint.missing)


def _shorter(line: Intervals) -> Intervals:
    if len(line.cuts) <= 2 * PIECES_MAX:
        return line
    few_points = len(line.cuts) <= 2 * POINTS_MAX and (line.points() or line.complement().points())
    return line if few_points else line.hull()
