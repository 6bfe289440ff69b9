from __future__ import annotations

import json

import pytest

from benchmarks import overlay, overlay_covering, overlay_links, overlay_rolling, peers
from tidings.node import compiled


@pytest.mark.slow
def test_a_small_run_measures_every_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "FILTERS", 2_000)
    monkeypatch.setattr(overlay, "ROUNDS", 1)
    monkeypatch.setattr(overlay, "BATCH", 100)
    monkeypatch.setattr(overlay_covering, "SCANNED", 50)
    monkeypatch.setattr(overlay_covering, "CHANGED", 10)
    monkeypatch.setattr(overlay_links, "COUNT", 20_000)
    monkeypatch.setattr(overlay_links, "LENGTH", 3)
    monkeypatch.setattr(overlay_rolling, "BEFORE_S", 1.0)
    monkeypatch.setattr(overlay_rolling, "CAPACITY_S", 1.0)
    monkeypatch.setattr(compiled, "is_installed", lambda: False)
    lines: list[str] = []
    figures = overlay.run(True, lines.append)
    names = [workload["name"] for workload in figures["workloads"]]
    assert names == [
        "filters of links beside local ones, batches",
        "filters of links beside local ones, single events",
        *(
            f"covering set, {measured}, {workload}"
            for workload in overlay_covering.WORKLOADS
            for measured in ("built", "one change, beside a tenth")
        ),
        *["two servers of NATS in line over one"] * peers.is_installed("nats"),
        "two nodes in line over one, batch frames",
        "processor time of an event to a link over one between clients, batch frames",
        "processor time of an event from a link over one between clients, batch frames",
        "two nodes in line over one, one event a frame",
        "processor time of an event to a link over one between clients, one event a frame",
        "processor time of an event from a link over one between clients, one event a frame",
        "added by a hop at 50,000 events/s, median",
        "added by a hop at 5,000 events/s, median",
        "reliable events, two nodes in line over one",
        "3 nodes in line",
        "a new link is ready",
        "bytes that an unchanged link exchanges after a cut",
        "rolling restart of 5 nodes, 99th percentile of delays over that before",
    ]
    assert str(figures["seed"]) in lines[0]
    assert json.loads(json.dumps(figures)) == figures
