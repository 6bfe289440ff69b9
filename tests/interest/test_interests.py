"""Interest against a brute-force oracle, and how little work it is."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.filters.conditions import events, filters
from tidings import Event, Filter
from tidings.interest import Advertisement, Interests, interests
from tidings.interest import audience as audience_module
from tidings.interest import demand as demands

REPORTED_MAX = 3
NUMBERS = [Filter(f"n = {n}") for n in range(8)]
OTHERS = ["", "n > 3", "n < 2 AND m = 1", "m = 1", "n IN (1, 5)", "type = 'a'", "FALSE"]
ALIKE = [*NUMBERS, *map(Filter, OTHERS)]
"""Filters many of which overlap, so that audiences grow past the limit and shrink again."""
LINKS = [None, "north", "south"]  # origins are compared by identity: these are one object each


likely = st.sampled_from(ALIKE) | st.sampled_from(NUMBERS) | filters


class Source:
    """An advertisement that keeps what it is told."""

    def __init__(self, offered: Interests, filter: Filter, origin: object = None) -> None:
        self.told: list[tuple[Filter, ...]] = []
        self.advertisement = Advertisement(filter, self.told.append, origin)
        self.told.append(offered.offer(self.advertisement))

    @property
    def texts(self) -> list[str]:
        return [str(filter) for filter in self.told[-1]]


class Oracle(RuleBasedStateMachine):
    """Subscriptions and advertisements come and go; what was told is compared with all pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.interests = Interests(REPORTED_MAX)
        self.demands: list[tuple[Filter, object, object]] = []
        self.sources: list[Source] = []

    @rule(filter=likely, origin=st.sampled_from(LINKS), owner=st.sampled_from("ab"))
    def subscribe(self, filter: Filter, origin: object, owner: str) -> None:
        self.interests.demand(filter, origin, owner)
        self.demands.append((filter, origin, owner))

    @rule(several=st.lists(st.sampled_from(ALIKE), max_size=12))
    def subscribe_to_several(self, several: list[Filter]) -> None:
        for filter in several:
            self.subscribe(filter, None, "c")

    @rule(which=st.integers(0))
    def unsubscribe(self, which: int) -> None:
        if self.demands:
            self.interests.release(*self.demands.pop(which % len(self.demands)))

    @rule(owner=st.sampled_from("abc"))
    def end_of_a_session(self, owner: str) -> None:
        for demand in [one for one in self.demands if one[2] == owner]:
            self.demands.remove(demand)
            self.interests.release(*demand)

    @rule(filter=likely, origin=st.sampled_from(LINKS))
    def advertise(self, filter: Filter, origin: object) -> None:
        self.sources.append(Source(self.interests, filter, origin))

    @rule(which=st.integers(0))
    def withdraw(self, which: int) -> None:
        if self.sources:
            self.interests.withdraw(self.sources.pop(which % len(self.sources)).advertisement)

    @rule(ticks=st.integers(1, 5))
    def tick(self, ticks: int) -> None:
        for _ in range(ticks):
            self.interests.finish_tick()

    @precondition(lambda self: self.sources)
    @rule(some=st.lists(events, max_size=3))
    def settle(self, some: list[Event]) -> None:
        some += [Event("a", n=n, m=n % 3) for n in range(8)]
        for _ in range(10_000):
            if not self.interests.has_changes:
                break
            self.interests.finish_tick()
        assert not self.interests.has_changes
        for source in self.sources:
            self.check(source, some)

    def check(self, source: Source, some: list[Event]) -> None:
        offered, told = source.advertisement.filter, source.told[-1]
        wanted = {
            filter
            for filter, origin, _ in self.demands
            if (origin is None or origin is not source.advertisement.origin) and filter.overlaps(offered)
        }
        if len(wanted) <= REPORTED_MAX:
            assert set(told) == wanted
            assert len(told) == len(wanted)
        else:
            assert len(told) == 1
        audience = self.interests._audiences[source.advertisement]
        assert len(wanted) == (audience.count if audience.listed is None else len(audience.listed))
        for event in some:
            if offered.matches(event) and any(filter.matches(event) for filter in wanted):
                assert any(filter.matches(event) for filter in told)
        assert all(one != other for one, other in zip(source.told, source.told[1:], strict=False))


class HastyOracle(Oracle):
    """The same, with so small an allowance that all work is cut into very many ticks."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name in ("SPREAD_UNITS", "COVER_UNITS", "COVER_UNITS_BUSY", "ANSWER_UNITS", "NOTICES_AT_A_TIME"):
            self.patch.setattr(interests, name, 1)
        self.patch.setattr(interests, "SPREAD_UNITS_MIN", 0)
        self.patch.setattr(interests, "PATIENT_TICKS", 2)

    def teardown(self) -> None:
        self.patch.undo()


class RoughOracle(Oracle):
    """The same, with no merged filter ever made: the widest cover serves too."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(demands, "MERGED_ALTERNATIVES_MAX", 0)

    def teardown(self) -> None:
        self.patch.undo()


TestOracle = Oracle.TestCase
TestHastyOracle = HastyOracle.TestCase
TestRoughOracle = RoughOracle.TestCase


# Covers


def settled(offered: Interests) -> int:
    """Finish ticks until nothing is left; how many."""
    for ticks in count():
        if not offered.has_changes:
            return ticks
        offered.finish_tick()
    raise AssertionError


def crowd(number: int, reported_max: int = REPORTED_MAX) -> tuple[Interests, Source, list[Filter]]:
    """A source of which so many numbers are demanded."""
    offered = Interests(reported_max)
    source = Source(offered, Filter("type = 't'"))
    wanted = [Filter(f"n = {n}") for n in range(number)]
    for filter in wanted:
        offered.demand(filter)
    settled(offered)
    return offered, source, wanted


def test_past_the_limit_a_source_is_told_one_merged_filter() -> None:
    _, source, _ = crowd(4)
    assert source.texts == ["n IN (0, 1, 2, 3)"]
    assert len(source.told) == 2


def test_a_demand_that_comes_widens_the_cover_at_once_by_one_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    offered, source, _ = crowd(20)
    merges = counted(monkeypatch, "merge")
    offered.demand(Filter("n = 50"))
    offered.finish_tick()
    assert source.told[-1][0].covers(Filter("n = 50"))
    assert not source.told[-1][0].covers(Filter("n = 51"))
    assert merges["merge"] == 1


def test_a_demand_that_goes_leaves_the_cover_and_when_half_are_gone_it_is_tightened() -> None:
    offered, source, wanted = crowd(20)
    for filter in wanted[:6]:
        offered.release(filter)
        settled(offered)
    assert source.told[-1][0].covers(wanted[0])
    for filter in wanted[6:12]:
        offered.release(filter)
        settled(offered)
    assert not source.told[-1][0].covers(wanted[0])
    assert all(source.told[-1][0].covers(filter) for filter in wanted[12:])


def test_below_the_limit_what_is_told_is_exact_again() -> None:
    for number in (4, 20):
        offered, source, wanted = crowd(number)
        for filter in wanted[:-REPORTED_MAX]:
            offered.release(filter)
        settled(offered)
        assert source.told[-1] == tuple(wanted[-REPORTED_MAX:])


def test_an_advertisement_that_comes_late_is_told_the_same() -> None:
    offered, source, _ = crowd(20)
    assert Source(offered, Filter("type = 't'")).told == source.told[-1:]


def test_what_takes_long_is_answered_with_all_that_is_offered_and_told_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered, source, _ = crowd(20)
    monkeypatch.setattr(interests, "ANSWER_UNITS", 1)
    late = Source(offered, Filter("type = 't'"))
    assert late.texts == ["type = 't'"]
    settled(offered)
    assert late.told[-1] == source.told[-1]


def test_a_source_is_not_told_the_widest_cover_if_a_better_one_is_there_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interests, "COVER_UNITS", 1)
    monkeypatch.setattr(interests, "PATIENT_TICKS", 1_000)
    _, source, _ = crowd(20)
    assert len(source.told) == 2
    monkeypatch.setattr(interests, "PATIENT_TICKS", 2)
    _, source, _ = crowd(20)
    assert [str(filters[0]) for filters in source.told[1:-1]] == ["type = 't'"]


def test_of_very_many_demands_no_merged_filter_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interests, "COVERED_MAX", 10)
    offered, source, wanted = crowd(20)
    assert source.texts == ["type = 't'"]
    for filter in wanted[:12]:
        offered.release(filter)
    settled(offered)
    assert source.texts == ["n IN (12, 13, 14, 15, 16, 17, 18, 19)"]


def test_filters_that_are_too_long_to_be_told_are_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audience_module, "REPORTED_SIZE_MAX", 40)
    offered = Interests(REPORTED_MAX)
    source = Source(offered, Filter("type = 't'"))
    offered.demand(Filter("n BETWEEN 1111111 AND 2222222"))
    settled(offered)
    assert source.texts == ["n BETWEEN 1111111 AND 2222222"]
    offered.demand(Filter("n BETWEEN 1111111 AND 3333333"))
    settled(offered)
    assert source.texts == ["n BETWEEN 1111111 AND 3333333"]
    offered.demand(Filter("m BETWEEN 1111111 AND 3333333"))
    settled(offered)
    assert source.texts == ["type = 't'"]


def test_filters_that_take_long_to_compare_count_as_overlapping(monkeypatch: pytest.MonkeyPatch) -> None:
    alternatives = 40
    many = " OR ".join(f"(a = {n} AND b{n} > 0)" for n in range(alternatives))
    others = " OR ".join(f"(a = {n} AND b{n} > 0)" for n in range(alternatives, 2 * alternatives))
    offered = Interests(REPORTED_MAX)
    source = Source(offered, Filter(many))
    compared = counted(monkeypatch, "overlaps")
    offered.demand(Filter(others))
    offered.demand(Filter("a = 99"))
    settled(offered)
    assert source.told[-1] == (Filter(others),)
    assert compared["overlaps"] == 1


# How much work it is


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> Counter[str]:
    """Count how often a method of filters is called from now on."""
    calls: Counter[str] = Counter()
    inner = getattr(Filter, name)

    def outer(self: Filter, other: Filter) -> object:
        calls[name] += 1
        return inner(self, other)

    monkeypatch.setattr(Filter, name, outer)
    return calls


def types(number: int) -> Iterator[Filter]:
    return (Filter(f"type = 't{n}' AND value BETWEEN 0 AND 50") for n in range(number))


def test_one_more_subscription_among_many_advertisements_of_other_types_is_compared_with_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered = Interests(100)
    sources = [Source(offered, filter) for filter in types(1_000)]
    for number in range(120):
        offered.demand(Filter(f"type = 't{number}' AND value > 3"))
    settled(offered)
    calls = counted(monkeypatch, "overlaps")
    wanted = Filter("type = 't5' AND value > 7")
    offered.demand(wanted)
    settled(offered)
    assert sources[5].texts == ["type = 't5' AND value > 3", "type = 't5' AND value > 7"]
    assert calls["overlaps"] <= 2
    offered.release(wanted)
    settled(offered)
    Source(offered, Filter("type = 't5' AND value < 9"))
    assert calls["overlaps"] <= 5


def test_one_more_that_overlaps_all_is_compared_once_with_each_and_merged_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered = Interests(5)
    sources = [Source(offered, filter) for filter in types(200)]
    for number in range(20):
        offered.demand(Filter(f"value > {number} AND level = {number}"))
    settled(offered)
    compared, merged = counted(monkeypatch, "overlaps"), counted(monkeypatch, "merge")
    wanted = Filter("level = 99")
    offered.demand(wanted)
    settled(offered)
    assert compared["overlaps"] == 200
    assert merged["merge"] <= 20  # many have the same cover
    assert all(source.told[-1][0].covers(wanted) for source in sources)


def test_a_subscription_that_is_gone_again_in_the_same_tick_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered = Interests(REPORTED_MAX)
    source = Source(offered, Filter())
    calls = counted(monkeypatch, "overlaps")
    for _ in range(10):
        offered.demand(Filter("n = 1"))
        offered.release(Filter("n = 1"))
    offered.finish_tick()
    assert not offered.has_changes
    assert not calls
    assert source.told == [()]


def test_a_session_that_ends_is_one_change() -> None:
    offered, source, wanted = crowd(50, reported_max=100)
    for filter in wanted:
        offered.release(filter)
    settled(offered)
    assert source.told[1:] == [tuple(wanted), ()]


def test_one_tick_tells_so_many_sources_and_the_next_ones_tell_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interests, "NOTICES_AT_A_TIME", 10)
    offered = Interests(REPORTED_MAX)
    sources = [Source(offered, filter) for filter in types(35)]
    offered.demand(Filter("value = 1"))
    told = []
    while offered.has_changes:
        offered.finish_tick()
        told.append(sum(len(source.told) == 2 for source in sources))
    assert told == [10, 20, 30, 35]


def test_owners_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interests, "SPREAD_UNITS", 1)
    offered = Interests(REPORTED_MAX)
    source = Source(offered, Filter("type = 'good'"))
    Source(offered, Filter("type = 'bad'"))
    for number in range(500):
        offered.demand(Filter(f"type = 'bad' AND n = {number}"), owner="greedy")
    offered.demand(Filter("type = 'good'"), owner="modest")
    for _ in range(interests.PATIENT_TICKS + 5):
        offered.finish_tick()
    assert source.texts == ["type = 'good'"]
    assert offered.has_changes


@pytest.mark.parametrize("owners", [1, 7, 400])
def test_a_demand_is_taken_in_as_many_operations_however_many_were_taken_before(
    monkeypatch: pytest.MonkeyPatch, owners: int
) -> None:
    done: Counter[str] = Counter()

    class Counted(OrderedDict[Any, Any]):
        """Takes its first item without passing over the places of those before it."""

        def popitem(self, last: bool = True) -> tuple[Any, Any]:
            done["first taken" if not last else "last taken"] += 1
            return super().popitem(last)

        def __iter__(self) -> Iterator[Any]:
            done["looked through"] += 1
            return super().__iter__()

    monkeypatch.setattr(demands, "OrderedDict", Counted)
    waiting = demands.Demands()
    wanted = [Filter(f"n = {number}") for number in range(400)]
    for number, filter in enumerate(wanted):
        waiting.come(filter, None, number % owners, filter)
    done.clear()
    for number, filter in enumerate(wanted, 1):
        demand = waiting.take()
        assert demand is not None
        assert demand.filter is filter
        assert done == {"first taken": 2 * number}
    assert waiting.take() is None


def test_a_crowd_does_not_count_those_behind_the_link_of_the_source_itself() -> None:
    offered, _, wanted = crowd(20)
    behind = [Filter(f"m = {n}") for n in range(20)]
    for filter in behind:
        offered.demand(filter, LINKS[1])
    source = Source(offered, Filter(), LINKS[1])
    settled(offered)
    (cover,) = source.told[-1]
    assert all(cover.covers(filter) for filter in wanted)
    assert not any(cover.covers(filter) for filter in behind)


def test_what_one_audience_holds_is_bounded() -> None:
    offered, source, wanted = crowd(20)
    crowded = offered._audiences[source.advertisement]
    assert crowded.listed is None
    assert crowded.count == 20
    for filter in wanted:
        offered.release(filter)
    settled(offered)
    assert source.told[-1] == ()
    assert not offered._demands._by_filter


def test_while_there_is_no_source_a_tick_spreads_as_many_demands_as_it_has_units() -> None:
    offered = Interests(REPORTED_MAX)
    filters = [Filter(f"n = {n}") for n in range(2 * interests.SPREAD_UNITS)]
    for filter in filters:
        offered.demand(filter)
    ticks = 0
    while offered.has_changes:
        offered.finish_tick()
        ticks += 1
    assert 2 <= ticks <= 3
    assert Source(offered, Filter("n = 7")).texts == ["n = 7"]
    offered.release(filters[7])
    offered.finish_tick()
    source = Source(offered, Filter("n BETWEEN 6 AND 8"))
    while offered.has_changes:
        offered.finish_tick()
    assert source.texts == ["n = 6", "n = 8"]
