from __future__ import annotations

import pytest

from benchmarks import agents


def test_memory_moves_ends_and_leases_of_agents_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"IDLE": 20, "TRAVELLERS": 2, "MOVES": 2, "WORKERS": 2, "SETTLE_S": 0.0, "IDLE_CPU_S": 0.1}
    for name, size in sizes.items():
        monkeypatch.setattr(agents, name, size)
    monkeypatch.setattr(agents, "LEASE_S", 1.0)
    monkeypatch.setattr("tidings.node.compiled.is_installed", lambda: False)
    figures = agents.run(quick=True, report=lambda _line: None)["workloads"]
    found = {one["name"]: one for one in figures}
    assert found["50 processes that forked twice, to be gone"]["reached"]
    assert found["10 idle agents, node and program together"]["value"] > 10
    assert len(found) == 7
    assert all(one["value"] >= 0 for one in figures)
