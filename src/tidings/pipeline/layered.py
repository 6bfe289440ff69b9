"""Layered layout of a drawing: boxes in columns from left to right, each to the right of those before it.

The way of Sugiyama, Tagawa and Toda (1981): columns by the longest way from a beginning; an arrow over
several columns gets a place in each that it crosses; the order in a column follows the mean place of the
neighbours, in some sweeps from both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

SWEEPS = 8
"""Times that the order in the columns, and then the places in it, are improved."""
ACROSS, DOWN = 56.0, 22.0
"""Room between columns, and between the boxes of one."""
LANE_HEIGHT = 6.0
"""Height of the place of an arrow in a column that it crosses."""


class Size(NamedTuple):
    """Size of a box."""

    width: float
    height: float


class Spot(NamedTuple):
    """Place of a box, by its upper left corner, and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Height of the middle."""
        return self.y + self.height / 2


Lane = tuple[str, str, int]
"""Arrow from one box to another, where it crosses a column."""
Place = str | Lane


class Layout(NamedTuple):
    """Spots of the boxes; of each arrow the points by which it goes; and the size of the whole."""

    spots: dict[str, Spot]
    ways: dict[tuple[str, str], list[tuple[float, float]]]
    size: Size


def lay_out(sizes: Mapping[str, Size], after: Mapping[str, Sequence[str]]) -> Layout:
    """Return the places of boxes; `after` has the boxes before each, in an order that has these first."""
    columns, before = _columns(list(sizes), after)
    order = _ordered(columns, before)
    heights = {place: sizes[place].height if isinstance(place, str) else LANE_HEIGHT for place in before}
    tops = _tops(order, before, heights)
    spots: dict[Place, Spot] = {}
    left = 0.0
    for column in order:
        width = max((sizes[place].width for place in column if isinstance(place, str)), default=0.0)
        for place in column:
            own = sizes[place].width if isinstance(place, str) else width
            spots[place] = Spot(left, tops[place], own, heights[place])
        left += width + ACROSS
    boxes = {place: spot for place, spot in spots.items() if isinstance(place, str)}
    high = max((spot.y + spot.height for spot in spots.values()), default=0.0)
    return Layout(boxes, _ways(after, spots), Size(max(0.0, left - ACROSS), high))


def _columns(
    names: Sequence[str], after: Mapping[str, Sequence[str]]
) -> tuple[list[list[Place]], dict[Place, list[Place]]]:
    """Return the columns of boxes and lanes, and for each of these the ones directly before it."""
    depth: dict[str, int] = {}
    for name in names:
        depth[name] = max((depth[one] + 1 for one in after[name]), default=0)
    columns: list[list[Place]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    before: dict[Place, list[Place]] = {}
    for name in names:
        columns[depth[name]].append(name)
        before[name] = []
        for one in after[name]:
            last: Place = one
            for number in range(depth[one] + 1, depth[name]):
                lane = (one, name, number)
                columns[number].append(lane)
                before[lane] = [last]
                last = lane
            before[name].append(last)
    return columns, before


def _ordered(columns: list[list[Place]], before: Mapping[Place, list[Place]]) -> list[list[Place]]:
    order = [list(column) for column in columns]
    behind = _turned(before)
    for sweep in range(SWEEPS):
        is_forward = sweep % 2 == 0
        neighbours = before if is_forward else behind
        for column in order if is_forward else reversed(order):
            at = {place: number for one in order for number, place in enumerate(one)}
            column.sort(key=lambda place: _mean([at[one] for one in neighbours[place]], at[place]))
    return order


def _turned(before: Mapping[Place, list[Place]]) -> dict[Place, list[Place]]:
    behind: dict[Place, list[Place]] = {place: [] for place in before}
    for place, others in before.items():
        for other in others:
            behind[other].append(place)
    return behind


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _tops(
    order: list[list[Place]], before: Mapping[Place, list[Place]], heights: Mapping[Place, float]
) -> dict[Place, float]:
    """Return the upper edges: each box as near to the mean of its neighbours as those above it allow."""
    behind = _turned(before)
    tops: dict[Place, float] = {}
    for column in order:
        tops |= _stacked(column, heights, dict.fromkeys(column, 0.0))
    for sweep in range(SWEEPS):
        neighbours = before if sweep % 2 == 0 else behind
        for column in order if sweep % 2 == 0 else reversed(order):
            wanted = {}
            for place in column:
                middles = [tops[one] + heights[one] / 2 for one in neighbours[place]]
                wanted[place] = _mean(middles, tops[place] + heights[place] / 2) - heights[place] / 2
            tops |= _stacked(column, heights, wanted)
    least = min(tops.values(), default=0.0)
    return {place: top - least for place, top in tops.items()}


def _stacked(
    column: list[Place], heights: Mapping[Place, float], wanted: Mapping[Place, float]
) -> dict[Place, float]:
    """Return the upper edges in a column, none above the end of the one before; all moved up by the mean."""
    tops: dict[Place, float] = {}
    free = float("-inf")
    for place in column:
        tops[place] = max(wanted[place], free)
        free = tops[place] + heights[place] + DOWN
    moved = _mean([tops[place] - wanted[place] for place in column], 0.0)
    return {place: top - moved for place, top in tops.items()}


def _ways(
    after: Mapping[str, Sequence[str]], spots: Mapping[Place, Spot]
) -> dict[tuple[str, str], list[tuple[float, float]]]:
    ways = {}
    lanes = sorted((place for place in spots if not isinstance(place, str)), key=lambda lane: lane[2])
    for name, others in after.items():
        for one in others:
            start, end = spots[one], spots[name]
            points = [(start.x + start.width, start.middle)]
            for lane in lanes:
                if lane[:2] == (one, name):
                    spot = spots[lane]
                    points += [(spot.x, spot.middle), (spot.x + spot.width, spot.middle)]
            ways[one, name] = [*points, (end.x, end.middle)]
    return ways
