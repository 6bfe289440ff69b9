"""Generator of a file of readings as citizens' sensors of fine dust would have recorded it, from a seed.

It has the columns of the public archives: timestamp, sensor, location, lat, lon, pm10, pm25. Like a real one
it has sensors that drop out and come back, outliers, and now and then an empty value.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from heapq import merge
from pathlib import Path
from random import Random
from typing import NamedTuple

from tidings.sensors.city import DAY_S, KINDS, Signal

HEADER = ("timestamp", "sensor", "location", "lat", "lon", "pm10", "pm25")
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
EVERY_S = 150.0
"""Mean time between two measurements of a sensor."""
GAPS_PER_DAY = 0.2
GAP_S_MAX = 6 * 3_600.0
EMPTY = 1 / 2_000
"""Share of values that are missing."""


class WrittenRecording(NamedTuple):
    """Summary of a written recording."""

    lines: int
    readings: int
    empty: int


Row = tuple[float, int, tuple[str, ...]]


def make_recording(path: Path, seed: int, sensors: int = 23, days: float = 1.0) -> WrittenRecording:
    """Write the file, compressed if its name ends with .gz; the same arguments give the same bytes."""
    rows = merge(*(_rows_of(Random(f"{seed}/{number}"), number, days) for number in range(sensors)))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    lines = readings = empty = 0
    for _, _, row in rows:
        writer.writerow(row)
        lines += 1
        empty += row[-2:].count("")
        readings += 2 - row[-2:].count("")
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return WrittenRecording(lines, readings, empty)


def _rows_of(random: Random, number: int, days: float) -> Iterator[Row]:
    """Yield the lines of one sensor, in the order of time."""
    sensor = str(10_000 + 137 * number)
    where = (
        str(5_000 + 61 * number),
        f"{random.uniform(57.1, 57.5):.3f}",
        f"{random.uniform(-2.4, -2.0):.3f}",
    )
    signals = [Signal(KINDS[type], random) for type in ("air.pm10", "air.pm25")]
    time_s = random.uniform(0.0, EVERY_S)
    while time_s < days * DAY_S:
        values = ["" if random.random() < EMPTY else f"{signal.next(time_s):.2f}" for signal in signals]
        moment = (BEGIN + timedelta(seconds=int(time_s))).strftime("%Y-%m-%dT%H:%M:%S")
        yield time_s, number, (moment, sensor, *where, *values)
        time_s += random.uniform(0.95, 1.05) * EVERY_S
        if random.random() < GAPS_PER_DAY * EVERY_S / DAY_S:
            time_s += random.uniform(EVERY_S, GAP_S_MAX)
