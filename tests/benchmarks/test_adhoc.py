from __future__ import annotations

import pytest

from benchmarks import adhoc


@pytest.mark.slow
def test_a_small_run_measures_every_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adhoc, "CONTACTS", 20_000)
    monkeypatch.setattr(adhoc, "HOURS", 1.2)
    monkeypatch.setattr(adhoc, "RELIABLE", {**adhoc.RELIABLE, "hosts": 8})
    monkeypatch.setattr(adhoc, "RELIABILITIES", (0.9,))
    lines: list[str] = []
    figures = adhoc.run(True, lines.append)
    workloads = {one["name"]: one for one in figures["workloads"]}
    assert set(workloads["the ONE's default, delivery: epidemic"]["beside"]) == set(adhoc.STRATEGIES)
    assert workloads["contacts in arrays, unlimited epidemic"]["value"] > 0
    assert 0 < workloads["delivery where 0.9 is asked for"]["value"] <= 1
