"""A filter may be wanted with or without demand, and change that."""

from __future__ import annotations

import pytest
from overlay.network import Network


@pytest.mark.parametrize("passive", [True, False])
def test_a_filter_stays_in_the_table_when_only_its_demand_changes(passive: bool) -> None:
    net = Network(("a", "b"))
    app = net.app("a")
    first = app.subscribe("x > 0", passive=passive)
    net.run()
    second = app.subscribe("x > 0", passive=not passive)
    net.run()
    assert net.table("b", of="a") == ["x > 0"]
    (first if not passive else second).end()  # the demanding one
    net.run()
    assert net.table("b", of="a") == ["x > 0"]
    net.app("b").publish(7)
    net.run()
    assert (second if not passive else first).values == [7]
    assert net.count("a", "announcements_refused") == 0
