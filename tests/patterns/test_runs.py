"""The core of patterns: the cases of docs/patterns.md, and random ones compared with the reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st

from patterns.reference import Given, Said
from patterns.samples import S, event_of, events, expected, patterns, row_of, run, said
from tidings.patterns import KeyRuns, Pattern, RunOutcome
from tidings.patterns.runs import RUNS_MAX, RefusedRow

DOCUMENT = Path(__file__).parents[2] / "docs" / "patterns.md"
ROW = re.compile(r"^\| `(a\[.+|up\[.+)` \| `([A-Z].*)` \| (none|\(.*\)) \|$", re.MULTILINE)
ROWS = [row.groups() for row in ROW.finditer(DOCUMENT.read_text())]
AB = "a[type = 'A'] THEN b[type = 'B'] WITHIN 300 s"


def fired(text: str, happened: str, until_s: int = 10_000) -> list[tuple[int, ...]]:
    """Return the times of the events of each match, and of its end if that is another: `A0 B240`."""
    pattern = Pattern(text)
    given = [
        Given(int(rest.partition("=")[0]) * S, "n", number, (), event_of(kind, 0, **_value(rest)))
        for number, (kind, rest) in enumerate((one[0], one[1:]) for one in happened.split())
    ]
    found = sorted(run(pattern, given, until_s * S), key=lambda one: (one.end, one.events))
    assert set(found) == expected(pattern, given, until_s * S)
    return [_times(one) for one in found]


def _value(rest: str) -> dict[str, int]:
    value = rest.partition("=")[2]
    return {"value": int(value)} if value else {}


def _times(one: Said) -> tuple[int, ...]:
    times = [time // S for _, time, _, _ in one.events]
    return tuple(times if times[-1] == one.end // S else [*times, one.end // S])


@pytest.mark.parametrize(("pattern", "happened", "matches"), ROWS)
def test_a_pattern_fires_when_its_page_says(pattern: str, happened: str, matches: str) -> None:
    wanted = "" if matches == "none" else matches
    shown = ["({})".format(", ".join(map(str, times))) for times in fired(pattern, happened)]
    assert ", ".join(shown) == wanted


def test_the_page_has_the_cases_that_matter() -> None:
    assert len(ROWS) > 20


def test_absence_fires_when_all_events_up_to_its_end_have_come_though_the_key_is_silent() -> None:
    pattern = Pattern("a[type = 'A'] THEN NO b[type = 'B'] WITHIN 300 s")
    runs = KeyRuns(pattern.compiled)
    runs.offer(row_of(pattern, Given(0, "n", 1, (), event_of("A", 0))))
    assert runs.advance(299_999_999) == []
    assert runs.wake_us == 300 * S
    (match,) = runs.advance(300 * S)
    assert isinstance(match, RunOutcome)
    assert (match.end_us, match.is_timeout) == (300 * S, False)
    assert runs.is_idle


def test_a_key_with_too_many_partial_matches_refuses_further_starts_and_says_so() -> None:
    pattern = Pattern(AB)
    runs = KeyRuns(pattern.compiled)
    for number in range(RUNS_MAX + 1):
        runs.offer(row_of(pattern, Given(number, "n", number, (), event_of("A", 0))))
    (refused,) = runs.advance(S)
    assert isinstance(refused, RefusedRow)
    assert (refused.row.number, refused.reason) == (RUNS_MAX, "too many partial matches")
    assert runs.runs == RUNS_MAX


@settings(max_examples=often(600), deadline=None)
@given(patterns(), events(), st.integers(0, 26))
def test_the_core_says_what_the_reference_says(pattern: Pattern, given: list[Given], until_s: int) -> None:
    assert run(pattern, given, until_s * S) == expected(pattern, given, until_s * S)


@settings(max_examples=often(100), deadline=None)
@given(patterns(), events(), st.lists(st.integers(0, 26), min_size=1, max_size=6))
def test_it_does_not_matter_how_time_goes_on_nor_that_the_state_was_stored(
    pattern: Pattern, given: list[Given], times: list[int]
) -> None:
    """Events come just before their time, and between steps of time the state goes through bytes."""
    keys: dict[object, KeyRuns] = {}
    found: set[Said] = set()
    left = list(given)
    for until_s in sorted(times):
        for one in [one for one in left if one.time <= until_s * S]:
            keys.setdefault(one.key, KeyRuns(pattern.compiled)).offer(row_of(pattern, one))
            left.remove(one)
        for key, runs in keys.items():
            found |= said(pattern, key, runs.advance(until_s * S))
            keys[key] = KeyRuns.decode(pattern.compiled, runs.encode())
            assert keys[key].wake_us == runs.wake_us
    assert found == expected(pattern, given, max(times) * S)


@settings(max_examples=often(100), deadline=None)
@given(patterns())
def test_the_text_of_a_pattern_makes_the_same_pattern(pattern: Pattern) -> None:
    again = Pattern(str(pattern))
    assert (again.node, again.alternatives, str(again)) == (pattern.node, pattern.alternatives, str(pattern))
