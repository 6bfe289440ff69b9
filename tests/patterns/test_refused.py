"""Patterns that can't be: refused when they are made, with the place of the mistake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidings import Pattern
from tidings.errors import PatternError
from tidings.patterns import step
from tidings.patterns.text import LENGTH_MAX, NESTING_MAX, STEPS_MAX

A, B = "a[type = 'A']", "b[type = 'B']"
MANY = " THEN ".join(f"s{number}x[x = {number}]" for number in range(STEPS_MAX + 1))


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        (f"{A}{{2,}}", (1, 1), "a has no end in time or number"),
        (f"{B} THEN {A}{{2,}} THEN c[]", (1, 20), "a has no end in time or number"),
        (f"{A}{{2,5}}", (1, 1), "a has no end; say one number of it, or WITHIN which time"),
        (f"{A} THEN NO {B}", (1, 23), "NO b has no end; say WITHIN which time it is absent"),
        (f"{A} THEN {B} TIMEOUTS", None, "TIMEOUTS needs a time"),
        (f"{A}\nTHEN b[value > 5 AND value < 3]", (2, 6), "b is never true: value > 5 AND value < 3"),
        (f"{A} THEN NO b[FALSE] WITHIN 1 s", (1, 23), "b is never true"),
        (
            "a[value > b.value] THEN b[type = 'B']",
            (1, 1),
            "a refers to b.value, which does not come before it",
        ),
        (f"{A} OR b[value > a.value]", (1, 18), "b refers to a.value, which does not come before it"),
        (f"{A} THEN NO n[x = 1] THEN c[x = n.x] WITHIN 1 s", (1, 37), "c refers to n.x, but n is absent"),
        (f"{A} THEN a[type = 'B']", (1, 20), "two steps have the name a"),
        (f"NO {A} WITHIN 1 s", (1, 1), "NO needs a step before it"),
        (f"({A} THEN NO {B}) THEN c[] WITHIN 1 s", (1, 2), "a sequence in brackets can't end with NO"),
        (f"{A} THEN NO {B}{{2}} WITHIN 1 s", (1, 23), "a step that must be absent has no number"),
        (f"{A}{{0}}", (1, 14), "a step takes at least one event"),
        (f"{A}{{3,2}}", (1, 14), "2 is less than 3"),
        (f"{A}{{1001}}", (1, 14), "a step takes at most 1000 events"),
        (f"{A} WITHIN 2 years", (1, 22), "there is no unit of time years"),
        (f"{A} WITHIN 0 s", (1, 22), "a time is at least a microsecond and at most a year"),
        (f"{A} WITHIN 1 s WITHIN 2 s", (1, 26), "WITHIN stands twice"),
        (f"{A} BY k, k", None, "BY names an attribute twice"),
        (
            f"{A} THEN NO n[x = 1] WITHIN 1 s RETURN n.x",
            None,
            "RETURN: there is no step n whose events are in a match",
        ),
        ("a[type = 'A'", (1, 2), "this bracket of a condition has no end ]"),
        ("a[value => 3]", (1, 9), "expected AND, OR or the end, found =>"),
        ("(" * (NESTING_MAX + 1) + A, (1, NESTING_MAX + 2), "brackets are nested more than"),
        (MANY, (1, MANY.index(f"s{STEPS_MAX}x") + 1), f"a pattern has at most {STEPS_MAX} steps"),
        (" " * (LENGTH_MAX + 1), None, f"more than {LENGTH_MAX}"),
    ],
)
def test_a_pattern_that_can_not_be_is_refused_with_the_place(
    text: str, place: tuple[int, int] | None, problem: str
) -> None:
    with pytest.raises(PatternError) as caught:
        Pattern(text)
    assert problem in str(caught.value)
    assert (caught.value.line, caught.value.column) == (place or (None, None))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: step("then", ""), "a step has a short name that is no word of patterns"),
        (lambda: step("a", "x >"), "a: line 1, column 4"),
        (lambda: step("a").times(0), "a step takes 1 to 1000 events, not 0 to 0"),
        (lambda: step("a").then(step("b").absent) & step("c"), "can't end with an absence"),
        (lambda: Pattern(step("a").then(step("a"))), "two steps have the name a"),
        (lambda: Pattern(step("a").at_least(2)), "a has no end in time or number"),
        (lambda: Pattern(step("a"), within_s=0), "must be more than 0"),
        (lambda: Pattern(step("a"), within_s=1e9), "at most a year"),
        (lambda: Pattern(step("a"), returns=["a"]), "returns has a step and an attribute"),
        (lambda: Pattern(3), "a pattern is text or steps, not 3"),  # type: ignore[arg-type]
    ],
)
def test_steps_in_python_that_can_not_be_are_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(PatternError, match=problem):
        make()
