"""The pattern: events in a sequence, per key and in event time. `docs/patterns.md` defines its meaning.

It is made from text, or from steps that are joined in Python; both make the same tree, and `str` returns the
text. Whatever could never match, or never end, is refused when it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tidings.errors import EventError, FilterError, PatternError
from tidings.event.model import Event
from tidings.event.values import RESERVED, Value, check_name
from tidings.filters import Filter, Taxonomy
from tidings.filters.parser import parse
from tidings.filters.text import write, write_name
from tidings.filters.tree import And, Condition, Literal, names_in
from tidings.patterns.alternatives import alternatives_of
from tidings.patterns.compiled import (
    CompiledPattern,
    conjuncts,
    event_reader,
    reference,
    step_test,
)
from tidings.patterns.text import (
    KEYWORDS,
    REPETITIONS_MAX,
    STEP_NAME,
    TIME_S_MAX,
    Clauses,
    PatternDraft,
    read,
)
from tidings.patterns.tree import Absent, All, Either, Node, StepNode, Then, joined, steps_in, write_node

LATE_US = 1_000_000
"""How late events may come unless LATE says otherwise."""
TYPE = "match"
"""Type of matches unless AS says otherwise."""
KEY_LENGTH_MAX = 1_000
"""Characters of all texts of a key together."""

NO_KEY, KEY_TOO_LONG = "no key", "key too long"


class PatternStep(Struct, frozen=True):
    """A step: its name, the filter of events that can be one, and the conditions with references."""

    name: str
    filter: Filter
    references: tuple[Condition, ...]


class Pattern:
    """Events in a sequence: `Pattern("a[type = 'A'] THEN b[type = 'B'] WITHIN 300 s BY sensor")`.

    The first argument is text or steps joined by `then`, `&` and `|`. Clauses may be given as arguments
    instead of in the text; values of conditions are bound by name in `values`. With a taxonomy, its terms and
    units are written out, as in a filter. A mistake raises PatternError with its line and column. A pattern
    is immutable.
    """

    def __init__(
        self,
        expression: str | Part,
        /,
        values: dict[str, Any] | None = None,
        *,
        taxonomy: Taxonomy | None = None,
        within_s: float | None = None,
        by: str | Sequence[str] | None = None,
        late_s: float | None = None,
        overlapping: bool | None = None,
        timeouts: bool | None = None,
        returns: Sequence[str] | None = None,
        type: str | None = None,
    ) -> None:
        if isinstance(expression, Part):
            if values or taxonomy is not None:
                raise PatternError("values are bound, and a taxonomy is applied, where a step is made")
            draft = PatternDraft(expression.node, Clauses(), {})
        elif isinstance(expression, str):
            draft = read(expression, values or {}, taxonomy)
        else:
            raise PatternError(f"a pattern is text or steps, not {expression!r}")
        given = draft.clauses
        if within_s is not None:
            given.within_us = _time_us(within_s, "within_s", 1)
        if late_s is not None:
            given.late_us = _time_us(late_s, "late_s", 0)
        given.by = given.by if by is None else (by,) if isinstance(by, str) else tuple(by)
        given.overlapping = given.overlapping if overlapping is None else overlapping
        given.timeouts = given.timeouts if timeouts is None else timeouts
        given.type = given.type if type is None else type
        if returns is not None:
            given.returns = tuple(_reference(text) for text in returns)
        self.node: Node = draft.node
        """Tree of the expression."""
        self._take(given)
        self._check(draft)

    def _take(self, given: Clauses) -> None:
        self.within_us = given.within_us
        self.by = given.by
        """Attributes and header fields that make up the key; without any, all events have one key."""
        self.late_us = LATE_US if given.late_us is None else given.late_us
        """How late an event may be, after one with a later time."""
        self.overlapping = given.overlapping
        self.timeouts = given.timeouts
        self.returns = given.returns
        self.type = TYPE if given.type is None else given.type
        """Type of the events by which matches are delivered."""

    def _check(self, draft: PatternDraft) -> None:
        """Refuse what could never match or never end; divide conditions into filters and references."""
        nodes = list(steps_in(self.node))
        known = _check_names(nodes, draft)
        self._check_end(draft)
        self._check_clauses(known)
        earlier, absent = _earlier(self.node), _absent(self.node)
        self.steps: tuple[PatternStep, ...] = tuple(
            _divided(node, known, earlier[node.name] | {node.name}, absent, draft) for node in nodes
        )
        self.alternatives = alternatives_of(self.node)
        self.columns = self._read_columns(known)
        """Attributes and header fields of which events must have the values, in this order."""
        numbers = {name: number for number, name in enumerate(known)}
        places = {name: place for place, name in enumerate(self.columns)}
        tests = [step_test(n, step.references, numbers, places) for n, step in enumerate(self.steps)]
        rules = self.within_us, self.overlapping, self.timeouts
        self.compiled = CompiledPattern(self.alternatives, numbers, tests, *rules)
        """The pattern as `KeyRuns` runs it."""
        self._tests = [(1 << number, step.filter.test) for number, step in enumerate(self.steps)]
        self._readers = [event_reader(name) for name in self.columns]
        self._key_readers = [event_reader(name) for name in self.by]

    def _check_end(self, draft: PatternDraft) -> None:
        if self.within_us is not None:
            return
        for node in steps_in(self.node):
            if node.high is None:
                problem = f"{node.name} has no end in time or number; say how many, or WITHIN which time"
                raise _error(problem, node.name, draft)
        last = self.node.parts[-1] if isinstance(self.node, Then) else self.node
        if isinstance(last, Absent):
            name = last.step.name
            raise _error(f"NO {name} has no end; say WITHIN which time it is absent", name, draft)
        for alternative in alternatives_of(self.node):
            if alternative.gathers:
                name = alternative.elements[-1].step
                raise _error(f"{name} has no end; say one number of it, or WITHIN which time", name, draft)
        if self.timeouts:
            raise PatternError("TIMEOUTS needs a time; say WITHIN which")

    def _check_clauses(self, known: dict[str, None]) -> None:
        if len(set(self.by)) < len(self.by):
            raise PatternError("BY names an attribute twice")
        for step, _ in self.returns:
            if step not in known or step in _absent(self.node):
                raise PatternError(f"RETURN: there is no step {step} whose events are in a match")
        try:
            Event(self.type)
            for name in (*self.by, *(name for _, name in self.returns)):
                if name not in RESERVED:
                    check_name(name)
        except EventError as error:
            raise PatternError(str(error)) from None

    def _read_columns(self, known: dict[str, None]) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for step in self.steps:
            for condition in step.references:
                for name in sorted(names_in(condition)):
                    found = reference(name, known)
                    names[name if found is None else found[1]] = None
        names.update(dict.fromkeys(name for _, name in self.returns))
        return tuple(names)

    # Reading events

    @property
    def filter(self) -> Filter:
        """The filter of all events that can be some step."""
        whole = self.steps[0].filter
        for step in self.steps[1:]:
            whole = whole | step.filter
        return whole

    def mask(self, event: Event) -> int:
        """Return the bits of the steps whose filter matches the event."""
        bits = 0
        for bit, test in self._tests:
            if test(event) is True:
                bits |= bit
        return bits

    def values(self, event: Event) -> tuple[Value | None, ...]:
        """Return the values of `columns`."""
        return tuple([read_value(event) for read_value in self._readers])

    def key(self, event: Event) -> tuple[Value, ...] | str:
        """Return the key of an event, or why it has none."""
        key, length = [], 0
        for read_part in self._key_readers:
            value = read_part(event)
            if value is None or isinstance(value, float | bytes):
                return NO_KEY
            if type(value) is str:
                length += len(value)
            key.append(value)
        return KEY_TOO_LONG if length > KEY_LENGTH_MAX else tuple(key)

    # Identity and text

    def __str__(self) -> str:
        clauses = [write_node(self.node)]
        if self.within_us is not None:
            clauses.append(f"WITHIN {_written_time(self.within_us)}")
        if self.by:
            clauses.append(f"BY {', '.join(map(write_name, self.by))}")
        if self.late_us != LATE_US:
            clauses.append(f"LATE {_written_time(self.late_us)}")
        clauses += ["OVERLAPPING"] * self.overlapping + ["TIMEOUTS"] * self.timeouts
        if self.returns:
            named = (f"{step}.{write_name(name)}" for step, name in self.returns)
            clauses.append(f"RETURN {', '.join(named)}")
        if self.type != TYPE:
            clauses.append("AS '{}'".format(self.type.replace("'", "''")))
        return " ".join(clauses)

    def __repr__(self) -> str:
        return f"Pattern({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Pattern, (str(self),)


# In Python


class Part:
    """Part of a pattern, to be joined: `a.then(b)`, `a & b`, `a | b`."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def then(self, *following: Part | No) -> Part:
        """Return this part and then the following ones, each later than the one before."""
        parts: list[Node] = [self.node]
        for part in following:
            if isinstance(part, Part) and _ends_absent(part.node):
                raise PatternError("a sequence within another can't end with an absence")
            parts.append(part.node)
        return Part(joined(Then, parts))

    def __and__(self, other: Part) -> Part:
        return self._joined(All, other)

    def __or__(self, other: Part) -> Part:
        return self._joined(Either, other)

    def _joined(self, kind: type[All | Either], other: Part) -> Part:
        if _ends_absent(self.node) or _ends_absent(other.node):
            raise PatternError("a sequence within another can't end with an absence")
        return Part(joined(kind, [self.node, other.node]))

    def __repr__(self) -> str:
        return write_node(self.node)


class StepPart(Part):
    """One step; made by `step`."""

    node: StepNode

    def times(self, low: int, high: int | None = None) -> Part:
        """Return the step repeated: `times(3)`, `times(2, 5)`; see also `at_least`."""
        return self._times(low, low if high is None else high)

    def at_least(self, low: int) -> Part:
        """Return the step repeated so often or more, within the time of the pattern."""
        return self._times(low, None)

    def _times(self, low: int, high: int | None) -> Part:
        if not 1 <= low <= (REPETITIONS_MAX if high is None else high) <= REPETITIONS_MAX:
            raise PatternError(f"a step takes 1 to {REPETITIONS_MAX} events, not {low} to {high}")
        return Part(StepNode(self.node.name, self.node.condition, low, high))

    @property
    def absent(self) -> No:
        """The absence of this step, for `then`."""
        return No(self.node)


class No:
    """Absence of a step; made by `step(…).absent`."""

    def __init__(self, step: StepNode) -> None:
        self.node = Absent(step)


def step(name: str, condition: str | Filter = "", /, **values: Any) -> StepPart:
    """Return a step: its name and the condition of its events, with values bound by name as in filters."""
    if not STEP_NAME.match(name) or name.upper() in KEYWORDS:
        raise PatternError(f"a step has a short name that is no word of patterns, not {name!r}")
    if isinstance(condition, Filter):
        return StepPart(StepNode(name, condition.condition))
    try:
        return StepPart(StepNode(name, parse(condition, values)))
    except FilterError as error:
        raise PatternError(f"{name}: {error}") from None


# Checks


def _error(problem: str, step: str, draft: PatternDraft) -> PatternError:
    return PatternError(problem, *draft.places.get(step, (None, None)))


def _check_names(nodes: list[StepNode], draft: PatternDraft) -> dict[str, None]:
    """Return the names of steps; PatternError if two have one name."""
    known: dict[str, None] = {}
    for node in nodes:
        if node.name in known:
            raise _error(f"two steps have the name {node.name}", node.name, draft)
        known[node.name] = None
    return known


def _earlier(node: Node, before: frozenset[str] = frozenset()) -> dict[str, frozenset[str]]:
    """Return for each step those that may have an event when it gets one."""
    match node:
        case StepNode(name):
            return {name: before}
        case Absent(inner):
            return {inner.name: before}
        case Then(parts):
            found: dict[str, frozenset[str]] = {}
            for part in parts:
                found |= _earlier(part, before)
                before |= {one.name for one in steps_in(part)}
            return found
        case Either(parts):
            return {name: steps for part in parts for name, steps in _earlier(part, before).items()}
        case All(parts):
            every = {one.name for one in steps_in(node)}
            found = {}
            for part in parts:
                own = {one.name for one in steps_in(part)}
                found |= _earlier(part, before | (every - own))
            return found


def _absent(node: Node) -> frozenset[str]:
    """Return the steps that must be absent."""
    match node:
        case Absent(inner):
            return frozenset((inner.name,))
        case Then(parts) | All(parts) | Either(parts):
            return frozenset().union(*map(_absent, parts))
    return frozenset()


def _ends_absent(node: Node) -> bool:
    return isinstance(node, Then) and isinstance(node.parts[-1], Absent)


def _divided(
    node: StepNode,
    known: dict[str, None],
    earlier: frozenset[str],
    absent: frozenset[str],
    draft: PatternDraft,
) -> PatternStep:
    """Return a step with its filter and references; PatternError if it is never true."""
    alone: list[Condition] = []
    referring: list[Condition] = []
    for condition in conjuncts(node.condition):
        found = [one for name in names_in(condition) if (one := reference(name, known)) is not None]
        for step, name in sorted(found):
            if step in absent and step != node.name:
                raise _error(f"{node.name} refers to {step}.{name}, but {step} is absent", node.name, draft)
            if step not in earlier:
                problem = f"{node.name} refers to {step}.{name}, which does not come before it"
                raise _error(problem, node.name, draft)
        if found and node.name in absent and any(step == node.name for step, _ in found):
            raise _error(f"{node.name} is absent, so nothing can refer to it", node.name, draft)
        (referring if found else alone).append(condition)
    filter = Filter(write(alone[0] if len(alone) == 1 else And(tuple(alone)))) if alone else Filter()
    if _is_never(filter, alone):
        raise _error(f"{node.name} is never true: {filter}", node.name, draft)
    return PatternStep(node.name, filter, tuple(referring))


def _is_never(filter: Filter, alone: list[Condition]) -> bool:
    """Whether no event matches: as far as that can be seen from constants and the kinds of header fields."""
    if filter.condition == Literal(False) or not filter.normal:
        return True
    whole = {str(filter), *map(write, alone)}
    return any(note.never and note.condition in whole for note in filter.notes)


def _reference(text: str) -> tuple[str, str]:
    step, _, name = text.partition(".")
    if not name:
        raise PatternError(f"returns has a step and an attribute, such as a.value, not {text!r}")
    return step, name


def _time_us(seconds: float, what: str, least_us: int) -> int:
    if not 0 <= seconds <= TIME_S_MAX:
        raise PatternError(f"{what} is a number of seconds, at most a year, not {seconds!r}")
    time_us = round(seconds * 1e6)
    if time_us < least_us:
        raise PatternError(f"{what} must be more than 0")
    return time_us


def _written_time(time_us: int) -> str:
    for unit, length in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000)):
        if time_us and time_us % length == 0:
            return f"{time_us // length} {unit}"
    whole, rest = divmod(time_us, 1_000_000)
    return f"{whole}.{rest:06d} s" if rest else f"{whole} s"
