"""Notes on a filter: conditions that are probably not meant as they are written.

A filter that can never be true, or whose double quotes make an attribute of a text, is valid, and a
subscription with it just stays silent. So these are no errors; they are collected on request, and cost
nothing before.

Conditions that are never true show in the normal form. The walk here makes it, with two additions: it
knows which values header fields can have, and it notes the smallest condition that has no alternative
left. The rule kept: a note with `never` is exact, no event makes its condition true. The others name a
probable mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from tidings.event.header import DELIVERIES, PRIORITY_MAX, ROUTES, field_meant
from tidings.event.values import RESERVED
from tidings.filters import tree
from tidings.filters.constraint import ANY_STRING, Constraint
from tidings.filters.intervals import EVERYTHING, between, compared, intersection_of, points
from tidings.filters.kinds import Kind, by_kind, fits, kind_of, read_time
from tidings.filters.normal import Normal, When
from tidings.filters.text import write, write_literal, write_name
from tidings.filters.tokens import (
    COMPARISONS,
    END,
    KEYWORDS,
    cut,
    is_name_start,
    is_word,
    number,
    short,
)
from tidings.filters.tree import Condition

CONDITION_SHOWN_MAX = 100
"""Characters of a condition that the text of a note shows."""
NOTES_MAX = 20
"""Notes that one filter gets; the first ones say enough."""


class Note(Struct, frozen=True):
    """A probable mistake in a filter: the condition, what is wrong with it, and what may be meant.

    `never`: the condition is true for no event at all.
    """

    condition: str
    problem: str
    hint: str | None = None
    never: bool = False

    def __str__(self) -> str:
        said = f"{short(self.condition, CONDITION_SHOWN_MAX)}: {self.problem}"
        return f"{said}; {self.hint}" if self.hint else said


class KnownValues(Struct, frozen=True):
    """The values that an attribute or header field can have, as a set and in words."""

    values: Constraint
    words: str

    def optional(self) -> KnownValues:
        """Return the same for a field that may be absent."""
        return KnownValues(self.values.union(Constraint(missing=True)), self.words)


def any_of_kind(kind: Kind) -> KnownValues:
    """Return all values of one kind."""
    return _OF_KIND[kind]


def _one_of(*words: str) -> KnownValues:
    return KnownValues(Constraint(strings=points(words)), "one of " + ", ".join(map(write_literal, words)))


_OF_KIND = {
    Kind.BOOLEAN: KnownValues(Constraint(booleans=3), "a boolean"),
    Kind.NUMBER: KnownValues(Constraint(EVERYTHING, nan=True), "a number"),
    Kind.STRING: KnownValues(ANY_STRING, "a string"),
    Kind.TIME: KnownValues(Constraint(times=EVERYTHING), "a time"),
    Kind.BYTES: KnownValues(Constraint(blobs=EVERYTHING), "bytes"),
}
_TEXT, _TIME = _OF_KIND[Kind.STRING], _OF_KIND[Kind.TIME]
_SECONDS = KnownValues(Constraint(compared(">=", 0), nan=True), "a number from 0 on")
_OPTIONAL_TEXTS = ("id", "source", "channel", "subject", "reply_to", "correlation_id", "object_class")

HEADER_VALUES: Mapping[str, KnownValues] = {
    **dict.fromkeys((*_OPTIONAL_TEXTS, "content_type"), _TEXT.optional()),
    "type": _TEXT,
    "time": _TIME,
    "received": _TIME.optional(),
    "priority": KnownValues(Constraint(between(0, PRIORITY_MAX)), f"a number from 0 to {PRIORITY_MAX}"),
    "ttl_s": _SECONDS.optional(),
    "keep_s": _SECONDS.optional(),
    "reliability": KnownValues(Constraint(between(0, 1), nan=True, missing=True), "a number from 0 to 1"),
    "delivery": _one_of(*DELIVERIES),
    "route": _one_of(*ROUTES),
    "body": _OF_KIND[Kind.BYTES].optional(),
    "JMSTimestamp": _OF_KIND[Kind.NUMBER],
    "JMSDeliveryMode": _one_of("PERSISTENT", "NON_PERSISTENT"),
}
"""The values of header fields, by the names that stand in a tree."""


def notes_of(
    condition: Condition, source: str = "", known: Mapping[str, KnownValues] = HEADER_VALUES
) -> tuple[Note, ...]:
    """Return the notes on a condition; `source` is the text it was read from, if that has double quotes."""
    notes = [*_quoted(source), *_misspelt(condition), *_slashed(condition), *never_true(condition, known)]
    return tuple(dict.fromkeys(notes))[:NOTES_MAX]


# Probable mistakes


def _quoted(source: str) -> Iterator[Note]:
    """Texts in double quotes that are compared with an attribute."""
    tokens = cut(source) if '"' in source else [END] * 3
    for at, operator in enumerate(tokens[1:-2], start=1):
        left, right = tokens[at - 1], tokens[at + 1]
        if operator not in COMPARISONS and not is_word(operator, "BETWEEN"):
            continue
        if _is_quoted(right) and _is_name(left):
            yield _about_quotes(f"{left} {operator} {right}", right)
        elif _is_quoted(left) and _is_name(right) and _is_plain(left[1:-1]):
            yield _about_quotes(f"{left} {operator} {right}", left)


def _about_quotes(condition: str, token: str) -> Note:
    text = write_literal(token[1:-1].replace('""', '"'))
    return Note(condition, f"{token} is the name of an attribute", f"a text is written {text}")


def _is_quoted(token: str) -> bool:
    return token[:1] == '"' != token


def _is_plain(token: str) -> bool:
    """Whether a name needs no quotes."""
    return is_name_start(token) and cut(token)[1] is END and token.upper() not in KEYWORDS


def _is_name(token: str) -> bool:
    return _is_quoted(token) or _is_plain(token)


def _misspelt(condition: Condition) -> Iterator[Note]:
    for name in sorted(tree.names_in(condition) - RESERVED):
        if (field := field_meant(name)) is not None:
            yield Note(write_name(name), "is an attribute, no header field", f"did you mean {field}?")


def _slashed(condition: Condition) -> Iterator[Note]:
    """Patterns of MQTT for the type, whose levels have dots between them."""
    for part in tree.parts_of(condition):
        yield from _slashed(part)
    match condition:
        case tree.FunctionCall("TOPIC", ("type",), (str() as pattern,)) if "/" in pattern:
            dotted = pattern.strip("/").replace("/", ".").replace("+", "*").replace("#", ">")
            hint = f"write {write_literal(dotted)}"
            yield Note(write(condition), "the levels of a type are separated by dots", hint)


# Conditions that are never true


def never_true(condition: Condition, known: Mapping[str, KnownValues] = HEADER_VALUES) -> list[Note]:
    """Return a note for each condition that no event makes true, the smallest ones where they are nested."""
    search = _NeverTrue(True, known)
    search.condition(condition)
    return search.notes


class _NeverTrue(When):
    """The walk that makes the normal form, and notes the conditions of which nothing is left."""

    def __init__(
        self, wanted: bool, known: Mapping[str, KnownValues], other: _NeverTrue | None = None
    ) -> None:
        super().__init__(wanted)
        self.notes: list[Note] = [] if other is None else other.notes
        self._known = known
        self._never: set[int] = set() if other is None else other._never  # ids of nodes of the tree
        self._quiet = When(wanted)
        self._other = _NeverTrue(not wanted, known, self) if other is None else other

    def condition(self, node: Condition) -> Normal:
        """Return the alternatives that are possible, and note it if there are none."""
        is_joined = isinstance(node, tree.And | tree.Or | tree.Not)
        found = super().condition(node) if is_joined else self._quiet.condition(node)
        normal = tuple(one for one in found if not any(self._impossible(one.constraints)))
        if not normal:
            if self._never.isdisjoint(map(id, tree.parts_of(node))):
                self.notes.append(self._explained(node))
            self._never.add(id(node))
        return normal

    def opposite(self, operand: Condition) -> Normal:
        """Go on with the other question."""
        return self._other.condition(operand)

    def _simple(self, _node: Condition) -> None:
        """Take no short cut: each condition is checked."""

    def _impossible(self, constraints: Mapping[str, Constraint]) -> Iterator[str]:
        """Yield the attributes that have none of the values they would need."""
        for name, constraint in constraints.items():
            if name in self._known and not constraint.overlaps(self._known[name].values):
                yield name

    # Texts of problems

    def _explained(self, node: Condition) -> Note:
        said = node if self._wanted else tree.negated(node)
        if isinstance(node, tree.And | tree.Or):
            return self._contradiction(node, said)
        problem, hint = self._reason(node)
        return Note(write(said), problem, hint, never=True)

    def _reason(self, node: Condition) -> tuple[str, str | None]:
        if isinstance(node, tree.Between) and (swapped := _swapped(node)) is not None:
            return swapped
        for alternative in self._quiet.condition(node):
            for name in self._impossible(alternative.constraints):
                return self._unlike(name, alternative.constraints[name], node)
        match node:
            case tree.In(name, values) if len(by_kind(values)) > 1:
                return "a list of several kinds is never false", "write one list for each kind"
            case tree.Compare(_, left, right) if None not in (
                kinds := (tree.static_kind(left), tree.static_kind(right))
            ):
                return f"a {kinds[0]} is compared with a {kinds[1]}", None
        return "is never true", None

    def _unlike(self, name: str, wanted: Constraint, node: Condition) -> tuple[str, str | None]:
        """Return the values the attribute has, and how the wanted one may be meant."""
        known = self._known[name]
        if wanted.missing:
            return f"{write_name(name)} is never absent", None
        return f"{write_name(name)} is {known.words}", _rewritten(node, known.values)

    def _contradiction(self, node: tree.And | tree.Or, said: Condition) -> Note:
        """Name the conditions on one attribute that exclude each other, if there is such an attribute."""
        demands: dict[str, list[tuple[Condition, Constraint]]] = {}
        for part in node.operands:
            normal = self._quiet.condition(part)
            if len(normal) == 1:
                for name, constraint in normal[0].constraints.items():
                    demands.setdefault(name, []).append((part, constraint))
        for name, given in demands.items():
            met = intersection_of([constraint for _, constraint in given])
            if met.is_empty or any(self._impossible({name: met})):
                parts = tuple(part if self._wanted else tree.negated(part) for part, _ in given)
                problem = f"no value of {write_name(name)} meets all of these conditions"
                return Note(write(tree.And(parts)), problem, never=True)
        return Note(write(said), "these conditions exclude each other", never=True)


def _swapped(node: tree.Between) -> tuple[str, str | None] | None:
    """Return the mistake in BETWEEN if its bounds are in the wrong order."""
    low, high = (end.value if isinstance(end, tree.Literal) else None for end in (node.low, node.high))
    if low is None or high is None or kind_of(low) is not kind_of(high) or low <= high:  # type: ignore[operator]
        return None
    few, many = write_literal(high), write_literal(low)
    return f"{many} is greater than {few}", f"write BETWEEN {few} AND {many}"


def _rewritten(node: Condition, values: Constraint) -> str | None:
    """Return how the constant of a comparison is written, if it is only of the wrong kind."""
    match node:
        case tree.Compare(_, tree.Name(), tree.Literal(str() as text)):
            return _unquoted(text, values)
        case tree.Compare(_, tree.Name(), tree.Literal(int() | float() as amount)):
            return f"write '{write_literal(amount)}'" if ANY_STRING.overlaps(values) else None
    return None


def _unquoted(text: str, values: Constraint) -> str | None:
    amount = number(text.strip())
    if amount is not None and fits(amount) and values.admits(amount):
        return f"write {write_literal(amount)}"
    if not values.times.is_empty:
        try:
            return f"write {write_literal(read_time(text))}"
        except ValueError:
            return "write TIMESTAMP '2026-11-15 08:00:00'"
    return None
