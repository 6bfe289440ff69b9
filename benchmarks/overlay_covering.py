"""What the covering set of one neighbour costs, beside comparing each filter with all that are announced.

The linear scan runs on SCANNED filters, where it is still bearable. Times are processor time of one run, with
the garbage collector off on both sides: its pauses grow with what else is in memory.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator
from itertools import accumulate

from benchmarks.figures import Figure
from benchmarks.matching import range_texts
from tidings import Filter
from tidings.overlay.covering import CoveringSet
from tidings.steps import finish

SCANNED = 1_000
CHANGED = 500
"""Filters that are removed and added again, one by one."""
TYPES = 1_000
GROWTH_MAX = 3.0
"""Cost of a change among all filters, as a multiple of the cost among a tenth of them."""

_ZIPF = list(accumulate(1 / (rank + 1) for rank in range(TYPES)))
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def covered(size: int, seed: int) -> Iterator[Figure]:
    """Measure building a set, and one change of a large one, for each kind of filter."""
    for name, make in WORKLOADS.items():
        texts = make(random.Random(seed), size)
        wanted = [Filter(text) for text in texts]
        gc.collect()
        gc.disable()
        try:
            yield from _measured(name, wanted)
        finally:
            gc.enable()


def _measured(name: str, wanted: list[Filter]) -> Iterator[Figure]:
    small_size = max(len(wanted) // 10, 1)
    small, _ = _built(_fresh(wanted[:small_size]))
    large, taken = _built(wanted)
    scanned = _fresh(wanted[:SCANNED])
    per_entry, per_scanned = taken / len(wanted), _scanned(scanned) / len(scanned)
    beside = {
        "seconds": taken,
        "µs an entry": per_entry * 1e6,
        "announced": len(large),
        f"linear scan of {len(scanned)}, µs an entry": per_scanned * 1e6,
    }
    yield Figure(f"covering set, built, {name}", "×", per_entry / per_scanned, None, beside, True)
    in_small, in_large = _changed(small, wanted[:small_size]), _changed(large, wanted)
    beside = {"remove and add, µs": in_large * 1e6, f"among {small_size:,}, µs": in_small * 1e6}
    yield Figure(
        f"covering set, one change, beside a tenth, {name}",
        "×",
        in_large / in_small,
        GROWTH_MAX,
        beside,
        True,
    )


def _fresh(wanted: list[Filter]) -> list[Filter]:
    """The same filters without what they have derived already: normal form and text."""
    return [Filter(str(one)) for one in wanted]


def _built(wanted: list[Filter]) -> tuple[CoveringSet, float]:
    made = CoveringSet()
    start = time.process_time()
    for key, one in enumerate(wanted):
        made.add(key, one)
    finish(made.steps())
    made.take_changes()
    return made, time.process_time() - start


def _scanned(wanted: list[Filter]) -> float:
    """Keep the same set by comparing all; check that it is the same."""
    start = time.process_time()
    announced: list[Filter] = []
    for new in wanted:
        if not any(known.covers(new) for known in announced):
            announced = [known for known in announced if not new.covers(known)] + [new]
    taken = time.process_time() - start
    made, _ = _built(wanted)
    assert made.unmerged == len(announced), (made.unmerged, len(announced))
    return taken


def _changed(made: CoveringSet, wanted: list[Filter]) -> float:
    """Return the seconds that it takes to remove a filter and add it again."""
    keys = random.Random(0).sample(range(len(wanted)), min(CHANGED, len(wanted)))
    start = time.process_time()
    for key in keys:
        made.remove(key)
        finish(made.steps())
        made.take_changes()
        made.add(key, wanted[key])
        finish(made.steps())
        made.take_changes()
    return (time.process_time() - start) / len(keys)


# Workloads


def _bounds(rng: random.Random, size: int) -> list[str]:
    kinds = rng.choices(range(TYPES), cum_weights=_ZIPF, k=size)
    return [f"type = 't{kind}' AND value > {rng.random():.6f}" for kind in kinds]


def _word(rng: random.Random, size: int) -> str:
    return "".join(rng.choices(_LETTERS, k=size))


def _topics(rng: random.Random, size: int) -> list[str]:
    """Half patterns and half single topics, of which many fit a pattern."""
    return [
        f"TOPIC(topic, '{_word(rng, 1)}.*.{_word(rng, 2)}')"
        if rng.random() < 0.5
        else f"topic = '{_word(rng, 1)}.{_word(rng, 1)}.{_word(rng, 2)}'"
        for _ in range(size)
    ]


WORKLOADS: dict[str, Callable[[random.Random, int], list[str]]] = {
    "a type and a bound": _bounds,
    "ten ranges": lambda rng, size: list(range_texts(rng, size)),
    "LIKE": lambda rng, size: [f"name LIKE '%{_word(rng, 3)}%{_word(rng, 2)}'" for _ in range(size)],
    "topics": _topics,
}
