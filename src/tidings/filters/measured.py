"""Comparisons with a unit, written out: one alternative for each unit that the value may have.

`value > 50 'µg/m³'` becomes `unit IN ('ug/m3', 'µg/m³', …) AND value > 50 OR unit IN ('mg/m3', …) AND
value > 0.05 OR …`, so what reads filters needs no units. The rule kept: an alternative is true exactly if the
value, converted, meets the comparison.

Under NOT the comparison is turned round instead of the alternatives, so a value without a known unit meets
neither a comparison nor its opposite: it is unknown, as values of different kinds are.
"""

from __future__ import annotations

from collections.abc import Callable

from tidings.event.values import RESERVED
from tidings.filters import tree
from tidings.filters.bounds import bounded, opposite, ranged
from tidings.filters.conversion import Conversion
from tidings.filters.kinds import is_number
from tidings.filters.units import Units, unit_name

Bounds = Callable[[str, Conversion], "tree.Condition | None"]
"""The condition on an attribute that holds if its conversion meets a comparison; None if no number does."""


def compared(operator: str, left: tree.TreeNode, right: tree.TreeNode) -> tuple[tree.TreeNode, Bounds, str]:
    """Return the attribute, the bounds and the unit of a comparison of which one side is measured."""
    if isinstance(left, tree.Measured):
        left, right, operator = right, left, tree.MIRRORED[operator]
    assert isinstance(right, tree.Measured)
    bound = right.value
    return left, lambda name, convert: bounded(name, operator, bound, convert), right.unit


def between(low: tree.TreeNode, high: tree.TreeNode, at: int) -> tuple[Bounds, str]:
    """Return the bounds and the unit of BETWEEN: that of the second end, which the first may repeat."""
    if not isinstance(high, tree.Measured):
        raise tree.Trouble(at, "the second end of BETWEEN needs a unit, as the first has one")
    if isinstance(low, tree.Measured):
        if low.unit != high.unit:
            raise tree.Trouble(at, f"the ends of BETWEEN have two units, {low.unit!r} and {high.unit!r}")
        first = low.value
    elif isinstance(low, tree.Literal) and is_number(low.value):
        first = low.value
    else:
        raise tree.Trouble(at, "a unit goes with two numbers")
    last = high.value
    return (lambda name, convert: ranged(name, first, last, convert)), high.unit


def written_out(
    node: tree.TreeNode, bounds: Bounds, unit: str, units: Units, is_negated: bool, at: int
) -> tree.Condition:
    """Return the comparison as alternatives; Trouble if it can never be true."""
    if not isinstance(node, tree.Name):
        raise tree.Trouble(at, "only an attribute can be compared with a unit")
    if node.name in RESERVED:
        raise tree.Trouble(at, f"{node.name} is a header field, which has no unit")
    alternatives: list[tree.Condition] = []
    target = units.scale(unit)
    for known in units.alike(unit):
        condition = bounds(node.name, known.scale.to(target))
        if is_negated:
            condition = opposite(node.name, condition)
        if condition is not None:
            has_unit = tree.membership(unit_name(node.name), known.spellings)
            alternatives.append(tree.And((has_unit, condition)))
    if not alternatives:
        raise tree.Trouble(at, "no number meets this condition")
    written = tree.Or(tuple(alternatives)) if len(alternatives) > 1 else alternatives[0]
    return tree.negated(written) if is_negated else written
