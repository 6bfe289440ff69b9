"""Long tables: what concerns all filters of a neighbour is done in small steps."""

from __future__ import annotations

from itertools import pairwise

import pytest
from overlay.network import Network

from tidings.filters import Filter
from tidings.overlay import tables
from tidings.overlay.table import NeighbourTable
from tidings.overlay.tables import Tables
from tidings.protocol.access import Principal, Rule
from tidings.protocol.worker import Background
from tidings.steps import Steps

FILTERS = 100


def with_many_filters() -> Network:
    """a - b; many filters are wanted at a."""
    net = Network(("a", "b"))
    app = net.app("a")
    for number in range(FILTERS):
        app.subscribe(f"station = 's{number}' AND x > {number}", durable=f"d{number}")
    net.run(5)
    assert len(net.table("b", of="a")) == FILTERS
    return net


def test_a_table_is_compared_with_new_rules_in_small_steps_and_nothing_passes_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = with_many_filters()
    got = net.app("a").subscribe("station = 'all'", durable="all")
    net.run(5)
    table = net.neighbour("b", "a").table
    assert table is not None
    source = net.app("b")
    rules = (Rule("subscribe", Filter("x < 10")),)
    monkeypatch.setattr(tables, "rights_of", lambda *_: Principal("a", rules=rules))
    held: list[Steps[None]] = []
    with monkeypatch.context() as patch:
        patch.setattr(Background, "begin", lambda _background, steps: held.append(steps))
        net["b"].core.overlay.review()
    (steps,) = held
    source.publish(5, 50, station="all")
    source.publish(6, 60, station="all", delivery="transient")
    net.run()
    assert got.values == []
    seen = [sum("x < 10" in str(entry.granted) for entry in table.entries.values()) for _ in steps]
    assert len(seen) == FILTERS + 1
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 1
    net.run()
    source.publish(7, 70, station="all")
    net.run()
    assert got.values == [5, 7]


def test_rules_that_change_nothing_for_a_neighbour_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = with_many_filters()
    compared: list[str] = []
    review = NeighbourTable.review

    def noted(table: NeighbourTable, text: str, principal: Principal) -> bool:
        compared.append(text)
        return review(table, text, principal)

    monkeypatch.setattr(NeighbourTable, "review", noted)
    net["b"].core.overlay.review()
    net.run()
    assert compared == []


def test_what_one_neighbour_wants_is_lent_to_another_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    net = with_many_filters()
    lent: list[str] = []
    monkeypatch.setattr(Tables, "lend", lambda _tables, _one, text, _passive: lent.append(text))
    done: list[bool] = []
    neighbour = net.neighbour("b", "a")
    steps = net["b"].core.overlay.routing.tables._lending(neighbour, neighbour, lambda: done.append(True))
    counts = [len(lent) for _ in steps]
    assert counts == list(range(1, FILTERS + 1))
    assert done == [True]
