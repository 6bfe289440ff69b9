"""The place of a reading: as JSON has it, and as an event has it.

One point becomes the attributes `posx` and `posy`; two are a line and more the corners of a polygon, and
become the attribute `area`, as the WKT text that the filter function WITHIN reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidings.errors import EventError
from tidings.filters.geometry import PLACE_POINTS_MAX
from tidings.gateway.messages import Point

POINTS_MAX = PLACE_POINTS_MAX - 1
"""Points of an area; a polygon repeats its first one, and filters read no longer ones."""


def points_of(value: object) -> list[Point] | None:
    """The points of an area as decoded from JSON, or None if it is something else; EventError: too many."""
    if not isinstance(value, list):
        return None
    if len(value) > POINTS_MAX:
        raise EventError("$.area", f"an area has at most {POINTS_MAX} points")
    points = [_point_of(one) for one in value]
    return None if None in points else [point for point in points if point is not None]


def _point_of(value: object) -> Point | None:
    if not isinstance(value, dict):
        return None
    x: Any = value.get("x")
    y: Any = value.get("y")
    if type(x) not in (int, float) or type(y) not in (int, float):
        return None
    try:
        return Point(float(x), float(y))
    except OverflowError:  # an int past the range of a float
        return None


def place_attributes(points: Sequence[Point]) -> dict[str, float | str]:
    """The attributes that tell a place; none for no points."""
    if not points:
        return {}
    if len(points) == 1:
        return {"posx": points[0].x, "posy": points[0].y}
    return {"area": area_text(points)}


def area_text(points: Sequence[Point]) -> str:
    """Two points or more as WKT text."""
    if len(points) == 2:
        return f"LINESTRING ({_corners(points)})"
    return f"POLYGON (({_corners([*points, points[0]])}))"


def _corners(points: Sequence[Point]) -> str:
    return ", ".join(f"{point.x!r} {point.y!r}" for point in points)
