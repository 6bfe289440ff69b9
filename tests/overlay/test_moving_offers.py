"""Declared offers while nodes move: events wait until what is wanted of them was announced anew."""

from __future__ import annotations

import pytest
from overlay.network import Network

LONG_S = 60.0


@pytest.mark.parametrize("slow", [("c", "d"), ("d", "b"), ("a", "c")])
def test_what_an_advertiser_publishes_while_it_moves_waits_for_its_offers(slow: tuple[str, str]) -> None:
    """b - d - c: a is behind b, then behind c; the offers of one node to another are late."""
    net = Network(("b", "a"), ("d", "b"), ("c", "d"), ("c", "a"), settle_s=0.0, offers_all=False)
    net.cut("c", "a")
    net.run(5)
    net.heal("c", "a")
    net.run(LONG_S)
    got, app = net.app("b").subscribe("x > 0", durable="d"), net.app("a")
    app.advertise("x > 0")
    net.run(5)
    app.publish(1)
    net.run()
    assert got.values == [1]
    assert net.table("c", of="d") == []
    net.cut("a", "b")
    offerer = net.neighbour(*slow).offerer
    offerer.flush = lambda: False  # type: ignore[method-assign]
    app.publish(2, 3)
    net.run(LONG_S)
    app.publish(4)
    net.run()
    assert got.values == [1]
    del offerer.flush
    app.publish(5)
    net.run(LONG_S)
    assert net.table("a", of="c") == ["x > 0"]
    assert got.values == [1, 2, 3, 4, 5]
