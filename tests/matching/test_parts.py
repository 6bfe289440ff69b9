"""Keys with several filters: matched once, in every form of the index, and by brute force."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.filters.conditions import filters
from tests.matching.test_index import all_events, likely_events
from tidings import Event, Filter
from tidings.errors import UserError
from tidings.event import Batch
from tidings.index_files import open_index, save_index
from tidings.matching import Index
from tidings.matching import index as index_module

KEYS = st.integers(0, 5)
Held = dict[int, list[Filter]]

TOPICS = [Filter(f"TOPIC(type, '{pattern}')") for pattern in ("a.*", "a.b", "a.>", "*.b")]
PIECES = [Filter("CONTAINS(a, 'b')"), Filter("ENDS_WITH(a, 'b') AND b > 0"), Filter("a LIKE '%b'")]
APART = [Filter(""), Filter("a = 1 AND a = 2"), Filter("a < b"), Filter("a + b > 1 OR type = 'a.b'")]
WIDE = [Filter(f"a {operator} {value} OR b IS NULL") for operator in ("<", ">=") for value in (0, 1, 2.5)]
some_filters = filters | st.sampled_from([*TOPICS, *PIECES, *APART]) | st.sampled_from(WIDE)


def wanted(held: Held, event: Event) -> list[int]:
    return sorted(key for key, some in held.items() if any(one.matches(event) for one in some))


def engine_at_once() -> Index[int]:
    return Index(plain_max=0, capacity=16, pending_max=4)


def plain_only() -> Index[int]:
    return Index(plain_max=10_000, capacity=16, pending_max=4)


def outgrowing() -> Index[int]:
    return Index(plain_max=8, capacity=16, pending_max=4)


class ExtendingAndRetracting(RuleBasedStateMachine):
    """An index and a dict of lists get the same filters; they must always agree."""

    make: Callable[[], Index[int]] = staticmethod(engine_at_once)

    def __init__(self) -> None:
        super().__init__()
        if not index_module._is_prepared:
            index_module.prepare()
        self.index = self.make()
        self.held: Held = {}
        self.added: set[int] = set()

    @rule(key=KEYS, one=some_filters)
    def add(self, key: int, one: Filter) -> None:
        self.index.add(key, one)
        self.held[key] = [one]
        self.added.add(key)

    @rule(key=KEYS, some=st.lists(some_filters, min_size=1, max_size=12))
    def extend(self, key: int, some: list[Filter]) -> None:
        for one in some:
            if key in self.added:
                with pytest.raises(UserError, match="was added"):
                    self.index.extend(key, one)
            else:
                self.index.extend(key, one)
                if one not in self.held.setdefault(key, []):
                    self.held[key].append(one)

    @rule(key=KEYS, place=st.integers(0, 20), stranger=some_filters)
    def retract(self, key: int, place: int, stranger: Filter) -> None:
        known = [] if key in self.added else self.held.get(key, [])
        if stranger not in known:
            with pytest.raises(KeyError):
                self.index.retract(key, stranger)
        if known:
            one = known.pop(place % len(known))
            self.index.retract(key, one)
            if not known:
                del self.held[key]

    @rule(key=KEYS)
    def remove(self, key: int) -> None:
        if key in self.held:
            self.index.remove(key)
            del self.held[key]
            self.added.discard(key)
        else:
            with pytest.raises(KeyError):
                self.index.remove(key)

    @rule(made=st.lists(all_events, min_size=1, max_size=4))
    def match(self, made: list[Event]) -> None:
        expected = [wanted(self.held, event) for event in made]
        assert [sorted(keys) for keys in self.index.match_batch(made)] == expected
        assert [sorted(self.index.match(event)) for event in made] == expected

    @rule(made=st.lists(likely_events, min_size=1, max_size=3), times=st.sampled_from([1, 8]))
    def match_rows(self, made: list[Event], times: int) -> None:
        batch = Batch.of(made * times)
        expected: dict[int, list[int]] = {}
        for row, event in enumerate(made * times):
            for key in wanted(self.held, event):
                expected.setdefault(key, []).append(row)
        items = list(self.index.match_items(batch))
        assert {key: list(rows) for key, rows in items} == expected
        assert len(items) == len(expected)
        matches = self.index.match_rows(batch)
        assert {key: list(rows) for key, rows in matches.items()} == expected
        assert len(matches.keys) == len(expected)

    @invariant()
    def knows_what_it_holds(self) -> None:
        assert len(self.index) == len(self.held)
        assert all((key in self.index) == (key in self.held) for key in range(6))
        for key, some in self.held.items():
            alone: Index[int] = Index()
            for place, one in enumerate(some):
                alone.add(place, one)
            assert self.index.is_unindexed(key) == bool(alone.unindexed)


class PlainParts(ExtendingAndRetracting):
    """The same of an index of few filters, with a twin of compiled code for batches."""

    make = staticmethod(plain_only)


class OutgrowingParts(ExtendingAndRetracting):
    """The same of an index that outgrows plain evaluation."""

    make = staticmethod(outgrowing)


for _machine in (ExtendingAndRetracting, PlainParts, OutgrowingParts):
    _machine.TestCase.settings = settings(max_examples=often(20), stateful_step_count=20)
TestExtendingAndRetracting = ExtendingAndRetracting.TestCase
TestPlainParts = PlainParts.TestCase
TestOutgrowingParts = OutgrowingParts.TestCase


def filled(make: Callable[[], Index[int]], held: Held) -> Index[int]:
    index = make()
    for key, some in held.items():
        for one in some:
            index.extend(key, one)
    return index


def reopened(index: Index[int]) -> Index[int]:
    with TemporaryDirectory() as folder:
        save_index(index, Path(folder) / "filters.index")
        return open_index(Path(folder) / "filters.index")


def pickled(index: Index[int]) -> Index[int]:
    made: Index[int] = pickle.loads(pickle.dumps(index))
    return made


@settings(max_examples=often(30))
@given(
    st.dictionaries(KEYS, st.lists(some_filters, min_size=1, max_size=8, unique=True), max_size=4),
    st.lists(all_events, min_size=1, max_size=4),
    st.sampled_from([engine_at_once, plain_only]),
    st.sampled_from([reopened, pickled, copy.deepcopy]),
)
def test_a_copy_or_a_saved_index_returns_each_key_once_too(
    held: Held,
    made: list[Event],
    make: Callable[[], Index[int]],
    copied: Callable[[Index[int]], Index[int]],
) -> None:
    index = filled(make, held)
    index.add(99, Filter("a > 0"))
    again = copied(index)
    held = held | {99: [Filter("a > 0")]}
    assert len(again) == len(held)
    assert all((key in again) == (key in held) for key in (*range(6), 99))
    assert all(again.is_unindexed(key) == index.is_unindexed(key) for key in held)
    assert [sorted(keys) for keys in again.match_batch(made)] == [wanted(held, event) for event in made]
    for event in made:
        assert sorted(again.match(event)) == wanted(held, event)
        items = list(again.match_items(Batch.of([event])))
        assert sorted(key for key, _ in items) == wanted(held, event)


def test_a_key_is_returned_once_by_a_patient_index_before_and_after_the_engine_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index_module.prepare()
    monkeypatch.setattr(index_module, "_is_prepared", False)
    index: Index[str] = Index(patient=True)
    for value in range(100):
        index.extend("link", Filter("x > :x", x=value))
        index.extend("link", Filter("x = :x", x=value))
    batch = Batch.of([Event("t", x=50)] * 20)
    assert [(key, list(rows)) for key, rows in index.match_items(batch)] == [("link", list(range(20)))]
    assert not index.memory
    monkeypatch.setattr(index_module, "_is_prepared", True)
    assert [(key, list(rows)) for key, rows in index.match_items(batch)] == [("link", list(range(20)))]
    assert index.memory
    index.remove("link")
    assert not index.match(Event("t", x=50))


def test_the_engine_returns_a_key_once_for_each_row_and_uses_its_room_again() -> None:
    index = engine_at_once()
    batch = Batch.of([Event("t", x=value) for value in (5, 50, -1)])
    for times in range(5):
        index.add(1000 + times, Filter("x > 40"))
        for key in (1, 2):
            for value in range(20):
                index.extend(key, Filter("x > :x", x=value))
        expected: dict[int, list[int]] = {1: [0, 1], 2: [0, 1]} | {1000 + n: [1] for n in range(times + 1)}
        items = list(index.match_items(batch))
        assert {key: list(rows) for key, rows in items} == expected
        assert len(items) == len(expected)
        assert [sorted(keys) for keys in index.match_batch(list(batch))] == [
            [1, 2],
            sorted(expected),
            [],
        ]
        with_saved = list(reopened(index).match_items(batch))
        assert sorted((key, list(rows)) for key, rows in with_saved) == sorted(expected.items())
        index.remove(1 if times % 2 else 2)
        for value in range(20):
            index.retract(2 if times % 2 else 1, Filter("x > :x", x=value))


def test_a_saved_index_is_not_extended() -> None:
    again = reopened(filled(plain_only, {1: [Filter("a > 0"), Filter("a < 3")]}))
    with pytest.raises(UserError, match="read-only"):
        again.extend(1, Filter("a = 1"))
    with pytest.raises(UserError, match="read-only"):
        again.retract(1, Filter("a > 0"))
