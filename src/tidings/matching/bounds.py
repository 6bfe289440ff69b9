"""Sets of numbers and times as closed intervals of float64.

Open ends move to the next float. An end that no float64 tells exactly (2^53 and beyond) is widened, and said
to be: below it, rounding an integer to float64 never carries it across an end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from tidings.event.values import us_from_time
from tidings.filters.intervals import BEFORE, Intervals

EXACT_MAX: Final = 2.0**53
INFINITY: Final = math.inf

Interval = tuple[float, float]


def intervals_of(
    line: Intervals,
    low_of: Callable[[Any], tuple[float, bool]],
    high_of: Callable[[Any], tuple[float, bool]],
) -> tuple[list[Interval], bool]:
    """The pieces of a set as closed intervals, and whether one had to be widened."""
    ends: list[tuple[float, bool]] = [(-INFINITY, False)] if line.inside else []
    for cut in line.cuts:
        ends.append(high_of(cut) if len(ends) & 1 else low_of(cut))
    if len(ends) & 1:
        ends.append((INFINITY, False))
    lows, highs = ends[::2], ends[1::2]
    return [(low, high) for (low, _), (high, _) in zip(lows, highs, strict=True)], any(
        wide for _, wide in ends
    )


def number_low(cut: tuple[Any, int]) -> tuple[float, bool]:
    """The least float64 from a cut on, and whether that admits more than the cut does."""
    value, side = cut
    bound = _float(value)
    if not -EXACT_MAX < bound < EXACT_MAX or bound != value:
        return math.nextafter(bound, -INFINITY), True
    return (bound if side == BEFORE else math.nextafter(bound, INFINITY)), False


def number_high(cut: tuple[Any, int]) -> tuple[float, bool]:
    """The greatest float64 up to a cut, and whether that admits more than the cut does."""
    value, side = cut
    bound = _float(value)
    if not -EXACT_MAX < bound < EXACT_MAX or bound != value:
        return math.nextafter(bound, INFINITY), True
    return (math.nextafter(bound, -INFINITY) if side == BEFORE else bound), False


def time_low(cut: tuple[datetime, int]) -> tuple[float, bool]:
    """The same for a time, in microseconds."""
    return number_low((us_from_time(cut[0]), cut[1]))


def time_high(cut: tuple[datetime, int]) -> tuple[float, bool]:
    """The same for a time, in microseconds."""
    return number_high((us_from_time(cut[0]), cut[1]))


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(INFINITY, value)
