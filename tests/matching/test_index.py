from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime

import numpy as np
import pytest
from effort import IS_SOAK, often
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from strategies import header_fields

from tests.filters.conditions import events as likely_events
from tests.filters.conditions import filters, values
from tidings import Event, Filter
from tidings.errors import CodecError
from tidings.event import Batch
from tidings.matching import Index
from tidings.matching import index as index_module


def small() -> Index[int]:
    """An index whose engine starts at once and whose blocks are tiny, so that everything happens early."""
    return Index(plain_max=0, capacity=16, pending_max=4)


def wanted(held: dict[int, Filter], event: Event) -> list[int]:
    return sorted(key for key, one in held.items() if one.matches(event))


def filled(held: dict[int, Filter]) -> Index[int]:
    index = small()
    for key, one in held.items():
        index.add(key, one)
    return index


odd_events = st.builds(
    lambda attributes, fields: Event("a.b", attributes, **fields),
    st.dictionaries(st.sampled_from(["a", "b", "c", "odd-name"]), values, max_size=4),
    header_fields(),
)
all_events = likely_events | odd_events


@given(st.lists(filters, max_size=40), st.lists(all_events, max_size=5))
def test_an_event_matches_the_keys_whose_filters_say_so(some: list[Filter], made: list[Event]) -> None:
    held = dict(enumerate(some))
    index = filled(held)
    assert [sorted(keys) for keys in index.match_batch(made)] == [wanted(held, event) for event in made]
    assert [sorted(index.match(event)) for event in made] == [wanted(held, event) for event in made]


@given(st.lists(filters, max_size=40), st.lists(likely_events, max_size=5))
def test_rows_by_key_are_keys_by_row_turned_round(some: list[Filter], made: list[Event]) -> None:
    held = dict(enumerate(some))
    by_key = defaultdict(list)
    for row, event in enumerate(made):
        for key in wanted(held, event):
            by_key[key].append(row)
    for index in (filled(held), Index(plain_max=1000)):
        for key, one in held.items():
            index.add(key, one)
        matches = index.match_rows(Batch.of(made))
        assert {key: sorted(rows) for key, rows in matches.items()} == by_key
        assert len(matches.keys) == len(by_key)


class ComingAndGoing(RuleBasedStateMachine):
    """An index and a dict are told the same things; they must always agree."""

    def __init__(self) -> None:
        super().__init__()
        self.index = small()
        self.held: dict[int, Filter] = {}

    @rule(key=st.integers(0, 60), one=filters)
    def add(self, key: int, one: Filter) -> None:
        self.index.add(key, one)
        self.held[key] = one

    @rule(first=st.integers(100, 110), some=st.lists(filters, min_size=5, max_size=40))
    def add_many(self, first: int, some: list[Filter]) -> None:
        for key, one in enumerate(some, first):
            self.add(key, one)

    @rule(key=st.integers(0, 150))
    def remove(self, key: int) -> None:
        if key in self.held:
            del self.held[key]
            self.index.remove(key)
        else:
            with pytest.raises(KeyError):
                self.index.remove(key)

    @rule(parity=st.integers(0, 1))
    def remove_many(self, parity: int) -> None:
        for key in [key for key in self.held if key % 2 == parity]:
            self.remove(key)

    @rule(made=st.lists(all_events, min_size=1, max_size=4))
    def match(self, made: list[Event]) -> None:
        got = [sorted(keys) for keys in self.index.match_batch(made)]
        assert got == [wanted(self.held, event) for event in made]

    @invariant()
    def knows_what_it_holds(self) -> None:
        assert len(self.index) == len(self.held)
        assert all(key in self.index for key in self.held)


TestComingAndGoing = ComingAndGoing.TestCase
TestComingAndGoing.settings = settings(max_examples=often(30), stateful_step_count=25)


class FewForBatches(ComingAndGoing):
    """The same of an index with few filters, which single events ask plainly and batches do not."""

    def __init__(self) -> None:
        super().__init__()
        if not index_module._is_prepared:
            index_module.prepare()
        self.index = Index(plain_max=1000, capacity=16, pending_max=4)

    @rule(one=likely_events)
    def match_a_batch(self, one: Event) -> None:
        made = [one] * index_module.ROWS_COMPILED
        rows = {key: list(found) for key, found in self.index.match_rows(Batch.of(made)).items()}
        assert rows == {key: list(range(len(made))) for key in wanted(self.held, one)}


TestFewForBatches = FewForBatches.TestCase
TestFewForBatches.settings = settings(max_examples=often(30), stateful_step_count=25)


def test_once_the_engine_is_there_it_matches_batches_for_few_filters_too() -> None:
    index_module.prepare()
    index: Index[str] = Index(patient=True)
    index.add("hot", Filter("value > 40"))
    few = Batch.of([Event("air", value=41)] * (index_module.ROWS_COMPILED - 1))
    many = Batch.of([Event("air", value=41), Event("air", value=3)] * index_module.ROWS_COMPILED)
    assert dict(index.match_rows(few).items()) == {"hot": list(range(len(few)))}
    assert not index.memory
    assert {key: list(rows) for key, rows in index.match_rows(many).items()} == {
        "hot": list(range(0, len(many), 2))
    }
    assert index.memory
    index.remove("hot")
    assert not list(index.match_rows(many).items())


def test_an_index_that_outgrows_plain_evaluation_goes_on_with_the_engine_it_has() -> None:
    index_module.prepare()
    index: Index[int] = Index(patient=True, plain_max=3)
    many = Batch.of([Event("air", value=value) for value in range(2 * index_module.ROWS_COMPILED)])
    index.add(0, Filter("value < ''"))
    index.add(1, Filter("value > 4"))
    index.match_rows(many)
    twin = index._twin
    assert twin is not None
    for key in range(2, 6):
        index.add(key, Filter("value = :key", key=key))
    assert (index._engine, index._twin) == (twin, None)
    expected = {1: list(range(5, len(many)))} | {key: [key] for key in range(2, 6)}
    assert {key: list(rows) for key, rows in index.match_rows(many).items()} == expected
    assert len(index) == 6
    for key in range(6):
        index.remove(key)
    assert len(index) == 0


def test_what_was_settled_is_not_made_ready_again_by_who_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    index: Index[int] = Index(plain_max=0)
    index.settle()
    index.add(1, Filter("value > 4"))
    index.settle()
    monkeypatch.setattr(index._engine, "_sync", lambda: pytest.fail("this was done"))
    assert index.match(Event("air", value=5)) == [1]


def mixed_filter(rng: random.Random) -> Filter:
    """One of the shapes people write, over attributes that many events have."""
    low = rng.random()
    shapes = [
        f"a{rng.randrange(6)} BETWEEN {low} AND {low + 0.3} AND a{rng.randrange(6)} > {rng.random()}",
        f"type = 't{rng.randrange(50)}' AND a{rng.randrange(6)} > {low}",
        f"name LIKE '{chr(97 + rng.randrange(26))}{chr(97 + rng.randrange(26))}%'",
        f"name IN ('aa', 'bb', 'c{rng.randrange(100)}') OR priority > {rng.randrange(9)}",
        f"name <> 'n{rng.randrange(30)}' AND a1 < {low}",
        f"a{rng.randrange(6)} IS NULL AND up = TRUE",
        f"a{rng.randrange(6)} > a{rng.randrange(6)} AND type = 't{rng.randrange(50)}'",
        f"rare{rng.randrange(3000)} > {low}",
    ]
    return Filter(rng.choice(shapes))


def mixed_event(rng: random.Random) -> Event:
    attributes: dict[str, object] = {f"a{n}": rng.random() for n in range(6) if rng.random() < 0.8}
    attributes["name"] = rng.choice(
        ["aa", "bb", "n3", "".join(rng.choices("abcdefgz", k=4)), f"c{rng.randrange(100)}"]
    )
    if rng.random() < 0.5:
        attributes["up"] = rng.random() < 0.5
    attributes[f"rare{rng.randrange(3000)}"] = rng.random()
    return Event(f"t{rng.randrange(60)}", attributes, priority=rng.randrange(10))


def test_thousands_of_filters_match_as_one_by_one_through_blocks_and_generations() -> None:
    rng = random.Random(42)
    index: Index[int] = Index(capacity=256, pending_max=64)
    held: dict[int, Filter] = {}
    for step in range(6000):
        key = rng.randrange(4000)
        held[key] = mixed_filter(rng)
        index.add(key, held[key])
        if step % 500 == 499:
            made = [mixed_event(rng) for _ in range(3)]
            assert [sorted(keys) for keys in index.match_batch(made)] == [
                wanted(held, event) for event in made
            ]
    for key in list(held)[::2]:
        index.remove(key)
        del held[key]
    made = [mixed_event(rng) for _ in range(20)]
    assert [sorted(keys) for keys in index.match_batch(made)] == [wanted(held, event) for event in made]


def test_removing_one_that_covers_ten_thousand_leaves_them() -> None:
    index: Index[int] = Index()
    index.add(-1, Filter("x > 0"))
    for key in range(10_000):
        index.add(key, Filter("x BETWEEN :low AND :high", low=key + 1, high=key + 2))
    assert sorted(index.match(Event("t", x=500))) == [-1, 498, 499]
    index.remove(-1)
    assert sorted(index.match(Event("t", x=500))) == [498, 499]
    assert index.match(Event("t", x=0.5)) == []


def test_what_matches_everything_or_nothing_is_kept_and_taken_back() -> None:
    for plain_max in (0, 100):
        index: Index[str] = Index(plain_max=plain_max)
        index.add("all", Filter(""))
        index.add("none", Filter("FALSE"))
        index.add("some", Filter("x > 1"))
        assert sorted(index.match(Event("t", x=2))) == ["all", "some"]
        assert index.match_batch([Event("t", x=0), Event("t")]) == [["all"], ["all"]]
        matches = index.match_rows(Batch.of([Event("t", x=0), Event("t", x=9)]))
        assert {key: list(rows) for key, rows in matches.items()} == {"all": [0, 1], "some": [1]}
        index.remove("all")
        index.remove("none")
        assert len(index) == 1
        assert index.match(Event("t", x=0)) == []
        with pytest.raises(KeyError):
            index.remove("all")


def test_a_filter_that_can_not_match_is_held_all_the_same() -> None:
    index = filled({0: Filter("x < ''"), 1: Filter("x > 1"), 2: Filter("x < '' AND y > 1 OR x = 7")})
    assert sorted(index.match(Event("t", x=7))) == [1, 2]
    assert index.match(Event("t", y=7)) == []
    index.remove(0)
    assert len(index) == 2


def test_adding_a_key_again_replaces_its_filter() -> None:
    index: Index[str] = Index(plain_max=0)
    for text in ("x > 1", "x > 5", "", "FALSE", "x > 7"):
        index.add("key", Filter(text))
        assert len(index) == 1
    assert index.match(Event("t", x=6)) == []
    assert index.match(Event("t", x=8)) == ["key"]


@pytest.mark.parametrize("bound", [2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**53) - 1, -(2**63)])
def test_integers_that_no_float_tells_apart_are_told_apart(bound: int) -> None:
    texts = [f"x {operator} {bound}" for operator in ("<", "<=", "=", ">=", ">", "<>")]
    held = {key: Filter(text) for key, text in enumerate(texts)}
    index = filled(held)
    near = [bound + step for step in range(-2, 3) if -(2**63) <= bound + step < 2**63]
    for x in [*near, float(bound), 0, float("inf"), float("-inf"), float("nan")]:
        assert sorted(index.match(Event("t", x=x))) == wanted(held, Event("t", x=x))


def test_events_of_several_origins_match_by_their_own_source() -> None:
    index: Index[str] = Index(plain_max=0)
    index.add("one", Filter("source = 'one'"))
    index.add("from o", Filter("source LIKE 'o%'"))
    index.add("unknown", Filter("source IS NULL"))
    made = [Event("t", source="one"), Event("t", source="other"), Event("t"), Event("t", source="one")]
    assert [sorted(keys) for keys in index.match_batch(made)] == [
        ["from o", "one"],
        ["from o"],
        ["unknown"],
        ["from o", "one"],
    ]


def test_header_fields_that_were_not_set_have_their_defaults() -> None:
    index: Index[str] = Index(plain_max=0)
    for text in (
        "priority = 4",
        "delivery = 'transient'",
        "route LIKE 'au%'",
        "channel IS NULL",
        "JMSPriority > 3",
    ):
        index.add(text, Filter(text))
    assert len(index.match(Event("t"))) == 5
    assert index.match(Event("t", priority=1, delivery="reliable", route="direct", channel="c")) == []


def test_fields_that_are_not_scanned_are_asked_of_the_filter() -> None:
    index: Index[int] = Index(plain_max=0)
    moment = datetime(2026, 11, 15, tzinfo=UTC)
    held = {
        key: Filter(text, moment=moment) if ":" in text else Filter(text)
        for key, text in enumerate(
            ("id = 'x1'", "received > :moment", "JMSDeliveryMode = 'PERSISTENT'", "body IS NULL")
        )
    }
    for key, one in held.items():
        index.add(key, one)
    for event in (
        Event("t", id="x1", body=b"b"),
        Event("t", received=moment),
        Event("t", delivery="persistent"),
    ):
        assert sorted(index.match(event)) == wanted(held, event)


def test_bytes_that_are_no_event_are_refused_by_row() -> None:
    index = filled({1: Filter("x > 1")})
    good = Batch.of([Event("t", x=2)]).raw[5:]
    with pytest.raises(CodecError, match=r"\$\[1\]"):
        index.match_rows(Batch(b"\xdd\x00\x00\x00\x02" + good + b"\x93\x01\x02\x03"))
    with pytest.raises(CodecError, match="follow"):
        index.match_rows(Batch(b"\xdd\x00\x00\x00\x01" + good + b"\x00"))
    assert list(index.match_rows(Batch(b"\xdd\x00\x00\x00\x00")).items()) == []


def test_very_many_matches_come_in_several_lots() -> None:
    index: Index[int] = Index()
    for key in range(3000):
        index.add(key, Filter("x > 0 OR y > 0"))
    made = [Event("t", x=1, y=1)] * 100
    assert [len(keys) for keys in index.match_batch(made)] == [3000] * 100
    matches = index.match_rows(Batch.of(made))
    assert len(matches.keys) == 3000
    assert all(sorted(rows) == list(range(100)) for _, rows in matches.items())


def test_texts_and_attributes_that_nobody_names_any_more_are_forgotten() -> None:
    index: Index[int] = Index(plain_max=0, capacity=64, pending_max=16)
    for key in range(6000):
        index.add(
            key,
            Filter(
                "correlation_id = :text AND a:n > 1 AND s LIKE :start".replace("a:n", f"a{key}"),
                text=f"request {key}",
                start=f"p{key}%",
            ),
        )
        if key >= 50:
            index.remove(key - 50)
        if key % 100 == 0:
            event = Event("t", {f"a{key}": 2, "s": f"p{key}!"}, correlation_id=f"request {key}")
            assert index.match(event) == [key]
    engine = index._engine
    assert engine is not None
    assert engine._lanes.texts.size < 2000
    assert engine._lanes.cuts.size < 4000
    assert engine._lanes.size < 3000


def test_a_few_filters_need_no_numba() -> None:
    code = """
import sys
from tidings import Event, Filter
from tidings.event import Batch
from tidings.matching import Index
index = Index()
for key in range(32):
    index.add(key, Filter("x > :x", x=key))
assert index.match(Event("t", x=3)) == [0, 1, 2]
assert index.match_rows(Batch.of([Event("t", x=1)])).keys == [0]
print([name for name in ("numba", "numpy") if name in sys.modules])
"""
    assert (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        == "[]\n"
    )


def test_memory_is_told_by_part() -> None:
    index: Index[int] = Index()
    assert index.memory == {}
    for key in range(5000):
        index.add(key, Filter("x > :x AND y < :x", x=key))
    index.match(Event("t", x=1))
    memory = index.memory
    assert memory["entries"] >= 5000 * 2 * 24
    assert memory["bitmaps"] > 0
    assert set(memory) == {"entries", "bitmaps", "grids", "texts", "keys", "scratch"}


@pytest.mark.slow
def test_very_many_filters_that_do_not_cover_each_other_match_as_numpy_says() -> None:
    rng = np.random.default_rng(3)
    lows = rng.random((100_000 if IS_SOAK else 20_000, 3)) * 0.9
    index: Index[int] = Index()
    for key, (x, y, z) in enumerate(lows.tolist()):
        text = "x BETWEEN :x AND :x1 AND y BETWEEN :y AND :y1 AND z BETWEEN :z AND :z1"
        index.add(key, Filter(text, x=x, x1=x + 0.1, y=y, y1=y + 0.1, z=z, z1=z + 0.1))
    points = rng.random((200, 3))
    made = [Event("t", x=x, y=y, z=z) for x, y, z in points.tolist()]
    for point, keys in zip(points, index.match_batch(made), strict=True):
        inside = ((lows <= point) & (point <= lows + 0.1)).all(axis=1)
        assert sorted(keys) == np.flatnonzero(inside).tolist()
