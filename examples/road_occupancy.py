"""A pattern with absence: a lane that fills up, and from which no car has left within the next minutes.

    python examples/road_occupancy.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import tidings
from tidings import Event, Pattern

BLOCKED = Pattern(
    """
    busy[type = 'road.occupancy' AND occupancy > 0.8]{2}
    THEN NO freed[type = 'road.occupancy' AND occupancy < busy.occupancy / 2]
    WITHIN 5 min BY lane RETURN busy.occupancy AS 'road.blocked' LATE 0 s
    """
)
READINGS = [
    (0, "north", 0.85),
    (1, "south", 0.9),
    (2, "north", 0.9),
    (2, "south", 0.95),
    (4, "south", 0.3),
    (5, "north", 0.7),
    (8, "north", 0.2),
    (9, "south", 0.1),
]
"""Minute, lane and occupancy: the south lane is free again after two minutes, the north lane is not."""


def main(address: str | None = None) -> None:
    """Publish readings of two lanes, and print the one that was blocked."""
    begin = datetime(2026, 5, 1, 8, tzinfo=UTC)
    node = tidings.blocking.connect(address) if address else tidings.blocking.open()
    with node as bus, bus.subscribe(BLOCKED) as blocked:
        for minute, lane, occupancy in READINGS:
            time = begin + timedelta(minutes=minute)
            bus.publish(Event("road.occupancy", lane=lane, occupancy=occupancy, time=time))
        match = next(iter(blocked))
        start = match["start"]
        print(f"{match.subject}: blocked since {start:%H:%M}, {match['busy.occupancy']:.0%} occupied")


if __name__ == "__main__":
    main(*sys.argv[1:2])
