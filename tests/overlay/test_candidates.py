"""The index of candidates: whatever covers a filter, or is covered by it, is found."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.filters.conditions import dense_filters, filters
from tidings import Filter
from tidings.filters.normal import Conjunction
from tidings.filters.relations import simplify
from tidings.overlay import piles
from tidings.overlay.boxes import Box
from tidings.overlay.candidates import Candidates

ranges = st.builds(
    "{} BETWEEN {} AND {}".format, st.sampled_from("abcd"), st.integers(0, 3), st.integers(3, 6)
)
points = st.builds("{} = {}".format, st.sampled_from("abcd"), st.integers(2, 4))
lists = st.lists(st.sampled_from(["x", "y", "z.x", "z.y"]), min_size=2, max_size=4, unique=True).map(
    lambda texts: f"t IN ({', '.join(map(repr, texts))})"
)
topics = ["x", "y", "z.x", "z.y", "y.x", "z/x", "z.x.x"]
strings = st.builds("t = '{}'".format, st.sampled_from(topics))
patterns = st.sampled_from(
    [
        *(
            "TOPIC(t, 'z.*')",
            "TOPIC(t, '*.x')",
            "NOT TOPIC(t, '*.x')",
            "TOPIC(t, '+/x')",
            "TOPIC(t, 'z.*.x')",
        ),
        *("t LIKE '%x'", "t LIKE 'z%x'", "CONTAINS(t, '.')", "t NOT LIKE '%x'"),
    ]
)
boxed_filters = st.lists(st.one_of(ranges, ranges, points), max_size=4).map(" AND ".join).map(Filter)
crowded_filters = st.builds(
    lambda a, more, b, further: Filter(f"a BETWEEN {a} AND {a + more} AND b BETWEEN {b} AND {b + further}"),
    *[st.integers(0, 9)] * 4,
)
texted_filters = (
    st.lists(st.one_of(lists, strings, patterns, ranges), min_size=1, max_size=2)
    .map(" AND ".join)
    .map(Filter)
)
possible = st.one_of(boxed_filters, texted_filters, filters, dense_filters).filter(lambda one: one.normal)


@pytest.fixture(scope="module", params=["usual limits", "small limits"], autouse=True)
def limits(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run all tests with trees and blocks that are full at once, too."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "small limits":
            for name, value in (("FEW", 1), ("NODE_MAX", 3), ("BLOCK", 2), ("WAYS_MAX", 1)):
                patch.setattr(piles, name, value)
        yield


def filed(stored: list[Filter]) -> Candidates[int]:
    index: Candidates[int] = Candidates()
    for number, one in enumerate(stored):
        index.add(number, one.normal, simplify(one.normal), Box(one.normal[0], number))
    return index


def covering(index: Candidates[int], one: Conjunction, box: Box) -> list[int | None]:
    deque(index.filing(one, box))
    return list(index.covering(one, box))


def covered_by(index: Candidates[int], one: Conjunction, box: Box) -> list[int | None]:
    deque(index.filing(one, box))
    return list(index.covered_by(one, box))


def check(index: Candidates[int], stored: dict[int, Filter], asked: Filter) -> None:
    found = set(covering(index, asked.normal[0], Box(asked.normal[0], None)))
    assert {number for number, one in stored.items() if one.covers(asked)} <= found
    assert found <= {*stored, None}
    found = {key for one in simplify(asked.normal) for key in covered_by(index, one, Box(one, None))}
    assert {number for number, one in stored.items() if asked.covers(one)} <= found
    assert found <= {*stored, None}


@pytest.mark.parametrize(
    "kind",
    [crowded_filters, boxed_filters, texted_filters, possible],
    ids=["crowded boxes", "boxes", "texts", "any"],
)
def test_all_that_cover_and_all_that_are_covered_are_found(kind: st.SearchStrategy[Filter]) -> None:
    nonempty = kind.filter(lambda one: bool(one.normal))

    @given(st.lists(nonempty, max_size=20), nonempty, st.sets(st.integers(0, 19)))
    def found(stored: list[Filter], asked: Filter, removed: set[int]) -> None:
        index = filed(stored)
        left = dict(enumerate(stored))
        check(index, left, asked)
        for number in removed & left.keys():
            index.remove(number)
            del left[number]
        check(index, left, asked)
        for number in left:
            index.remove(number)
        assert not any((index._wide, index._narrow, index._residues, index._strings))

    found()


def test_of_many_boxes_exactly_those_around_and_within_are_found() -> None:
    lows = [(number * 37 % 101, number * 53 % 97) for number in range(300)]
    sizes = [(number * 11 % 31, number * 7 % 29) for number in range(300)]
    stored = [
        Filter(f"a BETWEEN {a} AND {a + more} AND b BETWEEN {b} AND {b + further}")
        for (a, b), (more, further) in zip(lows, sizes, strict=True)
    ]
    index = filed(stored)
    for asked in stored[::5]:
        box = Box(asked.normal[0], None)
        around = {key for key in covering(index, asked.normal[0], box) if key is not None}
        assert around == {number for number, one in enumerate(stored) if one.covers(asked)}
        within = {key for key in covered_by(index, asked.normal[0], box) if key is not None}
        assert within == {number for number, one in enumerate(stored) if asked.covers(one)}


@pytest.mark.parametrize(("pattern", "separator"), [("z.*.x", "."), ("z/+/x", "/")])
def test_the_topics_that_fit_a_pattern_are_found_by_their_last_level(pattern: str, separator: str) -> None:
    endings = ["x", *"abcdefg"]
    stored = [Filter(f"t = '{separator.join(('z', 'y', ending))}'") for ending in endings]
    index = filed(stored)
    asked = Filter(f"TOPIC(t, '{pattern}')")
    check(index, dict(enumerate(stored)), asked)
    found = covered_by(index, asked.normal[0], Box(asked.normal[0], None))
    assert [key for key in found if key is not None] == [0]
    assert len(found) < len(endings)
    index.remove(0)
    check(index, dict(list(enumerate(stored))[1:]), asked)
