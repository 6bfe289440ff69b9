"""How long matching takes: the index over very many filters, and the shelf over very many events.

Every workload is made from SEED, measured beside `reference.py` in the same run, and told with its target.
Times are the best of ROUNDS on one thread; numba compiles before anything is measured, and its time is told.
The reference is run at a size it can manage and extrapolated by the number of filters, which is fair to it:
closures tried one after another take as much for the last as for the first.
"""

from __future__ import annotations

import os
import platform
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import Report, processor
from benchmarks.reference import compiled
from tidings import Event, Filter
from tidings.event import Batch
from tidings.matching import Index, Shelf, prepare

SEED = 20261115
ROUNDS = 5
BATCH = 1000
REFERENCE_FILTERS = 1000
REFERENCE_EVENTS = 50
RANGE_NAMES = [f"a{number}" for number in range(20)]
TYPES = 1000
SIZE = 100_000
"""Filters of all workloads but the ranges, and events on the shelf."""
SIZES = {10_000: 6.0, 100_000: 40.0, 1_000_000: 350.0}
"""Filters of the ranges, with the microseconds an event may take."""
PATTERNS = 10_000
"""Filters by topic and by pieces of text."""
UNITS = 10_000
"""Filters with a unit."""

Figures = dict[str, Any]


def run(quick: bool, report: Report) -> Figures:
    """Measure everything, telling lines of progress; quick: sizes for a look, without targets."""
    from benchmarks.matching_patterns import patterns  # these measure with what is here
    from benchmarks.matching_units import units

    report(f"seed {SEED}, batches of {BATCH} events, best of {ROUNDS} rounds, one thread")
    compile_s = _compile()
    report(f"numba compiled, or loaded what it had compiled before, in {compile_s:.1f} s")
    scale = 10 if quick else 1
    figures: Figures = {
        "seed": SEED,
        "quick": quick,
        "machine": {"python": platform.python_version(), "processor": processor(), "cores": os.cpu_count()},
        "compile_s": round(compile_s, 2),
        "workloads": [],
    }
    size_all = SIZE // scale
    for size, target_us in SIZES.items():
        figures["workloads"] += _ranges(size // scale, None if quick else target_us, quick, report)
    rng = random.Random(SEED)
    texts = _equality_texts(rng, size_all)
    events = [Event(f"t{rng.randrange(TYPES)}", {"value": rng.random()}) for _ in range(BATCH)]
    figures["workloads"] += _matching("equality", texts, events, None if quick else 3.0, report)
    texts = _mixed_texts(rng, size_all)
    events = [_mixed_event(rng) for _ in range(BATCH)]
    figures["workloads"] += _matching("mixed", texts, events, None, report)
    figures["workloads"] += patterns(PATTERNS // scale, not quick, report)
    figures["workloads"] += units(UNITS // scale, not quick, report)
    figures["workloads"] += _shelf(size_all, report)
    return figures


# Workloads


def range_texts(rng: random.Random, count: int) -> Iterator[str]:
    """Ten ranges of width 0.4 out of twenty attributes whose values are uniform in 0..1."""
    for _ in range(count):
        lows = [(name, rng.random() * 0.6) for name in rng.sample(RANGE_NAMES, 10)]
        yield " AND ".join(f"{name} BETWEEN {low:.6f} AND {low + 0.4:.6f}" for name, low in lows)


def range_event(rng: random.Random, **fields: Any) -> Event:
    """An event with all of the attributes."""
    return Event("reading", {name: rng.random() for name in RANGE_NAMES}, **fields)


def _range_events(rng: random.Random) -> list[Event]:
    return [range_event(rng) for _ in range(BATCH)]


def _equality_texts(rng: random.Random, count: int) -> list[str]:
    return [f"type = 't{rng.randrange(TYPES)}' AND value > {rng.random():.6f}" for _ in range(count)]


def _mixed_texts(rng: random.Random, count: int) -> list[str]:
    """Prefixes, lists, booleans, presence and ranges; a tenth has a condition that no index knows."""
    return [rng.choice(_MIXED)(rng) for _ in range(count)]


def _word(rng: random.Random, size: int) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=size))


_MIXED: list[Callable[[random.Random], str]] = [
    lambda rng: f"name LIKE '{_word(rng, 2)}%' AND v1 > {rng.random():.3f}",
    lambda rng: f"name LIKE '{_word(rng, 3)}%'",
    lambda rng: f"city IN ('c{rng.randrange(300)}', 'c{rng.randrange(300)}') AND v2 < {rng.random():.3f}",
    lambda rng: f"city <> 'c{rng.randrange(300)}' AND v1 < {rng.random() / 20:.4f} AND v3 > 0.5",
    lambda rng: f"up = TRUE AND type = 't{rng.randrange(TYPES)}'",
    lambda rng: f"alarm IS NOT NULL AND type = 't{rng.randrange(TYPES)}'",
    lambda rng: f"alarm IS NULL AND priority > 6 AND city = 'c{rng.randrange(300)}'",
    lambda rng: f"v1 BETWEEN {(low := rng.random()):.4f} AND {low + 0.02:.4f} AND v2 > {rng.random():.3f}",
    lambda rng: f"type = 't{rng.randrange(TYPES)}' OR city = 'c{rng.randrange(300)}' AND v3 > 0.9",
    lambda rng: f"v1 + v2 > {1 + rng.random():.3f} AND type = 't{rng.randrange(TYPES)}'",
]


def _mixed_event(rng: random.Random) -> Event:
    attributes: dict[str, object] = {f"v{number}": rng.random() for number in (1, 2, 3)}
    attributes |= {"name": _word(rng, 8), "city": f"c{rng.randrange(300)}", "up": rng.random() < 0.5}
    if rng.random() < 0.1:
        attributes["alarm"] = _word(rng, 5)
    return Event(f"t{rng.randrange(TYPES)}", attributes, priority=rng.randrange(10))


# Measuring


def _ranges(size: int, target_us: float | None, quick: bool, report: Report) -> list[Figures]:
    """Ranges at one size: building from text, batches, and at 100,000 filters one event at a time."""
    rng = random.Random(SEED)
    index, build = built(range_texts(rng, size), size)
    if size == 1_000_000:
        build |= {"target_s": 60.0, "target_mb": 3000.0}
        build["reached"] = build["build_s"] <= 60 and (build["peak_mb"] or 0) <= 3000
    report(
        f"  built {size:,} filters from text in {build['build_s']:.1f} s"
        f" ({build['add_us']:.1f} µs of it adding each), longest pause {build['pause_ms_max']:.0f} ms,"
        f" peak memory {build['peak_mb']} MB{_verdict(build.get('reached'))}"
    )
    events = _range_events(rng)
    texts = list(range_texts(random.Random(SEED), min(size, REFERENCE_FILTERS)))
    figures = _timed("ranges", index, size, texts, events, target_us, report)
    found = [figures, {"name": "build", "filters": size, **build}]
    if size == SIZE // (10 if quick else 1):
        found.append(_single(index, size, events, None if quick else 20.0, report))
    return found


def built(texts: Iterator[str], size: int) -> tuple[Index[int], Figures]:
    """An index of these filters, and what it took; making the texts is not counted."""
    index: Index[int] = Index()
    before = _memory_mb(reset=True)
    parsing = adding = longest = 0.0
    for key, text in enumerate(texts):
        start = time.perf_counter()
        wanted = Filter(text)
        _ = wanted.normal
        middle = time.perf_counter()
        index.add(key, wanted)
        end = time.perf_counter()
        parsing += middle - start
        adding += end - middle
        longest = max(longest, end - middle)
    after = _memory_mb()
    return index, {
        "build_s": round(parsing + adding, 2),
        "parse_us": round(parsing / size * 1e6, 2),
        "add_us": round(adding / size * 1e6, 2),
        "pause_ms_max": round(longest * 1e3, 1),
        "peak_mb": None if before is None or after is None else round(after - before, 1),
    }


def _matching(
    name: str, texts: list[str], events: list[Event], target_us: float | None, report: Report
) -> list[Figures]:
    index, _ = built(iter(texts), len(texts))
    return [_timed(name, index, len(texts), texts[:REFERENCE_FILTERS], events, target_us, report)]


def _timed(
    name: str,
    index: Index[int],
    size: int,
    texts: list[str],
    events: list[Event],
    target_us: float | None,
    report: Report,
) -> Figures:
    """Batches through the index, from Event objects and from bytes, and a few through the reference."""
    batch = Batch.of(events)
    matched = index.match_batch(events)
    batch_us = best(lambda: index.match_batch(events)) / len(events) * 1e6
    rows_us = best(lambda: index.match_rows(batch)) / len(events) * 1e6
    reference_us = _reference_us(texts, events, matched)
    figures: Figures = {
        "name": name,
        "filters": size,
        "matches_per_event": round(sum(map(len, matched)) / len(events), 2),
        "us_per_event": round(batch_us, 2),
        "us_per_event_from_bytes": round(rows_us, 2),
        "reference_filters": len(texts),
        "reference_us_per_event": round(reference_us, 1),
        "reference_us_extrapolated": round(reference_us / len(texts) * size, 1),
        "times_faster": round(reference_us / len(texts) * size / batch_us, 1),
        "index_mb": round(sum(index.memory.values()) / 1e6, 1),
    }
    if target_us is not None:
        figures |= {"target_us": target_us, "reached": batch_us <= target_us}
    report(
        f"{name:9s} {size:>9,} filters: {batch_us:8.2f} µs an event ({rows_us:.2f} from bytes),"
        f" {figures['matches_per_event']} matches; closures {figures['reference_us_extrapolated']:,.0f} µs"
        f" (extrapolated from {len(texts):,}), {figures['times_faster']:,.0f} ×"
        f"{_verdict(figures.get('reached'), target_us)}"
    )
    return figures


def _reference_us(texts: list[str], events: list[Event], matched: list[list[int]]) -> float:
    """Closures of the first filters over a few events; they must find what the index found."""
    tests = [compiled(Filter(text)) for text in texts]
    some = events[:REFERENCE_EVENTS]
    for event, keys in zip(some, matched, strict=False):
        found = {key for key, test in enumerate(tests) if test(event)}
        assert found == {key for key in keys if key < len(tests)}, "index and reference differ"
    return best(lambda: [[test(event) for test in tests] for event in some]) / len(some) * 1e6


def _single(
    index: Index[int], size: int, events: list[Event], target_us: float | None, report: Report
) -> Figures:
    us = best(lambda: [index.match(event) for event in events]) / len(events) * 1e6
    figures: Figures = {"name": "single event", "filters": size, "us_per_event": round(us, 2)}
    if target_us is not None:
        figures |= {"target_us": target_us, "reached": us <= target_us}
    report(
        f"single    {size:>9,} filters: {us:8.2f} µs an event, one at a time"
        f"{_verdict(figures.get('reached'), target_us)}"
    )
    return figures


def _shelf(size: int, report: Report) -> list[Figures]:
    """The last of many stored events, by equality and by range; beside a closure tried on each."""
    rng = random.Random(SEED)
    shelf: Shelf[int, Event] = Shelf()
    events = [Event("job", {"number": number, "value": rng.random()}) for number in range(size)]
    for number, event in enumerate(events):
        shelf.add(number, event, number)
    found: list[Figures] = []
    last = f"number = {size - 1}", f"number > {size - 2}"
    for kind, text in zip(("equality", "range"), last, strict=True):
        wanted = Filter(text)
        assert shelf.first(wanted) == size - 1
        us = best(partial(shelf.first, wanted)) * 1e6
        reference_us = best(partial(_first, events, compiled(wanted))) * 1e6
        report(
            f"shelf     {size:>9,} events:  {us:8.2f} µs to find the last by {kind};"
            f" closure {reference_us:,.0f} µs, {reference_us / us:,.0f} ×"
        )
        found.append(
            {
                "name": f"shelf, {kind}",
                "events": size,
                "us": round(us, 2),
                "reference_us": round(reference_us, 1),
                "times_faster": round(reference_us / us, 1),
            }
        )
    return found


def _first(events: Sequence[Event], test: Callable[[Event], bool]) -> Event | None:
    return next((event for event in events if test(event)), None)


def best(work: Callable[[], object]) -> float:
    """The shortest of ROUNDS times, in seconds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _compile() -> float:
    """Let numba compile, or load, all that is measured."""
    start = time.perf_counter()
    prepare()
    return time.perf_counter() - start


def _verdict(reached: bool | None, target_us: float | None = None) -> str:
    if reached is None:
        return ""
    goal = "" if target_us is None else f" {target_us:g} µs"
    return f"; target{goal} {'reached' if reached else 'MISSED'}"


def _memory_mb(reset: bool = False) -> float | None:
    """The most memory this process has had since the last reset, where Linux tells."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1000
