"""Units in filters: which spellings are known, and how numbers in one unit become numbers in another.

The definitions are those of pint, with exact factors; it is imported when the first unit is read, as is the
list of known units, since most programs with filters have none. Two units
are alike if they are made of the same base units, so degrees and percent are not, though neither has a
dimension. A unit whose scale is not linear, such as decibels, can't be converted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tidings.errors import FilterError, MissingExtra
from tidings.filters.conversion import Conversion, conversion

if TYPE_CHECKING:
    from fractions import Fraction

UNIT_LENGTH_MAX = 64
"""Characters of a unit."""
UNITS_MAX = 1_000
"""Units that a taxonomy adds."""
UNITS_ALIKE_MAX = 60
"""Units that can be converted to each other: a filter has an alternative for each."""
UNIT_NAME = "unit"
"""Name of the attribute that has the unit of the values beside it."""

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_NAME = r"(?:°?[^\W\d_](?:[^\W\d]|\d+(?=[^\W\d]))*|[%‰°])"
_FACTOR = re.compile(rf"({_NAME})(?:(?:\^|\*\*)?([-⁻]?[\d⁰¹²³⁴-⁹]))?")
_UNIT = re.compile(rf"(?:1/)?{_FACTOR.pattern}(?:\s?[*·/.\s]\s?{_FACTOR.pattern})*")


class Quantity(Struct, frozen=True):
    """A number with its unit, to bind to a name in a filter: `Quantity(50, "µg/m³")`."""

    value: float
    unit: str


class Scale(Struct, frozen=True):
    """A unit in terms of base units: `number * factor + offset`."""

    base: tuple[tuple[str, Fraction], ...]
    factor: Fraction
    offset: Fraction

    def to(self, other: Scale) -> Conversion:
        """Return the conversion to a unit that is alike."""
        return conversion(self.factor / other.factor, (self.offset - other.offset) / other.factor)


class KnownUnit(Struct, frozen=True):
    """A unit with all its spellings."""

    scale: Scale
    spellings: tuple[str, ...]


class Units:
    """The units that values may have: those of `known_units.py` and, by their spellings, `more`; immutable.

    `more` maps a spelling to the unit that it means: `{"mcg/m3": "µg/m³"}`.
    """

    def __init__(self, more: Mapping[str, str] | None = None) -> None:
        """Make the table; FilterError names the place of a unit that is not known or not linear."""
        self.more = dict(more or {})
        self._groups: dict[object, list[KnownUnit]] | None = None
        if len(self.more) > UNITS_MAX:
            raise FilterError(f"$.units: more than {UNITS_MAX} units")
        if self.more:
            self._groups = self._grouped()

    def alike(self, unit: str) -> tuple[KnownUnit, ...]:
        """Return the unit itself and those that can be converted to it; ValueError if it is no unit."""
        scale = self.scale(unit)
        if self._groups is None:
            self._groups = self._grouped()
        group = self._groups.get(scale.base, [])
        if any(unit in known.spellings for known in group):
            return tuple(group)
        return (KnownUnit(scale, (unit,)), *group)

    def scale(self, unit: str) -> Scale:
        """Return the scale of a unit by its spelling; ValueError if it is no unit."""
        return _scale(self.more.get(unit, unit))

    def conversions(self, target: str) -> dict[str, Conversion]:
        """Return for each known spelling how values in it are converted to the target."""
        scale = self.scale(target)
        return {
            spelling: known.scale.to(scale) for known in self.alike(target) for spelling in known.spellings
        }

    def _grouped(self) -> dict[object, list[KnownUnit]]:
        """Return the known units by their base; those of one scale are one, with all its spellings."""
        from tidings.filters.known_units import KNOWN_UNITS

        found: dict[Scale, dict[str, None]] = {}
        for unit, spellings in KNOWN_UNITS.items():
            own = [one for one in spellings if one not in self.more]
            found.setdefault(_scale(unit), {}).update(dict.fromkeys(own))
        for spelling, unit in self.more.items():
            place = f"$.units[{spelling[:UNIT_LENGTH_MAX]!r}]"
            try:
                _check_length(spelling)
                found.setdefault(_scale(unit), {})[spelling] = None
            except ValueError as error:
                raise FilterError(f"{place}: {error}") from None
        groups: dict[object, list[KnownUnit]] = {}
        for scale, names in found.items():
            alike = groups.setdefault(scale.base, [])
            alike.append(KnownUnit(scale, tuple(names)))
            if len(alike) > UNITS_ALIKE_MAX:
                first = next(iter(names))
                raise FilterError(f"$.units: more than {UNITS_ALIKE_MAX} units are of the kind of {first!r}")
        return groups


def unit_name(name: str) -> str:
    """Return the attribute that has the unit of an attribute: `unit` beside it."""
    before, dot, _ = name.rpartition(".")
    return f"{before}{dot}{UNIT_NAME}"


# Definitions, by pint


@lru_cache(maxsize=1)
def _registry() -> Any:
    from fractions import Fraction

    try:
        from pint import UnitRegistry
    except ModuleNotFoundError as error:
        raise MissingExtra("a unit in a filter", "concepts") from error
    registry: Any = UnitRegistry(non_int_type=Fraction)
    registry.define("ppb = 1e-9")
    return registry


@lru_cache(maxsize=1)
def _first_spellings() -> dict[str, str]:
    """Return for each known spelling the one under which its unit is listed."""
    from tidings.filters.known_units import KNOWN_UNITS

    return {spelling: unit for unit, spellings in KNOWN_UNITS.items() for spelling in spellings}


@lru_cache(maxsize=4_096)
def _scale(unit: str) -> Scale:
    """Return the scale of a unit; ValueError if pint does not know it, or its scale is not linear."""
    from fractions import Fraction

    _check_length(unit)
    written = _first_spellings().get(unit, unit)
    if not _UNIT.fullmatch(written):
        raise ValueError(f"{unit!r} is no unit" + _hint(unit))
    registry = _registry()
    try:
        parsed = registry.parse_units(_in_pint(written))
        _, base = registry.get_root_units(parsed)
    except Exception:  # pint has errors of many kinds for what it can't parse: KeyError for year/year
        raise ValueError(f"there is no unit {unit!r}" + _hint(unit)) from None
    try:
        zero, one, two = (registry.convert(Fraction(number), parsed, base) for number in range(3))
        is_linear = isinstance(one, Fraction) and one > zero and two - one == one - zero
    except Exception:  # a logarithm of a fraction is a TypeError, and of 0 another
        is_linear = False
    if not is_linear:
        raise ValueError(f"{unit!r} can't be converted: its scale is not linear")
    exponents = tuple(sorted((name, Fraction(power)) for name, power in base._units.items()))
    return Scale(exponents, one - zero, zero)


def _in_pint(unit: str) -> str:
    """Return the unit as pint reads it: `m³`, `m3` and `m^3` as m**3, a blank, a dot or · as *."""
    powered = _FACTOR.sub(_powered, unit)
    return re.sub(r"\s?[·.\s]\s?", "*", powered)


def _powered(found: re.Match[str]) -> str:
    name, power = found.groups()
    return name if power is None else f"{name}**{power.translate(_SUPERSCRIPTS)}"


def _check_length(unit: str) -> None:
    if not 0 < len(unit) <= UNIT_LENGTH_MAX:
        raise ValueError(f"a unit has 1 to {UNIT_LENGTH_MAX} characters")


def _hint(unit: str) -> str:
    close = get_close_matches(unit, _first_spellings(), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
