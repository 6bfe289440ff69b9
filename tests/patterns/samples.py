"""Random patterns and events for the properties of patterns, and both sides of a comparison."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from patterns.reference import Given, Said, matches
from tidings import Event
from tidings.errors import PatternError
from tidings.event.values import EPOCH
from tidings.patterns import KeyRuns, Pattern, Row, RunOutcome

TYPES = "ABCD"
S = 1_000_000


@st.composite
def conditions(draw: DrawFn, own: str, earlier: list[str]) -> str:
    """Return a condition, sometimes with a reference to an earlier step or to the step itself."""
    parts = [draw(st.sampled_from([*(f"type = '{kind}'" for kind in TYPES), "type IN ('A', 'B')", "n > 2"]))]
    if draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from([*earlier, own]))
        parts.append(f"n {draw(st.sampled_from(['>', '<=', '<>']))} {name}.n")
    return " AND ".join(parts)


@st.composite
def texts(draw: DrawFn) -> str:
    """Return the text of a pattern, which may be refused."""
    names: list[str] = []

    def step(counted: bool = True, absent: bool = False) -> str:
        name = f"s{len(names)}"
        text = f"{name}[{draw(conditions(name, [] if absent and not names else names))}]"
        names.append(name)
        return text + (
            draw(st.sampled_from(["", "", "", "{2}", "{1,2}", "{2,3}", "{2,}"])) if counted else ""
        )

    def part(depth: int) -> str:
        kind = draw(st.sampled_from(["step", "step", "step", "then", "and", "or"])) if depth else "step"
        if kind == "step":
            return step()
        if kind == "then":
            return f"({part(depth - 1)} THEN {no()}{part(depth - 1)})"
        return f"({part(depth - 1)} {kind.upper()} {part(depth - 1)})"

    def no() -> str:
        return f"NO {step(False, True)} THEN " if draw(st.integers(0, 2)) == 0 else ""

    text = part(2)
    for _ in range(draw(st.integers(0, 2))):
        text += f" THEN {no()}{part(1)}"
    if draw(st.integers(0, 3)) == 0:
        text += f" THEN NO {step(False, True)}"
    if draw(st.integers(0, 5)):
        text += f" WITHIN {draw(st.integers(1, 12))} s"
    if draw(st.booleans()):
        text += " OVERLAPPING"
    if draw(st.booleans()) and "WITHIN" in text:
        text += " TIMEOUTS"
    return text + " LATE 0 s BY k"


def patterns() -> SearchStrategy[Pattern]:
    """Return patterns that are not refused."""

    def made(text: str) -> Pattern | None:
        try:
            return Pattern(text)
        except PatternError:
            return None

    return texts().map(made).filter(lambda one: one is not None)  # type: ignore[return-value]


def events(most: int = 14) -> SearchStrategy[list[Given]]:
    """Return events of two keys and two nodes, often at the same time, in any order."""
    one = st.tuples(st.integers(0, 12), st.sampled_from("xy"), st.sampled_from(TYPES), st.integers(0, 4))
    return st.lists(st.tuples(one, st.sampled_from("pq")), max_size=most).map(_given)


def _given(drawn: list[tuple[tuple[int, str, str, int], str]]) -> list[Given]:
    return [
        Given(time * S, node, number, (key,), event_of(kind, time, n=n, k=key))
        for number, ((time, node, kind, n), key) in enumerate(drawn)
    ]


def event_of(kind: str, time_s: float, **attributes: object) -> Event:
    """Return an event of that time."""
    return Event(kind, attributes, time=EPOCH + timedelta(seconds=time_s))


def expected(pattern: Pattern, given: list[Given], until_us: int) -> set[Said]:
    """Return what the reference says."""
    rules = pattern.within_us, pattern.overlapping, pattern.timeouts
    return matches(pattern.node, *rules, given, until_us)


def row_of(pattern: Pattern, one: Given) -> Row:
    """Return an event as the core takes it."""
    return Row(one.time, one.node, one.number, pattern.mask(one.event), pattern.values(one.event))


def said(pattern: Pattern, key: object, outcomes: Iterable[object]) -> set[Said]:
    """Return what the core says in the words of the reference."""
    found = set()
    for outcome in outcomes:
        assert isinstance(outcome, RunOutcome), outcome
        names = tuple(
            (pattern.steps[step].name, row.time_us, row.node, row.number) for step, row in outcome.events
        )
        one = Said(key, names, outcome.end_us, outcome.is_timeout)
        assert one not in found
        found.add(one)
    return found


def run(pattern: Pattern, given: list[Given], until_us: int) -> set[Said]:
    """Return what the core says of events that came in this order, all at once."""
    keys: dict[object, KeyRuns] = {}
    for one in given:
        keys.setdefault(one.key, KeyRuns(pattern.compiled)).offer(row_of(pattern, one))
    return {one for key, runs in keys.items() for one in said(pattern, key, runs.advance(until_us))}
