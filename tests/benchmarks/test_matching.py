from __future__ import annotations

import json

import pytest
from hypothesis import given, reject

from benchmarks import matching
from benchmarks.reference import compiled
from tests.filters.conditions import events, filters
from tidings import Event, Filter


@given(filters, events)
def test_the_reference_says_what_the_filter_says(one: Filter, event: Event) -> None:
    try:
        test = compiled(one)
    except ValueError:  # says so where it has no code for a condition
        reject()
    assert test(event) == one.matches(event)


def test_a_small_run_measures_every_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SIZES", {400: 6.0, 2000: 40.0})
    monkeypatch.setattr(matching, "SIZE", 2000)
    monkeypatch.setattr(matching, "ROUNDS", 1)
    monkeypatch.setattr(matching, "BATCH", 100)
    monkeypatch.setattr(matching, "PATTERNS", 2000)
    monkeypatch.setattr(matching, "UNITS", 1000)
    lines: list[str] = []
    figures = matching.run(True, lines.append)
    names = {workload["name"] for workload in figures["workloads"]}
    assert names == {
        "ranges",
        "build",
        "single event",
        "equality",
        "mixed",
        "exact",
        "topics",
        "pieces",
        "units",
        "shelf, equality",
        "shelf, range",
    }
    assert str(figures["seed"]) in lines[0]
    assert json.loads(json.dumps(figures)) == figures
