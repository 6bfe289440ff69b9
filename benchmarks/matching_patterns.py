"""Matching by topic and by pieces of text, beside as many filters for one subject each, in the same run.

Each event matches about one filter of each kind. 'From bytes, new subjects' has the index forget which texts
it has seen before each batch; else the subjects of a batch come again, as those of sensors do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from benchmarks.figures import Report
from benchmarks.matching import BATCH, SEED, best, built
from tidings import Event, Filter
from tidings.event import Batch
from tidings.matching import Index

NAMES = 100
"""Names of each level of a subject."""
TIMES_EXACT_MAX = 5.0
"""How much longer than with exact filters an event may take with topics."""

CHECKED_FILTERS, CHECKED_EVENTS = 1_000, 10

Figures = dict[str, Any]

EXACT = ["subject = 's{i}.r{j}.d{k}'"]
TOPICS = [
    "TOPIC(subject, 's{i}.*.d{k}')",
    "TOPIC(subject, '*.r{j}.d{k}')",
    "TOPIC(subject, 's{i}.r{j}.*')",
    "TOPIC(subject, '*.r{j}.d{k}.>') OR TOPIC(subject, 's{i}.r{j}.*')",
]
PIECES = [
    "CONTAINS(subject, 's{i}.r{j}.')",
    "ENDS_WITH(subject, '.r{j}.d{k}')",
    "subject LIKE '%.r{j}.d{k}' AND value > 0.5",
    "subject LIKE '%s{i}.r{j}.%'",
]


def patterns(size: int, has_targets: bool, report: Report) -> list[Figures]:
    """Measure exact subjects, topics and pieces of text, so many filters of each."""
    rng = random.Random(SEED)
    places = [{"i": i, "j": j, "k": (i + j) % NAMES} for i in range(NAMES) for j in range(NAMES)]
    subjects = ["s{i}.r{j}.d{k}".format(**place) for place in places]
    events = [Event("reading", {"value": rng.random()}, subject=rng.choice(subjects)) for _ in range(BATCH)]
    exact = _measured("exact", _texts(rng, EXACT, places, size), events, None, report)
    found = [exact]
    for name, shapes in (("topics", TOPICS), ("pieces", PIECES)):
        texts = _texts(rng, shapes, places, size)
        found.append(_measured(name, texts, events, exact, report, has_targets and shapes is TOPICS))
    return found


def _texts(rng: random.Random, shapes: list[str], places: list[dict[str, int]], size: int) -> list[str]:
    return [rng.choice(shapes).format(**place) for place in rng.sample(places, size)]


def _measured(
    name: str,
    texts: list[str],
    events: list[Event],
    exact: Figures | None,
    report: Report,
    has_targets: bool = False,
) -> Figures:
    index, _ = built(iter(texts), len(texts))
    raw = Batch.of(events).raw
    matched = index.match_batch(events)
    _check(texts, events, matched)
    figures: Figures = {
        "name": name,
        "filters": len(texts),
        "matches_per_event": round(sum(map(len, matched)) / len(events), 2),
        "us_per_event": _us(lambda: index.match_batch(events), events),
        "us_per_event_from_bytes": _us(lambda: index.match_rows(Batch(raw)), events),
        "us_per_event_new_subjects": _us(lambda: _match_new(index, raw), events),
    }
    line = (
        f"{name:9s} {len(texts):>9,} filters: {figures['us_per_event']:8.2f} µs an event"
        f" ({figures['us_per_event_from_bytes']:.2f} from bytes, {figures['us_per_event_new_subjects']:.2f}"
        f" with new subjects), {figures['matches_per_event']} matches"
    )
    if exact is not None:
        ratios = [figures[part] / exact[part] for part in ("us_per_event", "us_per_event_from_bytes")]
        figures["times_exact"] = round(max(ratios), 2)
        if has_targets:
            figures |= {"times_exact_max": TIMES_EXACT_MAX, "reached": max(ratios) <= TIMES_EXACT_MAX}
            line += f"; target {TIMES_EXACT_MAX:g} × exact {'reached' if figures['reached'] else 'MISSED'}"
        line += f"; {ratios[0]:.1f} × exact, {ratios[1]:.1f} × from bytes"
    report(line)
    return figures


def _us(work: Callable[[], object], events: list[Event]) -> float:
    return round(best(work) / len(events) * 1e6, 2)


def _check(texts: list[str], events: list[Event], matched: list[list[int]]) -> None:
    """A few filters must say themselves what the index has found of them."""
    some = [Filter(text) for text in texts[:CHECKED_FILTERS]]
    for event, keys in zip(events[:CHECKED_EVENTS], matched, strict=False):
        found = {key for key, one in enumerate(some) if one.matches(event)}
        assert found == {key for key in keys if key < len(some)}, "index and filter differ"


def _match_new(index: Index[int], raw: bytes) -> None:
    index.add(-1, Filter("CONTAINS(subject, 'nobody says this')"))  # what was seen is forgotten with it
    index.remove(-1)
    index.match_rows(Batch(raw))
