"""A condition that Spark has no equal for, tested by tidings itself in Spark's Python workers.

Slower than a condition of Spark's own, and tidings must be installed where the workers run, but with the very
same answers. Times go there as microseconds: as times Spark would hand them over in some time zone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as sf

from tidings.event.model import Event
from tidings.event.values import Value, time_from_us
from tidings.filters.evaluate import Read, Test, Tests
from tidings.filters.tree import Condition, names_in
from tidings.pipeline.held import Names


def tested(condition: Condition, names: Names) -> Column:
    """The condition as a function of all kinds of all names in it."""
    places: list[tuple[str, str]] = []
    columns: list[Column] = []
    for name in sorted(names_in(condition)):
        for letter, column in names.held(name).kinds.items():
            places.append((name, letter))
            columns.append(sf.unix_micros(column) if letter == "t" else column)
    if not columns:
        return sf.lit(None).cast("boolean")
    # Without Arrow: on its way through pandas, an integer that may be NULL would become a float.
    return sf.udf(_test_of(condition, places), "boolean", useArrow=False)(*columns)


class _CellTests(Tests):
    """Tests of an event whose values are the cells, those of header fields too."""

    def named(self, name: str) -> Read:
        return lambda event: event.values.get(name)


def _test_of(condition: Condition, places: list[tuple[str, str]]) -> Callable[..., bool | None]:
    prepared: list[Test] = []  # made by the worker: it can't be sent there

    def test(*cells: Any) -> bool | None:
        if not prepared:
            prepared.append(_CellTests().condition(condition))
        values = {
            name: _value(letter, cell)
            for (name, letter), cell in zip(places, cells, strict=True)
            if cell is not None
        }
        return prepared[0](Event.unchecked(0, "tested", 0, values))

    return test


def _value(letter: str, cell: Any) -> Value:
    if letter == "t":
        return time_from_us(cell)
    value: Value = bytes(cell) if letter == "x" else cell
    return value
