"""Matching of filters with units, beside an index of their alternatives one by one, in the same run.

A filter with a unit is written out when it is made, so the index should need for it what it needs for its
alternatives as filters of their own, under the same key, and nothing else.
"""

from __future__ import annotations

import random
import time
from typing import Any

from benchmarks import matching
from benchmarks.figures import Report
from benchmarks.matching import BATCH, SEED
from tidings import Event, Filter
from tidings.event import Batch
from tidings.filters import Taxonomy
from tidings.matching import Index

STATIONS = 1_000
UNITS = ("µg/m³", "mg/m³", "ug/m3", "g/m³", "ng/m³")
TURNS = 10
TIMES_MAX = 1.1
"""How much longer than with the alternatives an event may take."""

Figures = dict[str, Any]


def units(size: int, has_targets: bool, report: Report) -> list[Figures]:
    """Measure so many filters with a unit, and their alternatives."""
    rng = random.Random(SEED)
    taxonomy = Taxonomy()
    filters = [
        Filter(
            "station = :station AND value > :limit 'µg/m³'",
            taxonomy=taxonomy,
            station=f"s{rng.randrange(STATIONS)}",
            limit=rng.randrange(1, 200),
        )
        for _ in range(size)
    ]
    events = [_reading(rng, taxonomy) for _ in range(BATCH)]
    whole: Index[int] = Index()
    parted: Index[int] = Index()
    for key, one in enumerate(filters):
        whole.add(key, one)
        for alternative in one.normal:
            parted.extend(key, Filter.from_normal((alternative,)))
    batch = Batch.of(events)
    matched = whole.match_batch(events)
    both = zip(matched, parted.match_batch(events), strict=True)
    assert all(sorted(one) == sorted(other) for one, other in both), "a filter and its alternatives differ"
    whole_us, parted_us = _us_of([whole, parted], batch)
    sizes = [sum(index.memory.values()) for index in (whole, parted)]
    figures: Figures = {
        "name": "units",
        "filters": size,
        "alternatives": sum(len(one.normal) for one in filters),
        "matches_per_event": round(sum(map(len, matched)) / len(events), 2),
        "us_per_event_from_bytes": round(whole_us, 2),
        "us_per_event_alternatives": round(parted_us, 2),
        "times_alternatives": round(whole_us / parted_us, 2),
        "times_memory": round(sizes[0] / sizes[1], 2),
    }
    line = (
        f"units     {size:>9,} filters: {whole_us:8.2f} µs an event, {figures['matches_per_event']} matches;"
        f" {whole_us / parted_us:.2f} × the time and {figures['times_memory']:.2f} × the memory of their"
        f" {figures['alternatives']:,} alternatives"
    )
    if has_targets:
        figures |= {"times_max": TIMES_MAX, "reached": whole_us <= parted_us * TIMES_MAX}
        line += f"; target {TIMES_MAX:g} × {'reached' if figures['reached'] else 'MISSED'}"
    report(line)
    return [figures]


def _us_of(indexes: list[Index[int]], batch: Batch) -> list[float]:
    """Processor time that an event takes in each index: the best of rounds in which they take turns."""
    best = [float("inf")] * len(indexes)
    for _ in range(TURNS * matching.ROUNDS):
        for place, index in enumerate(indexes):
            start = time.thread_time()
            index.match_rows(batch)
            best[place] = min(best[place], time.thread_time() - start)
    return [seconds / len(batch) * 1e6 for seconds in best]


def _reading(rng: random.Random, taxonomy: Taxonomy) -> Event:
    """A reading in one of the units, around the limits."""
    unit = rng.choice(UNITS)
    value = taxonomy.units.conversions(unit)["µg/m³"](rng.randrange(1, 250))
    return Event("reading", station=f"s{rng.randrange(STATIONS)}", value=value, unit=unit)
