"""Boxes, and finding those that meet one."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tidings.gateway.areas import EVERYWHERE, AreaBox, Areas, box_of
from tidings.gateway.messages import Point

coordinates = st.one_of(
    st.integers(-20, 20).map(float),
    st.floats(-1e6, 1e6),
    st.sampled_from([0.0, -1e300, 1e300, 5e-324]),
)
boxes = st.tuples(coordinates, coordinates, coordinates, coordinates).map(
    lambda c: AreaBox(min(c[0], c[1]), min(c[2], c[3]), max(c[0], c[1]), max(c[2], c[3]))
)


def test_an_area_is_told_by_the_box_around_it() -> None:
    assert box_of([Point(3, 1)]) == AreaBox(3, 1, 3, 1)
    assert box_of([Point(3, 1), Point(0, 5), Point(1, 2)]) == AreaBox(0, 1, 3, 5)
    assert box_of([]) is None
    assert box_of(None) is None


@given(
    st.dictionaries(st.integers(0, 20), st.none() | boxes, max_size=15),
    st.sets(st.integers(0, 20)),
    boxes | st.just(EVERYWHERE) | coordinates.map(lambda x: AreaBox(x, -inf, inf, inf)),
)
def test_the_boxes_found_are_those_that_meet_the_one_looked_for(
    placed: dict[int, AreaBox | None], gone: set[int], wanted: AreaBox
) -> None:
    areas: Areas[int] = Areas()
    for thing, box in placed.items():
        areas.add(thing, box)
    for thing in gone & placed.keys():
        areas.remove(thing)
        del placed[thing]
    assert set(areas.near(wanted)) == {
        thing for thing, box in placed.items() if box is None or box.overlaps(wanted)
    }


def test_many_small_boxes_are_found_through_their_cells() -> None:
    areas: Areas[tuple[int, int]] = Areas()
    for x in range(60):
        for y in range(60):
            areas.add((x, y), AreaBox(x, y, x + 0.9, y + 0.9))
    assert set(areas.near(AreaBox(10.5, 10.5, 11.2, 10.8))) == {(10, 10), (11, 10)}


@given(boxes, boxes)
def test_the_hull_covers_both_and_covering_means_that_it_grows_no_more(one: AreaBox, other: AreaBox) -> None:
    assert one.hull(other).covers(one)
    assert one.hull(other).covers(other)
    assert not one.covers(other) or one.overlaps(other)
