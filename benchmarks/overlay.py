"""What many nodes cost: filters that come over few links, covering sets, and events over real links.

The filters are made from SEED and matched on one thread, the two sides of a ratio in turns; times are
processor time, the least of ROUNDS. What goes over links is measured by `overlay_links.py`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks import overlay_links, overlay_rolling, peers
from benchmarks.figures import Figure, Report, gather
from benchmarks.overlay_covering import covered
from tidings import Event, Filter
from tidings.event import Batch
from tidings.matching import Index, prepare
from tidings.node import compiled

SEED = 20261116
ROUNDS = 7
FILTERS = 100_000
LINKS = 4
TYPES = 1_000
BATCH = 1_000
COST_MAX = 1.2
"""Cost of an event with filters of links, as a multiple of the cost with as many local filters."""

Figures = dict[str, Any]


def run(quick: bool, report: Report) -> Figures:
    """Measure everything, telling lines of progress; quick: a tenth of the filters and of the load."""
    prepare()
    size = FILTERS // (10 if quick else 1)
    has_compiled, has_nats = compiled.is_installed(), peers.is_installed("nats")
    report(f"{size:,} filters, {LINKS} links, batches of {BATCH} events, seed {SEED}")
    if not has_nats:
        report("nats-server is not installed: left out")
    facts = {"quick": quick, "compiled": has_compiled, "nats": has_nats, "seed": SEED}
    return gather(_all(size, quick, has_compiled), {**facts, "filters": size, "links": LINKS}, report)


def _all(size: int, quick: bool, has_compiled: bool) -> Iterator[Figure]:
    yield from _indexed(size)
    yield from covered(size, SEED)
    yield from overlay_links.figures(size, quick, has_compiled)
    yield from overlay_rolling.figures(quick, has_compiled)


def wanted(size: int) -> Iterator[Filter]:
    """Filters by type and a bound, as subscribers of readings have them."""
    rng = random.Random(SEED)
    for _ in range(size):
        yield Filter(f"type = 't{rng.randrange(TYPES)}' AND value > {rng.random():.6f}")


def _indexed(size: int) -> Iterator[Figure]:
    """An event against filters under few keys, and against as many filters under keys of their own."""
    local: Index[int] = Index()
    linked: Index[int] = Index()
    for key, one in enumerate(wanted(size)):
        local.add(key, one)
        linked.extend(key % LINKS, one)
    rng = random.Random(SEED)
    events = [Event(f"t{rng.randrange(TYPES)}", {"value": rng.random()}) for _ in range(BATCH)]
    batch = Batch.of(events)
    ways = {"batches": partial(_match_batch, batch), "single events": partial(_match, events)}
    for name, matching in ways.items():
        mine, theirs = least(partial(matching, linked), partial(matching, local))
        beside = {"links, µs an event": mine / BATCH * 1e6, "local, µs an event": theirs / BATCH * 1e6}
        name = f"filters of links beside local ones, {name}"
        yield Figure(name, "×", mine / theirs, COST_MAX, beside, less_is_better=True)


def _match_batch(batch: Batch, index: Index[int]) -> None:
    for _ in index.match_items(batch):
        pass


def _match(events: list[Event], index: Index[int]) -> None:
    for event in events:
        index.match(event)


def least(*works: Callable[[], object]) -> list[float]:
    """Return the least processor time of each of these, run in turns, in seconds."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, taken in zip(works, times, strict=True):
            start = time.process_time()
            work()
            taken.append(time.process_time() - start)
    return [min(taken) for taken in times]
