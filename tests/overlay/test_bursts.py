"""Bursts: what a link can't take at once waits for its neighbour, also if it is transient."""

from __future__ import annotations

import pytest
from overlay.network import Network

from tidings.overlay import intake


@pytest.mark.parametrize("delivery", ["transient", "reliable"])
def test_a_burst_crosses_links_with_little_credit_whole_and_in_order(
    monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    monkeypatch.setattr(intake, "PREFETCH", 10)
    net = Network(("a", "b"), ("b", "c"))
    some, all_of_them = net.app("c").subscribe("x > 500"), net.app("c").subscribe("x >= 0")
    net.run()
    net.app("a").publish(*range(1_000), delivery=delivery)  # type: ignore[arg-type]
    net.run(30)
    assert all_of_them.values == list(range(1_000))
    assert some.values == list(range(501, 1_000))
    assert not net.count("a", "dropped", "behind")
