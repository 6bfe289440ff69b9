"""Conditions on places: inside an area, and within a distance.

Areas are polygons in WKT, with holes or in several parts; a place on the boundary counts as inside. A place
is two numbers, or one attribute that holds a point, line or polygon as WKT text, and then all of it must be
inside. Coordinates are plane ones in whatever unit the events use: WITHIN knows nothing of the earth's curve.
Areas need shapely; DISTANCE does not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeGuard

from tidings.errors import MissingExtra
from tidings.event.values import Value
from tidings.filters.constraint import ANY_STRING, Constraint
from tidings.filters.intervals import between

POINTS_MAX = 10_000
"""Corners in an area."""
PLACE_POINTS_MAX = 1_000
"""Points of a geometry in an event."""
COMPARED_MAX = 200_000
"""Corners of an area times points of a geometry: where they run along each other, each pair is compared."""
WKT_LENGTH_MAX = 400_000
"""Characters in WKT text."""
EARTH_RADIUS_M = 6_371_008.8
"""The mean radius of the earth (IUGG)."""

# Nothing else reaches shapely's reader, which accepts nested collections, NaN and more than events may have.
_WKT = re.compile(r"(?ai)\s*((?:MULTI)?(?:POINT|LINESTRING|POLYGON))\s*(?:Z\s*)?\([-+.,()\s\de]*\)\s*")


def prepare_within(area: Value) -> Callable[..., bool | None]:
    """Return a test of (x, y), or of (geometry as WKT text): whether it lies in the area, boundary included.

    Unknown for values that are no numbers, or no text of a valid geometry. Without shapely this raises
    MissingExtra.
    """
    shape, is_box = _read_area(area)
    intersects_xy = _shapely().intersects_xy
    x_low, y_low, x_high, y_high = shape.bounds

    def test(*place: Value) -> bool | None:
        if len(place) == 1:
            geometry = _read_place(place[0]) if isinstance(place[0], str) else None
            return None if geometry is None else _is_covered(shape, geometry)
        x, y = place
        if not (_is_number(x) and _is_number(y)):
            return None
        # Numbers are compared as they are: as floats, large integers would not agree with the implied sets.
        in_bounds = x_low <= x <= x_high and y_low <= y <= y_high
        return in_bounds and (is_box or bool(intersects_xy(shape, float(x), float(y))))

    return test


def _is_covered(shape: Any, geometry: Any) -> bool | None:
    """Whether all of a geometry lies in the area; unknown if the test would take too long."""
    points = _shapely().get_num_coordinates
    if points(shape) * points(geometry) > COMPARED_MAX:
        return None
    return bool(shape.covers(geometry))


def implied_by_within(names: int, area: Value) -> tuple[tuple[Constraint, ...], bool]:
    """Return the bounds of the area for x and y, exact if it is an upright rectangle; any string for WKT."""
    shape, is_box = _read_area(area)
    if names == 1:
        return (ANY_STRING,), False
    x_low, y_low, x_high, y_high = shape.bounds
    return (Constraint(between(x_low, x_high)), Constraint(between(y_low, y_high))), is_box


def _read_area(area: Value) -> tuple[Any, bool]:
    """Return a prepared shapely geometry, and whether it is just its own bounds; ValueError if invalid."""
    if not isinstance(area, str):
        raise ValueError(f"an area is WKT text, not {area!r}")
    return _area(area)


@lru_cache(maxsize=32)  # one filter reads its area when it is parsed, when it is indexed and when it is run
def _area(text: str) -> tuple[Any, bool]:
    shapely = _shapely()
    kind = _kind(text)
    if kind not in ("POLYGON", "MULTIPOLYGON"):
        raise ValueError("an area is a POLYGON or MULTIPOLYGON with corners, as WKT text")
    try:
        with _quiet():
            shape = shapely.force_2d(shapely.from_wkt(text))
    except shapely.errors.ShapelyError as error:
        raise ValueError(f"the area is no {kind}: {str(error).partition(': ')[2] or error}") from None
    _check_area(shape)
    shapely.prepare(shape)
    return shape, bool(shapely.normalize(shape) == shapely.normalize(shapely.box(*shape.bounds)))


def _check_area(shape: Any) -> None:
    shapely = _shapely()
    corners = int(shapely.get_num_coordinates(shape))
    if corners > POINTS_MAX:
        raise ValueError(f"the area has {corners} corners; at most {POINTS_MAX} are allowed")
    if not shapely.is_valid(shape):
        raise ValueError(f"the area is not a valid one: {shapely.is_valid_reason(shape)}")


@lru_cache(maxsize=32)  # one event's geometry is tested by many filters
def _read_place(text: str) -> Any:
    """Return the geometry in an event's text, or None."""
    shapely = _shapely()
    if _kind(text) is None:
        return None
    with _quiet():
        geometry = shapely.from_wkt(text, on_invalid="ignore")
    is_usable = geometry is not None and shapely.get_num_coordinates(geometry) <= PLACE_POINTS_MAX
    return geometry if is_usable and shapely.is_valid(geometry) else None


def _kind(text: str) -> str | None:
    """Return the kind of geometry, in capitals, or None if the text is none that we accept."""
    found = _WKT.fullmatch(text) if len(text) <= WKT_LENGTH_MAX else None
    return found and found[1].upper()


def _quiet() -> Any:
    """Silence numpy's warnings: numbers past the range of a float are refused later."""
    import numpy as np

    return np.errstate(all="ignore")


def _shapely() -> Any:
    try:
        import shapely
    except ImportError as error:
        raise MissingExtra("places (WITHIN)", "geo") from error
    return shapely


def prepare_distance(
    x0: Value, y0: Value, unit: Value | None = None
) -> Callable[[Value, Value], float | None]:
    """Return a function of (x, y): the straight distance from (x0, y0), in the unit of the coordinates.

    With unit 'm' the first coordinate is a latitude and the second a longitude, in degrees, and the distance
    is in metres along a sphere (haversine; the earth is flatter, by up to 0.6 %). Unknown for values that are
    no numbers, and for a latitude past the poles or a place at infinity on the sphere.
    """
    if not (_is_number(x0) and _is_number(y0) and math.isfinite(x0) and math.isfinite(y0)):
        raise ValueError(f"DISTANCE takes the two coordinates of a place, not {x0!r}, {y0!r}")
    if unit is None:
        return _plane_distance(float(x0), float(y0))
    if unit != "m":
        raise ValueError(f"the unit of DISTANCE is 'm' or left out, not {unit!r}")
    if abs(x0) > 90:
        raise ValueError(f"{x0} is no latitude: it is not within -90..90")
    return _sphere_distance(float(x0), float(y0))


def _plane_distance(x0: float, y0: float) -> Callable[[Value, Value], float | None]:
    def distance(x: Value, y: Value) -> float | None:
        if not (_is_number(x) and _is_number(y)):
            return None
        return math.hypot(x - x0, y - y0)

    return distance


def _sphere_distance(latitude0: float, longitude0: float) -> Callable[[Value, Value], float | None]:
    phi0 = math.radians(latitude0)
    cos0 = math.cos(phi0)

    def distance(latitude: Value, longitude: Value) -> float | None:
        if not (_is_number(latitude) and _is_number(longitude)):
            return None
        if not (abs(latitude) <= 90 and math.isfinite(longitude)):
            return None
        phi = math.radians(latitude)
        half_north = math.sin((phi - phi0) / 2)
        half_east = math.sin(math.radians(longitude - longitude0) / 2)
        chord = half_north * half_north + cos0 * math.cos(phi) * half_east * half_east
        return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(chord)))

    return distance


def _is_number(value: Value) -> TypeGuard[int | float]:
    """Whether it is a number that compares: no boolean, no NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
