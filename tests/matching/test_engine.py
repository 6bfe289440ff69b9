"""What happens inside the engine: blocks, generations, limits, and what is given back."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings import Event, Filter
from tidings.matching import Index, entries
from tidings.matching.engine import Engine
from tidings.matching.lanes import UNUSED_MIN, CountedNumbers


def engine_of(index: Index[int]) -> Engine:
    assert index._engine is not None
    return index._engine


def small(capacity: int = 64, pending_max: int = 16) -> Index[int]:
    return Index(plain_max=0, capacity=capacity, pending_max=pending_max)


def add_ranges(index: Index[int], keys: range) -> dict[int, Filter]:
    held = {key: Filter("x BETWEEN :low AND :high", low=key, high=key + 10) for key in keys}
    for key, one in held.items():
        index.add(key, one)
    return held


def test_a_new_generation_replaces_the_old_one_block_by_block() -> None:
    index = small()
    add_ranges(index, range(5000))
    engine = engine_of(index)
    assert engine._generation >= 2
    old = [block for block in engine._blocks.values() if block.generation != engine._generation]
    assert len(engine._grids) == (2 if old else 1)
    assert sorted(index.match(Event("t", x=2500))) == list(range(2490, 2501))


def test_blocks_that_empty_are_rewritten_and_dropped() -> None:
    index = small()
    add_ranges(index, range(2000))
    index.match(Event("t"))
    before = len(engine_of(index)._blocks)
    for key in range(2000):
        if key % 10:
            index.remove(key)
    assert len(engine_of(index)._blocks) < before / 4
    assert sorted(index.match(Event("t", x=1005))) == [1000]
    for key in range(0, 2000, 10):
        index.remove(key)
    assert not engine_of(index)._blocks
    assert index.match(Event("t", x=1005)) == []
    assert len(index) == 0


def test_filters_with_several_alternatives_end_in_full_blocks() -> None:
    index = small()
    for key in range(200):
        index.add(key, Filter("u = 'a' AND x > :x OR u = 'b' AND x > :x OR u = 'c' AND y > :x", x=key))
    index.match(Event("t"))
    assert len(engine_of(index)._blocks) <= 600 / 64 * 1.5
    assert sorted(index.match(Event("t", u="b", x=3))) == [0, 1, 2]


def test_bulk_and_bit_by_bit_end_in_full_blocks() -> None:
    bulk, slow = small(), small()
    add_ranges(bulk, range(1000))
    for key in range(1000):
        add_ranges(slow, range(key, key + 1))
        slow.match(Event("t", x=0))
    for index in (bulk, slow):
        index.match(Event("t"))
        assert len(engine_of(index)._blocks) <= 1000 / 64 * 1.5


def test_slots_of_removed_filters_are_used_again() -> None:
    index = small()
    for round_ in range(50):
        add_ranges(index, range(100))
        assert sorted(index.match(Event("t", x=50))) == list(range(40, 51))
        for key in range(100):
            index.remove(key)
        assert index.match(Event("t", x=50)) == [], round_
    assert len(engine_of(index)._keys) <= 128


def test_texts_that_come_between_others_keep_every_order() -> None:
    rng = random.Random(7)
    index = small()
    held: dict[int, Filter] = {}
    low, high = "m", "n"
    for key in range(300):  # each within the last, so that no room between two of them lasts
        middle = low + rng.choice("abyz")
        low, high = (middle, high) if rng.random() < 0.5 else (low, middle)
        held[key] = Filter("s >= :low AND s < :high", low=min(low, high), high=max(low, high))
        index.add(key, held[key])
        event = Event("t", s=middle[: rng.randrange(1, len(middle) + 1)])
        assert sorted(index.match(event)) == [k for k, one in held.items() if one.matches(event)]


def test_attributes_past_the_limit_are_left_to_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "LANES_MAX", 5)
    index = small()
    for key in range(40):
        index.add(key, Filter(f"a{key} > 1 AND a{(key * 7) % 40} < 9"))
    assert engine_of(index)._lanes.size <= 5 * 8
    assert index.match(Event("t", a39=5, a33=5)) == [39]
    assert index.match(Event("t", a39=1, a33=5)) == []


def test_too_many_kinds_at_once_are_tested_roughly_and_then_asked() -> None:
    text = " AND ".join(f"{name} IN (1, 'a', TRUE)" for name in "abcde")
    index = small()
    index.add(1, Filter(text))
    assert len(engine_of(index)._pending) == 1
    right = {"a": 1, "b": "a", "c": True, "d": 1, "e": "a"}
    assert index.match(Event("t", right)) == [1]
    assert index.match(Event("t", right | {"e": "b"})) == []


def test_a_few_kinds_become_entries_that_match_once() -> None:
    index = small()
    index.add(1, Filter("a IN (1, 'a') AND b IN (1, 'a') OR a = 1"))
    assert len(engine_of(index)._pending) == 5
    assert index.match(Event("t", a=1, b="a")) == [1]
    assert index.match_batch([Event("t", a=1, b="a"), Event("t", a="a", b=1)]) == [[1], [1]]


def test_exact_filters_are_not_kept() -> None:
    index = small()
    index.add(1, Filter("x > 1 AND s LIKE 'a%'"))
    index.add(2, Filter("x > y"))
    assert list(engine_of(index)._rough.values()) == [Filter("x > y")]
    index.remove(2)
    assert not engine_of(index)._rough


def test_a_long_list_is_found_at_both_ends() -> None:
    index = small()
    index.add(1, Filter("x IN (" + ", ".join(str(n) for n in range(0, 4000, 2)) + ")"))
    index.add(2, Filter("s NOT IN (" + ", ".join(f"'w{n}'" for n in range(1000)) + ")"))
    assert [index.match(Event("t", x=x)) for x in (0, 1, 1998, 3998, 3999)] == [[1], [], [1], [1], []]
    assert [index.match(Event("t", s=s)) for s in ("w0", "w999", "w1000", "")] == [[], [], [2], [2]]


@given(
    st.lists(st.integers(-60, 60), min_size=9, max_size=40),
    st.sampled_from(["{0}", "'{0:+03d}'"]),
    st.sampled_from(["x IN ({0})", "x NOT IN ({0})", "{1}"]),
)
def test_a_test_of_many_intervals_admits_what_the_filter_does(
    points: list[int], literal: str, form: str
) -> None:
    listed = ", ".join(literal.format(point) for point in points)
    ranges = " OR ".join(
        f"x BETWEEN {literal.format(low)} AND {literal.format(low + 1)}" for low in sorted(set(points))[::2]
    )
    wanted = Filter(form.format(listed, ranges))
    index = small()
    index.add(1, wanted)
    values = [
        *range(-62, 63),
        *(f"{n:+03d}" for n in range(-62, 63)),
        -0.5,
        7.5,
        "",
        "+",
        "~",
        float("nan"),
        None,
    ]
    for value in values:
        event = Event("t", {} if value is None else {"x": value})
        assert index.match(event) == [1] * wanted.matches(event)


def test_texts_that_come_later_have_cells_of_their_own() -> None:
    index = small(capacity=256, pending_max=64)
    for key in range(2000):
        index.add(key, Filter("s = :text", text=f"text {key}"))
    assert index.match(Event("t", s="text 1999")) == [1999]
    engine = engine_of(index)
    (lane,) = engine._lanes.numbers.values()
    bounds = engine._grids[engine._generation & 1]._bounds[lane]
    cells = np.searchsorted(bounds, np.arange(2000), side="right")
    assert np.bincount(cells).max() <= 300, "the last cell does not have nearly all of them"
    assert [index.match(Event("t", s=f"text {key}")) for key in range(0, 2000, 50)] == [
        [key] for key in range(0, 2000, 50)
    ]


def test_things_not_in_use_are_forgotten_only_when_they_are_many() -> None:
    counted: CountedNumbers[str] = CountedNumbers()
    for n in range(2 * UNUSED_MIN):
        counted.use(counted.number(f"thing {n}"), 1)
    assert not counted.is_wasteful
    for n in range(2 * UNUSED_MIN - 10):
        counted.use(counted.number(f"thing {n}"), -1)
    assert counted.is_wasteful
    freed = counted.collect()
    assert sorted(freed) == list(range(2 * UNUSED_MIN - 10))
    assert counted.number("new") in freed
    assert counted.number("thing 511") == 511
