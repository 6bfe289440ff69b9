"""Back-tests of patterns: they fire when the reference says, however history is cut into tasks."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import json
from patterns.reference import Given, Said, matches
from patterns.samples import S, event_of, events, expected, patterns
from pyspark.sql import SparkSession

from tests.pipeline.test_backtest import History, history, options_of
from tidings import Event, Pattern
from tidings.errors import ConfigError
from tidings.event.values import us_from_time
from tidings.filters import Taxonomy
from tidings.matching import Matches
from tidings.pipeline.backtest import firing
from tidings.pipeline.backtest.cases import PATTERNS_MAX, Case, Cases, read_cases
from tidings.pipeline.backtest.firing import tally_found
from tidings.pipeline.backtest.run import backtest
from tidings.pipeline.backtest.steps import FoundRow, StepRow, finder, step_batches
from tidings.pipeline.backtest.tally import Chunk, TallyPlan

__all__ = ["history"]  # a fixture


def found_in(pattern: Pattern, lots: list[list[Given]]) -> list[FoundRow]:
    """What tasks find in history that was cut so; Spark's part is to sort."""
    text = (str(pattern),)
    steps: list[StepRow] = []
    for lot in lots:
        for node in sorted({one.node for one in lot}):
            own = [one for one in lot if one.node == node]
            times = np.array([one.time for one in own], np.int64)
            positions = np.array([one.number for one in own], np.int64)
            events = [one.event for one in own]
            chunk = Chunk(node, positions, times, None, events.__getitem__)
            rows = [row for row, event in enumerate(events) if pattern.filter.matches(event)]
            keys, offsets = ([0], [0, len(rows)]) if rows else ([], [0])
            matched = Matches(keys, array("q", offsets), array("q", rows))
            for batch in step_batches(text, [(matched, chunk)]):
                steps += [StepRow(**row) for row in batch.to_pylist()]
    steps.sort(key=lambda row: (row.case, row.key, row.reason or "", row.time_us, row.node, row.position))
    given = (
        pa.Table.from_pylist([row._asdict() for row in steps]).to_batches(max_chunksize=3) if steps else []
    )
    return [FoundRow(**row) for batch in finder(text)(iter(given)) for row in batch.to_pylist()]


@settings(max_examples=often(60))
@given(patterns(), events(), st.integers(0, 14))
def test_a_pattern_fires_in_history_when_the_reference_says(
    pattern: Pattern, happened: list[Given], cut: int
) -> None:
    rows = found_in(pattern, [happened[:cut], happened[cut:]])
    until = max((one.time for one in happened), default=0)
    said = set()
    for row in rows:
        if row.kind in ("match", "timeout") and row.end_us <= until:
            detail = json.decode(row.detail)
            places = tuple((e["step"], e["time_us"], e["node"], e["position"]) for e in detail["events"])
            said.add(Said(tuple(detail["key"]), places, row.end_us, row.kind == "timeout"))
    assert said == expected(pattern, happened, until)
    found = tally_found(rows, 1, TallyPlan(1))
    assert found.events == len(happened)
    assert found.tallies[0].count == sum(not one.is_timeout for one in said)
    assert found.tallies[0].timeouts == sum(one.is_timeout for one in said)
    ends = [us_from_time(one.end) for one in found.tallies[0].firings()]
    assert ends == sorted(one.end for one in said if not one.is_timeout)


def test_matches_past_the_limit_are_counted_and_the_first_ones_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(firing, "FIRINGS_MAX", 2)
    happened = [Given(n * S, "x", n, ("p",), event_of("A", n, k="p", n=1)) for n in (3, 1, 2)]
    found = tally_found(found_in(Pattern("a[type = 'A'] BY k"), [happened]), 1, TallyPlan(1, samples=1))
    (tally,) = found.tallies
    assert [us_from_time(one.end) // S for one in tally.firings()] == [1, 2]
    assert (tally.count, len(tally.sampled())) == (3, 1)


def test_events_that_can_not_be_used_are_counted_by_reason() -> None:
    happened = [Given(0, "x", 1, None, event_of("A", 0)), Given(0, "x", 2, None, event_of("A", 0, k=1.5))]
    found = tally_found(found_in(Pattern("a[type = 'A'] BY k"), [happened]), 1, TallyPlan(1))
    assert found.tallies[0].unused == {"no key": 2}


PATTERNS = (
    """a[type = 'air.pm10' AND value > 50] THEN NO d[type = 'door']
    THEN b[type = 'air.no2' AND value > a.value] WITHIN 1 h BY street RETURN a.value, b.value""",
    "d[type = 'door'] THEN NO a[type LIKE 'air.%'] WITHIN 30 min BY street",
    "a[type = 'tidings.never'] THEN b[type = 'door'] WITHIN 1 h",
)


@pytest.mark.parametrize("place", ["node", "folder"])
def test_a_back_test_reports_every_time_a_pattern_would_have_fired(
    spark: SparkSession, history: History, place: str
) -> None:
    made = [Pattern(text) for text in PATTERNS]
    cases = tuple(Case(f"p{n}", one.filter, one) for n, one in enumerate(made))
    options = options_of(history, place, minPartitions=3)
    report = backtest(spark, Cases("patterns", cases), options, samples=2, seed=3)
    assert (report.kind, report.events) == ("patterns", len(history.made))
    node, until = history.node.node.driver.broker.node, max(event.time_us for event in history.made)
    for pattern, result in zip(made, report.cases, strict=True):
        given = [
            Given(event.time_us, node, number, pattern.key(event), event)
            for number, event in enumerate(history.made, 1)
        ]
        said = matches(pattern.node, pattern.within_us, False, False, given, until)
        assert result.count == len(said)
        assert sorted(us_from_time(one.end) for one in result.fired or []) == sorted(one.end for one in said)
        assert len(result.samples) == min(2, len(said))
    assert report.cases[0].count > 1 < report.cases[1].count
    assert report.cases[2].count == 0
    sample = report.cases[0].samples[0]
    assert sample["returned"]["b.value"] > sample["returned"]["a.value"]
    if place == "folder":
        again = backtest(spark, Cases("patterns", cases), options_of(history, "node"), samples=2, seed=3)
        assert again == report


# Files of patterns


def test_patterns_are_read_from_toml_with_the_terms_of_a_taxonomy(tmp_path: Path) -> None:
    path = tmp_path / "cases.toml"
    path.write_text("""[patterns]\nhigh = "a[value > 50 '%'] WITHIN 1 s"\n""")
    (case,) = read_cases(path, Taxonomy()).cases
    assert "unit = 'ppm' AND value > 500000" in str(case.pattern)
    assert case.where.matches(Event("x", value=501, unit="‰"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[patterns]\na = 'x'", "cases.toml, patterns.a: is no pattern: line 1, column 2"),
        ("[patterns]\na = 5", "cases.toml, patterns.a: a pattern is text, not 5"),
        (
            "[patterns]\na = \"a[value > 5 'm']\"",
            "patterns.a: is no pattern: line 1, column 13: a unit needs",
        ),
        ("[patterns]\na = 'x'\n[filters]\nb = ''", "cases.toml: filters: a file of cases has"),
        (
            "[patterns]\n" + "\n".join(f"p{n} = ''" for n in range(PATTERNS_MAX + 1)),
            "cases.toml: patterns: has more than PATTERNS_MAX = 1,000 patterns",
        ),
    ],
)
def test_a_mistake_in_a_file_of_patterns_has_its_place(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "cases.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_cases(path)
    assert problem in str(raised.value)


def test_the_same_seed_gives_the_same_samples() -> None:
    rng = random.Random(4)
    happened = [Given(n * S, "x", n, ("p",), event_of("A", n, k="p", n=1)) for n in range(40)]
    rows = found_in(Pattern("a[type = 'A'] BY k"), [happened])

    def sampled(seed: int) -> list[int]:
        rng.shuffle(rows)
        tally = tally_found(rows, 1, TallyPlan(1, 3, seed)).tallies[0]
        return [one["events"][0]["position"] for one in tally.sampled()]

    assert sampled(1) == sampled(1) != sampled(2)
