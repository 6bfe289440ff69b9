"""A pattern made ready to run: steps as bits and functions, alternatives as numbers.

The condition of a step is divided. Conjuncts about the event alone make its *filter*, which an index, a Spark
column or a plain test can evaluate before anything else happens; the result is a bit of the event's mask.
Conjuncts that refer to other steps are left: they become a function of what a run has taken so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from tidings.event.values import Value
from tidings.filters.evaluate import Read, Tests
from tidings.filters.tree import And, Condition, names_in
from tidings.patterns.alternatives import Alternative, Element

Values = tuple[Value | None, ...]


class RowSight:
    """What a condition with references reads: the values of the event, and of the last event of each step."""

    __slots__ = ("bound", "values")

    values: Values
    bound: Sequence[Values | None]


StepTest = Callable[[RowSight], bool | None]


class CompiledElement:
    """One place of a sequence; `absent` are steps with their bits."""

    __slots__ = ("absent", "bit", "high", "low", "step")

    def __init__(self, element: Element, numbers: Mapping[str, int]) -> None:
        self.step = numbers[element.step]
        self.bit = 1 << self.step
        self.low, self.high = element.low, element.high
        self.absent = _bits(element.absent, numbers)


class CompiledAlternative:
    """A sequence; `concerns` has for each place the bits of all events that may change a run there."""

    __slots__ = ("absent", "concerns", "elements", "gathers", "has_absence_at_end", "last", "number")

    def __init__(self, number: int, alternative: Alternative, numbers: Mapping[str, int]) -> None:
        self.number = number
        self.elements = [CompiledElement(element, numbers) for element in alternative.elements]
        self.last = len(self.elements) - 1
        self.absent = _bits(alternative.absent, numbers)
        self.has_absence_at_end = bool(self.absent)
        self.gathers = alternative.gathers
        self.concerns = [self._concerns(at) for at in range(len(self.elements))]

    def _concerns(self, at: int) -> int:
        following = self.elements[at + 1] if at < self.last else None
        bits = self.elements[at].bit | (0 if following is None else following.bit)
        for _, bit in self.absent if following is None else following.absent:
            bits |= bit
        return bits


class CompiledPattern:
    """All that `KeyRuns` reads of a pattern."""

    __slots__ = ("alternatives", "first", "overlapping", "steps", "tests", "timeouts", "within_us")

    def __init__(
        self,
        alternatives: Sequence[Alternative],
        numbers: Mapping[str, int],
        tests: Sequence[StepTest | None],
        within_us: int | None,
        overlapping: bool,
        timeouts: bool,
    ) -> None:
        self.alternatives = [CompiledAlternative(n, one, numbers) for n, one in enumerate(alternatives)]
        self.first = 0
        for alternative in self.alternatives:
            self.first |= alternative.elements[0].bit
        self.steps = len(numbers)
        self.tests = tests
        self.within_us, self.overlapping, self.timeouts = within_us, overlapping, timeouts


def _bits(steps: frozenset[str], numbers: Mapping[str, int]) -> list[tuple[int, int]]:
    return [(number, 1 << number) for number in sorted(numbers[name] for name in steps)]


# Conditions


def conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions that all must be true."""
    return condition.operands if isinstance(condition, And) else (condition,)


def reference(name: str, steps: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the step and the attribute to which a name refers, None if it is one of the event itself."""
    step, _, attribute = name.partition(".")
    return (step, attribute) if attribute and step in steps else None


def step_test(
    own: int, conditions: Sequence[Condition], numbers: Mapping[str, int], columns: Mapping[str, int]
) -> StepTest | None:
    """Return the test of the conditions of a step that refer to steps; None if there are none.

    Those that refer to the step itself hold for its first event.
    """
    if not conditions:
        return None
    tests = _SightTests(numbers, columns)
    plain, recurring = list[StepTest](), list[StepTest]()
    for condition in conditions:
        found = [reference(name, numbers) for name in names_in(condition)]
        is_own = any(one is not None and numbers[one[0]] == own for one in found)
        (recurring if is_own else plain).append(cast("StepTest", tests.condition(condition)))

    def holds(sight: RowSight) -> bool:
        for test in plain:
            if test(sight) is not True:
                return False
        if sight.bound[own] is not None:
            for test in recurring:
                if test(sight) is not True:
                    return False
        return True

    return holds


class _SightTests(Tests):
    """Conditions as functions of a `RowSight`, with all the rules that filters have."""

    def __init__(self, numbers: Mapping[str, int], columns: Mapping[str, int]) -> None:
        self._numbers, self._columns = numbers, columns

    def named(self, name: str) -> Read:
        found = reference(name, self._numbers)
        if found is None:
            column = self._columns[name]
            return cast("Read", lambda sight: sight.values[column])
        step, column = self._numbers[found[0]], self._columns[found[1]]

        def read(sight: RowSight) -> Value | None:
            bound = sight.bound[step]
            return None if bound is None else bound[column]

        return cast("Read", read)


def event_reader(name: str) -> Read:
    """Return the function that reads an attribute or header field of an event, as filters do."""
    return _EVENTS.named(name)


_EVENTS = Tests()
