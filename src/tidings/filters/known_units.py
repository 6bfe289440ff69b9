"""Spellings of the units that sensors report: the units that a filter with a unit is written out for.

The list has units by what they measure. Each stands for all its usual spellings: with `µ` and `u`, `³` and
`3`, `/m³` and ` m-3`, and the codes of UCUM and SenML. A taxonomy adds units of its own.
"""

from __future__ import annotations

import re
from itertools import product

_UNITS = """
    kg/m³ g/m³ mg/m³ µg/m³ ng/m³ g/L mg/L µg/L
    °C °F K
    Pa hPa kPa MPa mbar bar mmHg inHg atm psi
    nm µm mm cm m km in ft yd mi nmi
    m/s km/h mm/h ft/s mph kn
    µs ms s min h d
    µg mg g kg t oz lb
    mL L m³
    mL/min L/s L/min L/h m³/s m³/h
    cm² m² ha km²
    µW mW W kW MW GW
    J kJ MJ Wh kWh MWh
    µA mA A
    µV mV V kV
    Ω kΩ MΩ
    Hz kHz MHz GHz
    ° rad
    % ‰ ppm ppb
    W/m² kW/m²
    lx klx
    Bq kBq
    nSv/h µSv/h mSv/h Sv/h
    m/s² cm/s² standard_gravity
    µS/cm mS/cm S/m
    µmol/L mmol/L mol/L mol/m³
    B kB MB GB
    bit/s kbit/s Mbit/s Gbit/s B/s kB/s MB/s
    N kN
"""
_MORE = {
    "°C": ("degC", "Cel", "celsius", "℃"),
    "°F": ("degF", "[degF]", "fahrenheit", "℉"),
    "K": ("kelvin",),
    "°": ("deg",),
    "%": ("percent",),
    "km/h": ("kph", "kmh"),
    "mph": ("mi/h",),
    "kn": ("kt", "knot", "knots"),
    "L": ("l",),
    "d": ("day",),
    "standard_gravity": ("g0", "g_n"),
}
_VARIANTS = {
    "µ": ("µ", "μ", "u"),  # the sign of micro, the Greek letter
    "²": ("²", "2", "^2"),
    "³": ("³", "3", "^3"),
    "Ω": ("Ω", "Ω", "ohm"),  # the letter, the sign of ohm
}
_LITRE = re.compile(r"(?<![^m])L(?![a-z])|(?<=/)L")
_QUOTIENT = re.compile(r"([^/]+)/([^/²³]+)([²³]?)")
_POWERS = {"": "1", "²": "2", "³": "3"}


def _spellings(unit: str) -> list[str]:
    """Return the spellings of a unit, the one of the list first."""
    written = [unit]
    if quotient := _QUOTIENT.fullmatch(unit):
        above, below, power = quotient.groups()
        written.append(f"{above} {below}-{_POWERS[power]}")
    written += [_LITRE.sub("l", one) for one in written]
    parts = [re.split(r"([µ²³Ω])", one) for one in (*written, *_MORE.get(unit, ()))]
    ways = [product(*(_VARIANTS.get(part, (part,)) for part in one)) for one in parts]
    return list(dict.fromkeys("".join(way) for one in ways for way in one))


KNOWN_UNITS = {unit: tuple(_spellings(unit)) for unit in _UNITS.split()}
"""The spellings of each unit, by the first of them."""
