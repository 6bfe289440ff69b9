from __future__ import annotations

import json

import pytest

from benchmarks import overlay


def test_a_small_run_measures_every_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "FILTERS", 2_000)
    monkeypatch.setattr(overlay, "ROUNDS", 1)
    monkeypatch.setattr(overlay, "BATCH", 100)
    lines: list[str] = []
    figures = overlay.run(True, lines.append)
    assert [workload["name"] for workload in figures["workloads"]] == [
        "filters of links beside local ones, batches",
        "filters of links beside local ones, single events",
    ]
    assert str(figures["seed"]) in lines[0]
    assert json.loads(json.dumps(figures)) == figures
