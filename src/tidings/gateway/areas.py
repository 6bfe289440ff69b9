"""Areas of networks: upright boxes in the plane, and an index of many boxes.

The unit of the coordinates is unknown, so there is no single right size of cell: a box is filed in at most
four cells of a power of two at least as large as itself, and a search goes through each size in use. A thing
without a box is everywhere and always found.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from math import floor, frexp, inf
from typing import Generic, NamedTuple, TypeVar

from tidings.gateway.messages import Point

LEVEL_MIN = -7
"""The smallest cell is two to this power wide; points are filed there."""

T = TypeVar("T", bound=Hashable)
Cell = tuple[int, int, int]


class AreaBox(NamedTuple):
    """Upright rectangle, its edges included."""

    x_low: float
    y_low: float
    x_high: float
    y_high: float

    def overlaps(self, other: AreaBox) -> bool:
        """Whether they have a point in common."""
        return (
            self.x_low <= other.x_high
            and other.x_low <= self.x_high
            and self.y_low <= other.y_high
            and other.y_low <= self.y_high
        )

    def covers(self, other: AreaBox) -> bool:
        """Whether all of the other lies in this one."""
        return self.hull(other) == self

    def hull(self, other: AreaBox) -> AreaBox:
        """Return the smallest box over both."""
        return AreaBox(
            min(self.x_low, other.x_low),
            min(self.y_low, other.y_low),
            max(self.x_high, other.x_high),
            max(self.y_high, other.y_high),
        )

    @property
    def centre(self) -> tuple[float, float]:
        """Return the point in its middle."""
        return self.x_low / 2 + self.x_high / 2, self.y_low / 2 + self.y_high / 2


EVERYWHERE = AreaBox(-inf, -inf, inf, inf)


def box_of(points: Iterable[Point] | None) -> AreaBox | None:
    """Return the box around a point, a line or a polygon; None, which is everywhere, without a point."""
    corners = [(point.x, point.y) for point in points or ()]
    if not corners:
        return None
    xs, ys = zip(*corners, strict=True)
    return AreaBox(min(xs), min(ys), max(xs), max(ys))


class Areas(Generic[T]):
    """Things by their boxes."""

    def __init__(self) -> None:
        self._boxes: dict[T, AreaBox | None] = {}
        self._everywhere: dict[T, None] = {}
        self._cells: dict[int, dict[Cell, dict[T, AreaBox]]] = {}

    def add(self, thing: T, box: AreaBox | None) -> None:
        """Add a thing, once."""
        assert thing not in self._boxes, "a thing is in one place"
        self._boxes[thing] = box
        if box is None:
            self._everywhere[thing] = None
            return
        level = _level(box)
        cells = self._cells.setdefault(level, {})
        for cell in _cells(box, level):
            cells.setdefault(cell, {})[thing] = box

    def remove(self, thing: T) -> None:
        """Remove a thing; KeyError if it is not there."""
        box = self._boxes.pop(thing)
        if box is None:
            del self._everywhere[thing]
            return
        level = _level(box)
        cells = self._cells[level]
        for cell in _cells(box, level):
            del cells[cell][thing]
            if not cells[cell]:
                del cells[cell]
        if not cells:
            del self._cells[level]

    def near(self, box: AreaBox) -> dict[T, None]:
        """Return all things that overlap a box, each once."""
        found = dict(self._everywhere)
        for level, cells in self._cells.items():
            for things in _looked_at(cells, box, level):
                found.update((thing, None) for thing, its in things.items() if its.overlaps(box))
        return found


def _looked_at(cells: dict[Cell, dict[T, AreaBox]], box: AreaBox, level: int) -> Iterator[dict[T, AreaBox]]:
    """Yield the contents of the cells under a box: of these cells, or of all if there are fewer in all."""
    size = 2.0**level
    count = ((box.x_high - box.x_low) / size + 2) * ((box.y_high - box.y_low) / size + 2)
    if not count < len(cells):  # infinite boxes too
        return iter(cells.values())
    return (cells[cell] for cell in _cells(box, level) if cell in cells)


def _level(box: AreaBox) -> int:
    """Return the power of two of the smallest cell that is as wide and as high as a box."""
    return max(LEVEL_MIN, frexp(max(box.x_high - box.x_low, box.y_high - box.y_low))[1])


def _cells(box: AreaBox, level: int) -> Iterator[Cell]:
    size = 2.0**level
    for column in range(floor(box.x_low / size), floor(box.x_high / size) + 1):
        for row in range(floor(box.y_low / size), floor(box.y_high / size) + 1):
            yield level, column, row
