"""Rules for plausible readings and for alarms: one small TOML file.

    cell_size = 1000.0            # all types: the grid, in the units of posx and posy
    window_s = 300                # how long a window of the aggregates is

        [default]                     # for all types without a value of their own
    silent_s = 900

    ["air.pm10"]                  # this type and all below it: air.pm10.indoor, too
    low = 0
    high = 1000
    mean_limit = 50

A value that a table lacks is taken from the next more general one, and in the end from `default`.
"""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from tidings.errors import ConfigError

T = TypeVar("T")

DEFAULT = "default"
DURATION_S_MAX = 366 * 86_400.0
"""No window, delay or silence is longer than a year."""


class TypeLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one type; None: no limit."""

    low: float | None = None
    """A value below this is rejected."""
    high: float | None = None
    """A value above this is rejected."""
    mean_limit: float | None = None
    """An alarm if the mean of a window is above it."""
    max_limit: float | None = None
    """An alarm if the greatest value of a window is above it."""
    silent_s: float | None = None
    """An alarm if a sensor has sent nothing for so long; 0: never."""

    def over(self, general: TypeLimits) -> TypeLimits:
        """Return these limits, completed by the more general ones."""
        own = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(general, **own)


class Common(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits for all types."""

    cell_size: float = 1000.0
    """Side of a cell, in the units of posx and posy."""
    window_s: float = 300.0
    late_s: float = 600.0
    """How long a window, and the memory of ids, waits for late readings."""
    future_s: float = 300.0
    """How far the clock of a sensor may be ahead."""


class CityRule(NamedTuple):
    """Limits of a type and all below it, completed by those of the more general ones."""

    type: str
    limits: TypeLimits


class CityRules(Struct, frozen=True):
    """All rules: `by_type` has the most special types first."""

    common: Common = Common()
    default: TypeLimits = TypeLimits()
    by_type: tuple[CityRule, ...] = ()

    @property
    def is_flat(self) -> bool:
        """Whether no named type lies below another one."""
        types = [rule.type for rule in self.by_type]
        return not any(one != other and _is_below(one, other) for one in types for other in types)

    def limits(self, type: str) -> TypeLimits:
        """Return the limits of a type."""
        found = (rule.limits for rule in self.by_type if _is_below(type, rule.type))
        return next(found, self.default)


def read_rules(path: Path) -> CityRules:
    """Read the rules in a file; ConfigError names the file and the problem."""
    try:
        return parse_rules(path.read_text(), str(path))
    except OSError as error:
        raise ConfigError(str(path), "", error.strerror or "can't be read") from None
    except UnicodeDecodeError:
        raise ConfigError(str(path), "", "is no text in UTF-8") from None


def parse_rules(text: str, place: str = "rules") -> CityRules:
    """Parse the rules in a text; ConfigError names the place of a problem."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(place, "", str(error)) from None
    tables = {name: value for name, value in found.items() if isinstance(value, dict)}
    common = _converted(Common, {name: found[name] for name in found if name not in tables}, place)
    check_common(common, place)
    limits = {name: _limits(table, f"{place}, [{name}]") for name, table in tables.items()}
    return CityRules(common, *_inherited(limits))


def _limits(table: dict[str, Any], place: str) -> TypeLimits:
    limits = _converted(TypeLimits, table, place)
    for name, value in msgspec.structs.asdict(limits).items():
        if value is not None and math.isnan(value):
            raise ConfigError(place, name, "is no number")
    if limits.low is not None and limits.high is not None and not limits.low <= limits.high:
        raise ConfigError(place, "low", "is above high")
    if limits.silent_s is not None and not 0 <= limits.silent_s <= DURATION_S_MAX:
        raise ConfigError(place, "silent_s", f"must be 0 to {DURATION_S_MAX:.0f}")
    return limits


def _converted(kind: type[T], table: dict[str, Any], place: str) -> T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(place, "", str(error)) from None


def check_common(common: Common, place: str) -> None:
    """Raise ConfigError if the limits for all types are invalid."""
    if not 0 < common.cell_size < float("inf"):
        raise ConfigError(place, "cell_size", "must be above 0")
    for name, least in (("window_s", 1.0), ("late_s", 0.0), ("future_s", 0.0)):
        if not least <= getattr(common, name) <= DURATION_S_MAX:
            raise ConfigError(place, name, f"must be {least:.0f} to {DURATION_S_MAX:.0f}")


def _inherited(limits: dict[str, TypeLimits]) -> tuple[TypeLimits, tuple[CityRule, ...]]:
    """Return the default, and each table completed by the more general ones; the most special come first."""
    default = limits.pop(DEFAULT, TypeLimits())
    rules: list[CityRule] = []
    for type in sorted(limits, key=len):
        above = (rule.limits for rule in reversed(rules) if _is_below(type, rule.type))
        rules.append(CityRule(type, limits[type].over(next(above, default))))
    return default, tuple(reversed(rules))


def _is_below(type: str, general: str) -> bool:
    return type == general or type.startswith(f"{general}.")
