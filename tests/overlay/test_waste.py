"""Filters merged to fewer than what was wanted needs: what comes for nobody is counted, and bounded."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from overlay.network import Network
from overlay.test_merging import (
    SMALL,
    any_filters,
    changed,
    check_announced,
    patched,
    sampled_events,
    with_limits,
)

from tidings import Event, Filter
from tidings.overlay.covering import CoveringSet
from tidings.overlay.merging import Merging, Unit
from tidings.overlay.waste import COUNTED
from tidings.simulator.overlay_storm import overlay_storm
from tidings.steps import finish

WASTE = 0.1
SHORT_S = 6.0


@with_limits
@settings(max_examples=often(200), deadline=None)
@given(
    st.lists(st.tuples(any_filters, st.booleans()), max_size=20),
    st.lists(st.integers(0)),
    st.lists(st.integers(0), max_size=10),
    sampled_events,
)
def test_what_is_announced_matches_all_that_was_wanted_and_exactly_that_once_it_is_sharpened(
    limits: dict[str, int],
    coming: list[tuple[Filter, bool]],
    going: list[int],
    sharpened: list[int],
    sampled: list[Event],
) -> None:
    with patched(limits):
        made = Merging(is_coarse=True)
        shown: dict[Unit, None] = {}
        there: dict[Unit, None] = {}

        def check(is_exact: bool = False) -> None:
            changed(made, shown)
            assert made.coarse is not None
            assert {one for one in shown if one in made.coarse} == {one for one in shown if one.run}
            check_announced(there, shown, sampled, is_exact)

        for filter, passive in coming:
            if filter.normal:
                unit = Unit(filter, filter.normal, passive)
                made.add(unit)
                there[unit] = None
        check()
        for number in sharpened:
            if shown:
                made.sharpen(list(shown)[number % len(shown)])
                check()
        for number in going:
            if there:
                unit = list(there)[number % len(there)]
                del there[unit]
                made.remove(unit)
        check()
        while coarse := [one for one in shown if one.run]:
            for one in coarse:
                made.sharpen(one)
            changed(made, shown)
        check(is_exact=True)
        for unit in list(there):
            made.remove(unit)
        there.clear()
        check()
        assert not shown
        assert not made


def announced(*texts: str, is_coarse: bool) -> list[str]:
    made = CoveringSet(is_coarse)
    for text in texts:
        made.add(text, Filter(text))
    finish(made.steps())
    made.take_changes()
    return sorted(str(one.filter) for one in made)


def test_gaps_between_numbers_and_times_are_closed_and_those_between_texts_are_not() -> None:
    with patched(SMALL | {"RUN_MEAN": 1_000, "RUN_MAX": 100}):
        assert announced("x = 1", "x = 5", "x = 9", is_coarse=True) == ["x BETWEEN 1 AND 9"]
        assert announced("x < 1", "x > 5", is_coarse=False) == ["x < 1 OR x > 5"]
        texts = announced("room = 'a'", "room = 'c'", is_coarse=True)
        assert texts == announced("room = 'a'", "room = 'c'", is_coarse=False)
        later = announced("seen = TIMESTAMP '2026-01-01'", "seen = TIMESTAMP '2026-05-01'", is_coarse=True)
        assert [Filter(one).matches(Event("t", seen=datetime(2026, 2, 1, tzinfo=UTC))) for one in later] == [
            True
        ]


def test_many_filters_become_a_sixteenth_of_what_exact_ones_are() -> None:
    wanted = [f"type = 'reading' AND device = {number}" for number in range(0, 8_000, 2)]
    exact, coarse = len(announced(*wanted, is_coarse=False)), len(announced(*wanted, is_coarse=True))
    assert coarse < exact / 8


def wasteful(*, waste: float = WASTE) -> Network:
    return Network(("a", "b"), merge_waste=waste)


def test_too_much_waste_has_filters_announced_exactly_and_nothing_is_lost() -> None:
    net = wasteful()
    publisher, app = net.app("a"), net.app("b")
    rooms = [app.subscribe(f"x = {number}") for number in (0, 10, 20)]
    net.run()
    assert net.table("a", "b") == ["x BETWEEN 0 AND 20"]
    received, sent = net.neighbour("b", "a").intake, [0, 5, 10, 15, 20]
    assert received is not None
    for _ in range(COUNTED // len(sent)):
        publisher.publish(*sent)
    net.run(10)
    assert net.count("b", "relays_wasted") == COUNTED * 2 / len(sent)
    assert net.table("a", "b") == ["x IN (0, 10, 20)"]
    before = received.received
    publisher.publish(*sent * 10)
    net.run(10)
    assert received.received == before + 30
    assert [len(one.got) for one in rooms] == [COUNTED / len(sent) + 10] * 3


@pytest.mark.parametrize(("unwanted", "is_exact"), [(WASTE / 2, False), (2 * WASTE, True)])
def test_filters_stay_merged_while_the_share_of_waste_is_below_its_bound(
    unwanted: float, is_exact: bool
) -> None:
    net = wasteful()
    publisher, app = net.app("a"), net.app("b")
    for number in (0, 20):
        app.subscribe(f"x = {number}")
    net.run()
    wasted = round(COUNTED * unwanted)
    for start in range(0, COUNTED, 100):
        publisher.publish(*([5] * (wasted // 10) + [20] * (100 - wasted // 10)))
        net.run(0.1 if start else 0.2)
    net.run(5)
    assert net.count("b", "relays_wasted") == wasted
    assert net.table("a", "b") == (["x IN (0, 20)"] if is_exact else ["x BETWEEN 0 AND 20"])


def test_without_the_setting_nothing_is_wasted() -> None:
    net = wasteful(waste=0.0)
    app = net.app("b")
    for number in (0, 20):
        app.subscribe(f"x = {number}")
    net.run()
    assert net.table("a", "b") == ["x IN (0, 20)"]


@pytest.mark.parametrize("seed", range(33_000, 33_000 + often(2)))
def test_nothing_is_lost_where_filters_are_merged_to_fewer(seed: int) -> None:
    assert overlay_storm(seed, SHORT_S, waste=0.3).delivered
