from __future__ import annotations

import pytest

from benchmarks import channel
from benchmarks.wires import TOPICS


def test_the_orders_of_channels_are_measured_beside_a_plain_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "COUNT", 20 * TOPICS)
    monkeypatch.setattr(channel, "SENDERS", 2)
    monkeypatch.setattr("tidings.node.compiled.is_installed", lambda: False)
    figures = channel.run(quick=True, report=lambda _line: None)["workloads"]
    assert [one["name"] for one in figures] == [
        "fifo over plain",
        "causal over fifo",
        "total over fifo",
        "total, 2 senders",
    ]
    assert all(one["value"] > 0 for one in figures)
