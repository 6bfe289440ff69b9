"""Searches of a shelf in steps, while it is changed, against an oracle that remembers who was there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from effort import often
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.filters.conditions import events, filters
from tidings.event import Event
from tidings.filters import Filter
from tidings.matching import Shelf, sorted_run
from tidings.matching import search as search_module
from tidings.matching import shelf as shelf_module
from tidings.matching.search import TRIES_MAX
from tidings.matching.shelf import INDEXED_AT_ONCE


@dataclass
class Seen:
    """One search, and what it must find."""

    wanted: Filter
    keys: Iterator[int | None]
    constant: set[int]  # those that match and were there from its beginning on
    found: list[int] = field(default_factory=list)


class Searches(RuleBasedStateMachine):
    """A shelf of distinct orders, changed between the steps of several searches."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(sorted_run, "BLOCK_MAX", 8)
        self.patch.setattr(search_module, "TRIED_FIRST", 2)
        self.patch.setattr(search_module, "TRIES_MAX", 3)
        self.patch.setattr(shelf_module, "TRIED_FIRST", 2)
        self.patch.setattr(shelf_module, "INDEXES_MAX", 2)
        self.patch.setattr(shelf_module, "BUILDS_MAX", 2)
        self.patch.setattr(shelf_module, "INDEXED_AT_ONCE", 4)
        self.patch.setattr(search_module, "LEAP_AFTER", 2)
        self.shelf: Shelf[int, Event] = Shelf(distinct=True)
        self.there: dict[int, Event] = {}  # by keys, which are the orders too
        self.searches: list[Seen] = []

    def teardown(self) -> None:
        while self.searches:
            self._step(self.searches[0])
        self.patch.undo()

    @rule(added=st.lists(st.tuples(st.integers(0, 200), events), min_size=1, max_size=30))
    def add(self, added: list[tuple[int, Event]]) -> None:
        for order, event in added:
            if order not in self.there:
                self.there[order] = event
                self.shelf.add(order, event, order)

    @precondition(lambda self: self.there)
    @rule(choices=st.lists(st.integers(0, 200), min_size=1, max_size=10))
    def remove(self, choices: list[int]) -> None:
        for choice in choices:
            if self.there:
                self._remove(sorted(self.there)[choice % len(self.there)])

    def _remove(self, key: int) -> None:
        assert self.shelf.remove(key) is self.there.pop(key)
        for search in self.searches:
            search.constant.discard(key)

    @rule(wanted=filters, after=st.none() | st.integers(0, 150), is_bounded=st.booleans())
    def begin(self, wanted: Filter, after: int | None, is_bounded: bool) -> None:
        keys = iter(self.shelf.search(wanted, after, is_bounded))
        constant = {
            key
            for key, event in self.there.items()
            if wanted.matches(event) and (after is None or key > after)
        }
        self.searches.append(Seen(wanted, keys, constant))

    @precondition(lambda self: self.searches)
    @rule(choice=st.integers(0, 9), steps=st.integers(1, 5), takes=st.booleans())
    def go_on(self, choice: int, steps: int, takes: bool) -> None:
        search = self.searches[choice % len(self.searches)]
        for _ in range(steps):
            if search in self.searches:
                self._step(search, takes)

    def _step(self, search: Seen, takes: bool = False) -> None:
        for key in search.keys:
            if key is None:
                return
            assert search.wanted.matches(self.there[key])
            assert not search.found or key > search.found[-1]
            search.found.append(key)
            if takes:
                search.constant.discard(key)
                self._remove(key)
        assert search.constant <= set(search.found)
        self.searches.remove(search)

    @precondition(lambda self: self.searches)
    @rule(choice=st.integers(0, 9))
    def drop(self, choice: int) -> None:
        self.searches.pop(choice % len(self.searches)).keys.close()  # type: ignore[attr-defined]

    @rule(wanted=filters)
    def search_at_once(self, wanted: Filter) -> None:
        expected = [key for key in sorted(self.there) if wanted.matches(self.there[key])]
        assert list(self.shelf.find(wanted)) == expected
        assert self.shelf.count(wanted) == len(expected)

    @invariant()
    def nobody_waits_for_an_index_when_nobody_searches(self) -> None:
        assert len(self.shelf.indexed) <= 2
        if not self.searches:
            assert not any(self.shelf._builders.values())


TestSearches = Searches.TestCase
TestSearches.settings = settings(stateful_step_count=40, max_examples=often(100))


# How much is done in a step


class Counting(Filter):
    """A filter that counts the events it is tried on."""

    tried = 0

    def matches(self, event: Event) -> bool:
        Counting.tried += 1
        return super().matches(event)


def large_shelf(count: int = 10_000) -> Shelf[int, Event]:
    shelf: Shelf[int, Event] = Shelf(distinct=True)
    for number in range(count):
        shelf.add(number, Event("job", n=number, s=f"job {number}"), number)
    return shelf


def test_a_search_without_an_index_pauses_after_a_few_tries() -> None:
    shelf, most = large_shelf(), 0
    Counting.tried = 0
    for key in shelf.search(Counting("s LIKE '%9999'")):
        if key is None:
            most, Counting.tried = max(most, Counting.tried), 0
    assert 0 < most <= TRIES_MAX


def test_an_index_is_built_a_few_events_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = large_shelf()
    read: list[Event] = []
    monkeypatch.setattr(shelf, "read", lambda event: read.append(event) or event)
    pauses, found = 0, []
    for key in shelf.search(Filter("n = 9999")):
        if key is None:
            assert len(read) <= INDEXED_AT_ONCE + TRIES_MAX
            read.clear()
            pauses += 1
        else:
            found.append(key)
    assert found == [9_999]
    assert pauses >= 10_000 // INDEXED_AT_ONCE


def test_a_bounded_search_goes_on_though_the_last_event_goes_and_another_comes_in_its_place() -> None:
    shelf: Shelf[int, Event] = Shelf(distinct=True)
    for number in range(3):
        shelf.add(number, Event("a"), number)
    keys = iter(shelf.search(None, is_bounded=True))
    assert next(keys) == 0
    shelf.remove(2)
    shelf.add(2, Event("b"), 2)
    shelf.add(3, Event("b"), 3)
    assert list(keys) == [1, 2]


def test_two_searches_build_one_index_together() -> None:
    shelf = large_shelf(1_000)
    searches = [iter(shelf.search(Filter(f"n = {n}"))) for n in (998, 999)]
    pauses, found = 0, []
    while searches:
        for search in list(searches):
            key = next(search, -1)
            pauses += key is None
            found += [key] if key is not None and key >= 0 else []
            if key == -1:
                searches.remove(search)
    assert sorted(found) == [998, 999]
    assert pauses <= 1_000 // INDEXED_AT_ONCE + 2


def test_a_search_that_is_not_wanted_any_more_leaves_its_index_to_the_next() -> None:
    shelf = large_shelf(1_000)
    keys = iter(shelf.search(Filter("n = 999")))
    assert next(keys) is None
    del keys
    shelf.remove(999)
    shelf.remove(0)
    assert shelf.first(Filter("n > 997")) == 998
    assert shelf.indexed == ("n",)
    assert not shelf._builders


def test_a_bounded_search_ends_however_many_come() -> None:
    shelf = large_shelf(100)
    coming, found = 100, []
    for key in shelf.search(Filter("s LIKE '%9'"), is_bounded=True):
        if key is not None:
            found.append(key)
        for number in range(coming, coming + TRIES_MAX):
            shelf.add(number, Event("job", n=number, s="9"), number)
        coming += TRIES_MAX
    assert found == list(range(9, 100, 10))


def test_an_index_is_not_asked_for_thousands_of_stretches() -> None:
    shelf = large_shelf(3_000)
    wanted = Filter(f"n IN ({', '.join(map(str, range(1, 3_000, 2)))})")
    assert list(shelf.find(wanted)) == list(range(1, 3_000, 2))
    assert shelf.indexed == ()
