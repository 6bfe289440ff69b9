"""Mapping of a recording's columns: `timestamp=time,name=sensor,posx=lon,posy=lat,value:air.pm10=pm10`.

The meaning is on the left, the name of the column on the right:

- `timestamp`, `name` (of the sensor), `posx` and `posy`;
- `value:TYPE`, as often as there are columns of values: each is a reading of that type;
- or `value` and `type`, if each line has the type of its value;
- anything else is a member of the reading by that name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from msgspec import Struct

from tidings.errors import ConfigError
from tidings.gateway.messages import NAME_LENGTH_MAX

PLACE = "--columns"
_ONE_EACH = ("timestamp", "name", "type", "posx", "posy", "value")
_GUESSES: dict[str, tuple[str, ...]] = {
    "timestamp": ("timestamp", "time", "datetime", "date"),
    "name": ("sensor", "sensor_id", "name", "device", "device_id", "station", "id"),
    "posx": ("posx", "lon", "lng", "longitude", "x"),
    "posy": ("posy", "lat", "latitude", "y"),
    "type": ("type", "kind"),
    "value": ("value",),
}
_VALUES = (
    *("pm10", "pm25", "pm2.5", "pm1", "no2", "o3", "so2", "co", "co2"),
    *("temperature", "humidity", "pressure", "noise", "wind", "rain"),
)
"""Names of columns that are taken for values."""
_PAIR = re.compile(r"(?P<target>[^=:]+)(?P<type>:[^=]*)?=(?P<column>.*)", re.DOTALL)


class RecordingColumns(Struct, frozen=True):
    """Columns of a recording by meaning; `values` are pairs of a type and a column."""

    timestamp: str
    name: str
    values: tuple[tuple[str, str], ...] = ()
    value: str | None = None
    type: str | None = None
    posx: str | None = None
    posy: str | None = None
    others: tuple[tuple[str, str], ...] = ()

    @property
    def used(self) -> list[str]:
        """All columns that must be present."""
        single = (self.timestamp, self.name, self.value, self.type, self.posx, self.posy)
        return [name for name in single if name] + [name for _, name in (*self.values, *self.others)]

    def check(self, header: Sequence[str], place: str) -> None:
        """Raise ConfigError if a column is not in the header of a file, or is there twice."""
        for column in self.used:
            if column not in header:
                raise ConfigError(place, column, f"there is no such column; there are {_listed(header)}")
            if list(header).count(column) > 1:
                raise ConfigError(place, column, "there are several columns of that name")

    def __str__(self) -> str:
        single = [(name, getattr(self, name)) for name in _ONE_EACH]
        pairs = [(name, column) for name, column in single if column]
        pairs += [(f"value:{type}", column) for type, column in self.values]
        return ",".join(f"{target}={column}" for target, column in (*pairs, *self.others))


def parse_columns(text: str) -> RecordingColumns:
    """Parse a mapping; ConfigError names the mistake and its place."""
    single: dict[str, str] = {}
    values: dict[str, str] = {}
    others: dict[str, str] = {}
    for number, part in enumerate(text.split(","), 1):
        found = _PAIR.fullmatch(part.strip())
        if found is None or not found["column"].strip():
            _fail(number, part, "must be WHAT=COLUMN, such as timestamp=time or value:air.pm10=pm10")
        target, column, type = found["target"].strip(), found["column"].strip(), found["type"]
        if type is not None and target != "value":
            _fail(number, part, "only value has a type behind a colon")
        home, key = (values, type[1:].strip()) if type is not None else (single, target)
        if type is None and target not in _ONE_EACH:
            home = others
        if not key or len(key) > NAME_LENGTH_MAX:
            _fail(number, part, f"a type has 1 to {NAME_LENGTH_MAX} characters")
        if key in home:
            _fail(number, part, f"{target} is given twice")
        home[key] = column
    return _checked(single, values, others)


def _checked(single: dict[str, str], values: dict[str, str], others: dict[str, str]) -> RecordingColumns:
    for name in ("timestamp", "name"):
        if name not in single:
            raise ConfigError(PLACE, name, f"is missing: which column is the {name}?")
    if ("value" in single) != ("type" in single):
        raise ConfigError(PLACE, "value", "goes with type=COLUMN; or say value:TYPE=COLUMN")
    if bool(values) == ("value" in single):
        problem = (
            "there is value and value:TYPE; use one of them" if values else "is missing: value:TYPE=COLUMN"
        )
        raise ConfigError(PLACE, "value", problem)
    if ("posx" in single) != ("posy" in single):
        raise ConfigError(PLACE, "posx" if "posy" in single else "posy", "is missing: a place has both")
    for name in ("area", "sensing-id"):
        if name in others:
            raise ConfigError(PLACE, name, "is made from other columns, and can't be one")
    return RecordingColumns(**single, values=tuple(values.items()), others=tuple(others.items()))


def guess_columns(header: Sequence[str], place: str) -> RecordingColumns:
    """Return the mapping that the names of the columns suggest; ConfigError if they suggest none."""
    lower = {column.strip().lower(): column for column in reversed(header)}
    found = {
        target: lower[name]
        for target, names in _GUESSES.items()
        if (name := next((name for name in names if name in lower), None)) is not None
    }
    values = {name: lower[name] for name in lower if name in _VALUES}
    if values or not {"type", "value"} <= found.keys():
        found = {target: column for target, column in found.items() if target not in ("type", "value")}
    if not {"posx", "posy"} <= found.keys():
        found = {target: column for target, column in found.items() if target not in ("posx", "posy")}
    if not {"timestamp", "name"} <= found.keys() or not (values or "value" in found):
        raise ConfigError(
            place, "", f"say with --columns which column is what; there are {_listed(header)}"
        ) from None
    ordered = sorted(values.items(), key=lambda pair: list(header).index(pair[1]))
    return RecordingColumns(**found, values=tuple(ordered), others=())


def _listed(header: Sequence[str]) -> str:
    return ", ".join(header) or "none"


def _fail(number: int, part: str, problem: str) -> NoReturn:
    raise ConfigError(f"{PLACE}, entry {number}", part.strip(), problem)
