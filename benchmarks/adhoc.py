"""Delivery between hosts that meet by chance: the default of the ONE, wanted reliability, and arrays.

All figures but times and rates are counts of simulations that are decided by their seeds. The strategies of
one scenario run over the same meetings. Floods in arrays begin anew after SLICE contacts, since contacts are
cheaper when every host has everything.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.figures import Figure, Report, gather
from tidings.simulator.adhoc_arrays import flood
from tidings.simulator.adhoc_scenarios import adhoc_run
from tidings.simulator.contacts import ContactTrace

SEED = 1
HOSTS = 100
CONTACTS = 10_000_000
PER_STEP = 20
SLICE = 1_000
ROUNDS = 3
HOURS = 12.0
STRATEGIES = ("direct", "epidemic", "acknowledged", "spray", "prophet", "budget")
RELIABILITIES = (0.5, 0.9, 0.99)
RELIABLE: dict[str, Any] = {"scenario": "emma", "buffer": "unlimited", "range": 40.0, "hosts": 30}
"""Where unlimited epidemic delivers nearly everything in an hour."""

Figures = dict[str, Any]


def run(quick: bool, report: Report) -> Figures:
    """Measure everything, telling lines of progress; quick: a sixth of the hours, a tenth of the contacts."""
    report(f"{HOSTS} hosts in arrays, seed {SEED}")
    return gather(_all(quick), {"quick": quick, "seed": SEED}, report)


def _all(quick: bool) -> Iterator[Figure]:
    yield _arrays(CONTACTS // (10 if quick else 1))
    yield from _default_of_the_one(HOURS / (6 if quick else 1), quick)
    yield from _reliability(quick)


def _arrays(contacts: int) -> Figure:
    """Contacts a second of processor time in unlimited epidemic, compiled before."""
    random = np.random.default_rng(SEED)
    one = random.integers(0, HOSTS, contacts, dtype=np.int32)
    other = (one + random.integers(1, HOSTS, contacts, dtype=np.int32)) % HOSTS
    pairs = np.ascontiguousarray(np.sort(np.stack([one, other], axis=1), axis=1))
    steps = np.arange(contacts, dtype=np.int64) // PER_STEP
    names = [str(number) for number in range(HOSTS)]
    slices = [slice(at, at + SLICE) for at in range(0, contacts, SLICE)]
    traces = [ContactTrace(names, steps[each], pairs[each], 20.0) for each in slices]
    flood(traces[0])
    spent = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for trace in traces:
            flood(trace)
        spent.append(time.process_time() - began)
    return Figure("contacts in arrays, unlimited epidemic", "a second", contacts / min(spent), 1e7, {})


def _default_of_the_one(hours: float, quick: bool) -> Iterator[Figure]:
    """Delivery and overhead of all strategies; targets hold for the whole 12 hours only."""
    found, spent = {}, {}
    for strategy in STRATEGIES:
        began = time.process_time()
        found[strategy] = adhoc_run(SEED, scenario="one", strategy=strategy, duration=hours)
        spent[strategy] = time.process_time() - began
    delivery = {name: one["delivery"] or 0.0 for name, one in found.items()}
    overhead = {name: one["overhead"] or 0.0 for name, one in found.items()}
    yield Figure("the ONE's default, delivery: epidemic", "", delivery["epidemic"], None, delivery)
    yield Figure("the ONE's default, overhead: epidemic", "", overhead["epidemic"], None, overhead)

    def figure(name: str, value: float, target: float, less: bool = False) -> Figure:
        return Figure(f"the ONE's default, {name}", "x", value, None if quick else target, {}, less)

    plain = delivery["epidemic"] or 1.0
    yield figure("delivery with acknowledgements over plain epidemic", delivery["acknowledged"] / plain, 1.5)
    yield figure("delivery by budget over plain epidemic", delivery["budget"] / plain, 2.0)
    share = overhead["budget"] / (overhead["epidemic"] or 1.0)
    yield figure("overhead by budget over plain epidemic", share, 0.2, less=True)
    yield figure(
        "delivery by budget over spray and wait", delivery["budget"] / (delivery["spray"] or 1.0), 1.0
    )
    share = overhead["budget"] / (overhead["spray"] or 1.0)
    yield figure("overhead by budget over spray and wait", share, 1.0, less=True)
    yield Figure("the ONE's default, longest run", "s", max(spent.values()), 60.0, spent, less_is_better=True)


def _reliability(quick: bool) -> Iterator[Figure]:
    """Delivery within a life, of messages whose life has ended, beside what unlimited epidemic reaches."""
    hours = 1.2 if quick else 0.0
    best = adhoc_run(SEED, strategy="epidemic", **RELIABLE, duration=hours)["delivery_ended"] or 0.0
    for reliability in RELIABILITIES:
        found = adhoc_run(SEED, strategy="budget", reliability=reliability, **RELIABLE, duration=hours)
        target = None if quick else min(reliability, best) - 0.02
        value = found["delivery_ended"] or 0.0
        copies = (found["copies"] or 0.0) / (found["sent"] or 1.0)
        beside = {"epidemic": best, "copies of a message": copies}
        yield Figure(f"delivery where {reliability:g} is asked for", "", value, target, beside)
