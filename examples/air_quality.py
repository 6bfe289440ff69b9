"""Addressing by concept: fine dust over 50 µg/m³, in whatever language and unit a sensor reports it.

    python examples/air_quality.py [ADDRESS]

Without an address a node is started in this process, and ends with it. `air_quality.ttl` has the terms.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import sys
from pathlib import Path

import tidings
from tidings import Event, Filter
from tidings.filters import Taxonomy

TAXONOMY = Taxonomy.load(Path(__file__).with_name("air_quality.ttl"))
DUSTY = Filter("IS_A(property, 'fine dust') AND value > 50 'µg/m³'", taxonomy=TAXONOMY)
READINGS = [
    ("quay", "fine dust", 48.0, "µg/m³"),
    ("Hafen", "Feinstaub", 0.06, "mg/m³"),
    ("Hafen", "Ozon", 0.12, "mg/m³"),
    ("gare", "particules fines", 71.5, "ug/m3"),
    ("gare", "particules fines", 0.049, "mg/m³"),
]
"""Station, what was measured, and the value with its unit."""


def main(address: str | None = None) -> None:
    """Publish readings of three stations, and print those with too much dust, in one unit."""
    node = tidings.blocking.connect(address) if address else tidings.blocking.open()
    with node as bus, bus.subscribe(DUSTY, convert={"value": "µg/m³"}) as dusty:
        for station, property, value, unit in READINGS:
            bus.publish(Event("reading", station=station, property=property, value=value, unit=unit))
        for _, event in zip(range(2), dusty, strict=False):
            original = f"{event.get('original.value')} {event.get('original.unit')}"
            print(f"{event['station']}: {event['value']:g} {event['unit']}, reported as {original}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
