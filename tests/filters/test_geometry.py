from __future__ import annotations

import math
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidings.errors import MissingExtra
from tidings.filters.constraint import ANY_STRING
from tidings.filters.geometry import POINTS_MAX, implied_by_within, prepare_distance, prepare_within

SQUARE = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"
RING = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0), (4 4, 6 4, 6 6, 4 6, 4 4))"
PARTS = "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))"

Corner = tuple[float, float]
numbers = st.floats(-20, 20) | st.integers(-20, 20)


def star(distances: list[int], x: int, y: int) -> list[Corner]:
    """Corners around a centre, each in its own direction: never self-crossing."""
    angles = [2 * math.pi * number / len(distances) for number in range(len(distances))]
    corners = zip(angles, distances, strict=True)
    return [(x + length * math.cos(angle), y + length * math.sin(angle)) for angle, length in corners]


stars = st.builds(
    star, st.lists(st.integers(1, 12), min_size=3, max_size=9), st.integers(-5, 5), st.integers(-5, 5)
)


def as_wkt(*rings: list[Corner]) -> str:
    texts = (", ".join(f"{x!r} {y!r}" for x, y in [*ring, ring[0]]) for ring in rings)
    return f"POLYGON ({', '.join(f'({text})' for text in texts)})"


def is_inside(corners: list[Corner], x: float, y: float) -> bool:
    """The oracle: a ray to the right crosses the boundary an odd number of times."""
    inside = False
    for (x1, y1), (x2, y2) in zip(corners, corners[1:] + corners[:1], strict=True):
        if (y1 > y) != (y2 > y) and x < x1 + (y - y1) * (x2 - x1) / (y2 - y1):
            inside = not inside
    return inside


def is_near_edge(corners: list[Corner], x: float, y: float) -> bool:
    for (x1, y1), (x2, y2) in zip(corners, corners[1:] + corners[:1], strict=True):
        share = ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / ((x2 - x1) ** 2 + (y2 - y1) ** 2)
        share = min(1.0, max(0.0, share))
        if math.hypot(x - x1 - share * (x2 - x1), y - y1 - share * (y2 - y1)) < 1e-6:
            return True
    return False


@given(stars, numbers, numbers)
def test_within_agrees_with_ray_casting_away_from_the_edges(
    corners: list[Corner], x: float, y: float
) -> None:
    assume(not is_near_edge(corners, x, y))
    assert prepare_within(as_wkt(corners))(x, y) == is_inside(corners, x, y)


@given(st.sampled_from([SQUARE, RING, PARTS]) | stars.map(as_wkt), numbers, numbers)
def test_what_lies_within_lies_in_the_implied_bounds(area: str, x: float, y: float) -> None:
    (across, up), exact = implied_by_within(2, area)
    holds = prepare_within(area)(x, y)
    in_bounds = across.admits(x) and up.admits(y)
    assert in_bounds or not holds
    if exact:
        assert holds == in_bounds


def test_the_boundary_counts_as_inside() -> None:
    assert prepare_within(SQUARE)(10, 5)
    assert prepare_within(RING)(4, 5)
    assert prepare_within(RING)(0, 0)
    assert prepare_within(PARTS)(0.5, 0.5)


def test_holes_are_outside_and_every_part_is_inside() -> None:
    assert prepare_within(RING)(5, 5) is False
    assert prepare_within(PARTS)(5.5, 5.2) is True
    assert prepare_within(PARTS)(3, 3) is False


def test_only_an_upright_rectangle_is_told_by_its_bounds() -> None:
    assert implied_by_within(2, SQUARE)[1]
    assert implied_by_within(2, "POLYGON Z ((0 10 1, 10 10 1, 10 0 1, 0 0 1, 0 10 1))")[1]
    assert not implied_by_within(2, RING)[1]
    assert not implied_by_within(2, "POLYGON ((0 5, 5 0, 10 5, 5 10, 0 5))")[1]
    assert implied_by_within(1, SQUARE) == ((ANY_STRING,), False)


def test_a_place_that_is_no_number_is_unknown_and_one_at_infinity_outside() -> None:
    within = prepare_within(SQUARE)
    assert within(math.nan, 5) is within(5, math.nan) is None
    assert within(True, 5) is within("5", 5) is None
    assert within(math.inf, 5) is False


def test_integers_are_not_rounded_at_the_bounds() -> None:
    area = f"POLYGON ((0 0, {2**53} 0, {2**53} 10, 0 10, 0 0))"
    assert prepare_within(area)(2**53, 5) is True
    assert prepare_within(area)(2**53 + 1, 5) is False


@pytest.mark.parametrize(
    ("place", "inside"),
    [
        ("POINT (1 1)", True),
        ("POINT (10 10)", True),
        ("POINT Z (1 1 99)", True),
        ("linestring(0 0, 3 3)", True),
        ("LINESTRING (0 0, 3 30)", False),
        ("LINESTRING (3 3, 7 7)", False),
        ("POLYGON ((1 1, 2 1, 2 2, 1 1))", True),
        ("POLYGON ((1 1, 9 1, 9 9, 1 9, 1 1))", False),
        ("MULTIPOINT (1 1, 2 2)", True),
        ("MULTIPOINT (1 1, 5 5)", False),
    ],
)
def test_a_geometry_must_lie_in_the_area_whole(place: str, inside: bool) -> None:
    assert prepare_within(RING)(place) is inside


@pytest.mark.parametrize(
    "place",
    [
        "",
        "here",
        "POINT EMPTY",
        "POINT (nan nan)",
        "POINT (1e999 0)",
        "POINT (1 1) POINT (2 2)",
        "POINT (1 1)\0",
        "POINT (\ud8001 1)",
        "POLYGON ((0 0, 1 1, 0 1, 1 0, 0 0))",
        "POLYGON ((0 0, 1 1, 1 0))",
        "GEOMETRYCOLLECTION (" * 100_000,
        f"LINESTRING ({', '.join(f'{x} 1' for x in range(POINTS_MAX + 1))})",
        "POINT (" + " " * 1_000_000 + "1 1)",
    ],
    ids=lambda place: place[:20],
)
def test_text_that_is_no_usable_geometry_is_nowhere(place: str) -> None:
    assert prepare_within(RING)(place) is None


@pytest.mark.parametrize(
    ("area", "problem"),
    [
        (5, "an area is WKT text, not 5"),
        ("", "an area is a POLYGON or MULTIPOLYGON"),
        ("POINT (1 1)", "an area is a POLYGON or MULTIPOLYGON"),
        ("POLYGON EMPTY", "an area is a POLYGON or MULTIPOLYGON with corners"),
        ("POLYGON ((0 0, 1 1, 1 0))", "the area is no POLYGON: Points of LinearRing do not form a closed"),
        ("POLYGON ((0 0, 1 1, 1 0 ,, 0 0))", "the area is no POLYGON: Expected number but encountered ','"),
        ("POLYGON ((0 0, 1 1, 0 1, 1 0, 0 0))", "the area is not a valid one: Self-intersection"),
        ("POLYGON ((0 0, 1e999 0, 1 1, 0 0))", "the area is not a valid one: Invalid Coordinate"),
        (
            as_wkt(star([3] * POINTS_MAX, 0, 0)),
            f"the area has {POINTS_MAX + 1} corners; at most {POINTS_MAX}",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_area_is_refused_with_its_reason(area: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}"):
        prepare_within(area)


def test_without_shapely_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shapely", None)
    with pytest.raises(MissingExtra, match="WITHIN") as caught:
        prepare_within("POLYGON ((0 0, 3 0, 3 4, 0 0))")
    assert caught.value.extra == "geo"


@given(numbers, numbers, numbers, numbers)
def test_distance_is_straight_in_the_plane(x: float, y: float, x0: float, y0: float) -> None:
    distance = prepare_distance(x0, y0)(x, y)
    assert distance == pytest.approx(math.sqrt((x - x0) ** 2 + (y - y0) ** 2))


def vector(latitude: float, longitude: float) -> tuple[float, float, float]:
    phi, lam = math.radians(latitude), math.radians(longitude)
    return math.cos(phi) * math.cos(lam), math.cos(phi) * math.sin(lam), math.sin(phi)


latitudes = st.floats(-90, 90)
longitudes = st.floats(-360, 360)


@given(latitudes, longitudes, latitudes, longitudes)
def test_distance_in_metres_is_the_arc_between_two_directions(
    latitude: float, longitude: float, latitude0: float, longitude0: float
) -> None:
    here, there = vector(latitude, longitude), vector(latitude0, longitude0)
    chord = math.dist(here, there)
    arc = 2 * math.asin(min(1.0, chord / 2)) * 6_371_008.8
    assert prepare_distance(latitude0, longitude0, "m")(latitude, longitude) == pytest.approx(arc, abs=1)


def test_distances_between_known_cities_are_right() -> None:
    vienna_to_graz = prepare_distance(48.2082, 16.3738, "m")(47.0707, 15.4395)
    assert vienna_to_graz == pytest.approx(144_600, rel=0.01)
    assert prepare_distance(90, 0, "m")(-90, 123) == pytest.approx(math.pi * 6_371_008.8)


def test_there_is_no_distance_from_a_place_that_is_none() -> None:
    metres = prepare_distance(0, 0, "m")
    assert metres(91, 0) is None
    assert metres(0, math.inf) is None
    assert metres(math.nan, 0) is None
    assert metres(True, 0) is None
    assert prepare_distance(0, 0)(math.inf, 0) == math.inf
    assert prepare_distance(0, 0)(math.nan, 0) is None
    assert prepare_distance(0, 0)("0", 0) is None


@pytest.mark.parametrize(
    ("constants", "problem"),
    [
        (("1", 2), "takes the two coordinates of a place, not '1', 2"),
        ((True, 2), "takes the two coordinates of a place"),
        ((1, math.nan), "takes the two coordinates of a place"),
        ((1, math.inf), "takes the two coordinates of a place"),
        ((1, 2, "km"), "the unit of DISTANCE is 'm' or left out, not 'km'"),
        ((91, 2, "m"), "91 is no latitude"),
    ],
)
def test_a_bad_place_to_measure_from_is_refused(constants: tuple[float, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        prepare_distance(*constants)
