"""Values of events in the units that a reader wants; the originals stay beside them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from tidings.errors import FilterError
from tidings.event.model import Event
from tidings.event.values import Value
from tidings.filters.kinds import is_number
from tidings.filters.taxonomy import Taxonomy
from tidings.filters.units import unit_name

ORIGINAL = "original."
"""Before the name of an attribute: the value that it had before it was converted."""


class Converter:
    """Function that converts attributes of events: `Converter({"value": "µg/m³"})`.

    It returns the event with the value and its unit in the unit wanted, and what they were as
    `original.value` and `original.unit`. An event is returned as it is if it has that unit, no unit that can
    be converted to it, or no number. Converted values are floats, and meet the comparisons of a filter
    with that unit exactly if the filter takes the event.
    """

    def __init__(self, wanted: Mapping[str, str], taxonomy: Taxonomy | None = None) -> None:
        """Take a unit for each attribute; FilterError if it is none, or another has the same `unit`."""
        units = (taxonomy or Taxonomy()).units
        self._names: dict[str, list[str]] = {}
        self._targets: dict[str, str] = {}
        for name, unit in wanted.items():
            beside = unit_name(name)
            if self._targets.setdefault(beside, unit) != unit:
                raise FilterError(f"{name}: {beside} can't be both {self._targets[beside]!r} and {unit!r}")
            self._names.setdefault(beside, []).append(name)
        try:
            self._tables = {beside: units.conversions(unit) for beside, unit in self._targets.items()}
        except ValueError as error:
            raise FilterError(str(error)) from None

    def __call__(self, event: Event) -> Event:
        """Return the event with its values converted."""
        changes: dict[str, Value] = {}
        originals: dict[str, Value] = {}
        for beside, target in self._targets.items():
            unit = event.values.get(beside)
            if unit == target or not isinstance(unit, str) or unit not in self._tables[beside]:
                continue
            convert = self._tables[beside][unit]
            for name in self._names[beside]:
                value = event.values.get(name)
                if is_number(value):
                    changes |= {name: convert(value), beside: target}
                    originals |= {ORIGINAL + name: value, ORIGINAL + beside: unit}
        if not changes:
            return event
        return structs.replace(event, values={**originals, **event.values, **changes})
