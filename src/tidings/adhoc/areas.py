"""Areas of messages that are for everybody within: polygons in WKT, as WITHIN of filters has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tidings.errors import MissingExtra, UserError
from tidings.filters.geometry import prepare_within

AREAS_KEPT = 256
"""Areas that were read and are kept at hand."""
AREA_LENGTH_MAX = 4_096
"""Characters of an area."""

Place = tuple[float, float]


@lru_cache(AREAS_KEPT)
def _test(area: str) -> Callable[..., bool | None] | None:
    """The test of an area; None if it is none, or can't be read without shapely."""
    try:
        return prepare_within(area)
    except (ValueError, MissingExtra):
        return None


def is_within(area: str, place: Place | None) -> bool:
    """Whether a host at this place is in an area, boundary included; False if one is not known."""
    test = None if place is None else _test(area)
    return test is not None and place is not None and bool(test(*place))


def check_area(area: str) -> None:
    """Raise UserError for what is no area, and MissingExtra without shapely."""
    if len(area) > AREA_LENGTH_MAX:
        raise UserError(f"an area of {len(area)} characters: at most {AREA_LENGTH_MAX} are carried")
    try:
        prepare_within(area)
    except ValueError as error:
        raise UserError(f"{area[:80]!r} is no area: {error}") from None
