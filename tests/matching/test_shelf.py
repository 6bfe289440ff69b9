from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.filters.conditions import events, filters
from tidings.event import Event
from tidings.filters import Filter
from tidings.matching import search as search_module
from tidings.matching import shelf as shelf_module
from tidings.matching import sorted_run
from tidings.matching.shelf import Shelf

MORNING = datetime(2026, 11, 15, 8, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def small_limits() -> Iterator[None]:
    """So that few events have many blocks, and few names more than the indexes there may be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_run, "BLOCK_MAX", 8)
        patch.setattr(search_module, "TRIED_FIRST", 2)
        patch.setattr(shelf_module, "TRIED_FIRST", 2)
        patch.setattr(shelf_module, "INDEXES_MAX", 3)
        patch.setattr(search_module, "LEAP_AFTER", 2)
        patch.setattr(search_module, "TRIES_MAX", 3)
        patch.setattr(shelf_module, "INDEXED_AT_ONCE", 4)
        yield


def shelf_of(*events: Event) -> Shelf[int, Event]:
    """A shelf with these events in their order, under the keys 0, 1, 2…"""
    shelf: Shelf[int, Event] = Shelf()
    for key, event in enumerate(events):
        shelf.add(key, event, key)
    return shelf


def shelf_with(name: str, *values: object) -> Shelf[int, Event]:
    return shelf_of(*(Event("job", {} if value is None else {name: value}) for value in values))


def found(shelf: Shelf[int, Event], text: str, **parameters: object) -> list[int]:
    """What the filter finds, having made sure that all ways of asking agree."""
    wanted = Filter(text, **parameters)
    keys = list(shelf.find(wanted))
    assert keys == [key for key in shelf if wanted.matches(shelf[key])]
    assert shelf.count(wanted) == len(keys)
    assert shelf.first(wanted) == (keys[0] if keys else None)
    return keys


class Plainly:
    """The oracle: a list that is sorted and tried from end to end."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, int, int, Event]] = []

    def keys(self, wanted: Filter | None = None) -> list[int]:
        return [key for _, _, key, event in sorted(self.kept) if wanted is None or wanted.matches(event)]

    def remove(self, key: int) -> None:
        self.kept = [entry for entry in self.kept if entry[2] != key]


# Against brute force


@given(st.lists(st.tuples(st.integers(0, 3), events), max_size=60), st.lists(filters, max_size=6))
def test_a_search_finds_what_trying_every_event_finds(
    stored: list[tuple[int, Event]], wanted: list[Filter]
) -> None:
    shelf, plainly = Shelf[int, Event](), Plainly()
    for key, (order, event) in enumerate(stored):
        shelf.add(key, event, order)
        plainly.kept.append((order, key, key, event))
    assert list(shelf) == plainly.keys()
    for each in wanted * 2:
        assert list(shelf.find(each)) == plainly.keys(each)
        assert shelf.first(each) == next(iter(plainly.keys(each)), None)
        assert shelf.count(each) == len(plainly.keys(each))


@given(st.lists(events, min_size=20, max_size=40), st.lists(filters, min_size=1, max_size=3), st.data())
def test_indexes_keep_up_with_what_is_added_and_removed(
    stored: list[Event], wanted: list[Filter], data: st.DataObject
) -> None:
    shelf, plainly = Shelf[int, Event](), Plainly()
    keys = st.integers(0, len(stored) - 1)
    for number, key in enumerate([*range(len(stored)), *data.draw(st.lists(keys, max_size=60))]):
        if key in shelf:
            assert shelf.remove(key) is stored[key]
            plainly.remove(key)
        else:
            order = data.draw(st.integers(0, 3))
            shelf.add(key, stored[key], order)
            plainly.kept.append((order, number, key, stored[key]))
        for each in wanted:
            assert shelf.first(each) == next(iter(plainly.keys(each)), None)
    for each in wanted:
        assert list(shelf.find(each)) == plainly.keys(each)
    assert len(shelf) == len(plainly.kept)


@given(st.lists(events, min_size=10, max_size=40), filters)
def test_taking_the_first_match_again_and_again_takes_all_in_order(
    stored: list[Event], wanted: Filter
) -> None:
    shelf = shelf_of(*stored)
    taken = []
    while (key := shelf.first(wanted)) is not None:
        taken.append(key)
        shelf.remove(key)
    assert taken == [key for key, event in enumerate(stored) if wanted.matches(event)]
    assert not any(wanted.matches(shelf[key]) for key in shelf)


# Order


def test_higher_priorities_come_first_and_equal_ones_as_they_arrived() -> None:
    shelf: Shelf[str, Event] = Shelf()
    for arrival, (key, priority) in enumerate([("a", 4), ("b", 9), ("c", 4), ("d", 9), ("e", 0)]):
        shelf.add(key, Event("job", {"n": 1}, priority=priority), (-priority, arrival))
    assert list(shelf) == ["b", "d", "a", "c", "e"]
    assert list(shelf.find(Filter("n = 1"))) == ["b", "d", "a", "c", "e"]
    assert shelf.first(Filter("n = 1 AND priority < 9")) == "a"


def test_equal_orders_are_handed_out_as_they_were_added() -> None:
    shelf: Shelf[str, Event] = Shelf()
    for key in ["z", "a", "m"]:
        shelf.add(key, Event("job"), 0)
    assert list(shelf) == ["z", "a", "m"]


def test_an_event_put_back_stands_in_its_old_place() -> None:
    shelf = shelf_with("n", *range(20))
    assert found(shelf, "n > 4 AND n < 8") == [5, 6, 7]
    event = shelf.remove(6)
    assert found(shelf, "n > 4 AND n < 8") == [5, 7]
    shelf.add(6, event, 6)
    assert found(shelf, "n > 4 AND n < 8") == [5, 6, 7]


def test_the_head_can_be_removed_until_nothing_is_left() -> None:
    shelf = shelf_with("n", *range(50))
    assert shelf.first(Filter("n >= 25")) == 25
    for key in range(50):
        assert shelf.first() == key
        assert shelf.first(Filter("n >= 25")) == max(key, 25)
        shelf.remove(key)
    assert shelf.first() is None
    assert shelf.first(Filter("n >= 25")) is None
    assert len(shelf) == 0


def test_a_wide_range_finds_its_first_though_all_of_it_stands_at_the_end() -> None:
    shelf = shelf_with("n", *range(100), *range(1100, 1000, -1))
    assert found(shelf, "n > 1000") == list(range(100, 200))
    assert found(shelf, "n > 1000 AND n <= 1050") == list(range(150, 200))


def test_stretches_where_one_constraint_admits_nothing_are_leapt_over() -> None:
    shelf = shelf_of(*(Event("job", {"n": n % 50, "end": n // 100}) for n in range(250)))
    tried = []

    class Counting(Filter):
        def matches(self, event: Event) -> bool:
            tried.append(event)
            return super().matches(event)

    assert shelf.first(Counting("n > 20 AND n < 40 AND end = 2")) == 221
    assert len(tried) <= 5


# Values


def test_values_of_two_kinds_never_meet() -> None:
    shelf = shelf_with("v", None, None, 1, "1", True, MORNING, b"1", 1.0, False, None)
    assert found(shelf, "v = 1") == [2, 7]
    assert found(shelf, "v >= '0'") == [3]
    assert found(shelf, "v = TRUE") == [4]
    assert found(shelf, "v <= :t", t=MORNING) == [5]
    assert found(shelf, "v > :b", b=b"0") == [6]
    assert found(shelf, "v IN (1, '1', FALSE)") == [2, 3, 7, 8]


def test_nan_is_found_by_presence_only() -> None:
    shelf = shelf_with("v", None, None, float("nan"), float("-inf"), None, 3)
    assert found(shelf, "v < 5") == [3, 5]
    assert found(shelf, "NOT (v < 5)") == []
    assert found(shelf, "v IS NOT NULL") == [2, 3, 5]
    assert found(shelf, "v IS NULL") == [0, 1, 4]


def test_integers_past_the_exact_floats_are_told_apart() -> None:
    shelf = shelf_with("v", 0, 0, 2**53, 2**53 + 1, float(2**53), 2**53 + 2)
    assert found(shelf, "v = 9007199254740993") == [3]
    assert found(shelf, "v = 9007199254740992") == [2, 4]
    assert found(shelf, "v > 9007199254740992") == [3, 5]


def test_prefixes_find_strings() -> None:
    shelf = shelf_with("v", "", "b", "a", "ab", "abc", "ac", "ab\U0010ffff")
    assert found(shelf, "v LIKE 'ab%'") == [3, 4, 6]


def test_header_fields_are_searched_like_attributes() -> None:
    shelf = shelf_of(*(Event("job", priority=n % 10, time=MORNING.replace(minute=n)) for n in range(60)))
    assert found(shelf, "priority = 9") == [9, 19, 29, 39, 49, 59]
    assert found(shelf, "time >= :t", t=MORNING.replace(minute=58)) == [58, 59]
    assert found(shelf, "JMSPriority = 9 AND type = 'job'") == [9, 19, 29, 39, 49, 59]


def test_alternatives_give_each_key_once_and_in_order() -> None:
    shelf = shelf_of(*(Event("job", {"a": n % 7, "b": n % 5}) for n in range(70)))
    expected = [n for n in range(70) if n % 7 == 3 or n % 5 in (2, 4)]
    assert found(shelf, "b = 4 OR a = 3 OR b = 2") == expected


def test_conditions_that_have_no_index_are_tried_on_the_candidates() -> None:
    shelf = shelf_of(*(Event("job", {"a": n % 7, "b": n % 5}) for n in range(70)))
    assert found(shelf, "a = 3 AND a < b") == [n for n in range(70) if n % 7 == 3 and n % 5 == 4]
    assert found(shelf, "a * 2 = b") == [n for n in range(70) if n % 7 * 2 == n % 5]


def test_a_filter_for_everything_and_one_for_nothing() -> None:
    shelf = shelf_with("n", *range(20))
    assert found(shelf, "") == list(range(20))
    assert found(shelf, "n = 1 AND n = 2") == []
    assert found(Shelf(), "n = 1") == []


# Indexes


def test_an_index_is_built_by_the_first_search_that_needs_it() -> None:
    shelf = shelf_with("n", *range(20))
    assert shelf.indexed == ()
    shelf.first(Filter("n = 1"))
    assert shelf.indexed == ()  # found at the head
    shelf.first(Filter("n = 19"))
    assert shelf.indexed == ("n",)


def test_a_shelf_of_a_few_events_builds_no_index() -> None:
    shelf = shelf_with("n", 1, 2)
    assert found(shelf, "n > 2") == []
    assert shelf.indexed == ()


def test_one_selective_constraint_is_enough() -> None:
    shelf = shelf_of(*(Event("job", {"n": n, "color": "blue"}) for n in range(20)))
    assert found(shelf, "n = 19") == [19]
    assert found(shelf, "color = 'blue' AND n = 18") == [18]
    assert shelf.indexed == ("n",)


def test_the_index_searched_by_longest_ago_makes_room() -> None:
    shelf = shelf_of(*(Event("job", dict.fromkeys("abcd", n)) for n in range(20)))
    for name in "abcad":
        shelf.first(Filter(f"{name} = 19"))
    assert shelf.indexed == ("c", "a", "d")
    assert found(shelf, "b = 19") == [19]
    assert shelf.indexed == ("a", "d", "b")


def test_a_search_never_pushes_out_the_indexes_it_uses() -> None:
    shelf = shelf_of(*(Event("job", dict.fromkeys("abcde", n)) for n in range(40)))
    every = " AND ".join(f"{name} > 20" for name in "abcde")
    assert found(shelf, every) == list(range(21, 40))
    assert sorted(shelf.indexed) == ["a", "b", "c"]
    some = " OR ".join(f"{name} = {n}" for n, name in enumerate("abcde", 20))
    assert found(shelf, some) == list(range(20, 25))
    assert sorted(shelf.indexed) == ["a", "b", "c"]


# As a container


def test_a_shelf_knows_what_it_holds() -> None:
    event = Event("job", {"n": 1})
    shelf: Shelf[str, Event] = Shelf()
    shelf.add("k", event, 0)
    assert "k" in shelf
    assert shelf["k"] is event
    assert len(shelf) == 1
    assert shelf.remove("k") is event
    assert "k" not in shelf


def test_a_key_is_on_the_shelf_once() -> None:
    shelf = shelf_with("n", 1)
    with pytest.raises(ValueError, match="0 is on the shelf already"):
        shelf.add(0, Event("job"), 5)
    with pytest.raises(KeyError):
        shelf.remove(1)
    assert list(shelf) == [0]


def test_an_order_that_does_not_sort_changes_nothing() -> None:
    shelf = shelf_with("n", *range(10))
    with pytest.raises(TypeError):
        shelf.add(10, Event("job", {"n": 10}), "late")
    assert 10 not in shelf
    assert found(shelf, "n >= 9") == [9]


def test_a_search_says_so_when_the_shelf_is_changed_under_it() -> None:
    shelf = shelf_with("n", *range(20))
    keys = shelf.find(Filter("n > 9"))
    assert next(keys) == 10
    shelf.remove(11)
    with pytest.raises(RuntimeError, match="changed while it was searched"):
        next(keys)
