"""Demand of a filter on sensors: its alternatives, as far as a gateway can know them beforehand.

Of a reading that is yet to be made only its type, network and sensor are known, and perhaps a range for its
value and an area for its place. So of each alternative of a filter's normal form the conditions on these
are kept, and every other condition counts as one that may be true. The rule kept: whatever may match is
wanted, so too much may be requested, never too little.
"""

from __future__ import annotations

from math import inf
from typing import Any

from msgspec import Struct

from tidings.event.model import Event
from tidings.filters import Filter
from tidings.filters.constraint import ANYTHING, Constraint
from tidings.filters.evaluate import EventTest, condition_test
from tidings.filters.geometry import implied_by_within
from tidings.filters.intervals import EVERYTHING, Intervals, between
from tidings.filters.normal import Conjunction
from tidings.filters.tree import Compare, Condition, FunctionCall, Literal, names_in
from tidings.gateway.areas import AreaBox
from tidings.gateway.ranges import WHOLE, RangeSpan, spans_of

SENSING_ID, NAME, VALUE, POSX, POSY, AREA = "sensing-id", "name", "value", "posx", "posy", "area"
PIECES_MAX = 64
"""Separate ranges of one alternative; more are requested as one range over all of them."""


class Want(Struct, frozen=True, eq=False):
    """One alternative of a filter; each is only equal to itself."""

    text: str
    types: Constraint
    ids: Constraint
    names: Constraint
    numbers: Intervals
    spans: tuple[RangeSpan, ...]
    takes_others: bool
    """Whether a value that is no number, or none at all, may match."""
    x: Intervals
    y: Intervals
    type_tests: tuple[EventTest, ...]
    tests: tuple[EventTest, ...]

    @property
    def is_plain(self) -> bool:
        """Whether it is the same for all sensors of a type, except their ranges."""
        is_anywhere = self.x.is_all and self.y.is_all
        return is_anywhere and self.ids.is_anything and self.names.is_anything and not self.tests

    @property
    def box(self) -> AreaBox:
        """Return the box around all places that may match."""
        (x_low, x_high), (y_low, y_high) = _ends(self.x), _ends(self.y)
        return AreaBox(x_low, y_low, x_high, y_high)

    def admits_type(self, type: str) -> bool:
        """Whether readings of a type may match."""
        if not self.types.admits(type):
            return False
        return not self.type_tests or _all_true(self.type_tests, Event(type, {}))

    def admits_sensor(self, sensing_id: str, name: str, type: str, box: AreaBox | None) -> bool:
        """Whether readings of a sensor, whose type is admitted, may match; the value is ignored."""
        if not (self.ids.admits(sensing_id) and self.names.admits(name) and self.meets(box)):
            return False
        return not self.tests or _all_true(self.tests, Event(type, {SENSING_ID: sensing_id, NAME: name}))

    def meets(self, box: AreaBox | None) -> bool:
        """Whether a place that may match lies in a box."""
        if box is None:
            return True
        x, y = between(box.x_low, box.x_high), between(box.y_low, box.y_high)
        return self.x.overlaps(x) and self.y.overlaps(y)

    def clip(self, span: RangeSpan | None) -> RangeSpan | None:
        """Return the wanted part of a sensor's range, or of one that has none; None if nothing is wanted."""
        if span is None:
            return WHOLE if self.spans or self.takes_others else None
        parts = [part for wanted in self.spans if (part := wanted.clip(span))]
        return RangeSpan(min(p.low for p in parts), max(p.high for p in parts)) if parts else None


def wants_of(filter: Filter, text: str) -> list[Want]:
    """Return the wants of each alternative of a filter; those that no reading can match are left out."""
    return [want for one in filter.normal if (want := _want(one, text)) is not None]


def _want(one: Conjunction, text: str) -> Want | None:
    known = one.constraints.get
    value = known(VALUE, ANYTHING)
    takes_others = bool(not value.strings.is_empty or value.booleans or value.missing)
    if value.numbers.is_empty and not takes_others:
        return None
    x, y = _line(known(POSX, ANYTHING)), _line(known(POSY, ANYTHING))
    type_tests, tests = [], []
    for residue in one.residues:
        names = names_in(residue)
        if names <= {"type"}:
            type_tests.append(condition_test(residue))
        elif names <= {"type", SENSING_ID, NAME}:
            tests.append(condition_test(residue))
        else:
            more_x, more_y = _place(residue)
            x, y = x.intersect(more_x), y.intersect(more_y)
    if x.is_empty or y.is_empty:
        return None
    return Want(
        text,
        known("type", ANYTHING),
        known(SENSING_ID, ANYTHING),
        known(NAME, ANYTHING),
        value.numbers,
        spans_of(value.numbers if len(value.numbers.cuts) <= 2 * PIECES_MAX else value.numbers.hull()),
        takes_others,
        x,
        y,
        tuple(type_tests),
        tuple(tests),
    )


def _line(constraint: Constraint) -> Intervals:
    """Return the coordinates a constraint leaves; one that admits something else does not limit the place."""
    numbers = constraint.numbers
    return numbers if constraint == Constraint(numbers) else EVERYTHING


def _place(residue: Condition) -> tuple[Intervals, Intervals]:
    """Return the bounds that a condition which can't be tested here sets to x and y."""
    match residue:
        case FunctionCall("WITHIN", (name,), (area,)) if name == AREA:
            (x, y), _ = implied_by_within(2, area)
            return x.numbers, y.numbers
        case Compare("<" | "<=", FunctionCall("DISTANCE", (x_name, y_name), (x0, y0)), Literal(far)):
            centre = {x_name: x0, y_name: y0}
            if centre.keys() == {POSX, POSY} and isinstance(far, int | float):
                return _around(centre[POSX], far), _around(centre[POSY], far)
    return EVERYTHING, EVERYTHING


def _around(centre: Any, far: float) -> Intervals:
    """Return the coordinates no further away; a little more, since distances are computed with rounding."""
    slack = abs(far) * 1e-9 + abs(centre) * 1e-9
    return between(centre - far - slack, centre + far + slack)


def _all_true(tests: tuple[EventTest, ...], event: Event) -> bool:
    return all(test(event) is True for test in tests)


def _ends(line: Intervals) -> tuple[float, float]:
    (piece,) = line.hull().pieces()
    return -inf if piece.low is None else piece.low, inf if piece.high is None else piece.high
